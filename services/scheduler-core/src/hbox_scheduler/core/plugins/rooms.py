"""Prices of whole rooms for pods of several cards, by scarcity.

A room for a shape of k cards and c milli of cpu is k whole idle cards of one node, with c milli of cpu free on that node. FGD's measure counts shapes by pods:
the few large shapes have little weight in it, and it does not know them before the first such pod. Therefore pods with one card or none spread over all nodes,
until few nodes have a room left. Here a pod that destroys a room pays a price by demand and supply. If the mix of requests stays the same, the idle cards will
receive requests for D rooms of k cards, and there are S rooms for the shape. The price of a room is `WEIGHT` * k * min(1, D / S) ^ `SCARCITY` cards, times the
shape's share of the cards requested by shapes of k cards. D / S is rounded up to a multiple of 1 / `STEPS`: a price that changes makes all scores of nodes
stale, so that prices change rarely, and no price is 0: on an idle cluster small pods share nodes.

The worth of a node's rooms depends on its whole idle cards and, as a step function, on its free cpu; it is tabulated by card model.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ..cluster.arrays import Floats, Ints
from ..devices import ALL
from .fgd import Shape, codes_named

#: Price of a room as a share of its cards, if there are no more rooms than will be requested. On the Alibaba 2023 traces (sources: fgd-results), in several
#: orders, three times this value places as many cards.
WEIGHT = 0.1

#: Exponent of demand over supply. With 1, the price of rooms that are not scarce yet outweighs the cards that fractional pods waste.
SCARCITY = 3

#: Number of steps of demand over supply.
STEPS = 8

#: While the mix is learned: cards counted as requested by pods of `PRIOR_SIZE` cards, in addition to real requests, since such pods may still come.
PRIOR_CARDS, PRIOR_SIZE = 32.0, 8

#: Maximum number of priced shapes; those with the most requested cards are priced.
MOST_SHAPES = 64


class Rooms:
    """Tables of the worth of rooms. `prices`: cards for each room, by shape; `models`: names of card models, by code; `most`: maximum number of cards of a
    node."""

    def __init__(self, prices: Mapping[Shape, float], *, models: Sequence[str], most: int) -> None:
        self.prices = prices
        steps = {j * shape.cpu_milli for shape in prices for j in range(1, most // shape.cards + 1)}
        self._steps: Ints = np.array(sorted(steps), dtype=np.int64)
        self._worth: Floats = np.zeros((max(len(models), 1), len(steps) + 1, most + 1))
        cpu = np.concatenate(([0], self._steps))
        for shape, price in prices.items():
            rooms = _rooms(shape, cpu[:, None], np.arange(most + 1)[None, :])
            allowed = codes_named(shape, models) if shape.models else slice(None)
            self._worth[allowed] += price * rooms
        self._priced = bool(prices)

    def worth(self, cpu: Ints, free: Ints, model: Ints) -> Floats | float:
        """`[n]`: the worth of all rooms of each node, in cards. Arguments as in `prices_of`."""
        if not self._priced:
            return 0.0
        return np.asarray(self._worth[model, np.searchsorted(self._steps, cpu, side="right"), (free == ALL).sum(axis=1)])


def prices_of(
    asked: Mapping[Shape, float], cpu: Ints, free: Ints, model: Ints, *, models: Sequence[str], prior: float, largest: int
) -> dict[Shape, float]:
    """Cards for each room on these nodes, by shape. `cpu`: `[n]` free milli of cpu; `free`: `[n, D]` percent free of each card; `model`: `[n]` code of the
    cards' model.

    `asked`: requested cards by shape; `prior`: cards counted as requested in addition, by pods of the smaller of `PRIOR_SIZE` and `largest` cards;
    `largest`: maximum number of cards of a node."""
    several = {shape: cards for shape, cards in asked.items() if 2 <= shape.cards <= free.shape[1] and shape.percent == ALL}
    several = dict(sorted(several.items(), key=lambda one: -one[1])[:MOST_SHAPES])
    total = sum(asked.values())
    if prior and (size := min(PRIOR_SIZE, largest)) >= 2:
        unseen = Shape(0, size)
        several[unseen] = several.get(unseen, 0.0) + prior
        total += prior
    of_size: dict[int, float] = {}
    for shape, cards in several.items():
        of_size[shape.cards] = of_size.get(shape.cards, 0.0) + cards
    whole, idle = (free == ALL).sum(axis=1), free.sum() / ALL
    prices = {}
    for shape, cards in several.items():
        rooms = _rooms(shape, cpu, whole)
        if shape.models:
            rooms = rooms[np.isin(model, codes_named(shape, models))]
        if supply := int(rooms.sum()):
            asked_for = of_size[shape.cards]
            scarcity = min(1.0, asked_for / total * idle / shape.cards / supply)
            prices[shape] = WEIGHT * shape.cards * cards / asked_for * (math.ceil(STEPS * scarcity) / STEPS) ** SCARCITY
    return prices


def _rooms(shape: Shape, cpu: Ints, whole: Ints) -> Ints:
    """The number of rooms for the shape on nodes with `cpu` free milli of cpu and `whole` idle cards."""
    by_cards = whole // shape.cards
    return np.asarray(np.minimum(by_cards, cpu // shape.cpu_milli) if shape.cpu_milli else by_cards + 0 * cpu)
