"""Topology constraints of a gang or a sub-gang, in terms of the present tree.

There are four dialects: Volcano's networkTopology (hard or soft, a highest tier by number or name), HBox's annotation (`bestEffort` is soft, `singleSwitch` is
hard at the lowest tier, `none` ignores the topology in spite of the other dialects), Kueue's annotations and KAI's, both of which name a level by its node
label. If these come with a networkTopology that mirrors the level, its tiers count, and the annotation decides how to choose inside.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hbox_common.model import TopologyMode, TopologyWish
from hbox_common.model.annotations import (
    KAI_PREFERRED,
    KAI_REQUIRED,
    KUEUE_PREFERRED,
    KUEUE_REQUIRED,
    KUEUE_UNCONSTRAINED,
    NETWORK_TOPOLOGY,
    NETWORK_TOPOLOGY_LEVEL,
)
from hbox_common.model.job import wishes_fabric

from ..cluster.entities import Gang, SubGang
from .spread import SpreadLevels
from .tree import Tree

#: The tier of machines that share their leaves, as topology-collector names it.
LEAF_GROUP = "leafgroup"


class Word(StrEnum):
    """What HBox's annotation may say."""

    NONE = "none"
    BEST_EFFORT = "bestEffort"
    SINGLE_SWITCH = "singleSwitch"


@dataclass(frozen=True, slots=True)
class TopologyConstraint:
    hard: bool  #: one domain of at most tier `ceiling`, or nothing
    ceiling: int
    floor: int  #: the lowest tier that is tried
    levels: SpreadLevels
    #: of domains that do, the best by the policy's scores comes before few nodes, as for Volcano's sub-groups
    fullest: bool = False
    #: met by places on one node that is in no domain: it is a leaf of its own. Not for levels by node label, which a node has or does not have.
    met_by_one_node: bool = False

    @property
    def tight(self) -> bool:
        """Best fit before everything else, as in Kueue."""
        return self.levels is not SpreadLevels.LEAVES


def concerned(gang: Gang) -> bool:
    """True if the topology affects the placement of this gang."""
    return wishes_fabric(gang.topology, gang.annotations, gang.sub_gang_policies)


def problem_of(gang: Gang) -> str:
    """The error in a gang's topology constraints, or ""."""
    word = gang.annotations.get(NETWORK_TOPOLOGY)
    if word is not None and word not in tuple(Word):
        return f"TopologyInvalid: annotation {NETWORK_TOPOLOGY} is {word!r}; allowed: {', '.join(Word)}"
    for wish in (gang.topology, *(policy.topology for policy in gang.sub_gang_policies)):
        if wish is not None and wish.highest_tier is not None and wish.highest_tier_name:
            return "TopologyInvalid: networkTopology has both highestTierAllowed and highestTierName; leave one of them out"
    return ""


def constraint_of(tree: Tree, gang: Gang, sub_gang: SubGang | None = None) -> TopologyConstraint | None:
    """None = anywhere. A soft sub-gang may go as far as its gang may (sources: volcano-hypernodes)."""
    top = int(tree.tiers[tree.root])
    if gang.annotations.get(NETWORK_TOPOLOGY) == Word.NONE:
        return None
    if sub_gang is not None and sub_gang.policy is not None:
        wish = sub_gang.policy.topology
        if wish is None:
            return None
        outer = constraint_of(tree, gang)
        limit = outer.ceiling if outer is not None and outer.hard else top
        levels = outer.levels if outer is not None and outer.levels is SpreadLevels.STEPS else SpreadLevels.LEAVES
        fullest = levels is SpreadLevels.LEAVES
        if wish.mode is TopologyMode.HARD:
            return TopologyConstraint(True, _ceiling(tree, wish), _lowest(tree), levels, fullest)
        return TopologyConstraint(False, limit, _lowest(tree), levels, fullest)
    return _gang_constraint(tree, gang.topology, gang.annotations)


def _gang_constraint(tree: Tree, wish: TopologyWish | None, annotations: Mapping[str, str]) -> TopologyConstraint | None:
    top = int(tree.tiers[tree.root])
    match annotations.get(NETWORK_TOPOLOGY):
        case Word.BEST_EFFORT:
            return TopologyConstraint(False, top, _lowest(tree), SpreadLevels.LEAVES)
        case Word.SINGLE_SWITCH:
            tier = _switch_tier(tree, annotations.get(NETWORK_TOPOLOGY_LEVEL))
            return TopologyConstraint(True, tier, _lowest(tree), SpreadLevels.LEAVES, met_by_one_node=True)
    required, preferred = annotations.get(KUEUE_REQUIRED), annotations.get(KUEUE_PREFERRED)
    kueue = required is not None or preferred is not None
    by_label = kueue or KAI_REQUIRED in annotations
    if wish is None:
        level = required or preferred or annotations.get(KAI_REQUIRED) or annotations.get(KAI_PREFERRED)
        if level is not None:
            hard = required is not None or KAI_REQUIRED in annotations
            wish = TopologyWish(TopologyMode.HARD if hard else TopologyMode.SOFT, None, level)
        elif KUEUE_UNCONSTRAINED in annotations:
            return TopologyConstraint(False, top, top, SpreadLevels.NODES)
        else:
            return None
    ceiling = _ceiling(tree, wish)
    levels = SpreadLevels.STEPS if kueue else SpreadLevels.LEAVES
    floor = min(ceiling, top) if kueue else _lowest(tree)
    if wish.mode is TopologyMode.HARD:
        return TopologyConstraint(True, ceiling, floor, levels, met_by_one_node=not by_label)
    return TopologyConstraint(False, top, floor, levels)


def _switch_tier(tree: Tree, level: str | None) -> int:
    """The tier of "one switch": machines that share their leaves, not those of one NVLink domain below. If the level does not exist, or no level is named and
    no tier has the default name, the lowest tier: the strictest."""
    named = [int(tier) for tier, name in zip(tree.tiers, tree.tier_names, strict=True) if name == (level or LEAF_GROUP)]
    return max(named, default=_lowest(tree))


def _lowest(tree: Tree) -> int:
    return int(tree.tiers[0])


def _ceiling(tree: Tree, wish: TopologyWish) -> int:
    """Highest tier allowed. A name that no HyperNode has does not limit, as in Volcano."""
    top = int(tree.tiers[tree.root])
    if wish.highest_tier is not None:
        return wish.highest_tier
    if wish.highest_tier_name:
        named = [int(tier) for tier, name in zip(tree.tiers, tree.tier_names, strict=True) if name == wish.highest_tier_name]
        return max(named, default=top)
    return top
