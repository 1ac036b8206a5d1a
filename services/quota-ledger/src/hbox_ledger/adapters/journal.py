"""Writing a step to the database, in one transaction with all that others are told of it.

Runs in the store's writer thread. Rows go in bulk, a statement a table, in an order in which no constraint is broken on the way: accounts and
claims are freed before others are made. The journal holds the heads of the two append-only chains; after a failed commit `load` reads them
anew together with the books.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Table, and_, bindparam, delete, insert, text, update

from hbox_common.errors import Conflict
from hbox_common.model import Claim, Epoch, Index, Queue, Resources, format_slices
from hbox_common.store import Letter, Prepared

from ..core.chain import GENESIS, NONE, Record, chained, entry
from ..core.holding import Holding
from ..core.step import Bucket, CardKey, Step
from . import tables as t

_STATE = ("state", "reason", "generation", "intent", "intent_reason", "changed_at")


def _rows_of(table: Table, *, or_nothing: bool = False) -> Prepared:
    return Prepared(insert(table), columns=table.columns.keys(), or_nothing=or_nothing)


_FENCED = Prepared(
    update(t.ledger)
    .where(and_(t.ledger.c.epoch == bindparam("e"), t.ledger.c.idx == bindparam("first")))
    .values(idx=bindparam("last"))
)
_SLOT_FREED = Prepared(update(t.card_slots).where(t.card_slots.c.claim == bindparam("c")).values(live=False))
_SLOT_TAKEN = _rows_of(t.card_slots)
_CLAIM_MADE = _rows_of(t.claims)
_CLAIM_CHANGED = Prepared(update(t.claims).where(t.claims.c.id == bindparam("c")), columns=_STATE)
_BALANCES = (Bucket.PENDING.value, Bucket.POSTED.value, Bucket.BORROWED.value)
_ACCOUNT_OPENED = _rows_of(t.accounts)
_ACCOUNT_MOVED = Prepared(
    update(t.accounts)
    .where(and_(t.accounts.c.queue == bindparam("q"), t.accounts.c.resource == bindparam("r")))
    .values({name: t.accounts.c[name] + bindparam(f"d_{name}") for name in _BALANCES})
)
_TRANSFERRED = _rows_of(t.transfers)
_card = t.card_accounts.c
_moved = (
    update(t.card_accounts)
    .where(and_(_card.node == bindparam("n"), _card.card == bindparam("i")))
    .values({name: _card[name] + bindparam(f"d_{name}") for name in ("cores", "memory_mib", "pods", "whole", "forced")})
)
_CARD_OPENED = _rows_of(t.card_accounts)
_CARD_MOVED = Prepared(_moved)
_CARD_SIZED = Prepared(_moved.values(size_mib=bindparam("s_mib"), shares=bindparam("s_shares")))
_ANSWERED = _rows_of(t.plan_answers, or_nothing=True)
_AUDITED = _rows_of(t.audit)
_METERED = Prepared(
    update(t.ledger).where(t.ledger.c.metered_until == bindparam("since")).values(metered_until=bindparam("until"))
)
_ACCRUED = text(
    "INSERT INTO usage (hour, queue, namespace, model, own, borrowed, idle) VALUES (:hour, :queue, :user, :model, :own, :borrowed, :idle) "
    "ON CONFLICT (hour, queue, namespace, model) DO UPDATE SET "
    "own = usage.own + excluded.own, borrowed = usage.borrowed + excluded.borrowed, idle = usage.idle + excluded.idle"
)
_GANG_DROPPED = Prepared(delete(t.gangs).where(t.gangs.c.job == bindparam("j")))
_GANG_SET = _rows_of(t.gangs)


class Repeated(Exception):
    """What was to be noted for the first time is in the database already: look there, and decide anew."""


@dataclass(slots=True)
class Head:
    """Where the append-only chains end, and which accounts a transaction opened."""

    audit_seq: int = 0
    audit_hash: bytes = GENESIS
    transfer_seq: int = 0
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
        self.head = Head(head.audit_seq, head.audit_hash, head.transfer_seq)

    def write(
        self,
        connection: Connection,
        step: Step,
        *,
        epoch: Epoch,
        index: Index,
        letters: Sequence[Letter],
        notes: Sequence[Record] = (),
    ) -> Head:
        """Write `step`, which takes the books from its first index to `index`. Raises Conflict when another epoch has begun, Repeated."""
        head = Head(self.head.audit_seq, self.head.audit_hash, self.head.transfer_seq)
        fence(connection, epoch, step.first, index)
        # First of all: of a plan that is repeated after its claims have ended, their rows are there too.
        if _ANSWERED.run(connection, [_answer_row(s.scheduler, s.answer, step.now) for s in step.stored]) != len(step.stored):
            raise Repeated
        self._claims(connection, step)
        self._cards(connection, step, head)
        self._accounts(connection, step, head, epoch, index)
        self._gangs(connection, step)
        _accrue(connection, step)
        records = [
            Record(
                epoch,
                step.now,
                c.actor,
                c.claim.id,
                f"{c.before or NONE}->{c.claim.state}",
                c.cause,
                "" if c.before else entry(c.claim),
            )
            for c in step.changes
        ]
        _AUDITED.run(connection, [_chain(head, record) for record in (*records, *notes)])
        t.outbox.add(connection, letters)
        return head

    def queue(self, connection: Connection, queue: Queue, *, gone: bool) -> None:
        """Remember a queue's rules, or that it is gone."""
        row = {
            "name": queue.name, "phase": queue.phase, "capability": json.dumps(queue.capability), "weight": queue.weight,
            "priority": queue.priority, "gone": gone, "rules": json.dumps(_rules(queue)),
        }  # fmt: skip
        connection.execute(delete(t.queues).where(t.queues.c.name == queue.name))
        connection.execute(insert(t.queues), [row])

    def _claims(self, connection: Connection, step: Step) -> None:
        _SLOT_FREED.run(connection, [{"c": id} for id, h in step.freed.items() if h.claim.slices])
        _CLAIM_CHANGED.run(connection, [{"c": id, **_state(h)} for id, h in step.touched.items()])
        _CLAIM_MADE.run(connection, _claim_rows(step.made.values()))
        slots = [
            {"claim": id, "node": h.claim.node, "card": s.index, "slot": slot, "live": h.claim.state.live}
            for id, h in step.made.items()
            for s, slot in zip(h.claim.slices, h.slots, strict=True)
        ]
        _SLOT_TAKEN.run(connection, slots)

    def _cards(self, connection: Connection, step: Step, head: Head) -> None:
        if new := [key for key in step.cards if key not in self.known_cards]:
            zeros = dict.fromkeys(("cores", "memory_mib", "pods", "whole", "forced", "size_mib"), 0)
            _CARD_OPENED.run(connection, [{"node": k.node, "card": k.card, "shares": 1, **zeros} for k in new])
            head.cards.extend(new)
        moved: list[dict[str, Any]] = []
        sized: list[dict[str, Any]] = []
        for key, d in step.cards.items():
            row = {
                "n": key.node, "i": key.card, "d_cores": d.cores, "d_memory_mib": d.memory_mib, "d_pods": d.pods, "d_whole": d.whole,
                "d_forced": d.forced,
            }  # fmt: skip
            if d.size is None:
                moved.append(row)
            else:
                sized.append({**row, "s_mib": d.size[0], "s_shares": max(1, d.size[1])})
        _CARD_MOVED.run(connection, moved)
        _CARD_SIZED.run(connection, sized)

    def _accounts(self, connection: Connection, step: Step, head: Head, epoch: Epoch, index: Index) -> None:
        if not step.moves:
            return
        balance: dict[tuple[str, str], dict[Bucket, int]] = {}
        rows = []
        for move, amount in step.moves.items():
            head.transfer_seq += 1
            rows.append(
                {"seq": head.transfer_seq, "epoch": epoch, "idx": index, "at": step.now, **move._asdict(), "amount": amount}
            )
            sums = balance.setdefault((move.queue, move.resource), dict.fromkeys(Bucket, 0))
            sums[move.debit] -= amount
            sums[move.credit] += amount
        if new := [key for key in balance if key not in self.known_accounts]:
            _ACCOUNT_OPENED.run(connection, [{"queue": q, "resource": r, **dict.fromkeys(_BALANCES, 0)} for q, r in new])
            head.accounts.extend(new)
        _TRANSFERRED.run(connection, rows)
        _ACCOUNT_MOVED.run(
            connection,
            [{"q": q, "r": r, **{f"d_{name}": sums[Bucket(name)] for name in _BALANCES}} for (q, r), sums in balance.items()],
        )

    def _gangs(self, connection: Connection, step: Step) -> None:
        _GANG_DROPPED.run(connection, [{"j": job} for job in step.gangs])
        rows = [
            {"job": g.job, "min_member": g.min_member, "deadline": g.deadline, "unwinding": g.unwinding, "finished": g.finished}
            for g in step.gangs.values()
            if g is not None
        ]
        _GANG_SET.run(connection, rows)


