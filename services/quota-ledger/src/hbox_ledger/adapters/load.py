"""Reading the ledger from its database: at the start, after a failed commit, and what was answered before."""

import json
import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    Row,
    Select,
    case,
    delete,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    update,
)

from hbox_common.events import HeldNomination, PlanAnswer
from hbox_common.model import (
    CardId,
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    Epoch,
    Index,
    JobId,
    NodeName,
    PlanId,
    Queue,
    QueueName,
    QueuePhase,
    RefusalReason,
    Resources,
    parse_slices,
)
from hbox_common.model.bounds import sanitized
from hbox_common.model.consolidation import RecentMoves
from hbox_common.model.minruntime import OF_LATE_S, same_job

from ..core.accounts.budget import month_of
from ..core.accounts.history import Decay, History, hour_of
from ..core.accounts.usage import HOUR_S, Account, Accrued, Amounts, Held, accrue
from ..core.cardnumbers import CardName, CardNumbers
from ..core.chain import GENESIS
from ..core.claimrecord import ClaimRecord, Decision, Gang
from ..core.evictions.beneficiaries import FOR_OTHERS, MOVED
from ..core.evictions.evicted import Evicted
from ..core.evictions.nominations import places_of
from ..core.ledgerstate import LedgerState
from ..core.recovery import BEGINNING, Position
from ..core.step import CardKey, Step
from ..core.undo import Saved
from . import tables as t
from .journal import Head, Journal
from .repair import SET_ASIDE, amounts

#: Of the key by which claims are proven, made once for a database.
KEY_BYTES = 32

#: Keys of one query: SQLite takes 32,766 parameters, older ones 999.
AT_ONCE = 500

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """All that the database knows: the books, the heads of its chains, and queues that were deleted."""

    state: LedgerState
    journal: Journal
    gone: dict[QueueName, Queue]
    unreadable: dict[ClaimId, str] = field(default_factory=dict)  #: live claims whose rows cannot be read, and why
    left_out: int = 0  #: queues whose rows cannot be read


def position(connection: Connection) -> Position:
    """Where this database's history ends."""
    found = connection.execute(select(t.ledger.c.epoch, t.ledger.c.idx)).first()
    return Position(Epoch(found.epoch), Index(found.idx)) if found is not None else BEGINNING


def commits(connection: Connection) -> tuple[Position, int]:
    """Where this database's history ends, and how many turns were committed to it."""
    found = connection.execute(select(t.ledger.c.epoch, t.ledger.c.idx, t.ledger.c.commits)).one()
    return Position(Epoch(found.epoch), Index(found.idx)), found.commits


def known(connection: Connection, claims: Collection[ClaimId]) -> set[ClaimId]:
    """Those of `claims` that the database has, void ones too."""
    c = t.claims.c.id
    return {ClaimId(row.id) for row in _some(connection, select(c), c, list(claims))}


def begin_epoch(connection: Connection, *, now: float, above: Epoch = BEGINNING.epoch) -> Epoch:
    """Begin the next epoch: above every earlier one of this database and, by the streams (`above`) and the clock, of those that were lost with theirs.

    From here to the end of the transaction no other ledger commits, and none begins an epoch: the row is locked.
    """
    current = connection.execute(select(t.ledger.c.epoch).with_for_update()).scalar()
    epoch = Epoch(max((current or 0) + 1, above + 1, int(now)))
    if current is None:
        connection.execute(insert(t.ledger), [{"id": 1, "epoch": epoch, "idx": 0}])
    else:
        connection.execute(update(t.ledger).values(epoch=epoch, idx=0))
    connection.execute(update(t.ledger).where(t.ledger.c.key.is_(None)).values(key=secrets.token_bytes(KEY_BYTES)))
    connection.execute(update(t.ledger).where(t.ledger.c.metered_until == 0).values(metered_until=int(now)))
    return epoch


