"""Volumes that only some nodes reach (kube-scheduler's VolumeBinding, for volumes that are bound): all of a pod's are needed."""

from collections.abc import Iterator

import numpy as np

from ..cluster import Columns
from ..cluster.arrays import Bools, Rows
from ..cluster.task import Task
from ..explain.labels import Label
from .nodeaffinity import term_mask


class VolumeReach:
    """Predicate: for each volume one of its terms holds."""

    def failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:
        for terms in task.volumes:
            mask = np.zeros(columns.alive[rows].shape, dtype=np.bool_)
            for term in terms:
                mask |= term_mask(columns, rows, term)
            yield Label.VOLUME_NODE_MISMATCH, ~mask
