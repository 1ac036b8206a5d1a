"""Placed pods as arrays, for questions about all of them: when each ends, and what its node has once it left.

`PlacedOrder` keeps them for the pods of a `RunningTable`: an answer costs by the slots that changed since the last one, and a few copies of arrays. A slot that
was entered is derived anew, and the pods of its row are ordered anew. Members that are no slots of the table (those of gangs that were lent to a session) are
merged into a copy.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan

import numpy as np

from hbox_common.model import JobId

from .arrays import Bools, Floats, Ints
from .columns import Columns
from .entities import Member
from .interning import grown
from .runningtable import Codes, RunningTable
from .runtimes import Whose
from .task import Task
from .walltimes import walltime_in

#: Entries that the cells have room for at least, before those of pods that left are dropped.
_CELLS = 1024

#: Changed slots that may be left for the next answer: these take some milliseconds.
_BACKLOG = 2048


@dataclass(frozen=True, slots=True)
class PlacedPods:
    """V pods, ordered by row, then uid."""

    rows: Ints  #: `[V]`
    task: Ints  #: `[V]`, a code of `tasks`
    tasks: Sequence[Task | None]  #: None: of no pod
    whose: Ints  #: `[V]`, a code of `pairs`
    pairs: Sequence[Whose]  #: queue and namespace, each pair once
    gang: Ints  #: `[V]`: a code of `gangs`, equal for pods of one gang
    gangs: Sequence[JobId]  #: ids
    started: Floats  #: `[V]`, seconds since the epoch; nan = not known
    walltime_s: Floats  #: `[V]`, as written on the pod or its PodGroup; nan = on neither
    cards: Ints  #: `[V]`: slices of cards
    cells: Ints  #: `[C, 3]`, pod by pod: cell (`row * width + position` of `Columns.card_index`), cores, memory in MiB; unknown cards have none
    cell_ends: Ints  #: `[V]`: the end of each pod's part of `cells`
    others: Mapping[int, Sequence[int]] = field(
        default_factory=dict
    )  #: rows of pods of a gang that leave or will come, by its code

    def __len__(self) -> int:
        return len(self.rows)

    def gang_rows(self, gang: int) -> Ints:
        """Rows of the gang's pods, those that leave or will come included."""
        return np.concatenate([self.rows[self.gang == gang], np.array(self.others.get(gang, ()), dtype=np.int64)])

    def of_job(self, gang: JobId) -> Bools:
        """`[V]`: pods of the job of which a gang has this id: its members with places and its pending ones may be two gangs (`placement.gangs.waiting_id`)."""
        job = gang.strip()
        return np.array([one.strip() == job for one in self.gangs], dtype=np.bool_)[self.gang]

    def offline(self) -> Bools:
        """`[V]`: offline work."""
        return np.array([task is not None and task.offline for task in self.tasks], dtype=np.bool_)[self.task]

    @classmethod
    def of(cls, columns: Columns, members: Iterable[Member]) -> "PlacedPods":
        """`members`: those with a row, of any order."""
        there = sorted(members, key=lambda member: (member.row, member.uid))
        tasks: dict[Task, int] = {}
        pairs: dict[Whose, int] = {}
        gangs: dict[int, int] = {}
        ids: list[JobId] = []
        others: dict[int, list[int]] = {}
        cells: list[tuple[int, int, int]] = []
        ends: list[int] = []
        width = columns.card_index.shape[1]
        for member in there:
            if id(member.gang) not in gangs:
                code = gangs[id(member.gang)] = len(gangs)
                ids.append(member.gang.id)
                if len(member.gang.members) > 1:
                    others[code] = [one.row for one in member.gang.members if one.row >= 0]
            cells += [
                (member.row * width + position, s.cores, s.memory_mib)
                for s, position in zip(member.slices, columns.positions(member.row, member.slices), strict=True)
                if position >= 0
            ]
            ends.append(len(cells))
        return cls(
            rows=_ints(member.row for member in there),
            task=_ints(tasks.setdefault(member.task, len(tasks)) for member in there),
            tasks=list(tasks),
            whose=_ints(pairs.setdefault((member.gang.queue, member.namespace), len(pairs)) for member in there),
            pairs=list(pairs),
            gang=_ints(gangs[id(member.gang)] for member in there),
            gangs=ids,
            started=_floats(member.started_at for member in there),
            walltime_s=_floats(walltime_in(member.annotations, member.gang.annotations) for member in there),
            cards=_ints(len(member.slices) for member in there),
            cells=np.array(cells, dtype=np.int64).reshape(-1, 3),
            cell_ends=np.array(ends, dtype=np.int64),
            others=others,
        )

    def merged(self, more: "PlacedPods", places: Ints) -> "PlacedPods":
        """With the pods of `more`, each before the pod at its place, `[W]`, in ascending order."""
        code_of = {pair: code for code, pair in enumerate(self.pairs)}
        pairs = [*self.pairs, *(pair for pair in more.pairs if pair not in code_of)]
        code_of = {pair: code for code, pair in enumerate(pairs)}
        whose = np.array([code_of[pair] for pair in more.pairs], dtype=np.int64)[more.whose]
        starts = np.concatenate(([0], self.cell_ends))[places]
        counts = np.diff(more.cell_ends, prepend=0)
        before = len(self.gangs)
        return replace(
            self,
            rows=np.insert(self.rows, places, more.rows),
            task=np.insert(self.task, places, more.task + len(self.tasks)),
            tasks=[*self.tasks, *more.tasks],
            whose=np.insert(self.whose, places, whose),
            pairs=pairs,
            gang=np.insert(self.gang, places, more.gang + before),
            gangs=[*self.gangs, *more.gangs],
            started=np.insert(self.started, places, more.started),
            walltime_s=np.insert(self.walltime_s, places, more.walltime_s),
            cards=np.insert(self.cards, places, more.cards),
            cells=np.insert(self.cells, np.repeat(starts, counts), more.cells, axis=0),
            cell_ends=np.cumsum(np.insert(np.diff(self.cell_ends, prepend=0), places, counts)),
            others={**self.others, **{code + before: rows for code, rows in more.others.items()}},
        )