def load(connection: Connection) -> Loaded:
    """The books as committed, frozen, and without nodes and verdicts, which the bus brings. All of one moment: every commit locks the row first."""
    state = connection.execute(select(t.ledger.c.epoch, t.ledger.c.idx, t.ledger.c.key).with_for_update()).one()
    books = LedgerState(Epoch(state.epoch), Index(state.idx), key=bytes(state.key))
    gone: dict[QueueName, Queue] = {}
    left_out = 0
    for row in connection.execute(select(t.queues)):
        try:
            queue = _queue(row)
        except (ValueError, TypeError, AttributeError) as e:  # Kubernetes delivers it again, and it is written again
            log.error("queue %s cannot be read and is left out until its object is seen: %s", sanitized(str(row.name), 64), e)
            left_out += 1
            continue
        books.queues[queue.name] = queue
        if row.gone:
            gone[queue.name] = books.queues.pop(queue.name)
    n = t.card_names.c
    names = connection.execute(select(n.node, n.number, n.card).order_by(n.since))
    books.numbers.load(CardName(NodeName(r.node), r.number, CardId(r.card)) for r in names)
    rows = connection.execute(select(*_HELD).where(t.claims.c.state != ClaimState.VOID)).all()
    unreadable: dict[ClaimId, str] = {}
    nominations, unread = _nominations(connection)
    books.load(_readable(rows, books.numbers, unreadable), map(_gang, connection.execute(select(t.gangs))), nominations)
    for plan in unread:
        books.nominations.set_aside(plan)
    books.borrowed = _borrowed(connection.execute(select(t.accounts).where(t.accounts.c.borrowed != 0)))
    month = month_of(connection.execute(select(t.ledger.c.metered_until)).scalar_one())
    u = t.usage.c
    spent = select(u.queue, func.sum(u.own + u.borrowed).label("spent")).where(u.hour >= month).group_by(u.queue)
    books.month, books.spent = month, {QueueName(r.queue): int(r.spent) for r in connection.execute(spent)}
    return Loaded(books, _journal(connection), gone, unreadable, left_out)


def before(connection: Connection, step: Step, numbers: CardNumbers, at: Position, *, committed: int) -> Saved | None:
    """What the database has of all that `step` changed. None if it is not `at` the place where the step began, with as many commits, or if a row cannot be
    read."""
    now = connection.execute(select(t.ledger.c.epoch, t.ledger.c.idx, t.ledger.c.commits).with_for_update()).one()
    if (now.epoch, now.idx, now.commits) != (at.epoch, at.index, committed):
        return None
    c, unreadable = t.claims.c, dict[ClaimId, str]()
    held = select(*_HELD).where(c.state != ClaimState.VOID)
    rows = _some(connection, held, c.id, [*step.made, *step.touched])
    gangs = _some(connection, select(t.gangs), t.gangs.c.job, [*step.gangs])
    borrowed = _some(connection, select(t.accounts).where(t.accounts.c.borrowed != 0), t.accounts.c.queue, sorted(step.queues))
    records = list(_readable(rows, numbers, unreadable))
    nominations, unread = _nominations(connection)
    return None if unreadable else Saved(records, [*map(_gang, gangs)], _borrowed(borrowed), nominations, unread)


def _some(connection: Connection, query: Select[Any], key: ColumnElement[str], keys: Sequence[str]) -> list[Row[Any]]:
    """The rows of these keys."""
    found: list[Row[Any]] = []
    for first in range(0, len(keys), AT_ONCE):
        found += connection.execute(query.where(key.in_(keys[first : first + AT_ONCE]))).all()
    return found


def _gang(row: Row[Any]) -> Gang:
    return Gang(JobId(row.job), row.min_member, row.deadline, bool(row.unwinding), row.finished)


def _borrowed(rows: Iterable[Row[Any]]) -> dict[QueueName, Resources]:
    found: dict[QueueName, Resources] = {}
    for row in rows:
        found.setdefault(QueueName(row.queue), {})[row.resource] = row.borrowed
    return found


#: Fields of a Queue that are tuples: lists in JSON.
_LISTS = ("pools", "namespaces", "priority_classes", "non_preemptible_classes", "lent_pools", "lent_to")


def _queue(row: Row[Any]) -> Queue:
    rules = json.loads(row.rules)
    rules |= {names: tuple(rules.get(names, ())) for names in _LISTS}
    rules["node_groups"] = {rule: tuple(groups) for rule, groups in rules.get("node_groups", {}).items()}
    return Queue(QueueName(row.name), QueuePhase(row.phase), amounts(row.capability), row.weight, row.priority, **rules)


