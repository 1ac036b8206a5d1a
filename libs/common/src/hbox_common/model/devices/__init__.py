"""Cards, and the vendors that HBox supports: values in `cards`, the interface of a vendor in `vendor`, one file per vendor."""

from .adapters import NearAdapters, PathKind, asks_rdma
from .asking import Ask, CardRequest, PodDevices
from .cardids import card_id, is_mig, number_in, short_card, short_cards
from .cards import (
    ALL_CORES,
    MAX_CARDS,
    MAX_INDEX,
    MAX_MEMORY_MIB,
    Card,
    CardAllocation,
    CardSlice,
    CardTraits,
    Profile,
    by_index,
    find_card,
    format_numbered,
    format_slices,
    is_slice,
    name_slices,
    parse_slices,
)
from .cardvendor import check_wishes
from .fitting import Fitted, booked
from .handshake import NODE_LOCK, BindPhase, NodeLock, format_lock, parse_lock
from .labels import DeviceLabel
from .layout import Layout, effective, format_layout, layout_fault, parse_layout, parts_of, relocated
from .modelnames import any_names_model, names_model
from .nvidia import GPU, GPU_CORES, GPU_MEMORY, GPU_MEMORY_PERCENT
from .offer import Offer, Refused
from .registry import VENDORS, Vendors
from .vendor import COMMON_WISHES, NODE_POLICY, SPREAD, Completion, Figures, NodeReport, Quantity, Vendor, whole_number

__all__ = [
    "ALL_CORES",
    "COMMON_WISHES",
    "GPU",
    "GPU_CORES",
    "GPU_MEMORY",
    "GPU_MEMORY_PERCENT",
    "MAX_CARDS",
    "MAX_INDEX",
    "MAX_MEMORY_MIB",
    "NODE_LOCK",
    "NODE_POLICY",
    "SPREAD",
    "VENDORS",
    "Ask",
    "BindPhase",
    "Card",
    "CardAllocation",
    "CardRequest",
    "CardSlice",
    "CardTraits",
    "Completion",
    "DeviceLabel",
    "Figures",
    "Fitted",
    "Layout",
    "NearAdapters",
    "NodeLock",
    "NodeReport",
    "Offer",
    "PathKind",
    "PodDevices",
    "Profile",
    "Quantity",
    "Refused",
    "Vendor",
    "Vendors",
    "any_names_model",
    "asks_rdma",
    "booked",
    "by_index",
    "card_id",
    "check_wishes",
    "effective",
    "find_card",
    "format_layout",
    "format_lock",
    "format_numbered",
    "format_slices",
    "is_mig",
    "is_slice",
    "layout_fault",
    "name_slices",
    "names_model",
    "number_in",
    "parse_layout",
    "parse_lock",
    "parse_slices",
    "parts_of",
    "relocated",
    "short_card",
    "short_cards",
    "whole_number",
]
