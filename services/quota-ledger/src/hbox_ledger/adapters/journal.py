"""Writes a step to the database, in one transaction with the messages about it.

Tuples of rows have the order of their table's columns.

Runs in the store's writer thread. Rows are written in bulk, one statement per table, in an order that breaks no constraint on the way: accounts and claims
are freed before others are created. No statement waits for another's result (`Batch`). The journal holds the heads of the two append-only chains; after a
failed commit `load` reads them again together with the books.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from sqlalchemy import Table, and_, bindparam, delete, false, insert, literal_column, update

from hbox_common.errors import Conflict
from hbox_common.events import HeldNomination
from hbox_common.model import ClaimState, Epoch, Index, PlanId, Queue
from hbox_common.model.devices import format_numbered
from hbox_common.store import Batch, Letter, Prepared

from ..core import segments
from ..core.accounts.usage import Account
from ..core.cardnumbers import subject_of
from ..core.chain import ENDED, GENESIS, NAMED, NOMINATED, NONE, Mark, Record, chained, entry
from ..core.claimrecord import ClaimRecord
from ..core.step import Bucket, CardKey, Step
from . import tables as t

_STATE = ("state", "reason", "generation", "intent", "intent_reason", "changed_at")


def _rows_of(table: Table, *, conflict: str = "") -> Prepared:
    return Prepared(insert(table), columns=table.columns.keys(), conflict=conflict)


_FENCED = Prepared(
    update(t.ledger)
    .where(and_(t.ledger.c.epoch == bindparam("e"), t.ledger.c.idx == bindparam("first")))
    .values(idx=bindparam("last"), commits=t.ledger.c.commits + literal_column("1"))
)
_SLOT_FREED = Prepared(update(t.card_slots).where(t.card_slots.c.claim == bindparam("c")).values(live=false()))
_SLOT_TAKEN = _rows_of(t.card_slots)
_CLAIM_MADE = _rows_of(t.claims)
_CLAIM_CHANGED = Prepared(update(t.claims).where(t.claims.c.id == bindparam("c")), columns=_STATE)
_BALANCES = (Bucket.PENDING, Bucket.POSTED, Bucket.BORROWED)
_ACCOUNT_OPENED = _rows_of(t.accounts)
_ACCOUNT_MOVED = Prepared(
    update(t.accounts)
    .where(and_(t.accounts.c.queue == bindparam("q"), t.accounts.c.resource == bindparam("r")))
    .values({b.value: t.accounts.c[b.value] + bindparam(f"d_{b.value}") for b in _BALANCES})
)
_TRANSFERRED = _rows_of(t.transfers)
_card = t.card_accounts.c
_moved = (
    update(t.card_accounts)
    .where(and_(_card.node == bindparam("n"), _card.card == bindparam("i")))
    .values({name: _card[name] + bindparam(f"d_{name}") for name in ("cores", "memory_mib", "pods", "whole", "forced")})
)
_CARD_NAMED = _rows_of(t.card_names)
_CARD_OPENED = _rows_of(t.card_accounts)
_CARD_MOVED = Prepared(_moved)
_CARD_SIZED = Prepared(_moved.values(size_mib=bindparam("s_mib"), shares=bindparam("s_shares")))
_ANSWERED = _rows_of(t.plan_answers, conflict="DO NOTHING")
_AUDITED = _rows_of(t.audit)
_METERED = Prepared(
    update(t.ledger).where(t.ledger.c.metered_until == bindparam("since")).values(metered_until=bindparam("until"))
)
_added = ", ".join(f"{name} = usage.{name} + excluded.{name}" for name in ("own", "borrowed", "idle"))
_ACCRUED = _rows_of(t.usage, conflict=f"(hour, queue, namespace, model) DO UPDATE SET {_added}")
_QUEUE_DROPPED = Prepared(delete(t.queues).where(t.queues.c.name == bindparam("q")))
_QUEUE_SET = _rows_of(t.queues)
_GANG_DROPPED = Prepared(delete(t.gangs).where(t.gangs.c.job == bindparam("j")))
_GANG_SET = _rows_of(t.gangs)
_NOMINATION_DROPPED = Prepared(delete(t.nominations).where(t.nominations.c.plan == bindparam("p")))
_NOMINATION_SET = _rows_of(t.nominations)


_CHANGE = {(before, after): f"{before or NONE}->{after}" for before in (None, *ClaimState) for after in ClaimState}


class Repeated(Exception):
    """What was to be noted for the first time is in the database already: look there, and decide anew."""


@dataclass(slots=True)
class Head:
    """Where the append-only chains end, and which accounts a transaction opened."""

    audit_seq: int = 0
    audit_hash: bytes = GENESIS
    transfer_seq: int = 0
    commits: int = 0
    accounts: list[tuple[str, str]] = field(default_factory=list)
    cards: list[CardKey] = field(default_factory=list)


@dataclass(slots=True)
class Journal:
    """The ledger's hand on the database. Writing leaves it as it is, since a transaction may run twice; `adopt` follows the commit."""

    head: Head = field(default_factory=Head)
    known_accounts: set[tuple[str, str]] = field(default_factory=set)
    known_cards: set[CardKey] = field(default_factory=set)

    def adopt(self, head: Head) -> None:
        """Go on from what was committed."""
        self.known_accounts.update(head.accounts)
        self.known_cards.update(head.cards)
        self.head = Head(head.audit_seq, head.audit_hash, head.transfer_seq, head.commits)

    def write(
        self,
        batch: Batch,
        step: Step,
        *,
        epoch: Epoch,
        index: Index,
        letters: Callable[[], Sequence[Letter]],
        notes: Sequence[Record] = (),
    ) -> Head:
        """Write `step`, which takes the books from its first index to `index`. The batch raises Conflict if another epoch has begun, and Repeated.

        `letters` encodes the messages about the step. They are written last, so that PostgreSQL processes the other rows while they are encoded.
        """
        head = Head(self.head.audit_seq, self.head.audit_hash, self.head.transfer_seq, self.head.commits + 1)
        fence(batch, epoch, step.first, index)
        # First of all: of a plan that is repeated after its claims have ended, their rows are there too.
        answers = [_answer_row(s.scheduler, s.answer, step.now) for s in step.stored]
        batch.expect(_ANSWERED, answers, len(answers), Repeated())
        self._claims(batch, step)
        self._cards(batch, step, head)
        self._accounts(batch, step, head, epoch, index)
        self._gangs(batch, step)
        _nominate(batch, step)
        _accrue(batch, step)
        records = [
            Record(
                epoch,
                step.now,
                c.actor,
                c.claim.id,
                _CHANGE[c.before, c.claim.state],
                c.cause,
                "" if c.before else entry(c.claim),
            )
            for c in step.changes
        ]
        named = [Record(epoch, step.now, "quota-ledger", subject_of(one), NAMED, one.card) for one in step.names]
        nominated = [_nominated(epoch, step.now, plan, nomination) for plan, nomination in step.nominations.items()]
        rows: list[tuple[Any, ...]] = []
        numbers = [_chain(head, rows, record) for record in named]
        batch.run(_CARD_NAMED, [(n.node, n.card, n.number, number) for n, number in zip(step.names, numbers, strict=True)])
        for record in (*records, *nominated, *notes):
            _chain(head, rows, record)
        batch.run(_AUDITED, rows)
        t.outbox.add(batch, letters())
        return head

    def queue(self, batch: Batch, queue: Queue, *, gone: bool) -> None:
        """Remember a queue's rules, or that it is gone."""
        row = {
            "name": queue.name, "phase": queue.phase, "capability": json.dumps(queue.capability), "weight": queue.weight,
            "priority": queue.priority, "gone": gone, "rules": json.dumps(_rules(queue)),
        }  # fmt: skip
        batch.run(_QUEUE_DROPPED, [{"q": queue.name}])
        batch.run(_QUEUE_SET, [row])

    def _claims(self, batch: Batch, step: Step) -> None:
        batch.run(_SLOT_FREED, [{"c": id} for id, h in step.freed.items() if h.claim.slices])
        batch.run(_CLAIM_CHANGED, [{"c": id, **_state(h)} for id, h in step.touched.items()])
        batch.run(_CLAIM_MADE, list(map(_claim_row, step.made.values())))
        slots = [
            (id, s.index, h.claim.node, slot, h.claim.state.live)
            for id, h in step.made.items()
            for s, slot in zip(h.claim.slices, h.slots, strict=True)
        ]
        batch.run(_SLOT_TAKEN, slots)

    def _cards(self, batch: Batch, step: Step, head: Head) -> None:
        opened: list[tuple[Any, ...]] = []
        moved: list[dict[str, Any]] = []
        sized: list[dict[str, Any]] = []
        for key, d in step.cards.items():
            if key not in self.known_cards:
                size_mib, shares = d.size or (0, 1)
                opened.append((*key, d.cores, d.memory_mib, d.pods, d.whole, d.forced, size_mib, max(1, shares)))
                head.cards.append(key)
                continue
            row = {
                "n": key.node, "i": key.card, "d_cores": d.cores, "d_memory_mib": d.memory_mib, "d_pods": d.pods, "d_whole": d.whole,
                "d_forced": d.forced,
            }  # fmt: skip
            if d.size is None:
                moved.append(row)
            else:
                sized.append({**row, "s_mib": d.size[0], "s_shares": max(1, d.size[1])})
        batch.run(_CARD_OPENED, opened)
        batch.run(_CARD_MOVED, moved)
        batch.run(_CARD_SIZED, sized)

    def _accounts(self, batch: Batch, step: Step, head: Head, epoch: Epoch, index: Index) -> None:
        balance: dict[tuple[str, str], dict[Bucket, int]] = {}
        rows = []
        for move, amount in step.moves.items():
            head.transfer_seq += 1
            rows.append((head.transfer_seq, epoch, index, step.now, *move, amount))
            sums = balance.setdefault((move.queue, move.resource), dict.fromkeys(Bucket, 0))
            sums[move.debit] -= amount
            sums[move.credit] += amount
        opened: list[dict[str, Any]] = []
        moved: list[dict[str, Any]] = []
        for (queue, resource), sums in balance.items():
            if (queue, resource) in self.known_accounts:
                moved.append({"q": queue, "r": resource, **{f"d_{b.value}": sums[b] for b in _BALANCES}})
            else:
                opened.append({"queue": queue, "resource": resource, **{b.value: sums[b] for b in _BALANCES}})
                head.accounts.append((queue, resource))
        batch.run(_TRANSFERRED, rows)
        batch.run(_ACCOUNT_OPENED, opened)
        batch.run(_ACCOUNT_MOVED, moved)

    def _gangs(self, batch: Batch, step: Step) -> None:
        batch.run(_GANG_DROPPED, [{"j": job} for job in step.gangs])
        rows = [
            {"job": g.job, "min_member": g.min_member, "deadline": g.deadline, "unwinding": g.unwinding, "finished": g.finished}
            for g in step.gangs.values()
            if g is not None
        ]
        batch.run(_GANG_SET, rows)


