"""Claims whose rows cannot be read, for example after a disk fault, a bad restore or a manual change. One such row must not keep the books closed.

The database contains a claim's content twice: in its row, and in the audit record of its creation. So the row is rewritten from the audit, and the claim
continues. If the audit cannot be read either, the row is set aside: it is kept as void, with the reason, its slots are freed, its node's cards are recounted,
and transfers remove the unexplained amounts from its queue's account. An audit record (`chain.ASIDE`) keeps the history consistent, and
`hbox audit --ledger` names it. The pod, if it runs, is in the list that opens the books, and is booked as found.
"""

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, and_, delete, false, select, update

from hbox_common.model import ClaimId, ClaimState, NodeName, parse_slices
from hbox_common.model.bounds import INT64_MAX, sanitized

from ..core.claimrecord import ClaimRecord
from ..core.ledgerstate import BUCKETS, LedgerState
from ..core.segments import Damaged, unpack
from ..core.step import Bucket, Step
from . import segments
from . import tables as t

log = logging.getLogger(__name__)

#: Seconds around a claim's creation in which a segment is searched for its record: a message and its turn have the same time.
SEARCHED_S = 60.0

#: With which the reason of a row begins that was set aside.
SET_ASIDE = "set aside: "


def amounts(text: str) -> Any:
    """A map of names to integers, as JSON. Raises ValueError."""
    found = json.loads(text)
    if not isinstance(found, dict) or not all(type(units) is int and abs(units) <= INT64_MAX for units in found.values()):
        raise ValueError(f"no amounts: {text[:100]}")
    return found


def mend(connection: Connection, unreadable: Mapping[ClaimId, str], *, now: float) -> dict[ClaimId, str]:
    """Write these rows anew from the audit, or set them aside. Returns which were set aside, and why."""
    aside = {}
    for claim, why in unreadable.items():
        held = _by_the_audit(connection, claim)
        if held is not None:
            connection.execute(update(t.claims).where(t.claims.c.id == claim).values(**held))
            log.error("claim %s could not be read (%s): written anew from the audit", sanitized(claim, 64), why)
            continue
        aside[claim] = sanitized(why, 200)
        values = {"state": ClaimState.VOID.value, "reason": f"{SET_ASIDE}{aside[claim]}", "changed_at": now}
        connection.execute(update(t.claims).where(t.claims.c.id == claim).values(**values))
        connection.execute(update(t.card_slots).where(t.card_slots.c.claim == claim).values(live=false()))
        log.error("claim %s cannot be read (%s): set aside; its pod is booked anew when it is seen", sanitized(claim, 64), why)
    if aside:  # a gang of which nothing is left is on its way no more
        left = select(t.claims.c.job).where(t.claims.c.state != ClaimState.VOID)
        connection.execute(delete(t.gangs).where(t.gangs.c.job.not_in(left)))
    return aside


def balance(connection: Connection, books: LedgerState, step: Step) -> None:
    """Move from the accounts of queues, or to them, what the claims that could be read do not add up to."""
    held: defaultdict[tuple[str, str], Counter[Bucket]] = defaultdict(Counter)
    for record in books.live.values():
        claim = record.claim
        for resource, units in books.counted(claim).items() if claim.queue else ():
            held[claim.queue, resource][BUCKETS[claim.state]] += units
    for row in connection.execute(select(t.accounts)).all():
        for bucket in (Bucket.PENDING, Bucket.POSTED):
            more = held[row.queue, row.resource][bucket] - getattr(row, bucket.value)
            debit, credit = (Bucket.FREE, bucket) if more > 0 else (bucket, Bucket.FREE)
            step.move(row.queue, row.resource, debit, credit, abs(more))


def recount(connection: Connection, live: Mapping[ClaimId, ClaimRecord]) -> None:
    """Make the accounts of cards what the claims that could be read add up to."""
    held: defaultdict[tuple[NodeName, int], Counter[str]] = defaultdict(Counter)
    for record in live.values():
        for s in record.claim.slices:
            held[record.claim.node, s.index].update(
                cores=s.cores, memory_mib=s.memory_mib, pods=s.slots, whole=int(s.whole), forced=int(record.forced)
            )
    a = t.card_accounts.c
    for row in connection.execute(select(t.card_accounts)).all():
        sums = held[row.node, row.card]
        wanted = {name: sums[name] for name in ("cores", "memory_mib", "pods", "whole", "forced")}
        if any(getattr(row, name) != units for name, units in wanted.items()):
            connection.execute(update(t.card_accounts).where(and_(a.node == row.node, a.card == row.card)).values(**wanted))


def _by_the_audit(connection: Connection, claim: ClaimId) -> dict[str, Any] | None:
    """The columns of what a claim holds, as it was when it was made; None where that cannot be read either, or explains nothing."""
    query = select(t.audit.c.entry).where(t.audit.c.subject == claim, t.audit.c.entry != "")
    row = connection.execute(select(t.claims).where(t.claims.c.id == claim)).mappings().one()
    entry = connection.execute(query).scalar() or _sealed_entry(connection, claim, row["claimed_at"])
    try:
        queue, node, requests, slices, *more = json.loads(entry or "")
        held = {
            "queue": queue,
            "node": node,
            "requests": json.dumps(amounts(json.dumps(requests)), sort_keys=True),
            "slices": slices,
            "models": json.dumps(amounts(json.dumps(more[0] if more else {})), sort_keys=True),
            "pool": str(more[1]) if len(more) > 1 else "",
        }
        parse_slices(slices)
    except (ValueError, TypeError):
        return None
    return held if any(row[name] != text for name, text in held.items()) else None


def _sealed_entry(connection: Connection, claim: ClaimId, claimed_at: Any) -> str | None:
    """The entry of a claim's creation in the sealed segments of that time; None if they have none, or cannot be read."""
    if not isinstance(claimed_at, float):
        return None
    s = t.segments.c
    near = select(s.number).where(s.first_at <= claimed_at + SEARCHED_S, s.last_at >= claimed_at - SEARCHED_S)
    for number in connection.execute(near.order_by(s.number)).scalars().all():
        content = segments.content(connection, number)
        try:
            records = unpack(content)[1] if content is not None else []
        except Damaged as e:
            log.error("segment %d cannot be read: %s", number, e)
            continue
        for record in records:
            if record.subject == claim and record.entry:
                return record.entry
    return None
