"""Claims under eviction, and the places nominated for other pods.

A plan with victims is judged as if all evicted pods were gone and all nominated pods had their places. Otherwise two plans could count on the same places,
and one of them would evict in vain.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from hbox_common.model import ClaimId, NodeName, PodUid, QueueName, Resources, charge
from hbox_common.model.resources import add

from ..claimrecord import ClaimRecord
from .nominations import Place


@dataclass(slots=True)
class Evicting:
    """By claim, by node, and as sums by the pods' queues."""

    used: dict[QueueName, Resources] = field(default_factory=dict)  #: by evicted pods
    nominated: dict[QueueName, Resources] = field(default_factory=dict)  #: by nominated pods
    _claims: dict[ClaimId, ClaimRecord] = field(default_factory=dict)
    _on: dict[NodeName, dict[ClaimId, ClaimRecord]] = field(default_factory=dict)
    _places: dict[PodUid, Place] = field(default_factory=dict)
    _places_on: dict[NodeName, dict[PodUid, Place]] = field(default_factory=dict)

    def __contains__(self, claim: object) -> bool:
        return claim in self._claims

    def claims(self) -> Collection[ClaimId]:
        return self._claims.keys()

    def on(self, node: NodeName) -> Collection[ClaimRecord]:
        return self._on.get(node, {}).values()

    def places_on(self, node: NodeName) -> Collection[Place]:
        """Nominated places on the node that are not taken yet."""
        return self._places_on.get(node, {}).values()

    def places(self) -> Collection[Place]:
        """All nominated places that are not taken yet."""
        return self._places.values()

    def nominations(self) -> Collection[tuple[PodUid, Place]]:
        """All nominated places that are not taken yet, each with its pod."""
        return self._places.items()

    def nominated_in(self, namespace: str) -> Resources:
        """Amounts of cards nominated for pods of the namespace."""
        nominated: Resources = {}
        for place in self._places.values():
            if place.namespace == namespace:
                add(nominated, charge(place.requests, place.slices))
        return nominated

    def add(self, record: ClaimRecord) -> None:
        """Record that the pod's eviction was decided."""
        claim = record.claim
        self._claims[claim.id] = self._on.setdefault(claim.node, {})[claim.id] = record
        add(self.used.setdefault(claim.queue, {}), claim.amounts)

    def discard(self, id: ClaimId) -> None:
        """Drop a claim that is void or whose eviction was reverted."""
        record = self._claims.pop(id, None)
        if record is None:
            return
        claim = record.claim
        del self._on[claim.node][id]
        add(self.used[claim.queue], claim.amounts, -1)

    def nominate(self, pod: PodUid, place: Place) -> None:
        """Keep the place for this pod only."""
        self.settle(pod)
        self._places[pod] = self._places_on.setdefault(place.node, {})[pod] = place
        add(self.nominated.setdefault(place.queue, {}), place.amounts)

    def settle(self, pod: PodUid) -> None:
        """Drop the pod's place: it has a claim, or its nomination ended."""
        place = self._places.pop(pod, None)
        if place is not None:
            del self._places_on[place.node][pod]
            add(self.nominated[place.queue], place.amounts, -1)
