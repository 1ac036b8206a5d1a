"""The estimator of plugin `usage`: the load of pods that no measurement includes yet (volcano-sh/volcano#5313; sources: volcano-usage).

Metrics lag by up to half a minute. Until then a node to which many pods were bound looks idle and gets the next pods too. The estimate, which is added to the
measured load, is `request_ratio` times the amounts booked on the node since before the measurement (`BookedBefore`). It is computed from the bookings in
`Columns`: it follows each placement of a session, also undone ones, and needs no walk over pods.

Differences from Volcano: `burst_ratio` has to be 0, since limits of pods are unknown here; `be_cpu` and `be_mem` apply on nodes where no new pod requests cpu
or memory; if a node's load including the estimate reaches `risk_threshold`, `risk_factor` applies to its whole estimate.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.errors import InvalidRequest
from hbox_common.model.resources import CPU, MEMORY, PODS, request_units

from ..cluster import Columns
from ..cluster.arrays import Floats, Ints, Rows
from .arguments import Given

if TYPE_CHECKING:
    from ..framework.session import Session

#: Seconds for which no measurement includes a new pod, if the times of measurements are unknown (Volcano's default of `metrics.interval`).
BLIND_S = 30.0

_RESOURCES = (CPU, MEMORY, PODS)


class ShadowLoad:
    """The estimate of one session. `weights`: of cpu and memory in the load of a node."""

    def __init__(self, given: Given, weights: Sequence[float]) -> None:
        """Raises InvalidRequest for arguments that are wrong."""
        self._ratio = given.number("request_ratio", 0.7, least=0, most=1)
        if given.number("burst_ratio", 0, least=0, most=1):
            raise InvalidRequest(
                f"{given.owner}, argument burst_ratio: the scheduler knows the requests of pods, not their limits",
                hint="write 0",
            )
        self._threshold = 100.0 * given.number("risk_threshold", 0.6, least=0, most=1)
        self._factor = given.number("risk_factor", 1.2, least=1)
        modest = (("be_cpu", CPU, "250m"), ("be_mem", MEMORY, "200Mi"))
        self._best_effort = np.array([[_units(given, key, name, default)] for key, name, default in modest], dtype=np.float64)
        given.done()
        self._weights = np.array(weights, dtype=np.float64) / (sum(weights) or 1.0)
        self._before: Ints = np.zeros((len(_RESOURCES), 0), dtype=np.int64)

    def open(self, session: "Session") -> None:
        """Compute `_before`: `[3, N]` base units booked before the measurements."""
        columns = session.columns
        self._columns = [columns.resource(name) for name in _RESOURCES]
        self._before = columns.used[self._columns, : columns.size].copy()
        if (known := session.cluster.facts.booked_before) is not None:
            for name, amounts in known.amounts.items():
                if (row := session.row(name)) is not None:
                    self._before[:, row] = amounts
            return
        for gang in session.fresh:  # a simulation of one cycle: the start times of pods decide
            for member in gang.members:
                began = member.started_at
                if member.row >= 0 and (began is None or session.now - began < BLIND_S):
                    self._before[:, member.row] -= [member.task.requests.get(name, 0) for name in _RESOURCES]

    def added_to(self, percent: Floats, columns: Columns, rows: Rows) -> Floats:
        """`[2, n]` percent of cpu and memory: `percent` (measured) plus the estimate, at most 100."""
        cpu, memory, pods = self._columns
        new = np.stack([columns.used[column, rows] for column in (cpu, memory, pods)]) - self._before[:, rows]
        new = np.maximum(new, 0).astype(np.float64)
        asked = new[:2]
        load = np.where(asked.any(axis=0), self._ratio * asked, self._best_effort * new[2])
        capacity = np.stack([columns.allocatable[column, rows] for column in (cpu, memory)])
        estimate = 100.0 * load / np.maximum(capacity, 1)
        risky = self._weights @ np.minimum(percent + estimate, 100.0) >= self._threshold
        return np.asarray(np.minimum(percent + np.where(risky, self._factor * estimate, estimate), 100.0))


def _units(given: Given, key: str, name: str, default: str) -> int:
    text = given.text(key, default)
    try:
        return request_units(name, text)
    except InvalidRequest as e:
        raise InvalidRequest(f"{given.owner}, argument {key}: {e.message}") from e