def _readable(rows: Sequence[Sequence[Any]], numbers: CardNumbers, unreadable: dict[ClaimId, str]) -> Iterator[ClaimRecord]:
    read, slots = cache(amounts), cache(_slots)  # equal pods have equal texts: ten thousand claims, a few hundred of these
    named = _namer(numbers)
    for row in rows:
        try:
            record = _record(row, read, slots, named)
        except (ValueError, TypeError, KeyError) as e:
            unreadable[ClaimId(row[0])] = f"{type(e).__name__}: {e}"
        else:
            yield record


def delete_unused_names(connection: Connection) -> None:
    """Delete the card numbers of nodes without claims, void ones included: these numbers may be assigned again."""
    used = select(t.card_slots.c.node)
    connection.execute(delete(t.card_names).where(t.card_names.c.node.not_in(used)))


def _nominations(connection: Connection) -> tuple[list[HeldNomination], list[PlanId]]:
    """In the order of their making, and the plans of those whose rows cannot be read: no claims, so that nothing is lost but the places."""
    found, unread = [], []
    for row in connection.execute(select(t.nominations).order_by(t.nominations.c.until, t.nominations.c.plan)):
        try:
            nomination = HeldNomination.model_validate_json(row.body)
            places_of(nomination)
            if nomination.plan.id != row.plan:
                raise ValueError("it is of another plan")
        except (ValueError, LookupError) as e:
            log.error("nomination %s cannot be read and is ended: %s", sanitized(str(row.plan), 64), sanitized(str(e), 200))
            unread.append(PlanId(row.plan))
        else:
            found.append(nomination)
    return found, unread


def _journal(connection: Connection) -> Journal:
    head = connection.execute(select(t.audit.c.seq, t.audit.c.hash).order_by(t.audit.c.seq.desc()).limit(1)).first()
    last = connection.execute(select(t.transfers.c.seq).order_by(t.transfers.c.seq.desc()).limit(1)).scalar()
    committed = connection.execute(select(t.ledger.c.commits)).scalar_one()
    return Journal(
        Head(head.seq if head is not None else 0, bytes(head.hash) if head is not None else GENESIS, last or 0, committed),
        known_accounts={(r.queue, r.resource) for r in connection.execute(select(t.accounts.c.queue, t.accounts.c.resource))},
        known_cards={
            CardKey(NodeName(r.node), r.card)
            for r in connection.execute(select(t.card_accounts.c.node, t.card_accounts.c.card))
        },
    )


#: In the order in which `_holding` takes them apart: a column by its name costs a fifth of a start.
_c = t.claims.c
_HELD = (
    _c.id, _c.pod_uid, _c.namespace, _c.pod, _c.job, _c.plan, _c.queue, _c.priority, _c.node, _c.requests, _c.slices, _c.state, _c.reason,
    _c.min_member, _c.preemptable, _c.created_at, _c.claimed_at, _c.resource_version, _c.deadline, _c.changed_at, _c.generation, _c.intent, _c.intent_reason,
    _c.forced, _c.traceparent, _c.slots, _c.models, _c.pool, _c.protected_until, _c.rank, _c.layout,
    _c.volume_claims,
)  # fmt: skip


def _record(
    row: Sequence[Any],
    read: Callable[[str], Any],
    slots: Callable[[str], tuple[int, ...]],
    named: Callable[[NodeName, str], tuple[CardSlice, ...]],
) -> ClaimRecord:
    (
        id, pod_uid, namespace, pod, job, plan, queue, priority, node, requests, slices, state, reason, min_member, preemptable, created_at,
        claimed_at, resource_version, deadline, changed_at, generation, intent, intent_reason, forced, traceparent, slot_list, models, pool,
        protected_until, rank, layout, volume_claims,
    ) = row  # fmt: skip
    claim = Claim(
        id, pod_uid, namespace, pod, job, plan, queue, priority, node, read(requests), named(node, slices), _STATE[state], reason, min_member,
        bool(preemptable), created_at, claimed_at=claimed_at, models=read(models), pool=pool, protected_until=protected_until,
    )  # fmt: skip
    return ClaimRecord(
        claim, resource_version, deadline, changed_at, generation, _DECISION[intent], intent_reason, forced=bool(forced), traceparent=traceparent,
        slots=slots(slot_list), rank=rank, layout=layout, volume_claims=tuple(volume_claims.split(",")) if volume_claims else (),
    )  # fmt: skip


