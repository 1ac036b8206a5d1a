"""Cards of a node: which are free, how much of each, and which a pod gets; `models` has the worth of card models."""

from .cardrules import Bounded, memory_needed
from .cards import (
    ALL,
    TIE_BREAK,
    CardFit,
    bounded_request,
    cores_of,
    free_percent,
    node_cards,
    pick,
    ranked_by_devices,
    seats,
    slices_of,
    usage_of_ranked,
)
from .statefits import DEEP, PodSlices, devices_of, fits_of, layout_of

__all__ = [
    "ALL",
    "DEEP",
    "TIE_BREAK",
    "Bounded",
    "CardFit",
    "PodSlices",
    "bounded_request",
    "cores_of",
    "devices_of",
    "fits_of",
    "free_percent",
    "layout_of",
    "memory_needed",
    "node_cards",
    "pick",
    "ranked_by_devices",
    "seats",
    "slices_of",
    "usage_of_ranked",
]
