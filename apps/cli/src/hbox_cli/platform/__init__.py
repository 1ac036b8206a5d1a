"""The platform on one machine: its processes, kept alive, and the folder in which its state is."""

from .early import ONE_THREAD, Forked, forked
from .layout import Layout, Running
from .supervisor import Api, Plan, Platform

__all__ = ["ONE_THREAD", "Api", "Forked", "Layout", "Plan", "Platform", "Running", "forked"]
