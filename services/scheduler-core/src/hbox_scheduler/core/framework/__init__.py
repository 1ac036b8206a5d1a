"""Sessions: a cluster, a policy's plugins, and the journal of what they decide."""

from hbox_common.model import GroupPhase, PodConstraints, PodTerm, ResourceQuota, Selector, Spread

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
    "PodConstraints",
    "PodTerm",
    "ResourceQuota",
    "Selector",
    "Session",
    "Spread",
    "Statement",
    "Vote",
    "filter_key_of",
]  # fmt: skip