def _accrue(connection: Connection, step: Step) -> None:
    if step.usage is None:
        return
    since, until = step.usage.since, step.usage.until
    if _METERED.run(connection, [{"since": since, "until": until}]) != 1:
        raise Conflict(f"usage was accrued beyond {since} by another quota-ledger", hint="only one may run on a database")
    rows = [{**account._asdict(), **asdict(amounts)} for account, amounts in step.usage.amounts.items()]
    if rows:
        connection.execute(_ACCRUED, rows)


def _chain(head: Head, record: Record) -> dict[str, Any]:
    if "\0" in record.cause:  # words of others; PostgreSQL takes none, and the chain needs it between its fields
        record = replace(record, cause=record.cause.replace("\0", "\ufffd"))
    head.audit_seq += 1
    head.audit_hash = chained(head.audit_hash, head.audit_seq, record)
    return {
        "seq": head.audit_seq, "epoch": record.epoch, "at": record.at, "actor": record.actor, "subject": record.subject,
        "change": record.change, "cause": record.cause, "hash": head.audit_hash, "entry": record.entry,
    }  # fmt: skip


def fence(connection: Connection, epoch: Epoch, first: Index, index: Index) -> None:
    """Go from `first` to `index` within `epoch`. Raises Conflict when the database is elsewhere: another ledger has begun an epoch."""
    if _FENCED.run(connection, [{"e": epoch, "first": first, "last": index}]) != 1:
        raise Conflict(f"another quota-ledger has taken over from epoch {epoch}", hint="only one may run on a database")


