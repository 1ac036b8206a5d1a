"""The fabric: domains of nodes by tier, and what gangs want of it."""

from dataclasses import dataclass, field
from enum import StrEnum

from .ids import NodeName


class TopologyMode(StrEnum):
    HARD = "hard"
    SOFT = "soft"


@dataclass(frozen=True, slots=True)
class TopologyWish:
    """PodGroup `networkTopology`: in one domain of at most this tier (hard), or as low as possible (soft). No tier = no limit."""

    mode: TopologyMode
    highest_tier: int | None = None
    highest_tier_name: str = ""


@dataclass(frozen=True, slots=True)
class SubGangPolicy:
    """One entry of PodGroup `subGroupPolicy`: members with equal values of the labels form one sub-gang each."""

    name: str
    labels: tuple[str, ...] = ()  #: matchLabelKeys
    selector: dict[str, str] = field(default_factory=dict)  #: labelSelector.matchLabels
    size: int = 1  #: members of one sub-gang that have to be placed together (subGroupSize)
    min_sub_gangs: int = 0
    topology: TopologyWish | None = None


@dataclass(frozen=True, slots=True)
class HyperNode:
    """A topology domain: its tier (1 = leaf) and what is directly below, resolved to names."""

    name: str
    tier: int
    tier_name: str = ""
    nodes: tuple[NodeName, ...] = ()  #: members of type Node
    children: tuple[str, ...] = ()  #: members of type HyperNode
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FabricGap:
    """A fault in the fabric: `kind` is one word (link-down, rail-swap, miswire ...), `message` describes it."""

    kind: str
    message: str
    host: str = ""
    unit: str = ""  #: the leaf group that it is about
    switch: str = ""
    rails: tuple[int, ...] = ()  #: from 1 on
