"""Which cards a pod holds that the ledger did not place."""

from hbox_common.model import CardSlice, PodFact

from .books import Books


def slices_of(books: Books, fact: PodFact) -> tuple[CardSlice, ...]:
    """What its annotation says, where that can be true; else the lowest free cards of its node, whole, as many as it asks for and there are.

    A pod of another scheduler does not say which cards its device plugin gave it. Counting it on free ones keeps the node's sum right.
    """
    node = books.nodes.get(fact.node)
    indices = [s.index for s in fact.slices]
    plausible = (
        bool(indices)
        and len(set(indices)) == len(indices)
        and all(s.index >= 0 and 0 <= s.cores <= 100 and s.memory_mib >= 0 for s in fact.slices)
        and (node is None or set(indices) <= {card.index for card in node.cards})
    )
    if plausible:
        return fact.slices
    if node is None or fact.cards <= 0:
        return ()
    held = books.node(fact.node).cards
    free = [card for card in sorted(node.cards, key=lambda c: c.index) if card.index not in held or held[card.index].pods == 0]
    return tuple(CardSlice(card.index, 100, card.memory_mib) for card in free[: fact.cards])
