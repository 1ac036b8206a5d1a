"""Placed pods as arrays, for questions about all of them: when each ends, and what its node has once it left.

Cards are named by their cells: `row * width + position`, with the width of `Columns.card_index`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan

import numpy as np

from hbox_common.model import JobId

from .arrays import Bools, Floats, Ints
from .columns import Columns
from .entities import Member
from .runtimes import Whose
from .task import Task


@dataclass(frozen=True, slots=True)
class PlacedPods:
    """V pods, ordered by row, then uid."""

    rows: Ints  #: `[V]`
    task: Ints  #: `[V]`, a code of `tasks`
    tasks: Sequence[Task]
    whose: Ints  #: `[V]`, a code of `pairs`
    pairs: Sequence[Whose]  #: queue and namespace
    gang: Ints  #: `[V]`: a code of `gangs`, equal for pods of one gang
    gangs: Sequence[JobId]  #: ids
    started: Floats  #: `[V]`, seconds since the epoch; nan = not known
    walltime_s: Floats  #: `[V]`, as written on the pod or its PodGroup; nan = on neither
    cards: Ints  #: `[V]`: slices of cards
    cells: Ints  #: `[C, 3]`: cell, cores, memory in MiB, pod by pod; slices of unknown cards have none
    cell_ends: Ints  #: `[V]`: the end of each pod's part of `cells`
    others: Mapping[int, Sequence[int]] = field(default_factory=dict)  #: rows of pods that leave, by the gang of which they are

    def __len__(self) -> int:
        return len(self.rows)

    def gang_rows(self, gang: int) -> Ints:
        """Rows of the gang's pods, those that leave included."""
        return np.concatenate([self.rows[self.gang == gang], np.array(self.others.get(gang, ()), dtype=np.int64)])

    def of_job(self, gang: JobId) -> Bools:
        """`[V]`: pods of the job of which a gang has this id: its members with places and its pending ones may be two gangs (`placement.gangs.waiting_id`)."""
        job = gang.strip()
        return np.array([one.strip() == job for one in self.gangs], dtype=np.bool_)[self.gang]

    def offline(self) -> Bools:
        """`[V]`: offline work."""
        return np.array([task.offline for task in self.tasks], dtype=np.bool_)[self.task]

    @classmethod
    def of(cls, columns: Columns, members: Iterable[tuple[Member, float | None]]) -> "PlacedPods":
        """`members`: those with a row, of any order, each with its written walltime."""
        there = sorted(members, key=lambda one: (one[0].row, one[0].uid))
        tasks: dict[Task, int] = {}
        pairs: dict[Whose, int] = {}
        gangs: dict[int, int] = {}
        ids: list[JobId] = []
        others: dict[int, list[int]] = {}
        cells: list[tuple[int, int, int]] = []
        ends: list[int] = []
        width = columns.card_index.shape[1]
        for member, _ in there:
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
            rows=_ints(member.row for member, _ in there),
            task=_ints(tasks.setdefault(member.task, len(tasks)) for member, _ in there),
            tasks=list(tasks),
            whose=_ints(pairs.setdefault((member.gang.queue, member.namespace), len(pairs)) for member, _ in there),
            pairs=list(pairs),
            gang=_ints(gangs[id(member.gang)] for member, _ in there),
            gangs=ids,
            started=_floats(member.started_at for member, _ in there),
            walltime_s=_floats(walltime_s for _, walltime_s in there),
            cards=_ints(len(member.slices) for member, _ in there),
            cells=np.array(cells, dtype=np.int64).reshape(-1, 3),
            cell_ends=np.array(ends, dtype=np.int64),
            others=others,
        )


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def _floats(values: Iterable[float | None]) -> Floats:
    return np.fromiter((nan if value is None else value for value in values), dtype=np.float64)
