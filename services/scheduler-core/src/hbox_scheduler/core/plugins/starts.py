"""When and where a gang can start: the earliest moment at which enough of those who run have ended, and the nodes that it takes then.

A gang that is bound to a domain of the fabric is laid out inside one (`Within`): as soon as any of its domains has the room.

Those who run are in the order in which they are expected to end. Whether the gang fits once the first k of them are gone is found by laying it out on a copy
of the columns; k by halving. Pods of unknown end come last: where the gang fits only without some of them, there is no known start, and nodes are chosen
where least has to leave.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from operator import itemgetter
from typing import TypeAlias

import numpy as np

from hbox_common.model import QueueName

from ..cluster import Batch, Columns
from ..cluster.arrays import Bools, Floats, Ints, Rows
from ..cluster.placedpods import PlacedPods
from ..cluster.task import Task
from ..devices import pick
from ..framework.basefits import FITS
from ..topology.tree import Tree

#: Beyond any planned time, seconds from now.
HORIZON_S = 30 * 86_400.0

#: Pods of one gang that are expected to end within so many seconds end together.
TOGETHER_S = 60.0

#: What a node takes of pods that ask for nothing.
_NO_LIMIT = 1 << 30


@dataclass(frozen=True, slots=True)
class Need:
    """So many equal pods, on nodes that they may use: `allowed[N]`."""

    task: Task
    pods: int
    allowed: Bools


@dataclass(frozen=True, slots=True)
class Start:
    """`rows`: `[N]`; `at`: seconds since the epoch, inf = at no known time."""

    rows: Bools
    at: float


@dataclass(frozen=True, slots=True)
class Within:
    """Domains of which one has to hold the whole gang: numbers of the tree's, of any order."""

    tree: Tree
    domains: Ints

    def holding(self, rooms: Sequence[Ints], needs: Sequence[Need], before: Bools | None) -> Iterator[Bools]:
        """`[N]` masks of those that have the sums; those first where the gang's nodes were, then the lowest tier, then the least room. rooms: `[N]` each, how
        many pods fit on a node by themselves."""
        tree, domains = self.tree, self.domains
        sums = self.sums(rooms)
        good = np.all([there >= need.pods for there, need in zip(sums, needs, strict=True)], axis=0)
        kept = np.zeros(tree.rows, dtype=np.bool_)
        if before is not None:
            kept[: min(len(before), tree.rows)] = before[: tree.rows]
        order = np.lexsort((domains, np.sum(sums, axis=0), tree.tiers[domains], -tree.sums(kept)[domains]))
        for domain in domains[order[good[order]]].tolist():
            yield tree.mask(domain)

    def sums(self, rooms: Sequence[Ints]) -> list[Ints]:
        """For each of `rooms`, `[N]`, its sum in each domain."""
        return [self.tree.sums(room[: self.tree.rows])[self.domains] for room in rooms]


