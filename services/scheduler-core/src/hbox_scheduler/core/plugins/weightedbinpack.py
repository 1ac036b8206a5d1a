"""binpack, by Volcano's formula: 100 * weight * sum of w_r (used_r + asked_r) / allocatable_r over the resources asked for, over the sum of their weights.

0 where the node lacks one of them, or would be over-full with it (reference volcano §4).
"""

from typing import TYPE_CHECKING

import numpy as np

from ..cluster import Columns
from ..cluster.arrays import Floats, Rows
from ..cluster.task import Task
from ..framework.hooks import ShapeScore
from .arguments import Arguments

if TYPE_CHECKING:
    from ..framework.conf import PluginConf


class WeightedBinpack(ShapeScore):
    """Arguments: binpack.weight, binpack.cpu, binpack.memory, binpack.resources (names) and binpack.resources.<name> (their weights)."""

    name = "binpack"
    fills = True

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        self._weight = arguments.number("binpack.weight", 1, least=0)
        self._weights = {
            "cpu": arguments.number("binpack.cpu", 1, least=0),
            "memory": arguments.number("binpack.memory", 1, least=0),
        }
        for name in arguments.names("binpack.resources"):
            self._weights[name] = arguments.number(f"binpack.resources.{name}", 1, least=0)
        arguments.starting("binpack.resources.")
        arguments.done()

    def shape_score(self, columns: Columns, rows: Rows, task: Task) -> Floats | None:
        if not self._weight:
            return None
        return self._weight * ratio(columns, rows, task, self._weights)


def ratio(columns: Columns, rows: Rows, task: Task, weights: dict[str, float]) -> Floats:
    """`[n]`, 0 to 100: how full each node is in what the pod asks for, once the pod is there; 0 where it does not fit."""
    total = np.zeros(columns.alive[rows].shape, dtype=np.float64)
    fits = np.ones(total.shape, dtype=np.bool_)
    weight_sum = 0.0
    for name, units in task.requests.items():
        weight = weights.get(name, 0.0)
        if units <= 0 or not weight:
            continue
        column = columns.resource(name)
        allocatable = columns.allocatable[column, rows]
        used = columns.used[column, rows] + units
        fits &= used <= allocatable
        total += weight * used / np.maximum(allocatable, 1)
        weight_sum += weight
    if not weight_sum:
        return total
    return np.where(fits, 100.0 * total / weight_sum, 0.0)
