"""Verifies the ledger's database against itself: read-only, on one snapshot, while the ledger runs.

The audit is followed from its first record, through the sealed segments and then its table (`history`): the chain is intact and includes `head`; it yields the
states of the claims and as many changes as the epoch had. The transfers replay to the balances; balances and card accounts equal the sums of the live claims.

A row that cannot be read is named, and its content is taken from the audit, so that it causes no further faults. A row that a ledger set aside is a note: the
audit contains that record, and accounts continue without the claim.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, select

from hbox_common.errors import InvalidRequest
from hbox_common.model import (
    CardSlice,
    ClaimState,
    Epoch,
    Queue,
    QueueName,
    QueueTree,
    in_pool,
    is_host_port,
    named_models,
    parse_slices,
)
from hbox_common.model.bounds import sanitized
from hbox_common.model.claim import counted_models
from hbox_common.model.devices import format_numbered
from hbox_common.store import reading

from ..core.accounts.loans import on_loan
from ..core.cardnumbers import CardName, subject_of
from ..core.chain import Chain, Mark
from ..core.step import Bucket
from . import tables as t
from .history import Transfers, replay
from .repair import amounts


@dataclass(slots=True)
class Proof:
    """What was looked at, and what is wrong with it, in sentences."""

    records: int = 0
    segments: int = 0  #: that are sealed
    head: Mark | None = None  #: None: nothing is in the audit yet
    checks: int = 0
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def check(self, good: bool, fault: str) -> None:
        self.checks += 1
        if not good:
            self.faults.append(fault)


@dataclass(frozen=True, slots=True)
class _Claim:
    """What a live claim holds, by its row."""

    id: str
    state: str
    queue: str
    node: str
    requests: dict[str, int]
    slices: tuple[CardSlice, ...]
    models: dict[str, int]
    pool: str

    def entry(self) -> list[Any]:
        """The claim as an entry of the audit (`core.chain.entry`)."""
        models = [self.models] if self.models or self.pool else []
        return [
            self.queue,
            self.node,
            self.requests,
            format_numbered(self.slices),
            *models,
            *([self.pool] if self.pool else []),
        ]


def prove(url: str, *, through: Mark | None = None, folder: Path | None = None) -> Proof:
    """All checks on the database at `url`. folder: of exported segments. Raises InvalidRequest (no ledger's, or of another version), NotFound, Unavailable."""
    proof = Proof()
    with reading(url, versions=t.VERSIONS) as connection:
        state = connection.execute(select(t.ledger.c.epoch, t.ledger.c.idx)).first()
        if state is None:
            raise InvalidRequest("database: no ledger has begun an epoch in it", hint="is it the right database?")
        rows = connection.execute(select(t.claims).where(t.claims.c.state != ClaimState.VOID)).all()
        chain, transfers = _history(connection, proof, through=through, folder=folder)
        claims = [claim for row in rows if (claim := _claim(proof, row, chain)) is not None]
        if chain is not None:
            _audit(proof, chain, claims, now=(Epoch(state.epoch), state.idx))
            _nominations(connection, proof, chain)
            _names(connection, proof, chain)
        _balances(connection, proof, claims, transfers)
        _cards(connection, proof, claims)
    return proof


def _history(
    connection: Connection, proof: Proof, *, through: Mark | None, folder: Path | None
) -> tuple[Chain | None, Transfers | None]:
    """Audit and transfers from their first row to their last; None where they are broken."""
    history = replay(connection, proof.check, through=through, folder=folder)
    chain, proof.segments = history.chain, history.segments
    if history.skipped:
        proof.notes.append(
            f"segments 1-{history.skipped} are not in the database, so that history is verified from the one after them: "
            "--segments FOLDER with their files verifies all of it"
        )
    if chain is None:
        return None, history.transfers
    proof.records, proof.head = chain.seq, Mark(chain.seq, chain.hash) if chain.seq else None
    if through is not None:
        proof.check(through.seq <= chain.seq, f"the audit ends with record {chain.seq}, and record {through.seq} was there")
    proof.notes += [
        f"claim {sanitized(id, 64)} was set aside, its row could not be read: {why}" for id, why in sorted(chain.aside.items())
    ]
    return chain, history.transfers


def _claim(proof: Proof, row: Row[Any], chain: Chain | None) -> _Claim | None:
    """By its row; where that cannot be read, by the audit."""
    try:
        claim = _Claim(
            row.id,
            ClaimState(row.state),
            row.queue,
            row.node,
            amounts(row.requests),
            parse_slices(row.slices),
            amounts(row.models),
            row.pool,
        )
    except (ValueError, TypeError) as e:
        ahead = "a ledger that starts writes it anew from the audit, or sets it aside"
        proof.check(False, f"claim {sanitized(str(row.id), 64)}: its row cannot be read ({sanitized(str(e), 200)}): {ahead}")
    else:
        return claim
    state, entry = chain.live.get(row.id, (ClaimState.VOID, "")) if chain is not None else (ClaimState.VOID, "")
    return _Claim(row.id, state, *_read(entry)) if entry else None


def _read(entry: str) -> tuple[str, str, dict[str, int], tuple[CardSlice, ...], dict[str, int], str]:
    """Queue, node, requests, slices, models and pool of an entry of the audit."""
    queue, node, requests, slices, *more = json.loads(entry)
    return queue, node, requests, parse_slices(slices), more[0] if more else {}, more[1] if len(more) > 1 else ""


def _audit(proof: Proof, chain: Chain, claims: Sequence[_Claim], *, now: tuple[Epoch, int]) -> None:
    """`now`: the ledger's epoch, and how many changes it counts in it."""
    epoch, counted = now
    audited = chain.changes.get(epoch, 0)
    proof.check(
        audited == counted or (chain.partial and epoch == chain.first),
        f"the audit trail has {audited} claim changes in epoch {epoch}, the ledger counts {counted}",
    )
    rows = {claim.id: claim for claim in claims}
    for id in sorted(rows.keys() | chain.live.keys()):
        claim, (by_audit, entry) = rows.get(id), chain.live.get(id, (ClaimState.VOID, ""))
        state = claim.state if claim is not None else ClaimState.VOID
        if chain.partial and id not in chain.seen:
            continue
        proof.check(by_audit == state, f"claim {id} is {state}, and {by_audit} by the audit")
        if claim is not None and entry:
            proof.check(
                claim.entry() == json.loads(entry), f"claim {id} holds {claim.entry()}, and {json.loads(entry)} by the audit"
            )


def _nominations(connection: Connection, proof: Proof, chain: Chain) -> None:
    rows = {f"nomination {plan}" for plan in connection.execute(select(t.nominations.c.plan)).scalars()}
    for subject in sorted(chain.nominations.keys() - rows if chain.partial else rows ^ chain.nominations.keys()):
        where = ("in its table", "the audit") if subject in rows else ("open by the audit", "its table")
        proof.check(False, f"{sanitized(subject, 64)} is {where[0]}, and not in {where[1]}")
    proof.checks += len(rows)


def _names(connection: Connection, proof: Proof, chain: Chain) -> None:
    """Each row of `card_names` has a record in the audit. The reverse need not hold: the ledger deletes rows of nodes without claims."""
    n = t.card_names.c
    for row in connection.execute(select(n.node, n.number, n.card)):
        subject = subject_of(CardName(row.node, row.number, row.card))
        proof.check(
            (subject, row.card) in chain.names or chain.partial,
            f"node {row.node} card {row.number} is {sanitized(row.card, 64)} in its table, and not in the audit",
        )


def _balances(connection: Connection, proof: Proof, claims: Sequence[_Claim], transfers: Transfers | None) -> None:
    """`transfers`: None: unknown."""
    replayed = transfers.sums if transfers is not None else defaultdict(Counter)
    balances = {(row.queue, row.resource): row for row in connection.execute(select(t.accounts))}
    held: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    q = t.queues.c
    rules_of = QueueTree({})
    unread: set[str] = set()
    for name, capability, text in connection.execute(select(q.name, q.capability, q.rules).where(~q.gone)):
        try:
            rules = json.loads(text)
            owner = Queue(
                QueueName(name),
                capability=amounts(capability),
                deserved=amounts(json.dumps(rules.get("deserved", {}))),
                guarantee=amounts(json.dumps(rules.get("guarantee", {}))),
                parent=str(rules.get("parent", "")),
                pools=tuple(rules.get("pools", ())),
                pool_amounts={which: amounts(json.dumps(of)) for which, of in rules.get("pool_amounts", {}).items()},
            )
        except (ValueError, AttributeError) as e:
            unread.add(name)
            proof.check(False, f"queue {sanitized(str(name), 64)}: its rules cannot be read ({sanitized(str(e), 200)})")
            continue
        rules_of[owner.name] = owner
    in_use = (resource for (_, resource), row in balances.items() if row.pending + row.posted)
    by_model = rules_of.by_model or bool(unread and named_models(in_use))
    for claim in claims:
        for model, amount in counted_models(claim.models, by_model=by_model).items() if claim.queue else ():
            held[claim.queue, in_pool(model, claim.pool)][claim.state] += amount
    for claim in claims:
        for resource, amount in claim.requests.items() if claim.queue else ():
            if not is_host_port(resource):
                held[claim.queue, in_pool(resource, claim.pool)][claim.state] += amount
    for key in sorted(balances.keys() | replayed.keys() | held.keys()):
        queue, resource = key
        sums = held[key]
        used = sums[Bucket.PENDING] + sums[Bucket.POSTED]
        sums[Bucket.BORROWED] = on_loan({resource: used}, rules_of.amounts(QueueName(queue)).deserved).get(resource, 0)
        for bucket, whose in ((Bucket.PENDING, "claims"), (Bucket.POSTED, "claims"), (Bucket.BORROWED, "claims and rules")):
            balance, moved = getattr(balances.get(key), bucket, 0), replayed[key][bucket]
            where = f"queue {queue}, {resource}: {balance} {bucket} in its account"
            proof.check(transfers is None or balance == moved, f"{where}, {moved} by its transfers")
            if bucket is not Bucket.BORROWED or queue not in unread:
                proof.check(balance == sums[bucket], f"{where}, {sums[bucket]} by its {whose}")


def _cards(connection: Connection, proof: Proof, claims: Sequence[_Claim]) -> None:
    held: defaultdict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for claim in claims:
        for s in claim.slices:
            held[claim.node, s.index].update(cores=s.cores, memory_mib=s.memory_mib, pods=s.slots)
    accounts = {(row.node, row.card): row for row in connection.execute(select(t.card_accounts))}
    for key in sorted(accounts.keys() | held.keys()):
        for what in ("cores", "memory_mib", "pods"):
            balance = getattr(accounts.get(key), what, 0)
            fault = f"node {key[0]} card {key[1]}: {balance} {what} in its account, {held[key][what]} by its claims"
            proof.check(balance == held[key][what], fault)
