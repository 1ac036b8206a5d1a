"""Cards by model, as amounts: `<cards>.<model>` in addition to `<cards>`, a vendor's resource, which is the sum over all its models.

Pods do not request these names; queues limit them. A pod's amounts by model follow from its allocated cards and the node's inventory. A model has the
inventory's name with `-` for spaces, as in node labels. Cards of unknown model count only in the sum.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from .cardparts import cards_of_share, share_on
from .devices import VENDORS, Card, CardSlice
from .node import NodeState
from .pools import AT, by_pool
from .resources import Resources

_NONE: Resources = {}


@lru_cache(maxsize=4096)
def model_resource(cards: str, model: str) -> str:
    """The name under which a model's cards are counted; empty for no model. `cards`: the resource of its vendor."""
    return f"{cards}.{name}" if (name := "-".join(model.split())) else ""


def is_model(resource: str) -> bool:
    """Whether a resource names the cards of one model, in the pool `pooled` (`pools`)."""
    return resource.startswith(VENDORS.model_prefixes) and resource not in VENDORS.no_models and AT not in resource


def model_of(resource: str) -> str:
    """The model's name in a resource for which `is_model` holds."""
    return resource.removeprefix(f"{VENDORS.owner(resource)}.")


def models_on(node: NodeState) -> set[str]:
    """The models that a node has cards of, as resources."""
    return {name for card in node.cards if (name := model_resource(card_resource(node, card), card.model))}


def cards_by_model(node: NodeState | None, slices: Sequence[CardSlice]) -> Resources:
    """What these slices count of each model: a share like a whole card, as in the sum. If units of the node's cards are parts of cards, also how many units
    these are (`share_resource`). Not to be changed: equal ones are one object."""
    if not slices or node is None or not node.cards:
        return _NONE
    share = share_on(node)
    first = node.cards[0]
    model, kind = first.model, first.kind
    if all(card.model == model and card.kind == kind for card in node.cards):
        return _of_several(((card_resource(node, first), model, len(slices)),), share)
    found: dict[tuple[str, str], int] = {}
    for s in slices:
        card = node.card(s.card, s.index)
        if card is not None:
            key = card_resource(node, card), card.model
            found[key] = found.get(key, 0) + 1
    return _of_several(tuple((*key, cards) for key, cards in found.items()), share)


def card_resource(node: NodeState, card: Card) -> str:
    """The resource that counts all cards of this card's vendor: by the card's kind, else by the node's resources. Empty if unknown."""
    if card.kind and VENDORS.knows(card.kind):
        return VENDORS.kind(card.kind).cards
    vendor = VENDORS.of(node.allocatable)
    return vendor.cards if vendor is not None else ""


@lru_cache(maxsize=4096)
def _of_several(counts: tuple[tuple[str, str, int], ...], share: str) -> Resources:
    """Of resource, model and number each."""
    found: Resources = {}
    for resource, model, cards in sorted(counts):
        if share and resource == cards_of_share(share):
            found[share] = found.get(share, 0) + cards
        if resource and (name := model_resource(resource, model)):
            found[name] = found.get(name, 0) + cards
    return found


def named_models(*amounts: Iterable[str]) -> list[str]:
    """The models among the names of some amounts, of whichever pool, each once."""
    return list(dict.fromkeys(name for names in amounts for name in (by_pool(one)[0] for one in names) if is_model(name)))


def cards_in(amounts: Mapping[str, int]) -> int:
    """Number of cards of all vendors in an amount: per vendor its total if named, else the sum of its models."""
    found = 0
    for name, units in amounts.items():
        if name in VENDORS or (is_model(name) and VENDORS.owner(name) not in amounts):
            found += units
    return found


def cards_of(cards: str, amounts: Mapping[str, int]) -> int:
    """As `cards_in`, of the vendor whose resource this is."""
    if cards in amounts:
        return amounts[cards]
    return sum(units for name, units in amounts.items() if name.startswith(f"{cards}.") and is_model(name))


def cards_named(amounts: Mapping[str, int]) -> int | None:
    """Number of cards of all vendors named as totals in an amount; None if no vendor's total is named."""
    totals = [units for name, units in amounts.items() if name in VENDORS]
    return sum(totals) if totals else None
