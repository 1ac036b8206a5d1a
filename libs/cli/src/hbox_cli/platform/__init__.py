"""The platform on one machine: its processes, kept alive, and the folder in which its state is."""

from .layout import Layout, Running
from .supervisor import Plan, Platform

__all__ = ["Layout", "Plan", "Platform", "Running"]
