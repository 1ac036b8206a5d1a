"""The ledger against a complete list of the pods that have a node: every pod is taken in as if just seen, and claims without a pod are voided.

Absence from a list is weaker evidence than a pod's own end: the list comes from another service's cache, which may be behind. A posted claim
is voided when all lists for some time, asked for after it was posted, do not know its pod; until then it is a suspect and stays booked. None of
that goes by the time of day: a claim that was posted while the clock was wrong is judged as any other.
"""

from collections.abc import Iterable

from hbox_common.model import ClaimState, Index, PodFact

from .books import Books
from .find import doubt
from .lifecycle import absent, observed
from .step import Step


def reconcile(
    books: Books, step: Step, facts: Iterable[PodFact], *, as_of: Index, asked_at: float, apart_s: float = 0.0
) -> int:
    """Take in a complete list that was asked for when the books stood at `as_of`, at `asked_at` of a clock that is never set (seconds). A claim is
    voided that another one lacked, asked for `apart_s` before at least.

    Returns how many claims differed from it. One that was pending, and whose pod is bound where it should be, does not: the list has the news first.
    """
    before, seen = len(step.changes), set()
    for fact in sorted(facts, key=lambda fact: doubt(books, fact)):
        if fact.phase.holds:
            seen.add(fact.uid)
        observed(books, step, fact, actor="reconciler")
    missing = [
        id
        for id, holding in books.live.items()
        if holding.claim.state is ClaimState.POSTED and holding.posted <= as_of and holding.claim.pod_uid not in seen
    ]
    since = {id: books.suspects.get(id, asked_at) for id in sorted(missing)}
    for id in [id for id, first in since.items() if id in books.suspects and asked_at - first >= apart_s]:
        absent(books, step, books.live[id])
    books.suspects = {id: first for id, first in since.items() if id in books.live}
    books.unseen = {id: posted for id, posted in books.unseen.items() if id not in since}
    return sum((one.before, one.claim.state) != (ClaimState.PENDING, ClaimState.POSTED) for one in step.changes[before:])
