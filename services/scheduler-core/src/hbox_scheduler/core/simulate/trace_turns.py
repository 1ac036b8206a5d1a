"""Orders of jobs in time, none of which knows how long a job will run.

`LEAST_SERVED` is what HBox recommends for clusters whose jobs write checkpoints. Jobs are on levels by how long they have held their cards: less than 1, 4, 16,
64, 256 hours, or more. Lower levels are served first, and within a level earlier jobs. A job that does not fit preempts jobs on higher levels, the highest
first; a preempted job continues later from where it was. So short jobs hardly wait, whatever is running, and long jobs are preempted as often as they can
afford: a level four times higher is left four times as rarely. This is least attained service (Tiresias, NSDI'19) by time instead of by cards times time, which
would make large jobs pay for their size.

A service needs for it: jobs that may be preempted (checkpoints), the time that they have held cards (the ledger's claims), and three bounds. No job is
preempted within `minimum_run_s` of a start, so that a restart pays; no job waits longer than `patience_s` without starting over at the lowest level; and a job
is not preempted by jobs of its own level, so that two jobs never preempt each other in turns.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class TraceTurns:
    """An order. Times in seconds.

    `levels`: ascending bounds of held time between one level and the next; none = no job is ever preempted.
    `backfill`: whether smaller jobs may start while one before them does not fit.
    `usage_weight`: weight of the queues' recent usage (k of `hbox_common.model.fairshare`), with this half-life; 0 = queues do not matter.
    """

    levels: tuple[float, ...] = ()
    minimum_run_s: float = 600.0
    patience_s: float = 86_400.0
    backfill: bool = True
    usage_weight: float = 0.0
    half_life_s: float = 7 * 86_400.0

    def level(self, held_s: float) -> int:
        return sum(held_s >= bound for bound in self.levels)

    def until_next(self, held_s: float) -> float | None:
        """Seconds of holding until the next level; None at the highest."""
        level = self.level(held_s)
        return self.levels[level] - held_s if level < len(self.levels) else None


FIFO = TraceTurns(backfill=False)
BACKFILL = TraceTurns()
FAIR_SHARE = TraceTurns(usage_weight=1.0)
LEAST_SERVED = TraceTurns(levels=tuple(4**i * _HOUR_S for i in range(5)))

#: By the name that users give. `backfill` is what the service does today among jobs of one priority.
ORDERS: Mapping[str, TraceTurns] = {"fifo": FIFO, "backfill": BACKFILL, "fair-share": FAIR_SHARE, "least-served": LEAST_SERVED}
