"""Claims whose pods leave, and the places that were promised to those for whom they do.

Who asks for room is judged as if all of them were gone and everybody who was promised a place had it: else two plans could count on the same room, and one of
them would have evicted in vain. A promise is no claim: its places are proposed when they are free, and judged as any plan. It lasts until the last of those
who leave for it is gone, and is not kept over a restart.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hbox_common.events import Plan, Victim
from hbox_common.model import (
    CardSlice,
    Claim,
    ClaimId,
    NodeName,
    NodeState,
    PlanId,
    PodUid,
    QueueName,
    Resources,
    cards_by_model,
    charge,
)
from hbox_common.model.resources import add

from .claimrecord import ClaimRecord


@dataclass(frozen=True, slots=True)
class Place:
    """What one pod was promised."""

    queue: QueueName
    namespace: str
    node: NodeName
    requests: Resources
    slices: tuple[CardSlice, ...]
    amounts: Resources  #: `requests`, and what the slices count by model


@dataclass(slots=True)
class Evicting:
    """By claim, by node, and summed up by the queues that the pods are in."""

    used: dict[QueueName, Resources] = field(default_factory=dict)  #: by those who leave
    promised: dict[QueueName, Resources] = field(default_factory=dict)
    _claims: dict[ClaimId, ClaimRecord] = field(default_factory=dict)
    _on: dict[NodeName, dict[ClaimId, ClaimRecord]] = field(default_factory=dict)
    _awaited: Counter[PlanId] = field(default_factory=Counter)  #: how many leave for a plan
    _pods: dict[PlanId, Sequence[PodUid]] = field(default_factory=dict)  #: of promises
    _places: dict[PodUid, Place] = field(default_factory=dict)
    _places_on: dict[NodeName, dict[PodUid, Place]] = field(default_factory=dict)

    def __contains__(self, claim: object) -> bool:
        return claim in self._claims

    def claims(self) -> Collection[ClaimId]:
        return self._claims.keys()

    def on(self, node: NodeName) -> Collection[ClaimRecord]:
        return self._on.get(node, {}).values()

    def places_on(self, node: NodeName) -> Collection[Place]:
        """Those promised there that nobody has taken yet."""
        return self._places_on.get(node, {}).values()

    def places(self) -> Collection[Place]:
        """All that are promised and that nobody has taken yet."""
        return self._places.values()

    def promised_in(self, namespace: str) -> Resources:
        """What of cards was promised to pods of the namespace."""
        promised: Resources = {}
        for place in self._places.values():
            if place.namespace == namespace:
                add(promised, charge(place.requests, place.slices))
        return promised

    def add(self, record: ClaimRecord) -> None:
        """Its pod's eviction was decided."""
        claim = record.claim
        self._claims[claim.id] = self._on.setdefault(claim.node, {})[claim.id] = record
        add(self.used.setdefault(claim.queue, {}), claim.amounts)
        if record.beneficiary:
            self._awaited[record.beneficiary] += 1

    def discard(self, id: ClaimId) -> None:
        """It is gone, or it never left."""
        record = self._claims.pop(id, None)
        if record is None:
            return
        claim, plan = record.claim, record.beneficiary
        del self._on[claim.node][id]
        add(self.used[claim.queue], claim.amounts, -1)
        if plan:
            self._awaited[plan] -= 1
            if not self._awaited[plan]:
                del self._awaited[plan]
                for pod in self._pods.pop(plan, ()):
                    self.taken(pod)

    def promise(self, plan: Plan, moves: Sequence[tuple[Claim, Victim]], nodes: Mapping[NodeName, NodeState]) -> None:
        """The plan's places are kept for it while anybody leaves for it, and so are those to which claims move; these count for their namespaces already."""
        if not self._awaited[plan.id]:
            del self._awaited[plan.id]
            return
        places = {
            p.pod_uid: _place(plan.queue, plan.namespace, p.node, plan.requests[p.requests], p.slices, nodes)
            for p in plan.placements
        }
        places |= {
            victim.pod_uid: _place(claim.queue, "", victim.to, claim.requests, victim.slices, nodes) for claim, victim in moves
        }
        self._pods[plan.id] = list(places)
        for pod, place in places.items():
            self.taken(pod)
            self._places[pod] = self._places_on.setdefault(place.node, {})[pod] = place
            add(self.promised.setdefault(place.queue, {}), place.amounts)

    def forget(self, plan: Plan) -> None:
        """Its pods are asked for anew: what they were promised before does not count any more."""
        for placement in plan.placements:
            self.taken(placement.pod_uid)

    def taken(self, pod: PodUid) -> None:
        """The pod has a claim, or no promise any more."""
        place = self._places.pop(pod, None)
        if place is not None:
            del self._places_on[place.node][pod]
            add(self.promised[place.queue], place.amounts, -1)


def _place(  # noqa: PLR0917  # two call sites above
    queue: QueueName,
    namespace: str,
    node: NodeName,
    requests: Resources,
    slices: tuple[CardSlice, ...],
    nodes: Mapping[NodeName, NodeState],
) -> Place:
    amounts = requests | cards_by_model(nodes.get(node), slices)
    return Place(queue, namespace, node, requests, slices, amounts)
