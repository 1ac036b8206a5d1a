"""Sessions: a cluster, a policy's plugins, and the journal of what they decide."""

from hbox_common.model import GroupPhase, PodTerm, ResourceQuota, Selector, Spread, Wishes

from .hooks import Key, Plugin, Vote
from .placing import FilterKey, NodePlacement, Placing, filter_key_of
from .session import Eviction, Outcome, Session
from .statement import Operation, Statement

__all__ = [
    "Eviction",
    "FilterKey",
    "GroupPhase",
    "Key",
    "NodePlacement",
    "Operation",
    "Outcome",
    "Placing",
    "Plugin",
    "PodTerm",
    "ResourceQuota",
    "Selector",
    "Session",
    "Spread",
    "Statement",
    "Vote",
    "Wishes",
    "filter_key_of",
]  # fmt: skip
