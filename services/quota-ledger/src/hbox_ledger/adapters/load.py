"""Reading the ledger from its database: at the start, after a failed commit, and what was answered before."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from hbox_common.events import PlanAnswer
from hbox_common.model import (
    Claim,
    ClaimId,
    ClaimState,
    Epoch,
    Index,
    JobId,
    NodeName,
    PlanId,
    PodUid,
    Queue,
    QueueName,
    QueuePhase,
    RefusalReason,
    parse_slices,
)

from ..core.books import Books
from ..core.holding import Gang, Holding, Intent
from ..core.step import CardKey
from . import tables as t
from .journal import GENESIS, Head, Journal


@dataclass(frozen=True, slots=True)
class Loaded:
    """All that the database knows: the books, the heads of its chains, and queues that were deleted."""

    books: Books
    journal: Journal
    gone: dict[QueueName, Queue]


def begin_epoch(connection: Connection, *, now: float) -> Epoch:
    """Begin the next epoch: above every earlier one of this database and, by the clock, of those that were lost with theirs.

    From here to the end of the transaction no other ledger commits, and none begins an epoch: the row is locked.
    """
    current = connection.execute(select(t.ledger.c.epoch).with_for_update()).scalar()
    epoch = Epoch(max((current or 0) + 1, int(now)))
    if current is None:
        connection.execute(insert(t.ledger), [{"id": 1, "epoch": epoch, "idx": 0}])
    else:
        connection.execute(update(t.ledger).values(epoch=epoch, idx=0))
    return epoch


def load(connection: Connection) -> Loaded:
    """The books as committed, frozen, and without nodes and verdicts, which the bus brings. All of one moment: every commit locks the row first."""
    state = connection.execute(select(t.ledger.c.epoch, t.ledger.c.idx).with_for_update()).one()
    books = Books(Epoch(state.epoch), Index(state.idx))
    rows = connection.execute(select(t.claims).where(t.claims.c.state != ClaimState.VOID))
    gangs = connection.execute(select(t.gangs))
    books.load(
        (_holding(row) for row in rows),
        [Gang(JobId(g.job), g.min_member, g.deadline, bool(g.unwinding), g.finished) for g in gangs],
    )
    gone: dict[QueueName, Queue] = {}
    for row in connection.execute(select(t.queues)):
        queue = Queue(
            QueueName(row.name),
            QueuePhase(row.phase),
            json.loads(row.capability),
            row.weight,
            row.priority,
            **json.loads(row.rules),
        )
        books.queues[queue.name] = queue
        if row.gone:
            gone[queue.name] = books.queues.pop(queue.name)
    return Loaded(books, _journal(connection), gone)


def _journal(connection: Connection) -> Journal:
    head = connection.execute(select(t.audit.c.seq, t.audit.c.hash).order_by(t.audit.c.seq.desc()).limit(1)).first()
    last = connection.execute(select(t.transfers.c.seq).order_by(t.transfers.c.seq.desc()).limit(1)).scalar()
    return Journal(
        Head(head.seq if head is not None else 0, bytes(head.hash) if head is not None else GENESIS, last or 0),
        known_accounts={(r.queue, r.resource) for r in connection.execute(select(t.accounts.c.queue, t.accounts.c.resource))},
        known_cards={
            CardKey(NodeName(r.node), r.card)
            for r in connection.execute(select(t.card_accounts.c.node, t.card_accounts.c.card))
        },
    )


def _holding(row: Row[Any]) -> Holding:
    claim = Claim(
        id=ClaimId(row.id),
        pod_uid=PodUid(row.pod_uid),
        namespace=row.namespace,
        pod=row.pod,
        job=JobId(row.job),
        plan=PlanId(row.plan),
        queue=QueueName(row.queue),
        priority=row.priority,
        node=NodeName(row.node),
        requests=json.loads(row.requests),
        slices=parse_slices(row.slices),
        state=ClaimState(row.state),
        reason=row.reason,
        min_member=row.min_member,
        preemptable=bool(row.preemptable),
        created_at=row.created_at,
    )
    return Holding(
        claim=claim,
        resource_version=row.resource_version,
        deadline=row.deadline,
        changed_at=row.changed_at,
        generation=row.generation,
        intent=Intent(row.intent),
        reason=row.intent_reason,
        forced=bool(row.forced),
        traceparent=row.traceparent,
        slots=tuple(int(n) for n in row.slots.split(",")) if row.slots else (),
    )


def answers(connection: Connection, plans: Collection[PlanId]) -> dict[PlanId, PlanAnswer]:
    """What those of `plans` were answered that were answered before."""
    a = t.plan_answers
    found: dict[PlanId, PlanAnswer] = {}
    wanted = list(plans)
    for first in range(0, len(wanted), 500):  # SQLite takes 32,766 parameters, older ones 999
        for r in connection.execute(select(a).where(a.c.plan.in_(wanted[first : first + 500]))):
            found[PlanId(r.plan)] = PlanAnswer(
                plan=PlanId(r.plan),
                job=JobId(r.job),
                committed=bool(r.committed),
                reason=RefusalReason(r.reason) if r.reason is not None else None,
                message=r.message,
                refresh=Index(r.refresh),
            )
    return found


def forget(connection: Connection, *, before: float) -> int:
    """Drop answers, void claims and handled messages from before that time. The audit keeps their history. Returns how many rows."""
    a = t.plan_answers
    count = t.inbox.forget(connection, before=before)
    count += connection.execute(delete(a).where(a.c.at < before)).rowcount
    c = t.claims
    count += connection.execute(delete(c).where(c.c.state == ClaimState.VOID, c.c.changed_at < before)).rowcount
    return count
