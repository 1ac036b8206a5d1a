"""What whole rooms for pods of several cards are worth, by how scarce they are.

A room for a shape of k cards and c milli of cpu is k whole idle cards of one node with c free beside them. FGD's measure counts shapes by pods, and the few
large ones hardly weigh in it; and before the first of them comes it does not know of them. So pods of one card and of none go a little to every node, until
hardly one has a room left. Here a room has a price for the pod that destroys it, by demand and supply: if requests go on as they were, D rooms of k cards will
be asked for from the cards that are idle, and S rooms for the shape are there. One of them is worth `WEIGHT` * k * min(1, D / S) ^ `SCARCITY` cards, times the
shape's part of what is asked for by k cards.

A node's worth is a function of its whole idle cards and a step function of its free cpu, kept as a table by model of card.
"""

from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from ..cluster.arrays import Floats, Ints
from ..devices import ALL
from .fgd import Shape, codes_named

#: Of a room's cards, where there are no more rooms than will be asked for. On the traces of reference performance §1 and orders of them three times as much
#: gives as many cards.
WEIGHT = 0.1

#: How fast the price rises with demand over supply. In proportion to it (1), the price of rooms that are not scarce yet outweighs what shares waste of cards.
SCARCITY = 3

#: Cards, beside those asked for, that count as asked for by pods of eight while the mix is learned: what nobody asked for yet may come.
PRIOR_CARDS, PRIOR_SIZE = 32.0, 8

#: Shapes priced at most, those first of which most cards are asked for.
MOST_SHAPES = 64


class Rooms:
    """Prices by shape, tabulated. `models`: names of cards' models by code; `most`: cards of one node at most."""

    def __init__(self, prices: Mapping[Shape, float], *, models: Sequence[str], most: int) -> None:
        steps = {j * shape.cpu_milli for shape in prices for j in range(1, most // shape.cards + 1)}
        self._steps: Ints = np.array(sorted(steps), dtype=np.int64)
        self._worth: Floats = np.zeros((max(len(models), 1), len(steps) + 1, most + 1))
        cpu = np.concatenate(([0], self._steps))
        for shape, price in prices.items():
            rooms = _rooms(shape, cpu[:, None], np.arange(most + 1)[None, :])
            allowed = codes_named(shape, models) if shape.models else slice(None)
            self._worth[allowed] += price * rooms
        self._priced = bool(prices)

    @classmethod
    def priced(
        cls,
        asked: Mapping[Shape, float],
        cpu: Ints,
        free: Ints,
        model: Ints,
        *,
        models: Sequence[str],
        prior: float,
        largest: int,
    ) -> Self:
        """Prices at these nodes: [n] free milli of cpu, [n, D] percent free of each card, [n] code of the cards' model. `asked`: cards by shape; `prior`:
        cards that count as asked for beside them, by pods of so many cards as `largest`, what one node has at most, but `PRIOR_SIZE` at most."""
        most = free.shape[1]
        several = {shape: cards for shape, cards in asked.items() if 2 <= shape.cards <= most and shape.percent == ALL}
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
                prices[shape] = WEIGHT * shape.cards * cards / asked_for * scarcity**SCARCITY
        return cls(prices, models=models, most=most)

    def worth(self, cpu: Ints, free: Ints, model: Ints) -> Floats | float:
        """`[n]`, in cards: of all rooms of each node."""
        if not self._priced:
            return 0.0
        return np.asarray(self._worth[model, np.searchsorted(self._steps, cpu, side="right"), (free == ALL).sum(axis=1)])


def _rooms(shape: Shape, cpu: Ints, whole: Ints) -> Ints:
    """Rooms for the shape beside so much free cpu and so many whole idle cards."""
    by_cards = whole // shape.cards
    return np.asarray(np.minimum(by_cards, cpu // shape.cpu_milli) if shape.cpu_milli else by_cards + 0 * cpu)
