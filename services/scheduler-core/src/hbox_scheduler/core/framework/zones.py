"""NUMA nodes: a kubelet that aligns strictly refuses pods that it cannot align (TopologyAffinityError), and those do not go there."""

from collections.abc import Collection, Iterator

import numpy as np

from hbox_common.model.numa import ADMISSION_ERROR, SMT_ERROR

from ..cluster import Columns
from ..cluster.arrays import Bools, Ints, Rows
from ..cluster.task import Task
from ..explain.labels import Label

_UNLIMITED = 1 << 30

#: Kubelet rejections with a label of their own; all others, and unknown ones, are TopologyAffinityError.
_OWN = {SMT_ERROR: Label.SMT_ALIGNMENT, ADMISSION_ERROR: Label.MEMORY_MANAGER}

#: Labels of nodes whose kubelet would reject the pod.
REFUSALS = (*_OWN.values(), Label.TOPOLOGY_AFFINITY)


class ZoneFit:
    """Fit plugin for NUMA alignment. It does not limit pods without aligned resources, nor nodes whose kubelet policy is unknown or never rejects pods."""

    def capacity(self, columns: Columns, rows: Rows, task: Task) -> Ints | None:
        zones = columns.zones
        if task.aligned is None or not zones.strict:
            return None
        found = np.full(columns.alive[rows].shape, _UNLIMITED, dtype=np.int64)
        for place, row in strict_rows(columns, rows):
            found[place] = zones.room(row, task.aligned)
        return found

    def failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        room = self.capacity(columns, rows, task)
        if room is None or task.aligned is None:
            return
        own = {reason: np.zeros(len(room), dtype=np.bool_) for reason in _OWN}
        affinity = room == 0
        for place, row in strict_rows(columns, rows):
            if affinity[place] and (reason := columns.zones.refusal(row, task.aligned)[0]) in own:
                own[reason][place], affinity[place] = True, False
        for reason, label in _OWN.items():
            yield label, own[reason]
        yield Label.TOPOLOGY_AFFINITY, affinity


def strict_rows(columns: Columns, rows: Rows) -> Iterator[tuple[int, int]]:
    """Of these rows those whose kubelets refuse: the place among them, and the row."""
    return _among(columns.zones.strict, columns, rows)


def known_rows(columns: Columns, rows: Rows) -> Iterator[tuple[int, int]]:
    """Likewise those whose kubelets align pods."""
    return _among(columns.zones.rows, columns, rows)


def _among(those: Collection[int], columns: Columns, rows: Rows) -> Iterator[tuple[int, int]]:
    if isinstance(rows, slice):
        start, stop, _ = rows.indices(len(columns.alive))
        yield from ((row - start, row) for row in sorted(those) if start <= row < stop)
    else:
        yield from ((place, row) for place, row in enumerate(rows.tolist()) if row in those)
