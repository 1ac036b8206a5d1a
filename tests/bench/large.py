"""Large gangs on a published trace: their waits with and without reservations, and the cost of the reservations.

Jobs of one cluster of Microsoft's ITP trace (2021, MIT licence), at the trace's times, run through the scheduler's cycles over a ledger in memory. The cluster
has as many nodes of 8 cards as make it busy. A job of more than 8 cards is a gang of whole nodes. Time advances from event to event, and by five minutes while
jobs are pending. Without the trace on this machine there are no figures.
"""

import csv
import gzip
import time
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from pathlib import Path

import numpy as np

from hbox_common.model import Neighbour, PodUid
from hbox_common.model.annotations import WALLTIME
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.cluster.arrays import Floats
from hbox_scheduler.core.framework.conf import Conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate import Simulation, job, node

TRACE = Path(__file__).resolve().parents[3] / "shared" / "traces" / "itp2021" / "itp_jobs.csv.gz"
CLUSTER, NODES, FROM_DAY, DAYS = "03", 24, 30, 20
LOOK_S = 300.0


@dataclass(frozen=True)
class Submitted:
    at: float
    runs_s: float
    cards: int


def submitted() -> list[Submitted]:
    with gzip.open(TRACE, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    known = sorted({row["cluster"] for row in rows})
    cluster = next(name for name in known if name.endswith(CLUSTER))
    first = min(float(row["submit_s"]) for row in rows) + FROM_DAY * 86_400
    return [
        Submitted(float(row["submit_s"]) - first, float(row["duration_s"]), int(row["num_gpus"]))
        for row in rows
        if row["cluster"] == cluster
        and first <= float(row["submit_s"]) < first + DAYS * 86_400
        and int(row["num_gpus"]) <= 8 * NODES
    ]


@dataclass(frozen=True)
class Outcome:
    large: Floats  #: seconds that gangs of several nodes waited, or wait still
    small: Floats
    busy: float  #: share of all cards, while anybody waits
    processor_s: float


def run(jobs: list[Submitted], conf: Conf, *, walltimes: bool) -> Outcome:
    """`walltimes`: every job says one and a half times what it will run."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=conf)
    simulation.wall_ahead = 1_600_000_000.0
    simulation.put_nodes([node(f"n{i:03}", cards=8, cpu=96) for i in range(NODES)])
    events: list[tuple[float, int, str]] = [(one.at, i, "") for i, one in enumerate(jobs)]
    events.sort()
    waits, started, until = np.full(len(jobs), np.nan), 0, DAYS * 86_400.0
    held = asked = came = 0.0
    busy, processor = 0, time.process_time()
    while events and simulation.now < until:
        waiting = came - started
        at = min(events[0][0], simulation.now + LOOK_S if waiting else np.inf, until)
        if waiting:
            held, asked = held + busy * (at - simulation.now), asked + 8 * NODES * (at - simulation.now)
        simulation.now = at
        while events and events[0][0] <= at:
            _, number, ended = heappop(events)
            if ended:
                pods = [PodUid(f"j{number}-{i}") for i in range(max(jobs[number].cards // 8, 1))]
                simulation.finish(pods)
                busy -= jobs[number].cards
                continue
            came += 1
            one = jobs[number]
            made = job(
                f"j{number}", pods=max(one.cards // 8, 1), cards=min(one.cards, 8), created_at=at + simulation.wall_ahead
            )
            if walltimes:
                notes = {WALLTIME: f"{1.5 * one.runs_s:.0f}s"}
                made = replace(made, tasks=tuple(replace(spec, annotations=notes) for spec in made.tasks))
                simulation.scheduler.on_neighbours(
                    Neighbour(pod.uid, "default", annotations=notes) for spec in made.tasks for pod in spec.pods
                )
            simulation.submit([made])
        for plan in simulation.run():
            number = int(plan.job[1:])
            waits[number], started, busy = at - jobs[number].at, started + 1, busy + jobs[number].cards
            heappush(events, (at + jobs[number].runs_s, number, "ends"))
    never = np.isnan(waits)
    waits[never] = until - np.array([one.at for one in jobs])[never]
    large = np.array([one.cards > 8 for one in jobs])
    assert busy == sum(claim.requests.get(GPU, 0) for claim in simulation.claims.values())
    return Outcome(waits[large], waits[~large], held / max(asked, 1), time.process_time() - processor)


def without() -> Conf:
    conf = default_conf()
    return replace(conf, tiers=tuple(tuple(one for one in tier if one.name != "reservation") for tier in conf.tiers))


def main() -> None:
    if not TRACE.exists():
        print("no published traces on this machine (../shared/traces beside the project): left out")
        return
    jobs = submitted()
    gangs = sum(one.cards > 8 for one in jobs)
    print(
        f"ITP cluster {CLUSTER}, {DAYS} days: {len(jobs)} jobs, {gangs} of several nodes; {NODES} nodes of 8 cards. Waits, minutes"
    )
    print(
        f"{'':35} {'large p50':>9} {'p90':>8} {'p99':>8} {'small p50':>10} {'p90':>8} {'p99':>8} {'busy*':>8} {'processor':>10}"
    )
    for what, conf, walltimes in (
        ("without reservations", without(), False),
        ("reserved, run times learned", default_conf(), False),
        ("reserved, walltimes 1.5 x the truth", default_conf(), True),
    ):
        found = run(jobs, conf, walltimes=walltimes)
        waits = [np.percentile(of, share) / 60 for of in (found.large, found.small) for share in (50, 90, 99)]
        listed = " ".join(f"{wait:>{width},.0f}" for wait, width in zip(waits, (9, 8, 8, 10, 8, 8), strict=True))
        print(f"{what:35} {listed} {100 * found.busy:>6.1f} % {found.processor_s:>8.1f} s")
    print("* share of all cards, while anybody waits")
