"""Output about queues: their tree, shares and bars, and the effects of a change of their rules."""

from hbox_common.views.fairshares import Memory, fair_shares
from hbox_common.views.queues import elsewhere, models_named, queue_item, queue_items, tree_rows
from hbox_common.views.shares import share_of

from .bars import LEGEND, bar, scale_of
from .change import Change, change_of, document, effect_lines, unknown_models
from .reading import Reading, dry_run, memory_of, models_of, read

__all__ = [
    "LEGEND",
    "Change",
    "Memory",
    "Reading",
    "bar",
    "change_of",
    "document",
    "dry_run",
    "effect_lines",
    "elsewhere",
    "fair_shares",
    "memory_of",
    "models_named",
    "models_of",
    "queue_item",
    "queue_items",
    "read",
    "scale_of",
    "share_of",
    "tree_rows",
    "unknown_models",
]  # fmt: skip
