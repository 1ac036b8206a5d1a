"""What pods that are too young to be measured are going to use of their nodes: the estimator of plugin `usage` (reference volcano §4, volcano-sh/volcano#5313).

Metrics lag by up to half a minute. Until then a node to which many pods were bound looks idle and takes the next ones too. An estimate is added to what is
measured: what was booked on the node since before the measurement (`BookedBefore`), times `request_ratio`. Columns hold what is booked, so that the estimate
follows each placement of a session and each undoing of one, and no pod is looked at.

Where it differs from Volcano: limits of pods are not known here, so that `burst_ratio` has to be 0; `be_cpu` and `be_mem` are taken for new pods on nodes where
all new pods ask for neither cpu nor memory; `risk_factor` applies to all of a node's estimate once the node's load with it reaches `risk_threshold`.
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

#: Seconds for which a pod that runs is not measured, where nothing else is known of the measurements (Volcano's default of `metrics.interval`).
BLIND_S = 30.0

_RESOURCES = (CPU, MEMORY, PODS)


class ShadowLoad:
    """The estimate of one session. `weights`: of cpu and memory in the load of a node."""

    def __init__(self, given: Given, weights: Sequence[float]) -> None:
        """Raises InvalidRequest for arguments that are wrong."""
        self._ratio = given.number("request_ratio", 0.7, least=0, most=1)
        if given.number("burst_ratio", 0, least=0, most=1):
            raise InvalidRequest(
                f"{given.whose}, argument burst_ratio: the scheduler knows what pods request, not their limits", hint="write 0"
            )
        self._threshold = 100.0 * given.number("risk_threshold", 0.6, least=0, most=1)
        self._factor = given.number("risk_factor", 1.2, least=1)
        modest = (("be_cpu", CPU, "250m"), ("be_mem", MEMORY, "200Mi"))
        self._best_effort = np.array([[_units(given, key, name, default)] for key, name, default in modest], dtype=np.float64)
        given.done()
        self._weights = np.array(weights, dtype=np.float64) / (sum(weights) or 1.0)
        self._before: Ints = np.zeros((len(_RESOURCES), 0), dtype=np.int64)

    def open(self, session: "Session") -> None:
        """Note what was booked before the measurements: `[3, N]`."""
        columns = session.columns
        self._columns = [columns.resource(name) for name in _RESOURCES]
        self._before = columns.used[self._columns, : columns.size].copy()
        if (known := session.cluster.booked_before) is not None:
            for name, amounts in known.items():
                if (row := session.row(name)) is not None:
                    self._before[:, row] = amounts
            return
        for gang in session.fresh:  # a simulation of one moment: by when pods began to run
            for member in gang.members:
                began = member.started_at
                if member.row >= 0 and (began is None or session.now - began < BLIND_S):
                    self._before[:, member.row] -= [member.task.requests.get(name, 0) for name in _RESOURCES]

    def added_to(self, percent: Floats, columns: Columns, rows: Rows) -> Floats:
        """`[2, n]` percent of cpu and memory: `percent`, which is what is measured there, and the estimate, 100 at most."""
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
        raise InvalidRequest(f"{given.whose}, argument {key}: {e.message}") from e
