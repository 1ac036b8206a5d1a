"""Coverage of start estimates over days of published traces, in the engine's own time (`day`): how often jobs start before the 90th percentile.

Every job that waits asks when it is first seen, 10 minutes later, and then after twice as long each time. What the scheduler learned of one day counts in the
next, as in a process that runs for weeks. A job that has not started at the end of the run counts as late if its 90th percentile has passed.
"""

import os
import time
from dataclasses import dataclass

import numpy as np

from hbox_scheduler.core.explain.startestimates import StartEstimates

from .day.policies import policies
from .day.report import TRACES
from .day.simulated import AHEAD_S, Run, Simulated
from .day.work import DAY_S, FIRST, OTHERS, Day, day_of

#: Days of the ITP trace and of Alibaba's, put together; HBOX_STARTS_DAYS: how many of them.
DAYS = (FIRST, *OTHERS)
#: Limits of the coverage of the 90th percentile.
LIMITS = 0.85, 0.95
#: Seconds between two samples of the scheduler, and until a job asks for the second time.
SAMPLE_S, AGAIN_S = 60.0, 600.0


@dataclass(frozen=True, slots=True)
class Given:
    """An estimate as a user gets it. Times in seconds since the day began."""

    run: Run
    at: float
    p50: float
    p90: float


class _Watched(Simulated):
    def __init__(self, day: Day, estimates: StartEstimates) -> None:
        super().__init__(day, policies()["HBox"].conf, nodes=day.nodes, queues=day.queues())
        estimates.forget_open()
        self._sim.scheduler.start_times.estimates = estimates
        self.given: list[Given] = []
        self.asked = self.samples = 0
        self.took_s = 0.0
        self._sampled = -SAMPLE_S
        self._due: dict[int, tuple[float, float]] = {}  #: by run, when it asks next, and after how long again

    def _decide(self) -> None:
        super()._decide()
        now, start_times = self._sim.now, self._sim.scheduler.start_times
        if now >= self._sampled + SAMPLE_S:
            self._sampled = now
            began = time.process_time()
            start_times.sample(now + AHEAD_S)
            self.took_s += time.process_time() - began
            self.samples += 1
        for run in [run for run in self._runs.values() if run.started is None] if now <= DAY_S else ():
            due, again = self._due.get(id(run), (now, AGAIN_S))
            if now < due:
                continue
            self._due[id(run)] = now + again, 2 * again
            self.asked += 1
            if (found := start_times.estimate(run.id, now + AHEAD_S)) is not None:
                self.given.append(Given(run, now, found.p50_s, found.p90_s))


def main() -> None:
    if not TRACES.is_dir():
        print(f"skipped: there are no traces in {TRACES}; HBOX_TRACES names their folder")
        return
    estimates = StartEstimates()
    every: list[tuple[float, float, float]] = []
    asked = 0
    for days in DAYS[: int(os.environ.get("HBOX_STARTS_DAYS", len(DAYS)))]:
        watched = _Watched(day_of(TRACES, days), estimates)
        until = watched.run().until
        found = [
            ((one.run.started or until) - one.at, one.p50, one.p90)
            for one in watched.given
            if one.run.started is not None or until - one.at > one.p90
        ]
        every, asked = every + found, asked + watched.asked
        print(
            f"days {days[0]} of ITP and {days[1]} of Alibaba: {len(watched.given)} of {watched.asked} estimates given; ", end=""
        )
        print(f"{text(found)}; a sample takes {1000 * watched.took_s / watched.samples:.0f} ms of processor time", flush=True)
    print(f"all: {len(every)} of {asked}; {text(every)} (limits of the 90th percentile {LIMITS[0]:.0%} to {LIMITS[1]:.0%})")


def text(found: list[tuple[float, float, float]]) -> str:
    if not found:
        return "none has an outcome"
    actual, p50, p90 = (np.array(column) for column in zip(*found, strict=True))
    return (
        f"{np.mean(actual <= p90):.1%} start before the 90th percentile, {np.mean(actual <= p50):.1%} before the median; "
        f"median of the waits {np.median(actual):,.0f} s, of their p50 {np.median(p50):,.0f} s, of their p90 {np.median(p90):,.0f} s"
    )