class PlacedOrder:
    """The pods of a table as `PlacedPods`, for one reader of its changes."""

    def __init__(self, columns: Columns, table: RunningTable) -> None:
        self._columns, self._table = columns, table
        self._order: Ints = np.zeros(0, dtype=np.int64)  #: `[V]`: slots, by row, then uid
        self._pairs: Codes[Whose] = Codes()
        #: by slot, of those in the order; room for more than there are
        self._row: Ints = np.full(0, -1, dtype=np.int64)  #: -1: not in the order
        self._whose: Ints = np.zeros(0, dtype=np.int64)
        self._gang: Ints = np.zeros(0, dtype=np.int64)  #: a slot of the job, the same for all of its slots
        self._walltime_s: Floats = np.zeros(0)
        self._first: Ints = np.zeros(0, dtype=np.int64)  #: the first of the slot's `_cells`
        self._count: Ints = np.zeros(0, dtype=np.int64)  #: how many it has
        self._cells: Ints = np.zeros((_CELLS, 3), dtype=np.int64)  #: position, cores, memory; with gaps
        self._used = 0  #: entries of `_cells`, gaps included

    def current(self, others: Sequence[Member] = ()) -> PlacedPods:
        """The pods as they are now. `others`: members with a row that are no slots of the table, to be merged."""
        self._follow()
        if others and not len(self._order):
            return PlacedPods.of(self._columns, others)
        there = self._placed()
        if not others:
            return there
        uids, order = self._table.uids, self._order
        more = sorted(others, key=lambda member: (member.row, member.uid))
        rows = np.array([member.row for member in more], dtype=np.int64)
        first, last = (np.searchsorted(there.rows, rows, side=side).tolist() for side in ("left", "right"))
        places = [
            low + bisect_left([uids[slot] for slot in order[low:high].tolist()], member.uid)
            for member, low, high in zip(more, first, last, strict=True)
        ]
        return there.merged(PlacedPods.of(self._columns, more), np.array(places, dtype=np.int64))

    def advance(self, limit: int) -> None:
        """Take in up to `limit` changes if there are many, so that `current` has less to do."""
        if self._table.changes > _BACKLOG:
            self._make_room(len(self._table.used))
            self._replace(self._table.take_changes(min(limit, _BACKLOG)))

    def _placed(self) -> PlacedPods:
        table, order = self._table, self._order
        rows = table.row[order]
        counts = self._count[order]
        ends = np.cumsum(counts)
        cells = self._cells[np.repeat(self._first[order] - ends + counts, counts) + np.arange(ends[-1] if len(ends) else 0)]
        cells[:, 0] += np.repeat(rows, counts) * self._columns.card_index.shape[1]
        return PlacedPods(
            rows=rows,
            task=table.task[order],
            tasks=table.tasks(),
            whose=self._whose[order],
            pairs=[("", "") if pair is None else pair for pair in self._pairs.values],
            gang=self._gang[order],
            gangs=table.jobs,
            started=table.started_at[order],
            walltime_s=self._walltime_s[order],
            cards=table.cards[order],
            cells=cells,
            cell_ends=ends,
        )

    def _follow(self) -> None:
        """Take in what changed."""
        if changed := self._table.take_changes():
            self._make_room(len(self._table.used))
            self._replace(changed)

    def _make_room(self, slots: int) -> None:
        if slots > len(self._row):
            before = len(self._row)
            for name in ("_row", "_whose", "_gang", "_walltime_s", "_first", "_count"):
                setattr(self, name, grown(getattr(self, name), 0, slots))
            self._row[before:] = -1

    def _replace(self, changed: Sequence[int]) -> None:
        """Derive these slots anew, and order the rows on which they were or are."""
        table = self._table
        slots = np.array(changed, dtype=np.int64)
        there = slots[table.used[slots]]
        affected = np.zeros(max(self._columns.size, int(self._row.max(initial=0)) + 1), dtype=np.bool_)
        before = self._row[slots]
        affected[before[before >= 0]] = True
        affected[table.row[there]] = True
        for code in self._whose[slots[before >= 0]].tolist():
            self._pairs.leave(self._pairs.values[code], code)
        kept = self._order[~affected[self._row[self._order]]]
        self._row[slots] = -1
        self._count[slots] = 0
        self._row[there] = table.row[there]
        self._derive(there.tolist())
        by_uid = table.uids.__getitem__
        block: list[int] = []
        for row in np.flatnonzero(affected).tolist():
            on_row = table.on_row(row)
            block += sorted(on_row, key=by_uid) if len(on_row) > 1 else on_row
        ordered = np.array(block, dtype=np.int64)
        ordered = ordered[self._row[ordered] == table.row[ordered]]  # without those whose change is still to come
        self._order = np.insert(kept, np.searchsorted(self._row[kept], self._row[ordered]), ordered)

    def _derive(self, slots: Sequence[int]) -> None:
        table, queues, take = self._table, self._table.queue_names(), self._pairs.take
        whose, gangs, walltimes = [], [], []
        for slot, queue in zip(slots, table.queue[slots].tolist(), strict=True):
            pair = queues[queue], table.pod_namespaces[slot]
            whose.append(take(pair, pair)[0])
            gangs.append(table.of(table.jobs[slot])[0])
            written = walltime_in(notes) if (notes := table.annotations.get(slot)) else None
            walltimes.append(nan if written is None else written)
        self._whose[slots], self._gang[slots], self._walltime_s[slots] = whose, gangs, walltimes
        self._find_cells(slots)

    def _find_cells(self, slots: Sequence[int]) -> None:
        """The cells of these slots. A node whose cards move has its pods entered anew (`Bookings.rebuild`)."""
        slices_of, positions = self._table.slices, self._columns.positions
        cells: list[tuple[int, int, int]] = []
        ends: list[int] = []
        for slot, row in zip(slots, self._table.row[slots].tolist(), strict=True):
            if slices := slices_of[slot]:
                places = positions(row, slices)
                cells += [(place, s.cores, s.memory_mib) for s, place in zip(slices, places, strict=True) if place >= 0]
            ends.append(len(cells))
        counts = np.diff(np.array(ends, dtype=np.int64), prepend=0)
        if self._used + len(cells) > len(self._cells):
            self._close_gaps(len(cells))
        self._first[slots] = self._used + np.cumsum(counts) - counts
        self._count[slots] = counts
        if cells:
            self._cells[self._used : self._used + len(cells)] = cells
        self._used += len(cells)

    def _close_gaps(self, more: int) -> None:
        """Drop entries of no slot, and make room for so many more."""
        slots = np.flatnonzero(self._count)
        counts = self._count[slots]
        ends = np.cumsum(counts)
        kept = int(ends[-1]) if len(ends) else 0
        entries = self._cells[np.repeat(self._first[slots] - ends + counts, counts) + np.arange(kept)]
        self._cells = np.zeros((max(_CELLS, 2 * (kept + more)), 3), dtype=np.int64)
        self._cells[:kept] = entries
        self._first[slots] = ends - counts
        self._used = kept


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def _floats(values: Iterable[float | None]) -> Floats:
    return np.fromiter((nan if value is None else value for value in values), dtype=np.float64)