class Departures:
    """Placed pods in the order of their ends, as what their leaving gives back on the columns.

    One view of the columns is moved along this order, forward and back, so that a search costs by the pods between the points that it examines.
    """

    def __init__(self, columns: Columns, pods: PlacedPods, ends: Floats, staying: Bools | None = None) -> None:
        """`ends`: `[V]`, seconds since the epoch, inf = unknown; `staying`: `[V]`, pods that do not leave."""
        order = np.argsort(ends, kind="stable")
        if staying is not None:
            order = order[~staying[order]]
        self._pods = pods
        self.ends: Floats = ends[order]
        self.rows: Ints = pods.rows[order]
        self._order = order
        self._gangs: Ints = pods.gang[order]
        self.known = int(np.searchsorted(self.ends, inf))
        self._view = columns.future()
        self._gone = 0  #: how many have left on the view
        self._amounts = _Amounts(pods.tasks, pods.task[order], self.rows, self._view.used.shape[1])
        counts = np.diff(pods.cell_ends, prepend=0)[order]
        self._cell_ends: Ints = np.concatenate(([0], np.cumsum(counts)))
        lines = np.repeat(pods.cell_ends[order] - self._cell_ends[1:], counts) + np.arange(int(self._cell_ends[-1]))
        self._cells: Ints = pods.cells[lines]

    def __len__(self) -> int:
        return len(self.ends)

    def after(self, count: int) -> tuple[Columns, Ints]:
        """The columns once the first `count` have left, and all that leaves already; and the pods that left, or came back, since the last call. The next call
        changes these columns: to be read only."""
        first, last = sorted((self._gone, count))
        leave = np.subtract if count > self._gone else np.add
        view, rows = self._view, self.rows[first:last]
        self._amounts.move(view.used, first, last, leave)
        cells = self._cells[self._cell_ends[first] : self._cell_ends[last]]
        for name, amounts in (("card_cores_used", cells[:, 1]), ("card_memory_used", cells[:, 2]), ("card_pods", 1)):
            leave.at(getattr(view, name).reshape(-1), cells[:, 0], amounts)
        self._gone = count
        return view, rows

    def last_end(self, count: int, rows: int) -> Floats:
        """`[N]`: when the last of the first `count` leaves each row; -inf where none of them is."""
        last = np.full(rows, -inf)
        np.maximum.at(last, self.rows[:count], self.ends[:count])
        return last

    def together(self, count: int, rows: int) -> tuple[int, Bools]:
        """How many have left once the gang has that the last of the first `count` is of; and `[N]` where that gang is the last to leave. Of others that
        end soon after it none counts as gone: which of their nodes comes free first changes with each look."""
        end, gang = self.ends[count - 1], int(self._gangs[count - 1])
        until = int(np.searchsorted(self.ends[: self.known], end + TOGETHER_S, side="right"))
        with_it = np.flatnonzero(self._gangs[count:until] == gang)
        count += int(with_it[-1]) + 1 if len(with_it) else 0
        there: Bools = np.zeros(rows, dtype=np.bool_)
        there[self._pods.gang_rows(gang)] = True
        return count, there & (self.last_end(count, rows) >= end - TOGETHER_S)

    def unknown_cards(self, rows: int) -> Floats:
        """`[N]`: cards of those of unknown end, and a little for each of them."""
        held = np.zeros(rows)
        np.add.at(held, self.rows[self.known :], self._pods.cards[self._order[self.known :]] + 1e-3)
        return held

    def by_queue(self, rows: Bools, until: float) -> dict[QueueName, tuple[int, int]]:
        """Pods on these rows, `[N]`, that end by `until`, and their cards; the queue first of which a pod ends first."""
        there = self._order[np.flatnonzero(rows[self.rows] & (self.ends <= until))]
        codes, first, code = np.unique(self._pods.whose[there], return_index=True, return_inverse=True)
        pods, cards = np.bincount(code), np.bincount(code, weights=self._pods.cards[there])
        found: dict[QueueName, tuple[int, int]] = {}
        for number in np.argsort(first).tolist():
            queue = QueueName(self._pods.pairs[codes[number]][0])
            before = found.get(queue, (0, 0))
            found[queue] = before[0] + int(pods[number]), before[1] + int(cards[number])
        return found


#: A resource that at least one of so many pods requests has a number for each pod.
_COMMON = 8


class _Amounts:
    """What V pods request, in their order. Amounts of rare resources, of which there may be hundreds, are entries: pod by pod, of those that request one."""

    def __init__(self, tasks: Sequence[Task | None], codes: Ints, rows: Ints, width: int) -> None:
        """`codes`: `[V]`, of `tasks`; `width`: that of `Columns.used`."""
        counts = np.bincount(codes, minlength=len(tasks)).tolist()
        pods: Counter[int] = Counter()
        for task, count in zip(tasks, counts, strict=True):
            for column, _ in task.amount if task is not None and count else ():
                pods[column] += count
        common = {column: np.zeros(len(tasks), dtype=np.int64) for column in pods if _COMMON * pods[column] >= len(codes)}
        rare: dict[int, list[tuple[int, int]]] = {}
        for code, task in enumerate(tasks):
            for column, units in task.amount if task is not None and counts[code] else ():
                if column in common:
                    common[column][code] = units
                else:
                    rare.setdefault(code, []).append((column, units))
        self._common = [(column, units[codes]) for column, units in common.items()]
        self._rows = rows
        each = np.zeros(len(tasks), dtype=np.int64)
        for code, amounts in rare.items():
            each[code] = len(amounts)
        self._ends: Ints = np.concatenate(([0], np.cumsum(each[codes])))
        entries = [entry for code in codes[each[codes] > 0].tolist() for entry in rare[code]] if rare else []
        self._rare: Ints = np.array(entries, dtype=np.int64).reshape(-1, 2)
        self._rare[:, 0] *= width
        self._rare[:, 0] += np.repeat(rows, each[codes])

    def move(self, used: Ints, first: int, last: int, leave: np.ufunc) -> None:
        """Add or subtract what the pods from `first` to before `last` request; `used`: `[R, N]`."""
        rows = self._rows[first:last]
        for column, units in self._common:
            leave.at(used[column], rows, units[first:last])
        entries = self._rare[self._ends[first] : self._ends[last]]
        if len(entries):
            leave.at(used.reshape(-1), entries[:, 0], entries[:, 1])


