"""usage: filter and score nodes by their measured usage (sources: volcano-usage). Nodes above a threshold accept no new pods; nodes with lower usage score
higher.

A node without a measurement of the last five minutes fails no threshold and scores 0, as in Volcano.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.errors import InvalidRequest

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Rows
from ..cluster.task import Task
from ..explain.labels import Label
from ..framework.hooks import ShapeMask, ShapeScore
from .arguments import Arguments
from .shadowload import ShadowLoad

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

#: Seconds after which a measurement is stale (Volcano's MetricsActiveTime).
FRESH_S = 300.0

_THRESHOLDS = {"cpu": 80.0, "mem": 80.0}


class Usage(ShapeMask, ShapeScore):
    """Arguments: thresholds (cpu and mem, percent, 80 each), usage.weight (5), cpu.weight (1), memory.weight (1), estimator (`shadowload`; default: none)."""

    name = "usage"
    passing = True
    time_dependent = True  # a measurement expires
    reads_usage = True
    of_session = True
    fills = True

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        self._weight = arguments.number("usage.weight", 5, least=0)
        self._shares = (arguments.number("cpu.weight", 1, least=0), arguments.number("memory.weight", 1, least=0))
        limits = {**_THRESHOLDS, **arguments.mapping("thresholds")}
        estimator = arguments.nested("estimator")
        self._shadow = ShadowLoad(estimator, self._shares) if "estimator" in conf.arguments else None
        self.fills = self._shadow is None  # with the estimator, each pod lowers the score of its node
        arguments.done()
        for key, percent in limits.items():
            if key not in _THRESHOLDS:
                raise InvalidRequest(
                    f"plugin usage, argument thresholds: unknown key {key!r}", hint=f"allowed: {', '.join(_THRESHOLDS)}"
                )
            if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 <= percent <= 100:
                raise InvalidRequest(f"plugin usage, argument thresholds.{key}: {percent!r} is not a number from 0 to 100")
        self._limits = (limits["cpu"], limits["mem"])

    def open(self, session: "Session") -> None:
        self._percent, self._known = measured(session)
        if self._shadow is not None:
            self._shadow.open(session)

    def shape_failures(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Bools]]:  # noqa: ARG002  # the hook's signature
        for label, percent, limit in zip((Label.CPU_LOAD, Label.MEMORY_LOAD), self._percent, self._limits, strict=True):
            yield label, self._known[rows] & (percent[rows] > limit)

    def shape_score(self, columns: Columns, rows: Rows, task: Task) -> Floats | None:  # noqa: ARG002  # the hook's signature
        """The idle percentage, by the weights of cpu and memory, times `usage.weight`."""
        cpu, memory = self._shares
        if not self._weight or not cpu + memory:
            return None
        percent = self._percent[:, rows]
        idle = 100.0 - (percent if self._shadow is None else self._shadow.added_to(percent, columns, rows))
        return np.where(self._known[rows], self._weight * (cpu * idle[0] + memory * idle[1]) / (cpu + memory), 0.0)


def measured(session: "Session") -> tuple[Floats, Bools]:
    """`[2, N]` percent of cpu and of memory in use, and `[N]` of which nodes that is known and not too long ago."""
    percent: Floats = np.zeros((2, session.columns.size), dtype=np.float64)
    known: Bools = np.zeros(session.columns.size, dtype=np.bool_)
    for usage in session.cluster.facts.usage:
        row = session.row(usage.node)
        if row is not None and session.now - usage.at <= FRESH_S:
            percent[:, row] = usage.cpu_percent, usage.memory_percent
            known[row] = True
    return percent, known
