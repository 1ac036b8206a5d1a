"""Comparison of card models: the worth of a card, and the scarcity of models (requirements B6).

A card's worth is a weighted mean of three figures, each relative to an H100 SXM: its memory, its compute, and its bandwidth to the other cards of the node. The
memory is that of the card; the others come from the vendor's table, by the model's name (`Vendor.figures`). An unknown figure does not count.

A model is scarce if the pods that can use no other request more cards per card of it than all pods request per card of the cluster.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import isnan
from operator import itemgetter

import numpy as np

from hbox_common.model import VENDORS, CardRequest
from hbox_common.model.devices import Figures

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Ints, Rows, rows_of
from .cardrules import memory_needed

#: Maximum bandwidth of a card in a PCIe slot, as its name shows.
PCIE_GB_S = 64.0

#: What counts as 1.
_MEMORY_MIB, _COMPUTE, _LINK = 80 * 1024, 989.0, 900.0

_TINY = 1e-12


def figures_of(model: str, given: Mapping[str, Figures]) -> Figures:
    """Known figures of a model by the name that nodes report: of the longest known name that it contains as a word. `given` has precedence over the vendors'
    table, figure by figure."""
    name = _plain(model)
    ours, theirs = _figures_among(name, VENDORS.figures) or Figures(), _figures_among(name, given) or Figures()
    link = min(ours.link_gb_s, PCIE_GB_S) if "PCIE" in name else ours.link_gb_s
    return Figures(
        ours.compute_tflops if isnan(theirs.compute_tflops) else theirs.compute_tflops,
        link if isnan(theirs.link_gb_s) else theirs.link_gb_s,
    )


def named(model: str, name: str) -> bool:
    """True if a model's name contains this one as a word."""
    return _word(_plain(model), name)


@dataclass(frozen=True, slots=True)
class Worth:
    """What cards are worth. `memory`, `compute`, `link`: weights of the figures; `given`: figures by names of models; `tiers`: names of models, the cheapest
    tier first, in place of figures: models of the n-th of k tiers are worth n / k, all others 1."""

    memory: float = 1.0
    compute: float = 1.0
    link: float = 1.0
    given: Mapping[str, Figures] = field(default_factory=dict)
    tiers: Sequence[Sequence[str]] = ()

    def of(self, columns: Columns, rows: Rows) -> Floats:
        """`[n, D]`; an H100 is worth 1, and so is a card of which nothing is known."""
        model = rows_of(columns.card_model, rows)
        if self.tiers:
            return np.asarray(self._tiers(columns)[model])
        memory = rows_of(columns.card_memory, rows) / _MEMORY_MIB
        total = np.where(memory > 0, self.memory * memory, 0.0)
        weights = np.where(memory > 0, self.memory, 0.0)
        for weight, figure in zip((self.compute, self.link), self._figures(columns), strict=True):
            known = ~np.isnan(figure)
            total += weight * np.where(known, figure, 0.0)[model]
            weights += weight * known[model]
        return np.where(weights > 0, total / np.maximum(weights, _TINY), 1.0)

    def slow(self, columns: Columns, least_gb_s: float) -> Bools:
        """`[M]` by model code: bandwidth to the neighbours known to be lower than that."""
        return np.asarray(self._figures(columns)[1] * _LINK < least_gb_s)

    def _figures(self, columns: Columns) -> Floats:
        """`[2, M]`: compute and link, in units of an H100's; NaN = not known."""
        found = [figures_of(name, self.given) for name in columns.model_names]
        return np.array([[one.compute_tflops / _COMPUTE for one in found], [one.link_gb_s / _LINK for one in found]])

    def _tiers(self, columns: Columns) -> Floats:
        ranks = [
            next(
                (rank for rank, names in enumerate(self.tiers, 1) if any(named(model, name) for name in names)), len(self.tiers)
            )
            for model in columns.model_names
        ]
        return np.array(ranks, dtype=np.float64) / len(self.tiers)


#: Different requests that are remembered: those for the most cards.
REQUESTS = 1024


class Demand:
    """Number of requested cards so far, by request. `version` rises each time that the number has doubled."""

    def __init__(self) -> None:
        self.cards: dict[CardRequest, float] = {}
        self.version = 0
        self._seen, self._next = 0.0, 1.0

    def add(self, request: CardRequest | None, pods: int) -> None:
        if request is None or not pods:
            return
        cards = float(request.count * pods)
        self.cards[request] = self.cards.get(request, 0.0) + cards
        if len(self.cards) > 2 * REQUESTS:  # tenants decide how many there are
            for least, _ in sorted(self.cards.items(), key=itemgetter(1))[:REQUESTS]:
                del self.cards[least]
        self._seen += cards
        if self._seen >= self._next:
            self._next = 2 * self._seen
            self.version += 1


def bound_to(columns: Columns, request: CardRequest) -> Bools:
    """`[M]`: the models without which the request can never be met: all that it could use, where that is not every model there is."""
    present, memory = _models(columns)
    usable = present > 0
    if request.models:
        usable = usable & columns.models_allowed(request.models)
    if not request.whole:
        usable = usable & (memory >= memory_needed(request, memory)) & (memory > 0)
    return usable if (usable != (present > 0)).any() else np.zeros(len(usable), dtype=np.bool_)


def scarcity(columns: Columns, asked: Mapping[CardRequest, float]) -> Floats:
    """`[M]`, 0 to 1: 0 = those bound to the model ask for no more cards per card of it than all do per card of the cluster; a half = for twice as many."""
    present, _ = _models(columns)
    bound: Floats = np.zeros(len(present))
    for request, cards in asked.items():
        mine = bound_to(columns, request)
        if mine.any():
            bound[mine] += cards / present[mine].sum()
    everywhere = sum(asked.values()) / max(present.sum(), 1)
    return np.asarray(np.maximum(1.0 - everywhere / np.maximum(bound, _TINY), 0.0))


def _models(columns: Columns) -> tuple[Floats, Ints]:
    """`[M]` each: cards that are there, and the largest memory of one in MiB."""
    codes = len(columns.model_names)
    here = (columns.card_index[: columns.size] >= 0) & columns.alive[: columns.size, None]
    model, memory = columns.card_model[: columns.size][here], columns.card_memory[: columns.size][here]
    largest = np.zeros(codes, dtype=np.int64)
    np.maximum.at(largest, model, memory)
    return np.bincount(model, minlength=codes).astype(np.float64), largest


def _figures_among(name: str, among: Mapping[str, Figures]) -> Figures | None:
    best = max((key for key in among if _word(name, key)), key=len, default=None)
    return None if best is None else among[best]


def _plain(name: str) -> str:
    return name.upper().replace("-", " ").replace("_", " ")


@lru_cache(maxsize=4096)
def _word(name: str, key: str) -> bool:
    return re.search(rf"(?<![A-Z0-9]){re.escape(_plain(key))}(?![0-9])", name) is not None
