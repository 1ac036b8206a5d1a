"""Replay of a trace through a running platform, measured from outside."""

from .creation import Creation, side_by_side
from .departments import BORROWERS, DEPARTMENTS, OWNER, Lent, TakingBack, deserved, furnish
from .driver import Measured, Options, Progress, Replay
from .fragmentation import FreeNode, Shape, fragmented_milli, shapes_of

__all__ = [
    "BORROWERS",
    "DEPARTMENTS",
    "OWNER",
    "Creation",
    "FreeNode",
    "Lent",
    "Measured",
    "Options",
    "Progress",
    "Replay",
    "Shape",
    "TakingBack",
    "deserved",
    "fragmented_milli",
    "furnish",
    "shapes_of",
    "side_by_side",
]
