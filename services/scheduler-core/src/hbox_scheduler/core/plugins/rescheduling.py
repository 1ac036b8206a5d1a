"""rescheduling: move pods from nodes with high measured usage to nodes with low usage (lowNodeUtilization; sources: volcano-rescheduling).

A node is low if its usage of cpu and of memory is at most `thresholds`, and high if one of them is above `targetThresholds`, in percent of allocatable, as last
measured (the plugin `usage` reads the same values); a node without a measurement of the last five minutes is neither. Members leave high nodes, the busiest
node and the least important member first, until no target is exceeded there or the moved members fill the low nodes up to the targets. A member's real usage is
unknown, so its request counts. Unlike in Volcano, a member leaves only if it fits on a low node at that moment.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hbox_common.errors import InvalidRequest
from hbox_common.model.resources import CPU, MEMORY

from ..cluster.arrays import Bools, Floats
from ..cluster.entities import Member
from ..framework.hooks import ShuffleVictims
from ..framework.placing import Placing
from .arguments import Arguments
from .usage import measured

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

_STRATEGY = "lowNodeUtilization"
_NAMES = (CPU, MEMORY)
_FULL = 100.0


class Rescheduling(ShuffleVictims):
    """Arguments: interval (5m, in the running service), strategies: {name: lowNodeUtilization, params: {thresholds: {cpu, memory}, targetThresholds: {cpu,
    memory}}}, each 100 where it is not written; `pods`, `metricsPeriod` and strategies of other names are read and have no effect, as in Volcano."""

    name = "rescheduling"
    time_dependent = True

    def __init__(self, conf: "PluginConf") -> None:
        """Raises InvalidRequest for arguments that are wrong."""
        arguments = Arguments(conf)
        self.shuffle_every_s = arguments.duration_s("interval", "5m")
        params, self._others = _params(arguments.listing("strategies"))
        arguments.done(also=("metricsPeriod",))
        self._idle = params is None
        self._low, self._target = (_percents(params or {}, key) for key in ("thresholds", "targetThresholds"))

    def open(self, session: "Session") -> None:
        self._session = session
        for name in self._others:
            session.outcome.warn(
                f"plugin rescheduling, strategy {name} has no effect: as in Volcano, there is {_STRATEGY} alone"
            )

    def victims(self, members: Sequence[Member]) -> list[Member]:
        """Members that should go elsewhere."""
        session = self._session
        if self._idle:
            return []
        columns, rows = session.columns, slice(0, session.columns.size)
        used, known = measured(session)
        low = known & columns.schedulable[rows] & (used <= self._low[:, None]).all(axis=0)
        high = known & ~low & (used > self._target[:, None]).any(axis=0)
        if not low.any() or not high.any():
            return []
        at = [columns.resource(name) for name in _NAMES]
        capacity = columns.allocatable[at, rows].astype(np.float64)
        room = ((self._target[:, None] - used) / _FULL * capacity)[:, low].sum(axis=1)
        by_row: dict[int, list[Member]] = {}
        for member in members:
            if member.preemptable and member.row >= 0 and high[member.row]:
                by_row.setdefault(member.row, []).append(member)
        chosen: list[Member] = []
        for row in sorted(by_row, key=lambda row: (-float(used[:, row].sum()), row)):
            left = used[:, row].copy()
            for member in sorted(by_row[row], key=_least_first):
                if not (left > self._target).any() or not (room > 0).all():
                    break
                if not self._fits(member, low):
                    continue
                asked = np.array([member.task.requests.get(name, 0) for name in _NAMES], dtype=np.float64)
                left -= _FULL * asked / np.maximum(capacity[:, row], 1.0)
                room -= asked
                chosen.append(member)
        return chosen

    def _fits(self, member: Member, low: Bools) -> bool:
        placing, columns = Placing(self._session), self._session.columns
        return bool((low & placing.allowed(member, columns) & placing.fits(member, columns)).any())


def _least_first(member: Member) -> tuple[int, bool, float, str]:
    return (member.priority, not member.best_effort, -member.created_at, member.uid)


def _params(strategies: Sequence[Any]) -> tuple[dict[str, Any] | None, list[str]]:
    """Those of the strategy, None = it is not among those that are written, and the names of others, of which Volcano has no code either."""
    if not strategies:
        return {}, []
    wrong = "plugin rescheduling, argument strategies"
    found: dict[str, Any] | None = None
    others: list[str] = []
    for one in strategies:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str) or not one.keys() <= {"name", "params"}:
            raise InvalidRequest(f"{wrong}: {one!r}", hint=f"write [{{name: {_STRATEGY}, params: {{...}}}}]")
        if one["name"] != _STRATEGY:
            others.append(one["name"])
            continue
        found = one.get("params") or {}
        if not isinstance(found, dict) or not found.keys() <= {"thresholds", "targetThresholds"}:
            raise InvalidRequest(f"{wrong}: {one!r}", hint="params has thresholds and targetThresholds")
    return found, others


def _percents(params: dict[str, Any], key: str) -> Floats:
    given = params.get(key, {})
    known = {"cpu": CPU, "memory": MEMORY}
    if not isinstance(given, dict) or not given.keys() <= {*known, "pods"}:
        raise InvalidRequest(f"plugin rescheduling, {key}: {given!r}", hint="write {cpu: 20, memory: 20}")
    for name, percent in given.items():
        if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 <= percent <= _FULL:
            raise InvalidRequest(f"plugin rescheduling, {key}.{name}: {percent!r} is no percentage")
    return np.array([float(given.get(name, _FULL)) for name in known], dtype=np.float64)
