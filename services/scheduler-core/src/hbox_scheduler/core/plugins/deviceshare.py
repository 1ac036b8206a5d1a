"""deviceshare: score nodes and their cards for a share of a card (sources: volcano-deviceshare). The engine itself prevents over-booked cards, with or without
this plugin."""

from typing import TYPE_CHECKING

import numpy as np

from hbox_common.errors import InvalidRequest

from ..cluster import Columns
from ..cluster.arrays import Floats, Ints, Rows
from ..cluster.task import Task
from ..devices import memory_needed, seats
from ..framework.hooks import CardOrder, ShapeScore
from .arguments import Arguments

if TYPE_CHECKING:
    from ..framework.conf import PluginConf

_BINPACK, _SPREAD = "binpack", "spread"

#: Volcano's switches for ways of sharing that HBox has, or has not, whatever they say.
_ALSO = (
    "deviceshare.VGPUEnable", "deviceshare.GPUSharingEnable", "deviceshare.GPUNumberEnable", "deviceshare.NodeLockEnable",
    "deviceshare.AscendHAMiVNPUEnable", "deviceshare.AscendMindClusterVNPUEnable", "deviceshare.KnownGeometriesCMName",
    "deviceshare.KnownGeometriesCMNamespace",
)  # fmt: skip


class DeviceShare(ShapeScore, CardOrder):
    """Arguments: deviceshare.SchedulePolicy (binpack: fullest card first; spread: idle card first; empty: best fit, no score), deviceshare.ScheduleWeight."""

    name = "deviceshare"
    fills = False
    by_amounts = True

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        self._policy = arguments.text("deviceshare.SchedulePolicy")
        if self._policy not in ("", _BINPACK, _SPREAD):
            raise InvalidRequest(
                f"plugin deviceshare, argument deviceshare.SchedulePolicy: {self._policy!r}",
                hint=f"allowed: {_BINPACK}, {_SPREAD}",
            )
        self._weight = arguments.number("deviceshare.ScheduleWeight", 1, least=0)
        arguments.done(also=_ALSO)

    def shape_score(self, columns: Columns, rows: Rows, task: Task) -> Floats | None:
        """The mean over the cards that the member would take: under binpack the share of the card's memory that is used then, in percent; under spread 100
        for an idle card."""
        request = task.cards
        if request is None or not self._policy or not self._weight:
            return None
        worth = np.where(seats(columns, rows, request) > 0, self._worth(columns, rows, task), -1.0)
        best = -np.sort(-worth, axis=1)[:, : request.count]
        return self._weight * np.asarray(np.maximum(best, 0.0).sum(axis=1)) / max(request.count, 1)

    def card_keys(self, columns: Columns, rows: Ints, task: Task) -> Floats | None:
        """`[n, D]`: the lowest first; None = the engine's own choice."""
        return None if not self._policy else -self._worth(columns, rows, task)

    def _worth(self, columns: Columns, rows: Rows, task: Task) -> Floats:
        request = task.cards
        assert request is not None
        memory = columns.card_memory[rows]
        if self._policy == _SPREAD:
            return np.where(columns.card_pods[rows] == 0, 100.0, 0.0)
        used = columns.card_memory_used[rows] + memory_needed(request, memory)
        return 100.0 * used / np.maximum(memory, 1)
