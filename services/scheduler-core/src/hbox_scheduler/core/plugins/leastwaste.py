"""Least waste: HBox's own choice of node and card. It adds to FGD the losses that FGD does not count, and learns all of it from the requests.

The loss of a node, in cards, is
- the free parts of its cards that no set of future requests will ever fill (`packing`): a share is placed with the share that it completes to a full card,
  rather than on the card where it happens to fit best;
- plus a tenth of its expected fragment F, FGD's measure (`fgd`): it decides among packings that are equally good, and keeps room for whole cards and whole
  nodes;
- plus a tenth of its stranded cards: idle ones that its free cpu cannot feed. For one kind of request that needs q cpu a card they are max(0, R - c / q); here
  that is averaged over the requested cards. Pods that need much cpu are placed where cpu is plentiful;
- minus the worth of its whole rooms for pods of several cards (`rooms`), which is close to 0 while there are many more rooms than will be requested;
- minus a tenth of its idle cards, times the scarcity of their model: the cards of requests that are bound to it (to several models: spread over them), per card
  of it, in units of the requested cards per card of the cluster. Pods that may run on any model leave scarce cards free.

A pod is placed where the loss rises the least or falls the most. Nothing is known beforehand and nothing is configured: the mix is the requests so far, sampled
again each time that their number has doubled. Rooms are priced again when the share `REPRICED` of the cards was allocated or freed; scores are computed again
if a price changed.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from ..cluster import Columns
from ..cluster.arrays import Floats, Ints
from ..devices import ALL
from .fgd import Fgd, FgdPlugin, Mix, Shape, codes_named
from .packing import card_worth
from .rooms import PRIOR_CARDS, Rooms, prices_of

#: Of F, of stranded cards and of scarcity, against cards lost for good. On the Alibaba 2023 traces (sources: fgd-results) three times as much costs a tenth
#: of a point on average, and a third as much nothing.
EXPECTED = 0.1

#: Rooms are priced again when the idle cards have changed by this share of all cards.
REPRICED = 0.03


class LeastWaste(Fgd):
    """As `Fgd`; scores are in cards of waste avoided."""

    def __init__(self, mix: Mix) -> None:
        super().__init__(mix)
        self._waste: Floats = np.zeros(ALL + 1)
        self._scarcity: Floats = np.zeros(1)
        self._inverse: Floats = np.zeros(0)  #: cards that a milli of cpu feeds, by kind of request, ascending
        self._fed: Floats = np.zeros(1)  #: share of the requested cards, summed over the kinds before each position
        self._feeding: Floats = np.zeros(1)  #: the same, times `_inverse`
        self._prices: dict[Shape, float] = {}  #: of rooms, by shape
        self._rooms = Rooms(self._prices, models=(), most=0)
        self._priced = 0  #: increases when the prices change between two changes of the mix
        self._priced_at = 0  #: percent free, summed over all cards, at the last pricing

    @property
    def version(self) -> int:
        return super().version + self._priced

    @contextmanager
    def trial(self) -> Iterator[None]:
        prices, priced_at, tabled = self._prices, self._priced_at, self._tabled
        try:
            yield
        finally:
            if self._prices is not prices:
                self._prices, self._priced_at, self._tabled, self._priced = prices, priced_at, tabled, self._priced + 1

    def _look(self, columns: Columns) -> None:
        just_priced = self._known is None
        super()._look(columns)
        if just_priced:
            self._priced_at = self._idle
        cards = ALL * self._free.shape[1] * len(self._free)
        if abs(self._idle - self._priced_at) > max(REPRICED * cards, ALL):
            self._priced_at = self._idle
            if (prices := self._prices_now(columns, self.mix.popularity)) != self._prices:
                self._prices = prices
                self._priced += 1

    def _tabulate(self, columns: Columns, mix: Mapping[Shape, float]) -> None:
        super()._tabulate(columns, mix)
        asked = _asked(mix)
        shares: dict[int, float] = {}
        for shape in asked:
            if shape.percent < ALL:
                shares[shape.percent] = shares.get(shape.percent, 0.0) + mix[shape] * shape.cards
        self._waste = np.arange(ALL + 1) / ALL - card_worth(shares)
        self._waste[ALL] = 0.0
        self._tabulate_cpu(asked)
        self._tabulate_models(columns, asked)
        self._prices = self._prices_now(columns, mix)
        self._tabulate_prices(columns)

    @property
    def _outdated(self) -> bool:
        return self._rooms.prices is not self._prices

    def _tabulate_prices(self, columns: Columns) -> None:
        self._rooms = Rooms(self._prices, models=columns.model_names, most=columns.card_index.shape[1])

    def _prices_now(self, columns: Columns, mix: Mapping[Shape, float]) -> dict[Shape, float]:
        """Prices of rooms on the nodes as they are."""
        alive = np.flatnonzero(columns.alive[: columns.size])
        cpu, free = self._free_of(columns, alive)
        return prices_of(
            _asked(mix), cpu, free, columns.card_model[alive, 0], models=columns.model_names,
            prior=0 if self.mix.configured else PRIOR_CARDS, largest=int((columns.card_index[alive] >= 0).sum(axis=1).max(initial=0)),
        )  # fmt: skip

    def _tabulate_cpu(self, asked: Mapping[Shape, float]) -> None:
        kinds: dict[float, float] = {}
        for shape, cards in asked.items():
            if shape.cpu_milli > 0:
                inverse = shape.cards * shape.percent / ALL / shape.cpu_milli
                kinds[inverse] = kinds.get(inverse, 0.0) + cards
        self._inverse = np.array(sorted(kinds), dtype=np.float64)
        share = np.array([kinds[inverse] for inverse in sorted(kinds)]) / (sum(kinds.values()) or 1.0)
        self._fed = np.concatenate(([0.0], np.cumsum(share)))
        self._feeding = np.concatenate(([0.0], np.cumsum(share * self._inverse)))

    def _tabulate_models(self, columns: Columns, asked: Mapping[Shape, float]) -> None:
        names = columns.model_names
        present = columns.card_index[: columns.size] >= 0
        cards = np.bincount(columns.card_model[: columns.size][present], minlength=len(names)).astype(np.float64)
        bound: Floats = np.zeros(len(cards))
        for shape, amount in asked.items():
            allowed = codes_named(shape, names)
            if allowed and (there := cards[allowed].sum()) > 0:
                bound[allowed] += amount / there
        everywhere = sum(asked.values()) / max(cards.sum(), 1.0)
        self._scarcity = bound / everywhere if everywhere else bound

    def _loss(self, cpu: Ints, free: Ints, model: Ints) -> Floats:
        idle = free.sum(axis=1)
        return np.asarray(
            EXPECTED * (super()._loss(cpu, free, model) + self._stranded(cpu, idle, model))
            + self._waste[free].sum(axis=1)
            - self._rooms.worth(cpu, free, model)
        )

    def _stranded(self, cpu: Ints, idle: Ints, model: Ints) -> Floats:
        """`[n]`: stranded cards, less idle ones by scarcity."""
        cards = idle / ALL
        kinds = np.searchsorted(self._inverse, cards / np.maximum(cpu, 1))
        # A kind is stranded by R - c * inverse where that is positive: where its inverse is below R / c.
        return np.asarray(self._fed[kinds] * cards - self._feeding[kinds] * cpu - self._scarcity[model] * cards)


def _asked(mix: Mapping[Shape, float]) -> dict[Shape, float]:
    """Requested cards by shape."""
    return {shape: weight * shape.cards * shape.percent / ALL for shape, weight in mix.items() if shape.cards > 0}


class LeastWastePlugin(FgdPlugin):
    """Arguments: least-waste.weight (1), against scores of other plugins: a card of waste avoided counts as much."""

    name = "least-waste"
    chooser = LeastWaste