_parsed = lru_cache(4096)(parse_slices)


def _namer(numbers: CardNumbers) -> Callable[[NodeName, str], tuple[CardSlice, ...]]:
    """A function that parses the slices of a claim on a node and replaces card numbers by card ids."""

    def named(node: NodeName, text: str) -> tuple[CardSlice, ...]:
        return tuple([s if (card := numbers.card(node, s.index)) is None else replace(s, card=card) for s in _parsed(text)])

    return named


_STATE = {state.value: state for state in ClaimState}
_DECISION = {intent.value: intent for intent in Decision}


def _slots(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def recent_moves(connection: Connection, moves: RecentMoves, *, now: float) -> None:
    """Count the pods that were moved within the last hour: those that still leave, and those that have left."""
    c = t.claims.c
    live = c.state != literal_column("'void'")
    moved = c.intent_reason.like(f"{MOVED}%") & (c.changed_at > now - HOUR_S)
    for where in (live & moved, ~live & moved):  # each by its own index
        for at in sorted(connection.execute(select(c.changed_at).where(where)).scalars()):
            moves.note("before", 1, min(float(at), now))


def recent_evictions(connection: Connection, evicted: Evicted, *, now: float) -> None:
    """Note the jobs that lost pods to others within the last hour, so that they cool down though this process did not see it."""
    c = t.claims.c
    for_others = or_(*(c.intent_reason.like(f"{word}%") for word in FOR_OTHERS))
    wanted = select(c.job, c.pod_uid, c.queue, c.namespace, c.pod, c.changed_at).where(
        c.state == literal_column("'void'"), c.changed_at > now - OF_LATE_S, for_others
    )
    for r in connection.execute(wanted.order_by(c.changed_at)):
        key = same_job(job=r.job, pod_uid=r.pod_uid, queue=r.queue, namespace=r.namespace, pod=r.pod)
        evicted.note_job(key, min(float(r.changed_at), now))


def answers(connection: Connection, plans: Collection[PlanId]) -> dict[PlanId, PlanAnswer]:
    """What those of `plans` were answered that were answered before."""
    a = t.plan_answers
    found: dict[PlanId, PlanAnswer] = {}
    for r in _some(connection, select(a), a.c.plan, list(plans)):
        found[PlanId(r.plan)] = PlanAnswer(
            plan=PlanId(r.plan),
            job=JobId(r.job),
            committed=bool(r.committed),
            reason=RefusalReason(r.reason) if r.reason is not None else None,
            message=r.message,
            refresh=Index(r.refresh),
        )
    return found


def metered_until(connection: Connection) -> int:
    """The second up to which usage was accrued."""
    found: int = connection.execute(select(t.ledger.c.metered_until)).scalar_one()
    return found


def accrued(connection: Connection, deserved: Mapping[QueueName, int], *, until: int) -> Accrued:
    """What is to be added to the usage accounts up to `until`. `deserved`: thousandths of a card by queue, since it was accrued last. What happened to claims
    from `until` on may be in the database or not."""
    since = metered_until(connection)
    held = _unmetered(connection, since, until) if since < until else ()
    return accrue(held, deserved, since=since, until=max(since, until))


def _unmetered(connection: Connection, since: int, until: int) -> Sequence[Held]:
    """What held cards between these seconds."""
    c = t.claims.c
    kind, some = (c.queue, c.namespace, c.cards), c.cards != "{}"
    live = c.state != literal_column("'void'")  # as in the partial indexes, which a parameter would not be matched with
    stay = select(*kind, func.count().label("claims")).where(live, some, c.claimed_at < since).group_by(*kind)
    came = select(*kind, c.claimed_at, literal(until).label("end")).where(live, some, c.claimed_at >= since)
    went = select(*kind, c.claimed_at, c.changed_at.label("end")).where(~live, some, c.changed_at >= since)
    held = [
        Held(
            QueueName(r.queue), r.namespace, {model: cards * r.claims for model, cards in _cards(r.cards).items()}, since, until
        )
        for r in connection.execute(stay)
    ]
    for moving in (came, went):
        held += [
            Held(QueueName(r.queue), r.namespace, _cards(r.cards), int(r.claimed_at), int(r.end))
            for r in connection.execute(moving)
        ]
    return held


@lru_cache(maxsize=4096)
def _cards(text: str) -> Resources:
    try:
        found: Resources = amounts(text)
    except ValueError as e:
        log.error("usage: cards of a claim cannot be read, and are not counted: %s", e)
        return {}
    return found


def used(connection: Connection, by: Sequence[str], *, since: int, until: int) -> list[tuple[Account, Amounts]]:
    """The accounts of hours that begin in [since, until), summed up over what `by` does not name ("queue", "user", "model", "hour")."""
    u = t.usage.c
    columns = {"queue": u.queue, "user": u.namespace, "model": u.model, "hour": u.hour}
    keys = [columns[name] for name in by]
    sums = [func.sum(amount).label(amount.name) for amount in (u.own, u.borrowed, u.idle)]
    query = select(*keys, *sums).where(u.hour >= since, u.hour < until).group_by(*keys).order_by(*keys)
    found = []
    for row in connection.execute(query):
        of = dict(zip(by, row, strict=False))
        account = Account(QueueName(of.get("queue", "")), of.get("user", ""), of.get("model", ""), of.get("hour", 0))
        own, borrowed, idle = (int(amount or 0) for amount in row[len(keys) :])
        if own or borrowed or idle:
            found.append((account, Amounts(own, borrowed, idle)))
    return found


def history(connection: Connection, decay: Decay) -> History:
    """Recent usage of queues as of the last accrual, summed from the accounts. The database weights and sums: there may be millions of accounts."""
    until: int = connection.execute(select(t.ledger.c.metered_until)).scalar_one()
    found = History(decay, hour_of(until), None, until)
    if decay.half_life_h <= 0:
        return found
    u, begins = t.usage.c, decay.begins(found.hour)
    first = connection.execute(select(func.min(u.hour))).scalar()
    if first is not None:
        found.first = max(first, begins)
    age = (found.hour - u.hour) // HOUR_S
    weight: ColumnElement[float] = literal(1.0, Float)
    for bit in range(decay.window_h.bit_length()):  # a power with a whole exponent, which not every SQLite has a function for
        weight = weight * case(((age // 2**bit) % 2 == 1, literal(decay.factor ** (2**bit), Float)), else_=literal(1.0, Float))
    hours = (
        select(u.hour, weight.label("weight")).where(u.hour >= begins).group_by(u.hour).subquery()
    )  # weighed once, not for each account
    used = func.sum((u.own + u.borrowed) * hours.c.weight)
    query = select(u.queue, used).join(hours, hours.c.hour == u.hour).group_by(u.queue)
    found.own = {QueueName(queue): float(used) for queue, used in connection.execute(query) if used}
    return found


def used_in(connection: Connection, first: int, last: int) -> list[tuple[QueueName, int, int]]:
    """(queue, hour, thousandths of card-seconds used) of the hours in [first, last)."""
    u = t.usage.c
    query = (
        select(u.queue, u.hour, func.sum(u.own + u.borrowed)).where(u.hour >= first, u.hour < last).group_by(u.queue, u.hour)
    )
    return [(QueueName(queue), hour, int(used)) for queue, hour, used in connection.execute(query)]


def forget(connection: Connection, *, before: float, queues: Collection[QueueName] = ()) -> int:
    """Drop answers, void claims and handled messages from before that time, and these of the queues that are gone. The audit keeps their history, and claims
    stay until they are accounted for.
    Returns how many rows."""
    a = t.plan_answers
    count = t.inbox.forget(connection, before=before)
    count += connection.execute(delete(a).where(a.c.at < before)).rowcount
    q = t.queues.c
    for name in queues:
        count += connection.execute(delete(t.queues).where(q.name == name, q.gone)).rowcount
    c = t.claims
    metered = (
        connection.execute(select(t.ledger.c.metered_until)).scalar_one() + 1
    )  # what ended within the second ended before it
    count += connection.execute(
        delete(c).where(c.c.state == ClaimState.VOID, c.c.changed_at < min(before, metered), ~c.c.reason.startswith(SET_ASIDE))
    ).rowcount
    return count