def _answer_row(scheduler: str, answer: Any, at: float) -> dict[str, Any]:
    return {
        "plan": answer.plan, "scheduler": scheduler, "job": answer.job, "committed": answer.committed, "reason": answer.reason,
        "message": answer.message, "refresh": answer.refresh, "at": at,
    }  # fmt: skip


def _state(holding: Holding) -> dict[str, Any]:
    claim = holding.claim
    return {
        "state": claim.state, "reason": claim.reason, "generation": holding.generation, "intent": holding.intent,
        "intent_reason": holding.reason, "changed_at": holding.changed_at,
    }  # fmt: skip


def _claim_rows(holdings: Iterable[Holding]) -> list[dict[str, Any]]:
    written: dict[int, str] = {}  # equal pods share one requests object; alive as long as their claims are

    def requests(amounts: Resources) -> str:
        text = written.get(id(amounts))
        if text is None:
            text = written[id(amounts)] = json.dumps(amounts, sort_keys=True)
        return text

    return [
        {
            **_identity(h.claim), "requests": requests(h.claim.requests), **_terms(h), **_state(h), "claimed_at": h.claim.claimed_at,
            "cards": json.dumps(h.cards) if h.cards else "{}",
        }
        for h in holdings
    ]  # fmt: skip


def _rules(queue: Queue) -> dict[str, Any]:
    return {
        "deserved": queue.deserved, "guarantee": queue.guarantee, "reclaimable": queue.reclaimable, "parent": queue.parent,
        "budget_card_hours": queue.budget_card_hours, "created_at": queue.created_at, **({"fault": queue.fault} if queue.fault else {}),
        **({"pools": queue.pools} if queue.pools else {}),
        **({"namespaces": queue.namespaces} if queue.namespaces else {}),
    }  # fmt: skip


def _identity(claim: Claim) -> dict[str, Any]:
    return {
        "id": claim.id, "pod_uid": claim.pod_uid, "namespace": claim.namespace, "pod": claim.pod, "job": claim.job, "plan": claim.plan,
        "queue": claim.queue, "priority": claim.priority, "node": claim.node, "slices": format_slices(claim.slices),
        "min_member": claim.min_member, "preemptable": claim.preemptable, "created_at": claim.created_at,
    }  # fmt: skip


def _terms(holding: Holding) -> dict[str, Any]:
    return {
        "slots": ",".join(map(str, holding.slots)), "resource_version": holding.resource_version, "deadline": holding.deadline,
        "forced": holding.forced, "traceparent": holding.traceparent,
    }  # fmt: skip
