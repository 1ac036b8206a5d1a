"""Replay of a trace through a running platform, measured from outside."""

from .driver import Measured, Options, Progress, Replay
from .fragmentation import FreeNode, Shape, fragmented_milli, shapes_of

__all__ = ["FreeNode", "Measured", "Options", "Progress", "Replay", "Shape", "fragmented_milli", "shapes_of"]