#: What decides between nodes, given `room[N]`: arrays `[N]`, lowest first; the first that differs decides.
Order: TypeAlias = Callable[[Ints], tuple[Floats | Ints | Bools, ...]]


def earliest(
    departures: Departures, needs: Sequence[Need], now: float, before: Bools | None, within: Within | None = None
) -> Start | None:
    """The gang's earliest start. `before`: `[N]`, nodes already set aside for it, which it keeps if they are as good. `within`: domains, one of which has to
    hold the whole gang. None = it would not fit even if all pods had left."""
    size = len(needs[0].allowed)
    others: Ints = np.ones(size, dtype=np.int64)
    if before is not None:
        others[: len(before)] -= before[:size]

    def roomiest(room: Ints) -> tuple[Floats | Ints, ...]:
        return others, -room

    search = _Search(departures, needs, within, before)
    if (rows := search.laid_out(0, roomiest)) is not None:
        return Start(rows, now)
    low, high = 0, departures.known  # it does not fit after `low`
    if not search.fits(high, roomiest):
        held = departures.unknown_cards(size)
        rows = search.laid_out(len(departures), lambda room: (others, held / np.maximum(room, 1), -room), held)
        return None if rows is None else Start(rows, inf)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if search.fits(middle, roomiest) else (middle, high)
    at = float(departures.ends[high - 1])
    gone, together = departures.together(high, size)
    last = departures.last_end(gone, size)

    def idle_least(room: Ints) -> tuple[Floats | Ints | Bools, ...]:
        """Those first that come free by the end for which the gang waits anyway: what is idle before then may be used. Then of equal ones those that come free
        last."""
        return ~(together & (room == room.max())), last > at, others, -room, -last

    rows = search.laid_out(gone, idle_least)
    if rows is None:  # shapes that share nodes are laid out otherwise in another order
        rows = search.laid_out(high, roomiest)
    return None if rows is None else Start(rows, max(at, float(last[rows].max()), now))


class _Search:
    """Whether, and where, a gang fits once some pods have left. The rooms of its shapes are kept for rows where nothing changed."""

    def __init__(self, departures: Departures, needs: Sequence[Need], within: Within | None, before: Bools | None) -> None:
        self._departures, self._needs, self._within, self._before = departures, needs, within, before
        self._rooms: list[Ints] = []

    def fits(self, count: int, order: Order) -> bool:
        """Whether `laid_out` finds nodes: mostly by sums alone."""
        self._rooms_after(count)
        return self._may_fit() and (len(self._needs) == 1 or self.laid_out(count, order) is not None)

    def laid_out(self, count: int, order: Order, cost: Floats | None = None) -> Bools | None:
        """The gang's nodes once the first `count` pods have left."""
        columns = self._rooms_after(count)
        if not self._may_fit():
            return None
        if len(self._needs) > 1:
            columns = _bookable(columns)
        if self._within is None:
            return lay_out(columns, self._needs, order, self._rooms)
        return _lay_out_within(columns, self._needs, order, self._within, self._before, cost, self._rooms)

    def _may_fit(self) -> bool:
        """Whether each shape by itself has the room, in one domain if it has to be. Then a gang of one shape fits."""
        if self._within is None:
            return all(int(room.sum()) >= need.pods for room, need in zip(self._rooms, self._needs, strict=True))
        pods = np.array([need.pods for need in self._needs])
        return bool((np.array(self._within.sums(self._rooms)) >= pods[:, None]).all(axis=0).any())

    def _rooms_after(self, count: int) -> Columns:
        columns, rows = self._departures.after(count)
        if not self._rooms:
            self._rooms = [capacity(columns, need) for need in self._needs]
        elif len(rows):
            changed = np.zeros(columns.size, dtype=np.bool_)
            changed[rows] = True
            where = np.flatnonzero(changed)
            for room, need in zip(self._rooms, self._needs, strict=True):
                room[where] = capacity(columns, need, where)
        return columns


