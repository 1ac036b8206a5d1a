"""Decides which facts of a node are published, and when. Pure."""

from .facts import holders, node_devices
from .machine import machine
from .nvml import nvml_of
from .publication import Publication

__all__ = ["Publication", "holders", "machine", "node_devices", "nvml_of"]
