"""Emulated kubelets."""

from .kubelet import RUN_SECONDS, Kubelets

__all__ = ["RUN_SECONDS", "Kubelets"]
