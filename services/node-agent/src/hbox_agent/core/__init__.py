"""Decides which facts of a node are published, and when. Pure."""

from .facts import holders, node_devices
from .machine import machine
from .nvml import nvml_of
from .telling import Telling

__all__ = ["Telling", "holders", "machine", "node_devices", "nvml_of"]
