"""Cards, and the makers that HBox knows: values in `cards`, the interface of a vendor in `vendor`, one file a vendor beside it."""

from .cards import (
    ALL_CORES,
    MAX_CARDS,
    MAX_INDEX,
    MAX_MEMORY_MIB,
    Card,
    CardRequest,
    CardSlice,
    format_slices,
    parse_slices,
)
from .nvidia import GPU, GPU_CORES, GPU_MEMORY, GPU_MEMORY_PERCENT
from .registry import VENDORS, Vendors
from .vendor import Figures, Quantity, Vendor, whole_number

__all__ = [
    "ALL_CORES",
    "GPU",
    "GPU_CORES",
    "GPU_MEMORY",
    "GPU_MEMORY_PERCENT",
    "MAX_CARDS",
    "MAX_INDEX",
    "MAX_MEMORY_MIB",
    "VENDORS",
    "Card",
    "CardRequest",
    "CardSlice",
    "Figures",
    "Quantity",
    "Vendor",
    "Vendors",
    "format_slices",
    "parse_slices",
    "whole_number",
]
