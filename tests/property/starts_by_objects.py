"""The earliest start of a gang by one object for each running pod, without arrays that outlive a step: what `plugins.starts` and `plugins.walltimes` have to
agree with, bit by bit. It counts everything anew at each step of the search.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from math import inf
from operator import itemgetter
from typing import TypeAlias

import numpy as np

from hbox_scheduler.core.cluster import Batch, Columns
from hbox_scheduler.core.cluster.arrays import Bools, Floats, Ints
from hbox_scheduler.core.cluster.entities import Member
from hbox_scheduler.core.cluster.runtimes import RunTimes, Whose
from hbox_scheduler.core.cluster.task import Task
from hbox_scheduler.core.devices import pick
from hbox_scheduler.core.framework.basefits import FITS
from hbox_scheduler.core.plugins.starts import TOGETHER_S, Need, Start, Within

_NO_LIMIT = 1 << 30


def whole_s(known: RunTimes, queue: str, namespace: str, ran_s: float, part: float) -> float | None:
    for whose in ((queue, namespace), (queue, ""), ("", "")):
        if (history := known._histories.get(whose)) is not None:
            ran = sorted(history.ran)
            first = bisect_right(ran, ran_s)
            if len(ran) - first >= 4:
                return ran[first + min(int(part * (len(ran) - first)), len(ran) - first - 1)]
    return None


def end_of(member: Member, written: float | None, known: RunTimes, now: float) -> float:
    started = now if member.started_at is None else min(member.started_at, now)
    ran_s = now - started
    learned = whole_s(known, member.gang.queue, member.namespace, ran_s, 0.9)
    left = [whole - ran_s for whole in (written, learned) if whole is not None and whole > ran_s]
    if left:
        return now + min(left)
    history = known._histories.get((member.gang.queue, member.namespace))
    return inf if written is None and (history is None or len(history.ran) < 16) else now + ran_s / 4


def likely_end_of(member: Member, written: float | None, known: RunTimes, now: float) -> float:
    started = now if member.started_at is None else min(member.started_at, now)
    ran_s = now - started
    learned = whole_s(known, member.gang.queue, member.namespace, ran_s, 0.5)
    if learned is not None and learned > ran_s:
        return now + learned - ran_s
    if written is not None and written > ran_s:
        return now + (written - ran_s) / 2
    return end_of(member, written, known, now)


def overruns(members: Sequence[tuple[Member, float | None]], now: float) -> dict[Whose, float]:
    over: dict[Whose, float] = {}
    for member, written in members:
        if member.started_at is not None and written is not None:
            whose = member.gang.queue, member.namespace
            over[whose] = max(over.get(whose, 1.0), (now - member.started_at) / max(written, 10.0))
    return over


class Departures:
    """Members in the order of their ends, as what their leaving gives back on the columns."""

    def __init__(self, columns: Columns, members: Sequence[tuple[float, Member]]) -> None:
        """`members`: of any order, each with its end, and with a row."""
        self._base = columns.future()
        self.members = sorted(members, key=lambda item: (item[0], item[1].row, item[1].uid))
        self.ends: Floats = np.array([end for end, _ in self.members], dtype=np.float64)
        self.rows: Ints = np.array([member.row for _, member in self.members], dtype=np.int64)
        by_task: dict[int, tuple[Task, list[int]]] = {}
        cells: list[tuple[int, int, int, int]] = []
        width = columns.card_index.shape[1]
        for number, (_, member) in enumerate(self.members):
            by_task.setdefault(id(member.task), (member.task, []))[1].append(number)
            cells += [
                (number, member.row * width + position, s.cores, s.memory_mib)
                for s, position in zip(member.slices, columns.positions(member.row, member.slices), strict=True)
                if position >= 0
            ]
        self._by_task = [(task, np.array(numbers, dtype=np.int64)) for task, numbers in by_task.values()]
        self._cells: Ints = np.array(cells, dtype=np.int64).reshape(-1, 4)
        self.known = int(np.searchsorted(self.ends, inf))

    def after(self, count: int) -> Columns:
        """The columns once the first `count` have left, and all that leaves already."""
        view = self._base.trial()
        for task, numbers in self._by_task:
            rows = self.rows[numbers[: int(np.searchsorted(numbers, count))]]
            for column, units in task.amount:
                np.subtract.at(view.used[column], rows, units)
        cells = self._cells[: int(np.searchsorted(self._cells[:, 0], count))]
        for name, amounts in (("card_cores_used", cells[:, 2]), ("card_memory_used", cells[:, 3]), ("card_pods", 1)):
            np.subtract.at(getattr(view, name).reshape(-1), cells[:, 1], amounts)
        return view

    def last_end(self, count: int, rows: int) -> Floats:
        """`[N]`: when the last of the first `count` leaves each row; -inf where none of them is."""
        last = np.full(rows, -inf)
        np.maximum.at(last, self.rows[:count], self.ends[:count])
        return last

    def together(self, count: int, rows: int) -> tuple[int, Bools]:
        """How many have left once the gang has that the last of the first `count` is of; and `[N]` where that gang is the last to leave. Of others that
        end soon after it none counts as gone: which of their nodes comes free first changes with each look."""
        end, last = self.members[count - 1]
        until = int(np.searchsorted(self.ends[: self.known], end + TOGETHER_S, side="right"))
        count = next((n for n in range(until, count, -1) if self.members[n - 1][1].gang is last.gang), count)
        there: Bools = np.zeros(rows, dtype=np.bool_)
        there[[member.row for member in last.gang.members if member.row >= 0]] = True
        return count, there & (self.last_end(count, rows) >= end - TOGETHER_S)

    def unknown_cards(self, rows: int) -> Floats:
        """`[N]`: cards of those of unknown end, and a little for each of them."""
        held = np.zeros(rows)
        numbers = range(self.known, len(self.members))
        amounts = [len(self.members[number][1].slices) + 1e-3 for number in numbers]
        np.add.at(held, self.rows[self.known :], amounts)
        return held


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

    def after(count: int, order: Order = roomiest, cost: Floats | None = None) -> Bools | None:
        if within is None:
            return lay_out(departures.after(count), needs, order)
        return _lay_out_within(departures.after(count), needs, order, within, before, cost)

    if (rows := after(0)) is not None:
        return Start(rows, now)
    low, high = 0, departures.known  # it does not fit after `low`
    if after(high) is None:
        held = departures.unknown_cards(size)
        rows = after(len(departures.members), lambda room: (others, held / np.maximum(room, 1), -room), held)
        return None if rows is None else Start(rows, inf)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if after(middle) is None else (low, middle)
    at = float(departures.ends[high - 1])
    gone, together = departures.together(high, size)
    last = departures.last_end(gone, size)

    def idle_least(room: Ints) -> tuple[Floats | Ints | Bools, ...]:
        """Those first that come free by the end for which the gang waits anyway: what is idle before then may be used. Then of equal ones those that come free
        last."""
        return ~(together & (room == room.max())), last > at, others, -room, -last

    rows = after(gone, idle_least)
    if rows is None:  # shapes that share nodes are laid out otherwise in another order
        rows = after(high)
    return None if rows is None else Start(rows, max(at, float(last[rows].max()), now))


def lay_out(columns: Columns, needs: Sequence[Need], order: Order) -> Bools | None:
    """`[N]`: the nodes of a gang, or None where not all of it fits. The shapes with least room on a node go first; each to nodes that are taken already, then
    by `order`.

    If another shape follows, the places are booked on `columns`.
    """
    taken = np.zeros(columns.size, dtype=np.bool_)
    rooms = [capacity(columns, need) for need in needs]
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


def _lay_out_within(  # what, where, and in which order
    columns: Columns, needs: Sequence[Need], order: Order, within: Within, before: Bools | None, cost: Floats | None
) -> Bools | None:
    """As `lay_out`, all in one of the domains: the first that does, or, of the first few, the one whose nodes cost least (`[N]`)."""
    found: list[tuple[float, Bools]] = []
    rooms = [capacity(columns, need) for need in needs]
    for mask in islice(within.holding(rooms, needs, before), _DOMAINS):
        inside: Bools = np.zeros(columns.size, dtype=np.bool_)
        inside[: len(mask)] = mask
        view = columns.trial() if len(needs) > 1 else columns
        rows = lay_out(view, [replace(need, allowed=need.allowed & inside) for need in needs], order)
        if rows is None:
            continue
        if cost is None:
            return rows
        found.append((float(cost[rows].sum()), rows))
    return min(found, key=itemgetter(0))[1] if found else None


#: Domains in which a gang is laid out, of those that have the sums.
_DOMAINS = 16


def _book(columns: Columns, batch: Batch) -> None:
    """On columns that no other code reads; host ports are left out."""
    for column, units in batch.amount:
        columns.used[column, batch.rows] += units * batch.counts
    cells = batch.card_rows * columns.card_index.shape[1] + batch.card_positions
    for name, amounts in (("card_cores_used", batch.cores), ("card_memory_used", batch.memory_mib), ("card_pods", 1)):
        np.add.at(getattr(columns, name).reshape(-1), cells, amounts)


def capacity(columns: Columns, need: Need) -> Ints:
    """`[N]`: how many of the pods fit on each node that they may use."""
    rows = slice(0, columns.size)
    room = np.where(need.allowed, _NO_LIMIT, 0)
    for plugin in FITS:
        if (fits := plugin.capacity(columns, rows, need.task)) is not None:
            np.minimum(room, fits, out=room)
    return np.maximum(room, 0, out=room)
