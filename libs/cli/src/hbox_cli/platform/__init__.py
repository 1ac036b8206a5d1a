"""The platform on one machine: its processes, kept alive, and the folder in which its state is."""

from .layout import Layout, Running
from .supervisor import Api, Plan, Platform

__all__ = ["Api", "Layout", "Plan", "Platform", "Running"]
