"""Which cards a pod holds that was found bound without a live claim.

Annotations are their pod's tenant's to write. They are believed where they bear out a claim that this ledger issued (`identity`), for this pod, node and
cards. Else a pod holds what it asks for and no more: on the cards that it names where nobody else holds these, else on the lowest that are free.
"""

from hbox_common.model import CardRequest, CardSlice, PodFact, cards_held

from .books import Books
from .identity import issued


def slices_of(books: Books, fact: PodFact) -> tuple[CardSlice, ...]:
    """Fewer than it asks for where the node has no more free."""
    if proven(books, fact):
        return fact.slices
    node = books.nodes.get(fact.node)
    if node is None or fact.cards <= 0:
        return ()
    request = fact.asks or CardRequest(fact.cards)
    return cards_held(request, node.cards, books.node(fact.node).cards, said=[s.index for s in fact.slices])


def proven(books: Books, fact: PodFact) -> bool:
    """Whether this ledger issued the claim that is written on the pod, for all that is written beside it."""
    return bool(fact.claim) and issued(books.key, fact.claim, fact.uid, fact.node, fact.slices)


def doubt(books: Books, fact: PodFact) -> int:
    """In which order pods are to be taken in, so that those of whom less is known get the cards that others leave."""
    if fact.uid in books.by_pod or proven(books, fact):
        return 0
    return 1 if fact.slices else 2
