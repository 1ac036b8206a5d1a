"""Cards by model, as amounts: `nvidia.com/gpu.<model>` beside `nvidia.com/gpu`, which is the sum over all models.

Pods do not ask for these names; queues do. What a pod counts of them follows from the cards that it is given, by the inventory of the node. A model is named
as the inventory has it (label `nvidia.com/gpu.product`, or the device plugin's register), with `-` for spaces, as GPU feature discovery writes it. Cards whose
model nobody knows count in the sum alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from .devices import GPU, CardSlice
from .node import NodeState
from .resources import Resources

_PREFIX = f"{GPU}."

#: What NVIDIA's device plugin may call cards that it shares by time: a resource of its own, and no model.
_NO_MODELS = frozenset({f"{GPU}.shared"})

_NONE: Resources = {}


@lru_cache(maxsize=4096)
def model_resource(model: str) -> str:
    """The name under which a model's cards are counted; empty for no model."""
    name = "-".join(model.split())
    return f"{_PREFIX}{name}" if name else ""


def is_model(resource: str) -> bool:
    """Whether a resource stands for the cards of one model."""
    return resource.startswith(_PREFIX) and len(resource) > len(_PREFIX) and resource not in _NO_MODELS


def model_of(resource: str) -> str:
    """The model's name in a resource for which `is_model` holds."""
    return resource.removeprefix(_PREFIX)


def models_on(node: NodeState) -> set[str]:
    """The models that a node has cards of, as resources."""
    return {name for card in node.cards if (name := model_resource(card.model))}


def cards_by_model(node: NodeState | None, slices: Sequence[CardSlice]) -> Resources:
    """What these slices count of each model: a share like a whole card, as in the sum. Not to be changed: equal ones are one object."""
    if not slices or node is None or not node.cards:
        return _NONE
    model = node.cards[0].model
    if all(card.model == model for card in node.cards):
        return _of_one(model, len(slices))
    found: dict[str, int] = {}
    for s in slices:
        card = node.card(s.index)
        if card is not None:
            found[card.model] = found.get(card.model, 0) + 1
    return _of_several(tuple(found.items()))


@lru_cache(maxsize=4096)
def _of_one(model: str, cards: int) -> Resources:
    return _of_several(((model, cards),))


@lru_cache(maxsize=4096)
def _of_several(counts: tuple[tuple[str, int], ...]) -> Resources:
    found: Resources = {}
    for model, cards in sorted(counts):
        if name := model_resource(model):
            found[name] = found.get(name, 0) + cards
    return found


def named_models(*amounts: Iterable[str]) -> list[str]:
    """The models among the names of some amounts, each once."""
    return list(dict.fromkeys(name for names in amounts for name in names if is_model(name)))


def cards_in(amounts: Mapping[str, int]) -> int:
    """How many cards an amount comes to: what it says of all, else the sum of its models."""
    return amounts[GPU] if GPU in amounts else sum(units for name, units in amounts.items() if is_model(name))