def _nominate(batch: Batch, step: Step) -> None:
    batch.run(_NOMINATION_DROPPED, [{"p": plan} for plan in step.nominations])
    rows = [
        {"plan": plan, "until": nomination.until, "body": nomination.model_dump_json()}
        for plan, nomination in step.nominations.items()
        if nomination is not None
    ]
    batch.run(_NOMINATION_SET, rows)


def _nominated(epoch: Epoch, now: float, plan: PlanId, nomination: HeldNomination | None) -> Record:
    subject = f"nomination {plan}"
    if nomination is None:
        return Record(epoch, now, "quota-ledger", subject, ENDED, "its places are taken, or given up")
    job = f"{nomination.plan.namespace}/{nomination.plan.name}"
    places = f"{len(nomination.plan.placements)} places, and {len(nomination.moved)} of pods that move"
    return Record(epoch, now, "quota-ledger", subject, NOMINATED, f"{places}, for {job}")


def _accrue(batch: Batch, step: Step) -> None:
    if step.usage is None:
        return
    since, until = step.usage.since, step.usage.until
    beyond = Conflict(f"usage was accrued beyond {since} by another quota-ledger", hint="only one may run on a database")
    batch.expect(_METERED, [{"since": since, "until": until}], 1, beyond)
    batch.run(_ACCRUED, [{**_account_row(account), **asdict(amounts)} for account, amounts in step.usage.amounts.items()])


