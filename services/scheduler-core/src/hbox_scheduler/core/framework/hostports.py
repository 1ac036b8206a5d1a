"""Host ports: two pods that clash never share a node. `hbox_common.model.hostports` defines the clashes."""

from collections.abc import Iterator

import numpy as np

from ..cluster import Columns
from ..cluster.arrays import Bools, Ints, Rows
from ..cluster.task import Task
from ..explain.labels import Label


class HostPorts:
    """Room plugin. Pods without host ports pass it by."""

    def capacity(self, columns: Columns, rows: Rows, task: Task) -> Ints | None:
        room: Ints | None = None
        for name, units in task.ports:
            fits = columns.ports.room(len(columns.alive), name, units)[rows]
            room = fits if room is None else np.minimum(room, fits, out=room)
        return room

    def failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        room = self.capacity(columns, rows, task)
        if room is not None:
            yield Label.NODE_PORTS_TAKEN, room == 0
