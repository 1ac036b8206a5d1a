"""Sessions: a cluster, a policy's plugins, and the journal of what they decide."""

from .hooks import Hooks, Key, Plugin, Vote
from .nouns import (
    EVICTABLE,
    HOLDING,
    Cluster,
    DisruptionBudget,
    Gang,
    GroupPhase,
    HyperNode,
    Member,
    PodTerm,
    QueueInfo,
    ResourceQuota,
    Selector,
    Spread,
    Status,
    SubGang,
    SubGangPolicy,
    TopologyMode,
    TopologyWish,
    Wishes,
)
from .placing import Placing, Room
from .session import Eviction, Outcome, Session
from .statement import Operation, Statement

__all__ = [
    "Cluster", "DisruptionBudget", "EVICTABLE", "Eviction", "Gang", "GroupPhase", "HOLDING", "Hooks", "HyperNode", "Key",
    "Member", "Operation", "Outcome", "Placing", "Plugin", "PodTerm", "QueueInfo", "ResourceQuota", "Room", "Selector",
    "Session", "Spread", "Statement", "Status", "SubGang", "SubGangPolicy", "TopologyMode", "TopologyWish", "Vote", "Wishes",
]  # fmt: skip
