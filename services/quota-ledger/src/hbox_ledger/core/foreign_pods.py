"""The cards that a pod holds which was found bound without a live claim.

A tenant may write any annotation on its pods. The ledger trusts annotations that match a claim which it issued (`identity`) for this pod, node and cards.
Otherwise the pod holds what it requests and no more:

1. If the node's device plugin is HAMi's: the cards that HAMi's annotations name by UUID, even if other pods hold them, since the plugin has handed them over.
   A forged annotation over-books these cards by no more than the pod's requests. With the admission policies installed, no tenant can write one.
   So does a pod whose `hbox.io/cards` an older binder wrote by indices, if these are other cards now: the plugin has renumbered them since (`renumbered`).
2. Else the cards that `hbox.io/cards` names, if no other pod holds them; else the free cards with the lowest indices.
"""

from collections.abc import Sequence
from dataclasses import replace

from hbox_common.model import VENDORS, Card, CardRequest, CardSlice, PodFact, annotated_cards, cards_held, name_slices
from hbox_common.model.devices import number_in

from .claimids import issued
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
    given = _annotated(state, fact, partly=True)
    if given and (request.devices is not None or len(given) >= request.count):
        return given
    cards: Sequence[Card] = node.cards
    if given:
        known = {s.card for s in given}
        request = replace(request, count=request.count - len(given))
        cards = [card for card in cards if card.id not in known]
    found = cards_held(
        request,
        cards,
        state.node(fact.node).cards,
        named=[s.card for s in name_slices(fact.slices, node.cards)],
        kind=vendor.kind if vendor is not None else "",
        facts=node.device_facts,
    )
    return given + found


def handed_over(state: LedgerState, fact: PodFact, *, partly: bool = False) -> tuple[CardSlice, ...]:
    """Slices of the cards that another scheduler allocated to the pod by annotations of the node's device plugins; () if the node does not report all of them.
    `partly`: return those that it reports."""
    return () if proven(state, fact) else _annotated(state, fact, partly=partly)


def renumbered(state: LedgerState, fact: PodFact) -> bool:
    """Whether an older ledger issued the pod's claim by indices of cards, and the annotation of the device plugin names other cards than these indices now.
    Claims that are issued by ids of cards never are, whatever is written on their pods."""
    return bool(fact.claim) and _other_cards(state, fact) and issued(state.key, fact.claim, fact.uid, fact.node, fact.slices)


def _other_cards(state: LedgerState, fact: PodFact) -> bool:
    if not fact.slices or any(number_in(s.card) is None for s in fact.slices):
        return False
    given = {s.card for s in _annotated(state, fact)}
    return bool(given) and given != {s.card for s in state.named(fact.node, fact.slices)}


def _annotated(state: LedgerState, fact: PodFact, *, partly: bool = False) -> tuple[CardSlice, ...]:
    node, vendor = state.nodes.get(fact.node), VENDORS.of(fact.requests)
    if node is None or vendor is None or not fact.allocated or fact.cards <= 0:
        return ()
    allocated = {kind: text for kind, text in fact.allocated.items() if kind in node.registered}
    request = fact.asks or CardRequest(fact.cards)
    return annotated_cards(allocated, request, node.cards, kind=vendor.kind, facts=node.device_facts, partly=partly)


def proven(state: LedgerState, fact: PodFact) -> bool:
    """Whether this ledger issued the claim id on the pod, for the pod's uid, node and annotated cards, and these cards are still known."""
    if not fact.claim:
        return False
    if issued(state.key, fact.claim, fact.uid, fact.node, fact.slices):
        return not _other_cards(state, fact)
    node = state.nodes.get(fact.node)  # an older binder writes the indices of cards
    if node is None or (named := name_slices(fact.slices, node.cards)) == fact.slices:
        return False
    return issued(state.key, fact.claim, fact.uid, fact.node, named)


def doubt(state: LedgerState, fact: PodFact) -> int:
    """Sort key of the order in which pods are accounted for: pods with less evidence come later and get the remaining cards."""
    if fact.uid in state.by_pod or proven(state, fact):
        return 0
    return 1 if fact.slices or fact.allocated else 2
