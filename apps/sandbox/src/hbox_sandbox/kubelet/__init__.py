"""Emulated kubelets."""

from .kubelet import RUN_SECONDS, Kubelets
from .roots import KubeletRoots

__all__ = ["RUN_SECONDS", "KubeletRoots", "Kubelets"]
