"""The worth of the free part of a card, given the sizes of requests: the prices of the cutting-stock problem.

Cards are the stock and requests of u percent the pieces. The linear programme that covers all requests with the fewest cards, where a card holds any set of
requests that fit on it together, has a price for each size: the part of a card that one such request costs in the best packing (Gilmore and Gomory, 1961: a
knapsack at the current prices generates columns until none is worth more than one card). So r percent of a card are worth the best set of requests that fit
into them: 35 percent left by a 65 are worth a third of a card if thirds are requested, and the 19 left by an 81 are worth nothing if no request is so small.
"""

from collections.abc import Mapping

import numpy as np

from ..cluster.arrays import Floats, Ints
from ..devices import ALL

#: Columns generated at most. Beyond it the prices reached so far are used, scaled to be possible ones.
ROUNDS = 400

_TINY = 1e-9


def card_worth(demand: Mapping[int, float]) -> Floats:
    """`[101]`, in cards: worth of r percent of one card. Rises with r, from 0; a free card is worth 1 at most.

    demand: requests by size in percent of a card, 1 to 99, in any unit. Without any, r percent are worth r / 100.
    """
    sizes = np.array(sorted(size for size, count in demand.items() if count > 0), dtype=np.int64)
    if not len(sizes):
        return np.arange(ALL + 1) / ALL
    patterns: Floats = np.diag((ALL // sizes).astype(np.float64))  # [sizes, patterns]: pieces of each size in each pattern
    cards: Floats = np.array([demand[int(size)] for size in sizes]) / np.diag(patterns)
    for _ in range(ROUNDS):
        prices: Floats = np.linalg.solve(patterns.T, np.ones(len(sizes))).astype(np.float64)
        worth, chosen = _knapsack(sizes, prices)
        if worth[ALL] <= 1.0 + _TINY:
            break
        pattern = _pattern(sizes, chosen)
        uses = np.linalg.solve(patterns, pattern)
        ratios = np.where(uses > _TINY, cards / np.where(uses > _TINY, uses, 1.0), np.inf)
        leaves = int(ratios.argmin())
        entering = ratios[leaves]
        cards -= entering * uses
        cards[leaves] = entering
        patterns[:, leaves] = pattern
    return np.asarray(worth / max(float(worth[ALL]), _TINY), dtype=np.float64)


def _knapsack(sizes: Ints, prices: Floats) -> tuple[Floats, list[int]]:
    """The best total price into r percent, for every r; and the piece to take first, -1 where one percent is left unused instead."""
    best: Floats = np.zeros(ALL + 1)
    chosen = [-1] * (ALL + 1)
    for r in range(int(sizes[0]), ALL + 1):
        best[r] = best[r - 1]
        fitting = int(np.searchsorted(sizes, r, side="right"))
        values = best[r - sizes[:fitting]] + prices[:fitting]
        piece = int(values.argmax())
        if values[piece] > best[r] + _TINY:
            best[r], chosen[r] = values[piece], piece
    return best, chosen


def _pattern(sizes: Ints, chosen: list[int]) -> Floats:
    pattern: Floats = np.zeros(len(sizes))
    r = ALL
    while r > 0:
        piece = chosen[r]
        if piece < 0:
            r -= 1
        else:
            pattern[piece] += 1
            r -= int(sizes[piece])
    return pattern
