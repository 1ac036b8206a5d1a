"""Sessions: a cluster, a policy's plugins, and the journal of what they decide."""

from hbox_common.model import GroupPhase, PodTerm, ResourceQuota, Selector, Spread, Wishes

from .hooks import Hooks, Key, Plugin, Vote
from .nouns import (
    EVICTABLE,
    HOLDING,
    Cluster,
    DisruptionBudget,
    Gang,
    Member,
    QueueInfo,
    Status,
    SubGang,
)
from .placing import Likeness, Placing, Room, likeness_of
from .session import Eviction, Outcome, Session
from .standing import Standing
from .statement import Operation, Statement

__all__ = [
    "EVICTABLE",
    "HOLDING",
    "Cluster",
    "DisruptionBudget",
    "Eviction",
    "Gang",
    "GroupPhase",
    "Hooks",
    "Key",
    "Likeness",
    "Member",
    "Operation",
    "Outcome",
    "Placing",
    "Plugin",
    "PodTerm",
    "QueueInfo",
    "ResourceQuota",
    "Room",
    "Selector",
    "Session",
    "Spread",
    "Standing",
    "Statement",
    "Status",
    "SubGang",
    "Vote",
    "Wishes",
    "likeness_of",
]  # fmt: skip
