"""The smallest set of parts that holds so many: on which leaves, and in them on which nodes, a number of equal pods is placed.

The number of parts is always the smallest possible. Among covers of that size the choice takes the one that breaks the fewest whole parts open, then the one
with the least room in all (best fit), so that what stays free is whole and large (sources: leaf-cover). That second choice is exact for small problems and
greedy for large ones: the largest parts, and in place of the last one the part that fits best.
"""

from dataclasses import dataclass

import numpy as np

from ..cluster.arrays import Bools, Floats, Ints

#: Cells of the table beyond which the choice among smallest covers is not made exactly.
_EXACT_CELLS = 200_000

_FAR = 1 << 60


@dataclass(frozen=True, slots=True)
class Parts:
    """C parts of a whole, for instance its leaves."""

    room: Ints  #: `[C]`: pods (or units of several pods) that fit
    whole: Bools  #: `[C]`: nothing is in use there
    taken: Bools  #: `[C]`: in use by the same gang: to use more of it costs nothing
    weight: Ints  #: `[C]`: room in pods
    score: Floats  #: `[C]`: decides between equals


def select(parts: Parts, need: int, *, large: bool = False) -> tuple[Ints, Ints] | None:
    """Parts, and how many pods each takes. None = they do not fit. What is taken already is filled first.

    large: the largest parts, whatever fits better, and only the last one by fit. As many parts, but large ones have few parts themselves more often.
    """
    chosen = _by_size(parts, np.flatnonzero(parts.taken & (parts.room > 0)))
    lacking = need - int(parts.room[chosen].sum())
    if lacking > 0:
        order = _by_size(parts, np.flatnonzero(~parts.taken & (parts.room > 0)))
        rooms = parts.room[order]
        reach = np.cumsum(rooms)
        if not len(order) or reach[-1] < lacking:
            return None
        count = int(np.searchsorted(reach, lacking)) + 1
        chosen = np.concatenate((chosen, _best_cover(parts, order, count, slack=int(reach[count - 1]) - lacking, large=large)))
    room = parts.room[chosen]
    took = np.minimum(room, np.maximum(need - (np.cumsum(room) - room), 0))
    return chosen[took > 0], took[took > 0]


def fewest(room: Ints, taken: Bools, need: int) -> int | None:
    """How many parts, in addition to those taken, hold `need` pods. `room`: `[C]`. None = they do not fit."""
    need -= int(room[taken].sum())
    if need <= 0:
        return 0
    reach = np.cumsum(np.sort(room[~taken])[::-1])
    return int(np.searchsorted(reach, need)) + 1 if len(reach) and reach[-1] >= need else None


def _by_size(parts: Parts, which: Ints) -> Ints:
    """Largest first; equal ones: broken before whole, least weight, best liked, then as they stand."""
    keys = (which, -parts.score[which], parts.weight[which], parts.whole[which], -parts.room[which])
    return which[np.lexsort(keys)]


def _best_cover(parts: Parts, order: Ints, count: int, *, slack: int, large: bool) -> Ints:
    """Of the covers with `count` parts the best, its largest part first. `slack`: what the `count` largest have beyond the need."""
    rooms = parts.room[order]
    if slack == 0 or rooms[0] == rooms[-1]:
        return order[:count]
    top = int(rooms[:count].sum())
    if not large and len(order) * count * top <= _EXACT_CELLS:
        return _exact_cover(parts, order, count, top, top - slack)
    last = order[count - 1 :][rooms[count - 1 :] >= rooms[count - 1] - slack]
    keys = (-parts.score[last], parts.weight[last], np.where(parts.whole[last], parts.room[last], 0))
    return np.append(order[: count - 1], last[np.lexsort(keys)[0]])


def _exact_cover(parts: Parts, order: Ints, count: int, top: int, need: int) -> Ints:
    """A knapsack: `best[j, s]` is the least cost of j parts whose room is s, for s up to `top`, the room of the `count` largest."""
    scale = int(parts.weight[order].sum()) + 1
    rooms: list[int] = parts.room[order].tolist()
    costs: list[int] = (parts.weight[order] + scale * np.where(parts.whole[order], parts.room[order], 0)).tolist()
    best = np.full((count + 1, top + 1), _FAR, dtype=np.int64)
    best[0, 0] = 0
    better = np.zeros((len(order), count + 1, top + 1), dtype=np.bool_)
    for number, (room, cost) in enumerate(zip(rooms, costs, strict=True)):
        trial = best[:-1, : top + 1 - room] + cost
        better[number, 1:, room:] = trial < best[1:, room:]
        best[1:, room:] = np.minimum(best[1:, room:], trial)
    total = need + int(best[count, need:].argmin())
    picked: list[int] = []
    for number in range(len(order) - 1, -1, -1):
        if better[number, count - len(picked), total]:
            picked.append(number)
            total -= rooms[number]
    return order[picked[::-1]]