def _account_row(account: Account) -> dict[str, Any]:
    return {"hour": account.hour, "queue": account.queue, "namespace": account.user, "model": account.model}


def _chain(head: Head, rows: list[tuple[Any, ...]], record: Record) -> int:
    """Append the record to `rows`, after the first record of a segment where one begins. Returns its number."""
    if segments.begins(head.audit_seq + 1):
        before = Mark(head.audit_seq, head.audit_hash)
        _append(head, rows, segments.begin_record(record.epoch, record.at, before, head.transfer_seq))
    return _append(head, rows, record)


def _append(head: Head, rows: list[tuple[Any, ...]], record: Record) -> int:
    if "\0" in record.cause:  # words of others; PostgreSQL takes none, and the chain needs it between its fields
        record = record._replace(cause=record.cause.replace("\0", "\ufffd"))
    head.audit_seq += 1
    head.audit_hash = chained(head.audit_hash, head.audit_seq, record)
    epoch, at, actor, subject, change, cause, entry = record
    rows.append((head.audit_seq, epoch, at, actor, subject, change, cause, head.audit_hash, entry))
    return head.audit_seq


def fence(batch: Batch, epoch: Epoch, first: Index, index: Index) -> None:
    """Go from `first` to `index` within `epoch`. The batch raises Conflict when the database is elsewhere: another ledger has begun an epoch."""
    taken_over = Conflict(f"another quota-ledger has taken over from epoch {epoch}", hint="only one may run on a database")
    batch.expect(_FENCED, [{"e": epoch, "first": first, "last": index}], 1, taken_over)


