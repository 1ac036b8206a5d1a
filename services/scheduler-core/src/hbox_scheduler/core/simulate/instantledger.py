"""A ledger in memory that accepts every plan that is right, at once, and fails loudly on one that is not.

Its books are kept by `hbox_common.model` alone, apart from the scheduler's columns, so that each plan is a check of one against the other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hbox_common.errors import Bug
from hbox_common.events import Placement, Plan, PlanAnswer
from hbox_common.model import (
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    Epoch,
    GroupPhase,
    GroupState,
    Index,
    JobId,
    NodeAllocation,
    NodeName,
    NodeState,
    PodUid,
    Verdict,
    cards_by_model,
    counted_as,
    counts_in,
    name_slices,
    pool_of,
    validate_claim,
)

from ..protocol.limits import Proposals
from ..scheduler import Scheduler


class InstantLedger:
    """The ledger of `scheduler`, with the state of nodes that it needs. Time does not pass unless `now` is set.

    `claims`: live ones by pod; `evicted`: victims of accepted plans that have not left yet; `verdicts`: why jobs wait; `groups`: PodGroups with a minimum;
    `wall_ahead`: seconds since the epoch less `now`.
    """

    def __init__(self, scheduler: Scheduler, *, now: float = 0.0) -> None:
        self.scheduler = scheduler
        self.now = now
        self.wall_ahead = 0.0
        self.evicted: list[Claim] = []
        self.verdicts: dict[JobId, str] = {}
        self.claims: dict[PodUid, Claim] = {}
        self.groups: dict[JobId, GroupState] = {}
        self._nodes: dict[NodeName, NodeState] = {}
        self._health: dict[NodeName, Verdict] = {}
        self._books: dict[NodeName, NodeAllocation] = {}
        self._index = Index(0)
        self._epoch = Epoch(1)

    def open(self, *, frozen: bool = False) -> None:
        """Publish all claims to the scheduler. `frozen`: nothing is accepted until the next call."""
        self.scheduler.on_claims_snapshot(
            epoch=self._epoch, index=self._index, frozen=frozen, claims=tuple(self.claims.values()), now=self.now
        )

    def put_nodes(self, nodes: Iterable[NodeState]) -> None:
        for state in nodes:
            self._nodes[state.name] = state
            self.scheduler.on_node(state)

    def put_verdict(self, verdict: Verdict) -> None:
        self._health[verdict.node] = verdict
        self.scheduler.on_verdict(verdict)

    def put_groups(self, groups: Iterable[GroupState]) -> None:
        """PodGroups with a minimum of resources, as they are now."""
        news = list(groups)
        self.groups.update((group.id, group) for group in news)
        self.scheduler.on_groups(news)

    def step(self) -> Proposals:
        """One cycle: every plan of it is accepted, and every PodGroup that is admitted is Inqueue. Raises Bug for a wrong plan."""
        out = self.scheduler.cycle(self.now, self.now + self.wall_ahead)
        self.verdicts.update((verdict.job, verdict.message) for verdict in out.verdicts)
        entered = [self.groups[job] for job in out.admitted]
        self.put_groups(replace(one, phase=GroupPhase.INQUEUE, revision=one.revision + 1) for one in entered)
        if out.plans or out.more or out.admitted:
            self.accept(out.plans)
        return out

    def hold(self, claims: Iterable[Claim]) -> None:
        """These claims were made by others: their pods hold what they hold, whether it fits or not."""
        found = [replace(claim, slices=self._named(claim)) if claim.slices else claim for claim in claims]
        for claim in found:
            self._books.setdefault(claim.node, NodeAllocation()).book(claim.requests, claim.slices)
            self.claims[claim.pod_uid] = claim
        self._publish_claims(found)

    def _named(self, claim: Claim) -> tuple[CardSlice, ...]:
        node = self._nodes.get(claim.node)
        return claim.slices if node is None else name_slices(claim.slices, node.cards)

    def gone(self, pods: Iterable[PodUid]) -> None:
        """Remove pods that ended, with their claims; `submit` updates their jobs' requests."""
        ended = [self.claims.pop(pod) for pod in pods]
        for claim in ended:
            self._books[claim.node].book(claim.requests, claim.slices, -1)
        self._publish_claims([replace(claim, state=ClaimState.VOID) for claim in ended])

    def accept(self, plans: Sequence[Plan]) -> None:
        """Accept these plans and claim their places. Raises Bug for a plan that is wrong."""
        for plan in plans:
            self.evicted += [self.claims[victim.pod_uid] for victim in plan.victims]
        claims = [claim for plan in plans if not plan.victims for claim in self._claims_of(plan)]
        self._publish_claims(claims)
        self.scheduler.on_answers(
            epoch=self._epoch,
            index=self._index,
            answers=[PlanAnswer(plan=plan.id, job=plan.job, committed=True) for plan in plans],
            now=self.now,
        )

    def _claims_of(self, plan: Plan) -> list[Claim]:
        if plan.bound + len(plan.placements) < plan.min_member:
            raise Bug(f"plan {plan.id} starts {len(plan.placements)} pods beside {plan.bound}, {plan.min_member} are needed")
        claims: list[Claim] = []
        for placement in plan.placements:
            requests = plan.requests[placement.requests]
            books = self._books.setdefault(placement.node, NodeAllocation())
            refusal = validate_claim(
                self._nodes.get(placement.node), self._health.get(placement.node), books, requests, placement.slices
            )
            if refusal is not None:
                raise Bug(f"plan {plan.id}: {placement.pod} does not fit: {refusal.message}")
            books.book(requests, placement.slices)
            claim = Claim(
                id=ClaimId(f"{plan.id}/{placement.pod_uid}"),
                pod_uid=placement.pod_uid,
                namespace=plan.namespace,
                pod=placement.pod,
                job=plan.job,
                plan=plan.id,
                queue=plan.queue,
                priority=plan.priority,
                node=placement.node,
                requests=requests,
                slices=placement.slices,
                state=ClaimState.POSTED,
                min_member=plan.min_member,
                preemptable=plan.preemptable,
                created_at=plan.created_at,
                claimed_at=self.now + self.wall_ahead,
                models=cards_by_model(self._nodes.get(placement.node), placement.slices),
                pool=counts_in(counted_as(pool_of(self._nodes[placement.node].labels)), offline=self._is_offline(placement)),
            )
            if placement.pod_uid in self.claims:
                raise Bug(f"pod {placement.pod} is placed twice")
            self.claims[placement.pod_uid] = claim
            claims.append(claim)
        return claims

    def _is_offline(self, placement: Placement) -> bool:
        booking = self.scheduler.bookings.get(placement.pod_uid)
        return booking is not None and booking.task is not None and booking.task.offline

    def _publish_claims(self, claims: Sequence[Claim]) -> None:
        previous, self._index = self._index, Index(self._index + 1)
        known = self.scheduler.on_claims(epoch=self._epoch, previous=previous, index=self._index, claims=claims, now=self.now)
        assert known
