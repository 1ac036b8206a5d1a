"""What is in the ledger's database, read past the ledger by the driver alone."""

import json
import sqlite3
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from hbox_common.events import Event, content_type, decode
from hbox_common.model import CardSlice, Resources, parse_slices

from .cluster import counted


@dataclass(frozen=True)
class ClaimRow:
    id: str
    pod: str
    job: str
    plan: str
    queue: str
    priority: int
    node: str
    requests: Resources
    slices: tuple[CardSlice, ...]
    state: str
    intent: str
    generation: int
    forced: bool
    preemptable: bool
    min_member: int
    reason: str
    slots: str
    protected_until: float = 0.0

    @property
    def live(self) -> bool:
        return self.state != "void"

    @property
    def amounts(self) -> Resources:
        """What it counts against its queue. Of a binding that restored books have lost nobody knows the models, until its pod is found."""
        return self.requests if self.forced and self.state == "pending" else counted(self.requests, self.slices, self.node)


class GangRow(NamedTuple):
    min_member: int
    deadline: float
    unwinding: bool
    finished: int


class AuditRow(NamedTuple):
    seq: int
    epoch: int
    at: float
    actor: str
    subject: str
    change: str
    cause: str
    entry: str
    hash: bytes


class TransferRow(NamedTuple):
    queue: str
    resource: str
    debit: str
    credit: str
    amount: int


@dataclass(frozen=True)
class Rows:
    """All of one moment; `audit` and `transfers` are those that came since `Reader.seen`."""

    epoch: int
    index: int
    claims: dict[str, ClaimRow]
    gangs: dict[str, GangRow]
    accounts: dict[tuple[str, str], tuple[int, int, int]]  #: pending, posted, borrowed
    cards: dict[tuple[str, int], tuple[int, ...]]
    answers: dict[str, tuple[Any, ...]]
    outbox: list[Event]
    audit: list[AuditRow]
    transfers: list[TransferRow]
    deserved: dict[str, Resources]
    nominations: list[dict[str, Any]]  #: as they are written

    def live(self) -> list[ClaimRow]:
        return [claim for claim in self.claims.values() if claim.live]


_CLAIM = (
    "SELECT id, pod_uid, job, plan, queue, priority, node, requests, slices, state, intent, generation, forced, preemptable, min_member, "
    "intent_reason, slots, protected_until FROM claims ORDER BY rowid"
)
_CARD = "SELECT node, card, cores, memory_mib, pods, whole, forced FROM card_accounts"
_AUDIT = "SELECT seq, epoch, at, actor, subject, change, cause, entry, hash FROM audit WHERE seq > ? ORDER BY seq"
_TRANSFER = "SELECT queue, resource, debit, credit, amount FROM transfers WHERE seq > ? ORDER BY seq"


def _claim(row: tuple[Any, ...]) -> ClaimRow:
    values = dict(zip((field.name for field in fields(ClaimRow)), row, strict=True))
    values |= {"requests": json.loads(values["requests"]), "slices": parse_slices(values["slices"])}
    return ClaimRow(**values)


class Reader:
    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._audit = self._transfer = 0
        self._letters: dict[bytes, Event] = {}

    def close(self) -> None:
        self._connection.close()

    def read(self) -> Rows:
        do = self._connection.execute
        do("BEGIN")
        [(epoch, index)] = do("SELECT epoch, idx FROM ledger").fetchall() or [(0, 0)]
        claims = [_claim(r) for r in do(_CLAIM)]
        rows = Rows(
            epoch,
            index,
            {c.id: c for c in claims},
            {r[0]: GangRow(*r[1:]) for r in do("SELECT job, min_member, deadline, unwinding, finished FROM gangs")},
            {(r[0], r[1]): r[2:] for r in do("SELECT queue, resource, pending, posted, borrowed FROM accounts")},
            {(r[0], r[1]): r[2:] for r in do(_CARD)},
            {r[0]: r for r in do("SELECT plan, job, committed, reason, message, refresh FROM plan_answers")},
            [self._decoded(*r) for r in do("SELECT type, body FROM outbox ORDER BY epoch, number")],
            [AuditRow(*r) for r in do(_AUDIT, (self._audit,))],
            [TransferRow(*r) for r in do(_TRANSFER, (self._transfer,))],
            {name: json.loads(rules)["deserved"] for name, rules in do("SELECT name, rules FROM queues WHERE NOT gone")},
            [json.loads(body) for (body,) in do("SELECT body FROM nominations ORDER BY until, plan")],
        )
        do("COMMIT")
        return rows

    def seen(self, rows: Rows) -> None:
        self._audit += len(rows.audit)
        self._transfer += len(rows.transfers)

    def _decoded(self, type_: str, body: bytes) -> Event:
        if body not in self._letters:
            self._letters[body] = decode(body, {"ce-type": type_, "content-type": content_type(type_)})
        return self._letters[body]