def lay_out(columns: Columns, needs: Sequence[Need], order: Order, rooms: Sequence[Ints]) -> Bools | None:
    """`[N]`: the nodes of a gang, or None where not all of it fits. The shapes with least room on a node go first; each to nodes that are taken already, then
    by `order`. rooms: the `capacity` of each shape.

    If another shape follows, the places are booked on `columns`.
    """
    taken = np.zeros(columns.size, dtype=np.bool_)
    if any(room.sum() < need.pods for room, need in zip(rooms, needs, strict=True)):
        return None
    ranked = sorted(range(len(needs)), key=lambda i: (int(rooms[i].max()), i))
    for place, i in enumerate(ranked):
        need = needs[i]
        room = rooms[i] if place == 0 else capacity(columns, need)
        if room.sum() < need.pods:
            return None
        rows = np.lexsort((*reversed(order(room)), ~taken))
        rows = rows[room[rows] > 0]
        filled = np.cumsum(room[rows])
        rows = rows[: int(np.searchsorted(filled, need.pods)) + 1].astype(np.int64)
        taken[rows] = True
        if place + 1 < len(ranked):
            counts = room[rows]
            counts[-1] -= int(filled[len(rows) - 1]) - need.pods
            _book(columns, pick(columns, rows, counts, need.task))
    return taken


def _lay_out_within(  # noqa: PLR0917  # what, where, and in which order
    columns: Columns,
    needs: Sequence[Need],
    order: Order,
    within: Within,
    before: Bools | None,
    cost: Floats | None,
    rooms: Sequence[Ints],
) -> Bools | None:
    """As `lay_out`, all in one of the domains: the first that does, or, of the first few, the one whose nodes cost least (`[N]`)."""
    found: list[tuple[float, Bools]] = []
    for mask in islice(within.holding(rooms, needs, before), _DOMAINS):
        inside: Bools = np.zeros(columns.size, dtype=np.bool_)
        inside[: len(mask)] = mask
        view = _bookable(columns) if len(needs) > 1 else columns
        of_domain = [replace(need, allowed=need.allowed & inside) for need in needs]
        rows = lay_out(view, of_domain, order, [np.where(inside, room, 0) for room in rooms])
        if rows is None:
            continue
        if cost is None:
            return rows
        found.append((float(cost[rows].sum()), rows))
    return min(found, key=itemgetter(0))[1] if found else None


#: Domains in which a gang is laid out, of those that have the sums.
_DOMAINS = 16


def _bookable(columns: Columns) -> Columns:
    """A copy for `_book`."""
    view = copy(columns)
    for name in ("used", "card_cores_used", "card_memory_used", "card_pods"):
        setattr(view, name, getattr(columns, name).copy())
    return view


def _book(columns: Columns, batch: Batch) -> None:
    """On columns that no other code reads; host ports are left out."""
    for column, units in batch.amount:
        columns.used[column, batch.rows] += units * batch.counts
    cells = batch.card_rows * columns.card_index.shape[1] + batch.card_positions
    for name, amounts in (("card_cores_used", batch.cores), ("card_memory_used", batch.memory_mib), ("card_pods", 1)):
        np.add.at(getattr(columns, name).reshape(-1), cells, amounts)


def capacity(columns: Columns, need: Need, rows: Ints | None = None) -> Ints:
    """`[N]`: how many of the pods fit on each node that they may use. rows: only these."""
    which: Rows = slice(0, columns.size) if rows is None else rows
    room = np.where(need.allowed[which], _NO_LIMIT, 0)
    for plugin in FITS:
        if (fits := plugin.capacity(columns, which, need.task)) is not None:
            np.minimum(room, fits, out=room)
    return np.maximum(room, 0, out=room)
