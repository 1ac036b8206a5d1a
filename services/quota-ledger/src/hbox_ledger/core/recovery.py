"""Recovery of books that are older than the messages published from them: a backup was restored, or a failover lost the last commits.

The streams contain binds that the books lack and that may still be in progress. Without them the ledger would allocate their cards a second time. So each
becomes a claim again before anything is planned, and is revoked: the binder's outcome, or a fact of the pod, determines what became of it. Its plan was
committed, and is answered so again. A bind contains only the pod's cards, not its other requests; a pod that is found bound is booked again with everything
that it holds.

Binds long past their deadline are no longer executed, and those that were have ended; their pods are in the list that opens the books.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hbox_common.events import Bind, PlanAnswer
from hbox_common.model import Claim, ClaimId, ClaimState, Epoch, Index, NodeState, PodUid, Resources, SchedulerId
from hbox_common.model.bounds import INT32_MAX
from hbox_common.model.devices import VENDORS
from hbox_common.model.resources import PODS

from . import lifecycle
from .claimrecord import ClaimRecord, Decision
from .decisions import take_back
from .ledgerstate import LedgerState
from .step import Step, StoredAnswer

#: How long after its deadline a bind that was begun may still reach the API server.
UNDER_WAY_S = 120.0

#: Which scheduler's plan it was is in no bind; answers are found by their plans.
NO_SCHEDULER = SchedulerId("")

_REASON = "the books are older than this binding: they were restored, or lost their end"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in the ledger's history."""

    epoch: Epoch
    index: Index


BEGINNING = Position(Epoch(0), Index(0))


@dataclass(frozen=True, slots=True)
class StreamHistory:
    """What the streams remember of the ledgers before this one."""

    position: Position = BEGINNING
    #: of the last hour and more, in the order in which they were decided; needed where the books are older
    binds: tuple[Bind, ...] = ()


def adopt(state: LedgerState, step: Step, binds: Sequence[Bind], known: Collection[ClaimId]) -> int:
    """Enter the binds that the books do not know, and that may be under way. `known`: claims of the database, void ones too. Returns how many."""
    last: dict[PodUid, Bind] = {}
    for bind in binds:
        if bind.claim not in known and (bind.deadline == 0 or bind.deadline + UNDER_WAY_S > step.now):
            last[bind.pod_uid] = bind  # a pod gets a claim when its last one has ended
    for bind in last.values():
        holder = state.by_pod.get(bind.pod_uid)
        if holder is not None:
            message = "its pod was given another claim, in what the books have lost"
            lifecycle.end(state, step, state.live[holder], actor="quota-ledger", cause=message)
        record = _record(bind, state.nodes.get(bind.node), step.now)
        state.enter(step, record, actor="quota-ledger", cause="was decided, and is missing from the books")
        take_back(state, step, record, _REASON)
    for plan, job in {bind.plan: bind.job for bind in last.values()}.items():
        step.stored.append(StoredAnswer(NO_SCHEDULER, PlanAnswer(plan=plan, job=job, committed=True)))
    return len(last)


def _record(bind: Bind, node: NodeState | None, now: float) -> ClaimRecord:
    asked: Resources = {PODS: 1}
    if bind.slices:
        vendor = VENDORS.of(node.allocatable) if node is not None else None
        asked[(vendor or VENDORS.default).cards] = len(bind.slices)
    claim = Claim(
        id=bind.claim,
        pod_uid=bind.pod_uid,
        namespace=bind.namespace,
        pod=bind.pod,
        job=bind.job,
        plan=bind.plan,
        queue=bind.queue,
        priority=0,
        node=bind.node,
        requests=asked,
        slices=bind.slices,
        state=ClaimState.PENDING,
        preemptable=False,
        claimed_at=now,
    )
    return ClaimRecord(
        claim=claim,
        resource_version=bind.resource_version,
        deadline=bind.deadline,
        changed_at=now,
        generation=bind.generation,
        decision=Decision.BIND,
        forced=True,
        traceparent=bind.traceparent,
        rank=bind.rank if 0 <= bind.rank <= INT32_MAX else -1,
        layout=bind.layout,
        volume_claims=bind.volume_claims,
    )
