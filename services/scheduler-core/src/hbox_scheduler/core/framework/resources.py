"""Resources of nodes: cpu, memory, pods and whatever else is counted, as Kubernetes' NodeResourcesFit does it."""

from collections.abc import Iterator

import numpy as np

from hbox_common.model import VENDORS, is_host_port

from ..cluster import Columns
from ..cluster.arrays import Bools, Ints, Rows
from ..cluster.task import Task
from ..explain.labels import insufficient


class ResourceFit:
    """The count of cards is judged after the cards themselves (`last`), since cards know better why they do not fit."""

    def __init__(self, *, cards: bool) -> None:
        self._cards = cards

    def capacity(self, columns: Columns, rows: Rows, task: Task) -> Ints | None:
        """Asked once for all resources: the instance that judges the card count alone has nothing to add."""
        if self._cards:
            return None
        room: Ints | None = None
        for column, units in task.amount:
            fits = columns.allocatable[column][rows] - columns.used[column][rows]
            if units != 1:
                fits //= units
            room = fits if room is None else np.minimum(room, fits, out=room)
        return room

    def failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        for name, units in task.requests.items():
            if units > 0 and (name in VENDORS) == self._cards and not is_host_port(name):
                column = columns.resource(name)
                yield insufficient(name), columns.allocatable[column][rows] - columns.used[column][rows] < units
