"""Nominations: the places for which others leave, remembered until they are taken (as `nominatedNodeName` of a pod in Kubernetes).

A plan with victims claims nothing. What its commit leaves behind is a nomination: the places of its job, and for each victim that moves the place of its
successor. It is no claim, and no sum of claims, cards or queues counts it. Two rules make up its weight: a further plan with victims is judged as if
every nominated place were taken (`evicting`), and a scheduler that starts anew reads here for whom places are kept. A plan without victims is judged on what
is there, whoever is nominated.

A place ends when its pod has a claim or is gone, wherever that claim is; a successor's, when the plan that places it names the pod that moved (`Plan.succeeds`)
or when that pod stays after all. A nomination ends with its last place; when the scheduler gives it up, when a victim may not be evicted, when its job is
withdrawn, and KEPT_S after its commit whatever happens.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from hbox_common.events import HeldNomination
from hbox_common.model import CardSlice, Claim, JobId, NodeName, PlanId, PodUid, QueueName, Resources, amounts_in

#: Beyond the time that a scheduler waits for victims (120 s) and then for successors (60 s): only nominations of schedulers that died last so long.
KEPT_S = 200.0


class Place(NamedTuple):
    """A nominated place of one pod."""

    queue: QueueName
    namespace: str  #: whose quota of cards will pay for it; empty for a successor, whose predecessor pays still
    node: NodeName
    requests: Resources
    slices: tuple[CardSlice, ...]
    amounts: Resources  #: `requests`, and what the slices count by model


def successor_of(pod: PodUid) -> PodUid:
    """Under which name the place of a moved pod's successor is kept: which pod that is, nobody knows yet. No uid contains a slash."""
    return PodUid(f"{pod}/successor")


def places_of(nomination: HeldNomination) -> dict[PodUid, Place]:
    """By pod, and by `successor_of` those that move."""
    plan = nomination.plan
    places = {
        p.pod_uid: Place(
            plan.queue,
            plan.namespace,
            p.node,
            plan.requests[p.requests],
            p.slices,
            amounts_in(pool, plan.requests[p.requests] | models),
        )
        for p, models, pool in zip(plan.placements, nomination.models, _pools(nomination), strict=True)
    }
    victims = {victim.claim: victim for victim in plan.victims}
    for claim in nomination.moved:
        to = victims[claim.id]
        places[successor_of(claim.pod_uid)] = Place(claim.queue, "", to.to, claim.requests, to.slices, claim.amounts)
    return places


def _pools(nomination: HeldNomination) -> tuple[str, ...]:
    """Of each placement; a ledger that did not count by pool noted none."""
    return nomination.pools or ("",) * len(nomination.plan.placements)


@dataclass(slots=True)
class Nominations:
    """`_open`: places that nobody has taken yet, by plan; each pod is in one at most."""

    _of: dict[PlanId, HeldNomination] = field(default_factory=dict)
    _open: dict[PlanId, set[PodUid]] = field(default_factory=dict)
    _plan: dict[PodUid, PlanId] = field(default_factory=dict)
    _changed: dict[PlanId, None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._of)

    def get(self, plan: PlanId) -> HeldNomination | None:
        return self._of.get(plan)

    def add(self, nomination: HeldNomination) -> None:
        plan = nomination.plan.id
        places = places_of(nomination)
        for pod in places:
            self.settle(pod)
        self._of[plan] = nomination
        self._open[plan] = set(places)
        self._plan.update(dict.fromkeys(places, plan))
        self._changed[plan] = None

    def settle(self, pod: PodUid) -> None:
        """The place of this pod, or by `successor_of` of its successor, is nominated no more."""
        plan = self._plan.pop(pod, None)
        if plan is None:
            return
        self._changed[plan] = None
        left = self._open[plan]
        left.discard(pod)
        if not left:
            del self._of[plan], self._open[plan]

    def set_aside(self, plan: PlanId) -> None:
        """It cannot be read: it has ended."""
        self._changed[plan] = None

    def places(self, plan: PlanId) -> frozenset[PodUid]:
        """What is left of a nomination; nothing where it has ended."""
        return frozenset(self._open.get(plan, ()))

    def moves(self, plan: PlanId) -> Iterator[Claim]:
        """The claims of those that move for a nomination and whose successors have no claim yet."""
        nomination, left = self._of.get(plan), self.places(plan)
        if nomination is not None:
            yield from (claim for claim in nomination.moved if successor_of(claim.pod_uid) in left)

    def by_job(self) -> dict[PlanId, JobId]:
        """For whom each is."""
        return {plan: nomination.plan.job for plan, nomination in self._of.items()}

    def overdue(self, now: float) -> list[PlanId]:
        """Those whose time is up."""
        return [plan for plan, nomination in self._of.items() if nomination.until <= now]

    def all(self) -> list[HeldNomination]:
        """As they are now, the oldest first."""
        return [self._now(plan) for plan in self._of]

    def take_changes(self) -> dict[PlanId, HeldNomination | None]:
        """What became of those that changed since the last call; None: it has ended."""
        changed, self._changed = self._changed, {}
        return {plan: self._now(plan) if plan in self._of else None for plan in changed}

    def _now(self, plan: PlanId) -> HeldNomination:
        nomination, left = self._of[plan], self._open[plan]
        whole = nomination.plan
        kept = [
            (p, models, pool)
            for p, models, pool in zip(whole.placements, nomination.models, _pools(nomination), strict=True)
            if p.pod_uid in left
        ]
        moved = tuple(claim for claim in nomination.moved if successor_of(claim.pod_uid) in left)
        if len(kept) == len(whole.placements) and len(moved) == len(nomination.moved):
            return nomination
        return nomination.model_copy(
            update={
                "plan": whole.model_copy(update={"placements": tuple(p for p, *_ in kept)}),
                "models": tuple(models for _, models, _ in kept),
                "pools": tuple(pool for *_, pool in kept) if nomination.pools else (),
                "moved": moved,
            }
        )
