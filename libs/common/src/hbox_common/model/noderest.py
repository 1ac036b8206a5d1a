"""Nodes whose kubelets refuse pods, and for which requests such a node takes none for a while.

A kubelet admits a pod after it was bound, and may refuse it: its device plugin is away, its resources are others than the API shows, its topology manager finds
no NUMA nodes. The pod is Failed then, its controller makes another one, and by all that is known of the node it is the best place still. So the node rests, for
the kind of request that it refused, and for twice as long each time until it admits one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .ids import NodeName
from .resources import Resources

#: No node rests for longer; what says more is a clock that is wrong.
LONGEST_REST_S = 60.0
#: After the first pod that a node's kubelet refused; doubled with each that it refuses when it takes pods again.
FIRST_REST_S = 2.0


def rest_s(failures: int) -> float:
    """For how long a node rests that refused pods so many times in a row, in seconds."""
    return 0.0 if failures < 1 else min(FIRST_REST_S * 2.0 ** min(failures - 1, 30), LONGEST_REST_S)


class RequestKind(StrEnum):
    """Kinds of requests that have no resource of their own; any other kind is the name of the resource that was refused."""

    CARDS = "cards"  #: pods with cards
    ALIGNED = "aligned"  #: pods of which kubelets align something on NUMA nodes: devices, exclusive CPUs, memory
    SELECTED = "selected"  #: pods with a node selector or a required node affinity
    ANY = "any"  #: all pods


@dataclass(frozen=True, slots=True)
class Asked:
    """What a pod asks for, as far as kinds go by it. `requests`: base units."""

    requests: Mapping[str, int]
    cards: bool = False
    aligned: bool = False
    selected: bool = False

    def of_kind(self, kind: str) -> bool:
        """Whether the pod is of this kind."""
        match kind:
            case RequestKind.CARDS:
                return self.cards
            case RequestKind.ALIGNED:
                return self.aligned
            case RequestKind.SELECTED:
                return self.selected
            case RequestKind.ANY:
                return True
            case _:
                return self.requests.get(kind, 0) > 0


@dataclass(frozen=True, slots=True)
class KindRest:
    """A kind of request that a node's kubelet refused: the node takes no such pod before `until`. Times in seconds since the epoch."""

    kind: str  #: a `RequestKind`, or the name of a resource
    failures: int  #: times in a row
    until: float = 0.0
    at: float = 0.0  #: when it refused the last one
    pod: str = ""  #: the last one, namespace/name
    message: str = ""  #: its kubelet's, after the reason
    amounts: Resources = field(default_factory=dict)  #: pods that ask for less of one of these are not concerned
    only: Resources = field(default_factory=dict)  #: where not empty: pods that ask for exactly this alone are concerned

    def lasts(self, now: float) -> bool:
        """Whether the node takes no such pod at that time."""
        return self.failures > 0 and now < self.until <= now + 2 * LONGEST_REST_S

    def concerns(self, asked: Asked) -> bool:
        """Whether a pod that asks for this is one of those that the node does not take."""
        if not asked.of_kind(self.kind):
            return False
        if self.only:
            return asked.requests == self.only
        return all(asked.requests.get(name, 0) >= units for name, units in self.amounts.items())


@dataclass(frozen=True, slots=True)
class NodeRest:
    """What a node's kubelet refuses. `kinds`: empty: it admits pods again.

    `failures` to `message` are those of pods with cards, for readers that know no other kind.
    """

    node: NodeName
    failures: int
    until: float = 0.0
    at: float = 0.0
    pod: str = ""
    message: str = ""
    kinds: tuple[KindRest, ...] = ()

    @property
    def refused(self) -> tuple[KindRest, ...]:
        """What is refused, of older writers too."""
        if self.kinds or not self.failures:
            return self.kinds
        return (KindRest(RequestKind.CARDS, self.failures, self.until, self.at, self.pod, self.message),)

    def lasting(self, now: float) -> tuple[KindRest, ...]:
        """Kinds of which the node takes no pod at that time."""
        return tuple(one for one in self.refused if one.lasts(now))


def node_rest(node: NodeName, kinds: tuple[KindRest, ...]) -> NodeRest:
    """With the fields that older readers go by."""
    cards = next((one for one in kinds if one.kind == RequestKind.CARDS and not one.only), None)
    if cards is None:
        return NodeRest(node, 0, kinds=kinds)
    return NodeRest(node, cards.failures, cards.until, cards.at, cards.pod, cards.message, kinds)
