"""Results of a day's jobs, and its measures.

waiting          from the submission of a job until all of its pods first had nodes, or until the end of the day
utilisation      cards in use, as a fraction of all cards, over the day
lost card-hours  work of evicted pods since their last checkpoint (jobs write one each hour), in cards times hours
useful           cards in use, less the lost card-hours
anomalies        jobs that waited more than five minutes longer than in a cluster of their department alone, with as many nodes as it
                 deserves and only its own work (HiveD's measure of the cost of sharing for a tenant, OSDI'20)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hbox_common.model.annotations import CHECKPOINT_INTERVAL

from .work import CARDS, DAY_S, Day

CHECKPOINT_S = 3600.0
#: What is written on pods of that.
SAYS = {CHECKPOINT_INTERVAL: f"{CHECKPOINT_S:.0f}s"}
#: Longer than in a private cluster by more than this is an anomaly: an engine's step, and two seconds of the machine where a day lasts for twelve minutes
#: (`running`).
SLACK_S = 300.0


@dataclass(slots=True)
class Outcome:
    """Times in seconds since the day began. `starts`: of each job, its first."""

    starts: dict[str, float] = field(default_factory=dict)
    busy_s: float = 0.0  #: cards times seconds, within the day
    evictions: int = 0  #: pods
    lost_s: float = 0.0  #: cards times seconds
    until: float = 0.0

    def ran(self, cards: int, since: float, until: float) -> None:
        self.busy_s += cards * max(0.0, min(until, DAY_S) - min(since, DAY_S))

    def evicted(self, cards: int, since: float, until: float) -> None:
        self.evictions += 1
        self.lost_s += cards * ((until - since) % CHECKPOINT_S)


@dataclass(frozen=True, slots=True)
class Measures:
    """Waiting in seconds; `utilisation`, `useful`: parts."""

    large_p50: float
    large_p99: float
    all_p50: float
    all_p99: float
    utilisation: float
    useful: float
    evictions: int
    lost_card_hours: float
    anomalies: int
    anomaly_hours: float


def measures(day: Day, found: Outcome, private: Mapping[str, float]) -> Measures:
    """`private`: what each job waits in a cluster of its department's own."""
    waits = {p.name: max(0.0, found.starts.get(p.name, found.until) - p.submit_s) for p in day.pieces}
    large = np.array([waits[p.name] for p in day.pieces if p.large] or [0.0])
    every = np.array(list(waits.values()) or [0.0])
    late = [waits[name] - alone for name, alone in private.items() if waits[name] > alone + SLACK_S]
    return Measures(
        large_p50=float(np.quantile(large, 0.5)),
        large_p99=float(np.quantile(large, 0.99)),
        all_p50=float(np.quantile(every, 0.5)),
        all_p99=float(np.quantile(every, 0.99)),
        utilisation=found.busy_s / (DAY_S * day.nodes * CARDS),
        useful=(found.busy_s - found.lost_s) / (DAY_S * day.nodes * CARDS),
        evictions=found.evictions,
        lost_card_hours=found.lost_s / 3600,
        anomalies=len(late),
        anomaly_hours=sum(late) / 3600,
    )
