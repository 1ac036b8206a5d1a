"""Loans: usage of queues beyond what they deserve, as transfers from the pool, and back to it as soon as they use less or deserve more.

The lender is the pool: what other queues deserve and leave idle, and what no queue deserves. Arbitration decides which queue may reclaim a loan, and from
which (`preemption`); this module only records loans, so that a queue's balance shows at any moment how much of its usage is borrowed.

Loans exist for resources that the queue's `deserved` names, and always for cards: a queue that deserves none borrows all of its cards. A queue that deserves
only cards of certain models deserves as many cards in total.
"""

from collections.abc import Iterable

from hbox_common.model import VENDORS, QueueName, Resources, cards_of

from ..ledgerstate import LedgerState
from ..step import Bucket, Step


def on_loan(used: Resources, mine: Resources) -> Resources:
    """How much of what a queue uses is not its own, without zeros. mine: what it deserves; a queue that is gone deserves nothing."""
    deserved = {cards: cards_of(cards, mine) for cards in VENDORS.cards if cards in used} | mine
    return {name: used[name] - units for name, units in deserved.items() if used.get(name, 0) > units}


def lend(state: LedgerState, step: Step, names: Iterable[QueueName]) -> None:
    """Bring the loans of these queues to what they use and deserve now."""
    for name in names:
        due, had = on_loan(state.used.get(name, {}), state.queues.amounts(name).deserved), state.borrowed.get(name, {})
        if due != had:
            _lend(state, step, name, due, had)


def _lend(state: LedgerState, step: Step, name: QueueName, due: Resources, had: Resources) -> None:
    for resource in due.keys() | had.keys():
        more = due.get(resource, 0) - had.get(resource, 0)
        if more > 0:
            step.move(name, resource, Bucket.POOL, Bucket.BORROWED, more)
        else:
            step.move(name, resource, Bucket.BORROWED, Bucket.POOL, -more)
    state.borrowed[name] = due
