"""Which cards a pod holds that was found bound without a live claim.

Annotations are their pod's tenant's to write. They are believed where they bear out a claim that this ledger issued (`identity`), for this pod, node and
cards. Else a pod holds what it asks for and no more: on the cards that it names where nobody else holds these, else on the lowest that are free.
"""

from hbox_common.model import VENDORS, CardRequest, CardSlice, PodFact, cards_held, name_slices

from .identity import issued
from .ledgerstate import LedgerState


def slices_of(state: LedgerState, fact: PodFact) -> tuple[CardSlice, ...]:
    """Fewer than it asks for where the node has no more free."""
    if proven(state, fact):
        return fact.slices
    node = state.nodes.get(fact.node)
    if node is None or fact.cards <= 0:
        return ()
    request = fact.asks or CardRequest(fact.cards)
    vendor = VENDORS.of(fact.requests)
    return cards_held(
        request,
        node.cards,
        state.node(fact.node).cards,
        named=[s.card for s in name_slices(fact.slices, node.cards)],
        kind=vendor.kind if vendor is not None else "",
        facts=node.device_facts,
    )


def proven(state: LedgerState, fact: PodFact) -> bool:
    """Whether this ledger issued the claim that is written on the pod, for all that is written beside it."""
    if not fact.claim:
        return False
    if issued(state.key, fact.claim, fact.uid, fact.node, fact.slices):
        return True
    node = state.nodes.get(fact.node)  # an older binder writes the indices of cards
    return node is not None and issued(state.key, fact.claim, fact.uid, fact.node, name_slices(fact.slices, node.cards))


def doubt(state: LedgerState, fact: PodFact) -> int:
    """In which order pods are to be taken in, so that those of whom less is known get the cards that others leave."""
    if fact.uid in state.by_pod or proven(state, fact):
        return 0
    return 1 if fact.slices else 2
