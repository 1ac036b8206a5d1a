"""Nominations: the places that victims make free, remembered until they are taken (like `nominatedNodeName` of a pod in Kubernetes).

A plan with victims claims nothing. Its commit leaves a nomination: the places of its job, and for each moved victim the place of its successor. A nomination
is no claim, and no sum of claims, cards or queues counts it. It matters in two cases: a further plan with victims is judged as if every nominated place were
taken (`evicting`), and a scheduler that starts reads from it which places are kept for which job. A plan without victims is judged by the present state,
whatever the nominations.

A place ends when its pod has a claim on any node or is gone; a successor's place ends when the plan that places it names the moved pod (`Plan.succeeds`) or
when that pod stays. A nomination ends with its last place, when the scheduler gives it up, when a victim may not be evicted, when its job is withdrawn, and
in any case KEPT_S after its commit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from hbox_common.events import HeldNomination
from hbox_common.model import CardSlice, Claim, JobId, NodeName, PlanId, PodUid, QueueName, Resources, amounts_in

#: Longer than a scheduler waits for victims (120 s) and then for successors (60 s): only nominations of crashed schedulers last so long.
KEPT_S = 200.0


class Place(NamedTuple):
    """A nominated place of one pod."""

    queue: QueueName
    namespace: str  #: namespace whose quota of cards is charged; empty for a successor: its predecessor is charged still
    node: NodeName
    requests: Resources
    slices: tuple[CardSlice, ...]
    amounts: Resources  #: `requests`, and the slices' amounts by model


def successor_of(pod: PodUid) -> PodUid:
    """Key of the place for a moved pod's successor, whose uid is not known yet. No uid contains a slash."""
    return PodUid(f"{pod}/successor")


def places_of(nomination: HeldNomination) -> dict[PodUid, Place]:
    """Places by pod, or by `successor_of` for pods that move."""
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
    """Pool of each placement; empty in nominations of ledgers that did not count by pool."""
    return nomination.pools or ("",) * len(nomination.plan.placements)


@dataclass(slots=True)
class Nominations:
    """`_open`: places that are not taken yet, by plan; each pod is in one at most."""

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
        """End the nomination of this pod's place, or with `successor_of` of its successor's."""
        plan = self._plan.pop(pod, None)
        if plan is None:
            return
        self._changed[plan] = None
        left = self._open[plan]
        left.discard(pod)
        if not left:
            del self._of[plan], self._open[plan]

    def set_aside(self, plan: PlanId) -> None:
        """End a nomination that cannot be read."""
        self._changed[plan] = None

    def places(self, plan: PlanId) -> frozenset[PodUid]:
        """Remaining places of a nomination; empty if it has ended."""
        return frozenset(self._open.get(plan, ()))

    def moves(self, plan: PlanId) -> Iterator[Claim]:
        """Claims of pods that move for a nomination and whose successors have no claim yet."""
        nomination, left = self._of.get(plan), self.places(plan)
        if nomination is not None:
            yield from (claim for claim in nomination.moved if successor_of(claim.pod_uid) in left)

    def by_job(self) -> dict[PlanId, JobId]:
        """The job of each nomination."""
        return {plan: nomination.plan.job for plan, nomination in self._of.items()}

    def overdue(self, now: float) -> list[PlanId]:
        """Nominations that have expired."""
        return [plan for plan, nomination in self._of.items() if nomination.until <= now]

    def all(self) -> list[HeldNomination]:
        """Current nominations, the oldest first."""
        return [self._now(plan) for plan in self._of]

    def take_changes(self) -> dict[PlanId, HeldNomination | None]:
        """Nominations that changed since the last call; None: ended."""
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
