"""Which cards a pod holds that was found bound without a live claim.

Annotations are their pod's tenant's to write. They are believed where they bear out a claim that this ledger issued (`identity`), for this pod, node and
cards. Else a pod holds what it asks for and no more:

1. On the cards that HAMi's annotations name by UUID, on a node whose plugin hands cards over by these, whoever else is on them: the plugin gave them already.
   A forged one over-books what it names by no more than the pod may ask for anyway; where the admission policies are installed no tenant can write one.
2. On the cards that `hbox.io/cards` names where no other pod holds these, else on the lowest that are free.
"""

from dataclasses import replace

from hbox_common.model import VENDORS, CardRequest, CardSlice, PodFact, cards_held, cards_written, name_slices

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
    given = handed_over(state, fact, partly=True)
    if given and (request.devices is not None or len(given) >= request.count):
        return given
    there = {s.card for s in given}
    found = cards_held(
        replace(request, count=request.count - len(given)),
        [card for card in node.cards if card.id not in there],
        state.node(fact.node).cards,
        named=[s.card for s in name_slices(fact.slices, node.cards)],
        kind=vendor.kind if vendor is not None else "",
        facts=node.device_facts,
    )
    return given + found


def handed_over(state: LedgerState, fact: PodFact, *, partly: bool = False) -> tuple[CardSlice, ...]:
    """The cards that another scheduler wrote on the pod for the node's device plugins to hand over; () where these are not all known. `partly`: those of them
    that are known."""
    node, vendor = state.nodes.get(fact.node), VENDORS.of(fact.requests)
    if node is None or vendor is None or not fact.allocated or fact.cards <= 0 or proven(state, fact):
        return ()
    allocated = {kind: text for kind, text in fact.allocated.items() if kind in node.registered}
    request = fact.asks or CardRequest(fact.cards)
    return cards_written(allocated, request, node.cards, kind=vendor.kind, facts=node.device_facts, partly=partly)


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
    return 1 if fact.slices or fact.allocated else 2
