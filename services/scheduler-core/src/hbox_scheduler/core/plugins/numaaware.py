"""numa-aware: place pods where their exclusive resources come from the fewest NUMA nodes.

Volcano's plugin of this name scores 100 - 100 * zones used / most zones, of CPUs alone, if the pod's policy is the node's (sources: volcano-numa-aware). Here
the plugin predicts the kubelet's choice (`cluster/zones.py`), CPUs and devices together, and a node loses 100 * weight * (zones beyond what the pod needs
there) / zones. Nodes with unknown zones, and nodes whose kubelet aligns nothing, lose nothing.

The engine itself excludes nodes whose kubelet would reject the pod (`framework/zones.py`), with or without this plugin.
"""

from typing import TYPE_CHECKING

import numpy as np

from ..cluster import Columns
from ..cluster.arrays import Floats, Rows
from ..cluster.task import Task
from ..framework.hooks import ShapeScore
from ..framework.zones import known_rows
from .arguments import Arguments

if TYPE_CHECKING:
    from ..framework.conf import PluginConf


class NumaAware(ShapeScore):
    """Argument: weight (1)."""

    name = "numa-aware"
    fills = True  # views end a node's turn where the next pod would be in another zone (`ZoneBooks.same_zones`)
    by_amounts = True

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        self._weight = arguments.number("weight", 1, least=0)
        arguments.done()

    def shape_score(self, columns: Columns, rows: Rows, task: Task) -> Floats | None:
        if task.aligned is None or not columns.zones or not self._weight:
            return None
        score = np.zeros(columns.alive[rows].shape, dtype=np.float64)
        for place, row in known_rows(columns, rows):
            score[place] = -100.0 * self._weight * columns.zones.scattered(row, task.aligned)
        return score
