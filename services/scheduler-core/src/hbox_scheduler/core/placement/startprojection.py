"""When a pending job could start if nothing but the present work ended: by the expected ends of running pods (`plugins.starts`), after the jobs ahead of it.

Walltimes and learned run times give the ends. The jobs ahead count as pods of the job's own shape, as many as have their cards. Evictions, later jobs, and
backfill are left out: `explain.startestimates` corrects the result by how such projections turned out before.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from math import ceil, inf

import numpy as np

from ..cluster.entities import Gang, Member, Status
from ..cluster.runtimes import RunTimes
from ..cluster.task import Task
from ..framework import Session
from ..framework.basefits import capacity_when_empty
from ..framework.placing import Placing
from ..plugins.starts import Departures, Need, Start, earliest
from ..plugins.walltimes import Ends, placed_pods


@dataclass(frozen=True, slots=True)
class Projection:
    """`wait_s`: seconds from now. `driver`: the event that decides it; "" = none is known."""

    wait_s: float
    driver: str


def departures_of(session: Session, run_times: RunTimes) -> Departures | None:
    """Of all running pods; None: there are none."""
    pods = placed_pods(session)
    return Departures(session.columns, pods, Ends(pods, session.queues, run_times, session.now).likely()) if len(pods) else None


def projections(session: Session, gangs: Mapping[Gang, int], departures: Departures | None) -> dict[Gang, Projection]:
    """Of these gangs, each with the cards that the jobs ahead of it request. A gang without a known start is left out."""
    if departures is None:
        return {}
    found: dict[Gang, Projection] = {}
    for gang, ahead in gangs.items():
        if (one := _projection(session, gang, ahead, departures)) is not None:
            found[gang] = one
    return found


def _projection(session: Session, gang: Gang, ahead: int, departures: Departures) -> Projection | None:
    short = gang.min_member - gang.ready
    pending = list(islice(session.members_in_order(gang.of(Status.PENDING)), max(short, 1)))
    if not pending or len(pending) < short:
        return None
    first: dict[Task, Member] = {}
    for member in pending:
        first.setdefault(member.task, member)
    counts = Counter(member.task for member in pending)
    placing, columns = Placing(session), session.columns
    needs: list[Need] = []
    rounds = 0
    for task, member in first.items():
        allowed = placing.allowed(member, columns)
        pods = counts[task]
        if not needs and task.cards is not None:
            most = int(capacity_when_empty(columns, task)[allowed].sum())
            if most < pods:
                return None
            more = ceil(ahead / max(1, task.cards.count))
            rounds, pods = (pods + more - 1) // most, pods + min(more, most - pods)
        needs.append(Need(placing.task(member), pods, allowed))
    start = earliest(departures, needs, session.now, None)
    if start is None or start.at == inf:
        return None
    wait_s = max(0.0, start.at - session.now)
    if rounds:
        lasting = departures.ends[: departures.known] - session.now
        wait_s += rounds * float(np.mean(lasting)) if departures.known else 0.0
    return Projection(wait_s, _driver(start, departures))


def _driver(start: Start, departures: Departures) -> str:
    """The queue with the most cards on the nodes of the start among the pods that end before it."""
    queues = departures.by_queue(start.rows, start.at)
    cards = Counter({name: cards for name, (_, cards) in queues.items()})
    return "".join(f"jobs of queue {name} end on {count} cards" for name, count in cards.most_common(1) if count)
