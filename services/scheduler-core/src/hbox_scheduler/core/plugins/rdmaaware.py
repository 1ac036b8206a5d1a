"""rdma-aware: pods that talk over RDMA go where their cards have adapters of their own.

A pod does so that asks for cards and for an RDMA device (`rdma/...`), or whose gang wishes to be near each other in the fabric. Of a node its cards are
foreseen as they would be taken (`devices/rdmaadapters.py`), and it loses 100 * weight * the share of them without an adapter below their own host bridge, half
of it for those that share one. Nodes of whose adapters nobody knows lose nothing.

Which of a node's cards such a pod takes is the engine's own rule (`devices.pick`), with this plugin or without.
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
    fills = True  # views end a node's turn with each pod that goes by adapters
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
