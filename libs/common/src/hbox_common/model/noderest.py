"""Rests of nodes whose kubelets refuse pods.

A kubelet admits a pod after the binding, and may refuse it: its device plugin is down, its resources differ from those in the API, or its topology manager
finds no NUMA nodes. The pod becomes Failed, and its controller creates another one. To the scheduler the node still looks like the best place. Therefore the
node rests: it gets no pod with the refused kind of request for a while. The time doubles with each refusal until the kubelet admits such a pod.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .ids import NodeName
from .resources import Resources

#: Maximum duration of a rest. A longer one in a message is due to a wrong clock.
LONGEST_REST_S = 60.0
#: Duration of the rest after the first refusal; doubled with each refusal after the end of a rest.
FIRST_REST_S = 2.0


def rest_s(failures: int) -> float:
    """Duration of a rest in seconds. `failures`: consecutive refusals."""
    return 0.0 if failures < 1 else min(FIRST_REST_S * 2.0 ** min(failures - 1, 30), LONGEST_REST_S)


class RequestKind(StrEnum):
    """Kinds of requests that are no resource; any other kind is the name of the refused resource."""

    CARDS = "cards"  #: pods with cards
    ALIGNED = "aligned"  #: pods with devices, exclusive CPUs or memory that a kubelet aligns on NUMA nodes
    SELECTED = "selected"  #: pods with a node selector or a required node affinity
    ANY = "any"  #: all pods


@dataclass(frozen=True, slots=True)
class PodRequest:
    """The properties of a pod that decide its kinds of requests. `requests`: base units."""

    requests: Mapping[str, int]
    cards: bool = False
    aligned: bool = False
    selected: bool = False

    def of_kind(self, kind: str) -> bool:
        """Whether the pod has this kind of request."""
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
    """A kind of request that a node's kubelet refused: the node gets no such pod before `until`. Times in seconds since the epoch."""

    kind: str  #: a `RequestKind`, or the name of a resource
    failures: int  #: consecutive refusals
    until: float = 0.0
    at: float = 0.0  #: time of the last refusal
    pod: str = ""  #: the pod refused last, namespace/name
    message: str = ""  #: reason and message of the kubelet
    amounts: Resources = field(default_factory=dict)  #: the rest does not apply to pods that request less of one of these
    only: Resources = field(default_factory=dict)  #: if not empty: the rest applies to pods with exactly these requests alone

    def lasts(self, now: float) -> bool:
        """Whether the rest lasts at that time (seconds since the epoch)."""
        return self.failures > 0 and now < self.until <= now + 2 * LONGEST_REST_S

    def concerns(self, asked: PodRequest) -> bool:
        """Whether the rest applies to a pod with these requests."""
        if not asked.of_kind(self.kind):
            return False
        if self.only:
            return asked.requests == self.only
        return all(asked.requests.get(name, 0) >= units for name, units in self.amounts.items())


@dataclass(frozen=True, slots=True)
class NodeRest:
    """The rests of a node. `kinds` is empty if its kubelet admits pods again.

    `failures` to `message` repeat the rest of pods with cards, for older readers, which know no other kind.
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
        """`kinds`; of a message of an older writer, the one kind that its other fields describe."""
        if self.kinds or not self.failures:
            return self.kinds
        return (KindRest(RequestKind.CARDS, self.failures, self.until, self.at, self.pod, self.message),)

    def lasting(self, now: float) -> tuple[KindRest, ...]:
        """The kinds whose rest lasts at that time (seconds since the epoch)."""
        return tuple(one for one in self.refused if one.lasts(now))


def node_rest(node: NodeName, kinds: tuple[KindRest, ...]) -> NodeRest:
    """The node's rests, with the fields that older readers need."""
    cards = next((one for one in kinds if one.kind == RequestKind.CARDS and not one.only), None)
    if cards is None:
        return NodeRest(node, 0, kinds=kinds)
    return NodeRest(node, cards.failures, cards.until, cards.at, cards.pod, cards.message, kinds)