def _answer_row(scheduler: str, answer: Any, at: float) -> dict[str, Any]:
    return {
        "plan": answer.plan, "scheduler": scheduler, "job": answer.job, "committed": answer.committed, "reason": answer.reason,
        "message": answer.message, "refresh": answer.refresh, "at": at,
    }  # fmt: skip


def _state(claim_record: ClaimRecord) -> dict[str, Any]:
    claim = claim_record.claim
    return {
        "state": claim.state, "reason": claim.reason, "generation": claim_record.generation, "intent": claim_record.decision,
        "intent_reason": claim_record.reason, "changed_at": claim_record.changed_at,
    }  # fmt: skip


def _claim_row(h: ClaimRecord) -> tuple[Any, ...]:
    c = h.claim
    return (
        c.id, c.pod_uid, c.namespace, c.pod, c.job, c.plan, c.queue, c.priority, c.node, _amounts(tuple(c.requests.items())), format_numbered(c.slices),
        ",".join(map(str, h.slots)), c.state, c.reason, h.generation, h.decision, h.reason, h.resource_version, h.deadline, h.forced, h.traceparent,
        h.changed_at, c.min_member, c.preemptable, c.created_at, c.claimed_at, _amounts(tuple(h.cards.items())), _amounts(tuple(c.models.items())), c.pool,
        c.protected_until, h.rank, h.layout, ",".join(h.volume_claims),
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _amounts(items: tuple[tuple[str, int], ...]) -> str:
    """As JSON. Equal pods ask for the same: ten thousand claims, a few hundred of these."""
    return json.dumps(dict(items), sort_keys=True)


def _rules(queue: Queue) -> dict[str, Any]:
    """What the ledger applies before it has read the Queue again. Its unknown fields are not stored: an older ledger would refuse the row (ADR 81)."""
    return {
        "deserved": queue.deserved, "guarantee": queue.guarantee, "reclaimable": queue.reclaimable, "parent": queue.parent,
        "budget_card_hours": queue.budget_card_hours, "created_at": queue.created_at, **({"fault": queue.fault} if queue.fault else {}),
        **({"pools": queue.pools} if queue.pools else {}),
        **({"pool_amounts": queue.pool_amounts} if queue.pool_amounts else {}),
        **({"lent_pools": queue.lent_pools} if queue.lent_pools else {}),
        **({"lent_to": queue.lent_to} if queue.lent_to else {}),
        **({"namespaces": queue.namespaces} if queue.namespaces else {}),
        **({"bound": True} if queue.bound else {}),
        **({"priority_classes": queue.priority_classes} if queue.priority_classes else {}),
        **({"non_preemptible_classes": queue.non_preemptible_classes} if queue.non_preemptible_classes else {}),
        **({"annotations": queue.annotations} if queue.annotations else {}),
        **({"node_groups": queue.node_groups} if queue.node_groups else {}),
    }  # fmt: skip
