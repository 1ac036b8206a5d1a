"""The ledger against a complete list of the pods that have a node: every pod is taken in as if just seen, and claims without a pod are voided.

Absence from a list is weaker evidence than a pod's own end: the list comes from another service's cache, which may be behind. A posted claim
is voided when two lists in a row, both begun after it was last changed, do not know its pod; until then it is a suspect and stays booked.
"""

from collections.abc import Iterable

from hbox_common.model import ClaimState, PodFact

from .books import Books
from .lifecycle import absent, observed
from .step import Step


def reconcile(books: Books, step: Step, facts: Iterable[PodFact], *, asked_at: float) -> int:
    """Take in a complete list that was asked for at `asked_at`. Returns how many claims differed from it."""
    before, seen = books.index, set()
    for fact in facts:
        if fact.phase.holds:
            seen.add(fact.uid)
        observed(books, step, fact, actor="reconciler")
    missing = {
        id
        for id, holding in books.live.items()
        if holding.claim.state is ClaimState.POSTED and holding.changed_at < asked_at and holding.claim.pod_uid not in seen
    }
    for id in sorted(missing & books.suspects):
        absent(books, step, books.live[id])
    books.suspects = missing & books.live.keys()
    return books.index - before
