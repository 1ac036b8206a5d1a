"""Queues as people see them: their tree, shares and bars, and what a change of their rules would take from whom."""

from .bars import LEGEND, bar, scale_of
from .change import Change, Effect, change_of, effect_of
from .fair import Memory, fair_shares
from .giveback import GiveBack, give_back
from .items import queue_item, queue_items, tree_rows
from .reading import Reading, memory_of, read
from .share import share_of

__all__ = [
    "LEGEND", "Change", "Effect", "GiveBack", "Memory", "Reading", "bar", "change_of", "effect_of", "fair_shares", "give_back", "memory_of", "queue_item",
    "queue_items", "read", "scale_of", "share_of", "tree_rows",
]  # fmt: skip
