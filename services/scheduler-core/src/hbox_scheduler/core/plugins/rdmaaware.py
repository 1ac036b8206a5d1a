"""rdma-aware: place pods that communicate over RDMA where their cards have adapters of their own.

A pod communicates over RDMA if it requests cards and an RDMA device (`rdma/...`), or if its gang requests proximity in the fabric. The plugin predicts which
cards of a node the pod would get (`devices/rdmaadapters.py`), and the node loses 100 * weight * the share of them without an adapter below their own host
bridge, half of that for those that share one. Nodes with unknown adapters lose nothing.

The engine itself chooses which of a node's cards such a pod gets (`devices.pick`), with or without this plugin.
"""

from typing import TYPE_CHECKING

from ..cluster import Columns
from ..cluster.arrays import Floats, Rows
from ..cluster.task import Task
from ..devices.cards import without_adapters
from ..framework.hooks import ShapeScore
from .arguments import Arguments

if TYPE_CHECKING:
    from ..framework.conf import PluginConf


class RdmaAware(ShapeScore):
    """Argument: weight (1)."""

    name = "rdma-aware"
    fills = True  # each pod that is placed by adapters ends its node's turn in views
    by_amounts = True

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        self._weight = arguments.number("weight", 1, least=0)
        arguments.done()

    def shape_score(self, columns: Columns, rows: Rows, task: Task) -> Floats | None:
        if not task.rdma or not columns.any_adapters or not self._weight:
            return None
        found = without_adapters(columns, rows, task)
        return None if found is None else -100.0 * self._weight * found
