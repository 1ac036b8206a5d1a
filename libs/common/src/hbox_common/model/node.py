"""A node as scheduling sees it, and the verdict on its health."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from .devices import Card, CardSlice, asks_rdma
from .devices.cards import find_card
from .ids import CardId, Generation, NodeName
from .resources import CPU, MEMORY, Resources


class TaintEffect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: TaintEffect


@dataclass(frozen=True, slots=True)
class NodeState:
    """What topology-collector knows of one node. `generation` rises whenever anything here changes, also over restarts."""

    name: NodeName
    uid: str
    generation: Generation
    ready: bool
    unschedulable: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    conditions: dict[str, str] = field(default_factory=dict)  #: type -> True | False | Unknown
    allocatable: Resources = field(default_factory=dict)
    cards: tuple[Card, ...] = ()
    #: labels and annotations of the node that vendors' rules read (`VENDORS.facts`)
    device_facts: dict[str, str] = field(default_factory=dict)
    cordoned_by: str = ""  #: who set `unschedulable`, where that is written on the node
    cordon_reason: str = ""
    gone: bool = False  #: the node was deleted; the last word on it
    #: kinds of its cards whose device plugin is HAMi's: it reads on pods which cards to hand over (`devices.handshake`)
    registered: tuple[str, ...] = ()
    #: cards that the node had and does not report now, with their indices, which no other card gets in the meantime
    lost: tuple[Card, ...] = ()
    #: until this time (seconds since the epoch) the node takes no pod that its kubelet may refuse, since node-agent has not reported its kubelet's policy;
    #: 0.0: the node does not wait for a report
    report_due: float = 0.0
    report_missing: bool = (
        False  #: `report_due` has passed without a report: HBox uses the node as one whose kubelet refuses no pod
    )

    def card(self, card: CardId, at: int = -1) -> Card | None:
        """The card with this id; None if the node does not have it now. `at`: the position to try first."""
        return find_card(self.cards, card, at)

    def known_card(self, card: CardId) -> Card | None:
        """As `card`, but also finds cards that the node has lost."""
        return find_card(self.cards, card) or find_card(self.lost, card)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Health-monitor's verdict on one node: whether new work may be placed there, and which parts of it may not be used.

    The scopes, smallest first: a MIG instance or a card (`cards`), a rail (`rails_off`), work on several cards (`multi_gpu`), gangs over several nodes
    (`multi_node`), the node (`healthy`).
    """

    node: NodeName
    generation: Generation
    healthy: bool
    bad_cards: tuple[int, ...] = ()  #: indices of unhealthy cards, for display and for programs older than `cards`
    reason: str = ""
    since: float = 0.0  #: seconds since the epoch
    #: ids of unhealthy cards, in the order of `bad_cards`; cards that the node has lost included
    cards: tuple[CardId, ...] = ()
    #: RDMA adapters (`mlx5_0`) that may not be used: no pod on more than one node uses them, nor a pod that requests RDMA adapters
    rails_off: tuple[str, ...] = ()
    multi_gpu: bool = True  #: whether pods with more than one card may use the node
    multi_node: bool = True  #: whether gangs over more than one node may use the node
    incidents: tuple[str, ...] = ()  #: ids of the open incidents behind it
    boot_id: str = ""  #: of the node's boot that was judged; empty: no agent reported one

    @property
    def restricts(self) -> bool:
        """Whether some work may not use some part of the node."""
        return not (self.healthy and self.multi_gpu and self.multi_node) or bool(self.cards or self.bad_cards or self.rails_off)

    def marks_unhealthy(self, card: Card) -> bool:
        """Whether the verdict lists this card as unhealthy, or the card of which it is a MIG instance."""
        if not self.cards:
            return card.index in self.bad_cards
        return card.id in self.cards or (bool(card.parent) and card.parent_id in self.cards)

    def refusal(self, node: NodeState, requests: Resources, slices: Sequence[CardSlice]) -> str:
        """Why a pod may not use the node, given these cards and only the scopes that concern its own pod; "" if it may."""
        if not self.healthy:
            return self.reason or "unhealthy"
        if len(slices) > 1 and not self.multi_gpu:
            return f"takes no pods with more than one card: {self.reason}"
        if self.rails_off and uses_adapters(node, requests, slices):
            return f"takes no pods that use adapter {', '.join(self.rails_off)}: {self.reason}"
        return ""


def uses_adapters(node: NodeState, requests: Resources, slices: Sequence[CardSlice]) -> bool:
    """Whether a pod uses the RDMA adapters of the node: it requests RDMA, or has all of several cards."""
    return bool(slices) and (asks_rdma(requests) or len(slices) >= len(node.cards) > 1)


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """A node's measured usage at a time, in percent of allocatable, as in `kubectl top nodes`. `at`: seconds since the epoch."""

    node: NodeName
    cpu_percent: float
    memory_percent: float
    at: float


def usage_of(node: NodeName, used: Resources, allocatable: Resources, *, at: float) -> NodeUsage:
    """Percents in tenths: `used` and `allocatable` are in base units."""
    cpu, memory = (round(100.0 * used.get(what, 0) / max(allocatable.get(what, 0), 1), 1) for what in (CPU, MEMORY))
    return NodeUsage(node, cpu, memory, at)
