"""The ledger's database proven against itself, from outside: read only, at one moment, beside a ledger that goes on.

The audit is followed from its first record: the chain is whole, it goes through `head`, it tells the states that the claims have and as many changes
as the epoch had. The transfers replay to the balances, and both are what the live claims add up to; so are the accounts of the cards.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, Select, select

from hbox_common.errors import InvalidRequest
from hbox_common.model import ClaimState, Epoch, Queue, QueueName, is_host_port, named_models, parse_slices
from hbox_common.store import reading

from ..core.chain import Chain, Mark, Record
from ..core.loans import on_loan
from ..core.step import Bucket
from . import tables as t

ROWS = 10_000


@dataclass(slots=True)
class Proof:
    """What was looked at, and what is wrong with it, in sentences."""

    records: int = 0
    head: Mark | None = None  #: None: nothing is in the audit yet
    checks: int = 0
    faults: list[str] = field(default_factory=list)

    def check(self, good: bool, fault: str) -> None:
        self.checks += 1
        if not good:
            self.faults.append(fault)


def prove(url: str, *, through: Mark | None = None) -> Proof:
    """All checks on the database at `url`. Raises InvalidRequest (no ledger's, or of another version), NotFound, Unavailable."""
    proof = Proof()
    with reading(url, versions=t.VERSIONS) as connection:
        state = connection.execute(select(t.ledger.c.epoch, t.ledger.c.idx)).first()
        if state is None:
            raise InvalidRequest("database: no ledger has begun an epoch in it", hint="is it the right database?")
        claims = connection.execute(select(t.claims).where(t.claims.c.state != ClaimState.VOID)).all()
        _audit(connection, proof, claims, now=(Epoch(state.epoch), state.idx), through=through)
        _balances(connection, proof, claims)
        _cards(connection, proof, claims)
    return proof


def _audit(
    connection: Connection, proof: Proof, claims: Sequence[Row[Any]], *, now: tuple[Epoch, int], through: Mark | None
) -> None:
    """`now`: the ledger's epoch, and how many changes it counts in it."""
    chain = Chain()
    for r in _rows(connection, select(t.audit).order_by(t.audit.c.seq)):
        record = Record(r.epoch, r.at, r.actor, r.subject, r.change, r.cause, r.entry)
        fault = chain.follow(r.seq, record, bytes(r.hash))
        proof.check(not fault, fault)
        if fault:
            return  # what comes after it proves nothing
        if through is not None and through.seq == r.seq:
            proof.check(
                through.hash == chain.hash,
                f"audit record {r.seq} is another than that of {through}: history was written anew",
            )
    proof.records, proof.head = chain.seq, Mark(chain.seq, chain.hash) if chain.seq else None
    if through is not None:
        proof.check(through.seq <= chain.seq, f"the audit ends with record {chain.seq}, and record {through.seq} was there")
    epoch, counted = now
    told = chain.changes.get(epoch, 0)
    proof.check(told == counted, f"the audit tells of {told} changes of claims in epoch {epoch}, the ledger counts {counted}")
    rows = {claim.id: claim for claim in claims}
    for id in sorted(rows.keys() | chain.live.keys()):
        row, (said, entry) = rows.get(id), chain.live.get(id, (ClaimState.VOID, ""))
        state = row.state if row is not None else ClaimState.VOID
        proof.check(said == state, f"claim {id} is {state}, and {said} by the audit")
        if row is not None and entry:
            models = json.loads(row.models)
            held = [row.queue, row.node, json.loads(row.requests), row.slices, *([models] if models else [])]
            proof.check(held == json.loads(entry), f"claim {id} holds {held}, and {json.loads(entry)} by the audit")


def _balances(connection: Connection, proof: Proof, claims: Sequence[Row[Any]]) -> None:
    replayed: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    last = 0
    for row in _rows(connection, select(t.transfers).order_by(t.transfers.c.seq)):
        proof.check(row.seq == last + 1, f"transfer {last + 1} is missing: transfer {row.seq} comes after {last}")
        last = row.seq
        replayed[row.queue, row.resource][row.debit] -= row.amount
        replayed[row.queue, row.resource][row.credit] += row.amount
    balances = {(row.queue, row.resource): row for row in connection.execute(select(t.accounts))}
    held: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    q = t.queues.c
    deserved, named = {}, []
    for name, capability, text in connection.execute(select(q.name, q.capability, q.rules).where(~q.gone)):
        rules = json.loads(text)
        deserved[name] = rules.get("deserved", {})
        named += named_models(json.loads(capability), deserved[name], rules.get("guarantee", {}))
    for claim in claims if named else ():
        for model, amount in json.loads(claim.models).items() if claim.queue else ():
            held[claim.queue, model][claim.state] += amount
    for claim in claims:
        for resource, amount in json.loads(claim.requests).items() if claim.queue else ():
            if not is_host_port(resource):
                held[claim.queue, resource][claim.state] += amount
    for key in sorted(balances.keys() | replayed.keys() | held.keys()):
        queue, resource = key
        sums = held[key]
        used = sums[Bucket.PENDING] + sums[Bucket.POSTED]
        owner = Queue(QueueName(queue), deserved=deserved.get(queue, {}))
        sums[Bucket.BORROWED] = on_loan({resource: used}, owner).get(resource, 0)
        for bucket, whose in ((Bucket.PENDING, "claims"), (Bucket.POSTED, "claims"), (Bucket.BORROWED, "claims and rules")):
            balance, replay = getattr(balances.get(key), bucket, 0), replayed[key][bucket]
            where = f"queue {queue}, {resource}: {balance} {bucket} in its account"
            proof.check(balance == replay, f"{where}, {replay} by its transfers")
            proof.check(balance == sums[bucket], f"{where}, {sums[bucket]} by its {whose}")


def _cards(connection: Connection, proof: Proof, claims: Sequence[Row[Any]]) -> None:
    held: defaultdict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for claim in claims:
        for s in parse_slices(claim.slices):
            held[claim.node, s.index].update(cores=s.cores, memory_mib=s.memory_mib, pods=1)
    accounts = {(row.node, row.card): row for row in connection.execute(select(t.card_accounts))}
    for key in sorted(accounts.keys() | held.keys()):
        for what in ("cores", "memory_mib", "pods"):
            balance = getattr(accounts.get(key), what, 0)
            fault = f"node {key[0]} card {key[1]}: {balance} {what} in its account, {held[key][what]} by its claims"
            proof.check(balance == held[key][what], fault)


def _rows(connection: Connection, query: Select[Any]) -> Iterator[Row[Any]]:
    """Row by row, few in memory at once."""
    with closing(connection.execute(query, execution_options={"yield_per": ROWS})) as rows:
        yield from rows
