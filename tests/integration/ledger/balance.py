"""Whether what a ledger's database holds is one whole: the books of an accountant who trusts nobody."""

import json
from collections import Counter, defaultdict
from typing import Any

from sqlalchemy import Connection, select

from hbox_common.events import ClaimsChanged, content_type, decode
from hbox_common.model import parse_slices
from hbox_ledger.adapters import tables as t
from hbox_ledger.core.chain import GENESIS, Record, chained


def balanced(connection: Connection) -> None:
    """Raises AssertionError where chains are broken, sums differ, or a change is told to nobody. The relay must not have published anything yet."""
    claims = connection.execute(select(t.claims)).all()
    changes = _chain(connection)
    for claim in claims:
        path = changes.get(claim.id, [])
        assert ["none", *(after for _, after in path)] == [*(before for before, _ in path), claim.state], (
            "the audit is not a path"
        )
    used: Counter[tuple[str, str, str]] = Counter()
    cards: defaultdict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for claim in claims:
        if claim.state == "void":
            continue
        for resource, units in json.loads(claim.requests).items():
            used[claim.queue, resource, claim.state] += units
        for s in parse_slices(claim.slices):
            for i, units in enumerate((s.cores, s.memory_mib, 1)):
                cards[claim.node, s.index][i] += units
    replayed: Counter[tuple[str, str, str]] = Counter()
    for move in connection.execute(select(t.transfers)):
        replayed[move.queue, move.resource, move.debit] -= move.amount
        replayed[move.queue, move.resource, move.credit] += move.amount
    assert {k: n for k, n in replayed.items() if n and k[2] in ("pending", "posted")} == used
    accounts = connection.execute(select(t.accounts)).all()
    assert {(a.queue, a.resource, b): getattr(a, b) for a in accounts for b in ("pending", "posted") if getattr(a, b)} == used
    held = connection.execute(select(t.card_accounts)).all()
    assert {(c.node, c.card): [c.cores, c.memory_mib, c.pods] for c in held if c.pods} == cards
    assert _told(connection) == Counter((id, after) for id, path in changes.items() for _, after in path)


def _chain(connection: Connection) -> dict[str, list[tuple[str, str]]]:
    """The changes of each claim, in order."""
    head = GENESIS
    changes: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for r in connection.execute(select(t.audit).order_by(t.audit.c.seq)):
        head = chained(head, r.seq, Record(r.epoch, r.at, r.actor, r.subject, r.change, r.cause, r.entry))
        assert bytes(r.hash) == head, "the chain of the audit is broken"
        before, _, after = r.change.partition("->")
        if before in ("none", "pending", "posted"):
            changes[r.subject].append((before, after))
    return changes


def _told(connection: Connection) -> Counter[tuple[str, str]]:
    told: Counter[tuple[str, str]] = Counter()
    for letter in connection.execute(select(t.outbox.table)):
        event: Any = decode(letter.body, {"ce-type": letter.type, "content-type": content_type(letter.type)})
        if isinstance(event, ClaimsChanged):
            told.update((claim.id, claim.state.value) for claim in event.claims)
    return told
