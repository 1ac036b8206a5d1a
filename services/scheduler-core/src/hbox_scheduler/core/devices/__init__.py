"""Cards of a node: which are free, how much of each, and which a pod takes; what models are worth stands in `models`."""

from .cards import (
    ALL,
    Bounded,
    CardFit,
    bounded_request,
    cores_of,
    free_percent,
    memory_needed,
    pick,
    seats,
    slices_of,
)

__all__ = [
    "ALL",
    "Bounded",
    "CardFit",
    "bounded_request",
    "cores_of",
    "free_percent",
    "memory_needed",
    "pick",
    "seats",
    "slices_of",
]
