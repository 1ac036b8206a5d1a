"""node-preferences: score nodes by a pod's preferred node affinity and by their preferred taints.

As kube-scheduler's NodeAffinity and TaintToleration, but as functions of the node alone: `nodeorder` computes them relative to the best node that fits, so a
node's score cannot be cached.
"""

from typing import TYPE_CHECKING

import numpy as np

from ..cluster import Columns
from ..cluster.arrays import Floats, Rows
from ..cluster.task import Task
from ..framework.hooks import ShapeScore
from .arguments import Arguments
from .nodeaffinity import NodeAffinity
from .taints import Taints

if TYPE_CHECKING:
    from ..framework.conf import PluginConf


class NodePreferences(ShapeScore):
    """Arguments: nodeaffinity.weight (1): 100 times it where all preferred terms hold; tainttoleration.weight (1): minus 100 times it for each
    PreferNoSchedule taint that is not tolerated."""

    name = "node-preferences"
    fills = True

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        weights = [arguments.number(f"{name}.weight", 1, least=0) for name in ("nodeaffinity", "tainttoleration")]
        arguments.done()
        rules: tuple[NodeAffinity | Taints, ...] = (NodeAffinity(), Taints())
        self._scores = [(rule, weight) for rule, weight in zip(rules, weights, strict=True) if weight]

    def shape_score(self, columns: Columns, rows: Rows, task: Task) -> Floats | None:
        total: Floats | None = None
        for rule, weight in self._scores:
            if (score := rule.score(columns, rows, task)) is not None:
                total = weight * score if total is None else np.asarray(total + weight * score)
        return total
