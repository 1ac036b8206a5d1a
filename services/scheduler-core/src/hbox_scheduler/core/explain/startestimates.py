"""Start estimates with measured coverage.

Theory of operation. A projection is the time at which a job could start by what is known (`placement.startprojection`); it leaves out later jobs, evictions
and backfill, and run times vary by orders of magnitude. So projections of waiting jobs are recorded and compared with what happens. The score of a record is
the logarithm of the actual time over the projected one; a record whose job still waits has at least the score of the time that has passed. An estimate
multiplies the present projection by quantiles of the scores (conformal prediction).

Jobs of one day are not independent: one large gang delays all others. So the level of each quantile follows its own outcomes (adaptive conformal inference;
Gibbs and Candes, 2021): a start after the 90th percentile raises the level by as much as nine starts before it lower it, so that in the long run nine of ten
starts come before it. A start is known to be late as soon as the estimate has passed. Beyond level 1 the largest score is exceeded.

An estimate is withheld while there are fewer than LEAST scores or outcomes, while fewer than BELOW of the recent outcomes were covered, or while the 90th
percentile is more than MOST times the projection: then it is no information.
"""

from collections import deque
from dataclasses import dataclass
from math import exp, log

from hbox_common.model import JobId

#: Scores and outcomes that an estimate needs, and how many are kept of each.
LEAST, SCORES, OUTCOMES = 20, 128, 100
#: Coverage of the 90th percentile below which estimates are withheld.
BELOW = 0.8
#: Largest factor between a projection and the 90th percentile.
MOST = 33.0
#: Step of a level by one outcome, and what a level beyond 1 adds to the largest score.
STEP, BEYOND = 0.01, 5.0
MEDIAN, LATE = 0.5, 0.9
#: Records without an outcome.
MOST_OPEN = 512


@dataclass(slots=True)
class _Level:
    """The level at which a quantile of the scores is taken so that `part` of the starts come before it."""

    part: float
    least: float
    most: float
    level: float

    def outcome(self, *, in_time: bool) -> None:
        self.level += STEP * (self.part - 1.0 if in_time else self.part)
        self.level = min(max(self.level, self.least), self.most)

    def of(self, scores: list[float]) -> float:
        return scores[min(int(self.level * len(scores)), len(scores) - 1)] + BEYOND * max(0.0, self.level - 1.0)


@dataclass(slots=True)
class _Record:
    """`base`: projected seconds from `at`. `p50`, `p90`: seconds since the epoch; None = no estimate, or its outcome is known."""

    job: JobId
    at: float
    base: float
    p50: float | None
    p90: float | None

    def score(self, now: float) -> float:
        return log(max(now - self.at, 1.0) / self.base)


class StartEstimates:
    """Times are seconds since the epoch. `base`: projected seconds, more than 0."""

    def __init__(self) -> None:
        self._median, self._late = _Level(MEDIAN, 0.05, 0.95, MEDIAN), _Level(LATE, 0.85, 1.4, LATE)
        self._scores: deque[float] = deque(maxlen=SCORES)
        self._covered: deque[bool] = deque(maxlen=OUTCOMES)
        self._open: list[_Record] = []

    def interval(self, base: float, now: float) -> tuple[float, float] | None:
        """Seconds until the start, median and 90th percentile; None = withheld."""
        if not self.given:
            return None
        found = self._interval(base, now)
        return found if found is not None and found[1] <= MOST * base else None

    @property
    def given(self) -> bool:
        """Whether enough outcomes are known, and enough of them were covered."""
        covered, outcomes = self.coverage()
        return len(self._scores) >= LEAST and outcomes >= LEAST and covered >= BELOW * outcomes

    def record(self, job: JobId, base: float, now: float) -> None:
        """Compare the projection with the job's start."""
        if len(self._open) < MOST_OPEN:
            p50, p90 = self._interval(base, now) or (None, None)
            self._open.append(_Record(job, now, base, None if p50 is None else now + p50, None if p90 is None else now + p90))

    def started(self, job: JobId, now: float) -> None:
        """The job started at `now` or shortly before."""
        for one in self._open:
            if one.job == job:
                self._settle(one, now, started=True)
                self._scores.append(one.score(now))
        self.gone(job)

    def gone(self, job: JobId) -> None:
        """The job was deleted: its records have no outcome."""
        self._open = [one for one in self._open if one.job != job]

    def pass_time(self, now: float) -> None:
        """Jobs that still wait after their estimates are late."""
        for one in self._open:
            self._settle(one, now, started=False)

    def forget_open(self) -> None:
        """Drop the records without an outcome: their jobs are not observed any more."""
        self._open = []

    def coverage(self) -> tuple[int, int]:
        """Of the recent outcomes: starts before the 90th percentile, and all."""
        return sum(self._covered), len(self._covered)

    def _interval(self, base: float, now: float) -> tuple[float, float] | None:
        scores = sorted([*self._scores, *(one.score(now) for one in self._open)])
        if not scores:
            return None
        late = self._late.of(scores)
        return base * exp(min(late, self._median.of(scores))), base * exp(late)

    def _settle(self, one: _Record, now: float, *, started: bool) -> None:
        if one.p50 is not None and (started or now > one.p50):
            self._median.outcome(in_time=now <= one.p50)
            one.p50 = None
        if one.p90 is not None and (started or now > one.p90):
            self._late.outcome(in_time=now <= one.p90)
            self._covered.append(now <= one.p90)
            one.p90 = None
