"""Thousands of jobs of one namespace with expensive constraints, and five pods a second of another: how long the latter wait for the core.

Run it as `python -m tests.bench wishes`. `HBOX_BENCH_WISHES`: number of jobs [2,000]; `HBOX_BENCH_WISHES_KINDS`: kinds, separated by commas [all].
The clock is this process's processor time: a cycle takes as long as it used, and new pods wait meanwhile. Other load of the machine has no effect, and waits
are those of one core. Both namespaces are in one queue, and the flood is older. Pods are created and deleted all the time, so that jobs that wait for any
change are tried again and again.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hbox_common.model import (
    DEFAULT_QUEUE,
    CardRequest,
    HyperNode,
    Job,
    Match,
    MatchOperator,
    Neighbour,
    NodeName,
    NodeTerm,
    PodConstraints,
    PodTerm,
    PodUid,
    Queue,
    Selector,
    Spread,
    TopologyMode,
    TopologyWish,
)
from hbox_common.model.devices import VENDORS, Ask, PodDevices
from hbox_common.runtime import LongLived
from hbox_scheduler.app import between_cycles, calm_collector
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate import Simulation, job, node

from .flood import at
from .scheduler import report

COUNT = int(os.environ.get("HBOX_BENCH_WISHES", "2000"))
NODES, CARDS = 100, 8
PER_S, STAY_S, MEASURED = 5.0, 1.0, 150
#: How fast the flood comes.
FLOOD_PER_S = 400.0
#: Nodes of one domain of the fabric.
RACK = 4
#: What the whole platform takes alone, p99 undisturbed (docs/benchmarks.md): as much more, and it has doubled.
ADDED_MS = 22.0
HOST = "kubernetes.io/hostname"
WINDOW_S = 0.01
#: Of processor time: after that a kind is given up, and what waits then has waited until now.
PATIENCE_S = 15.0


def _number(i: int) -> Selector:
    return Selector((Match(f"k{i}", MatchOperator.DOES_NOT_EXIST, ()),))


def _nobody(i: int) -> Selector:
    return Selector((Match("app", MatchOperator.IN, (f"nobody-{i}",)),))


@dataclass(frozen=True, slots=True)
class Kind:
    """What one job of the flood is, by its number, and what its pods want of others."""

    make: Callable[[int], Job]
    constraints: Callable[[int], PodConstraints] | None = None


def _plain(i: int, **more: Any) -> Job:
    return replace(job(f"flood-{i}", created_at=i / FLOOD_PER_S, **more), namespace="flood")


def _with_task(made: Job, **changes: Any) -> Job:
    return replace(made, tasks=(replace(made.tasks[0], **changes),))


def _other_nodes(i: int) -> Job:
    names = (f"{i}", *(f"node-{n:03}" for n in range(NODES)))
    return _with_task(_plain(i, cards=1), affinity=(NodeTerm((Match(HOST, MatchOperator.NOT_IN, names),)),))


def _card_id(i: int) -> Job:
    made = _plain(i, cards=1)
    devices = PodDevices((Ask(VENDORS.default.kind, 1),), wishes=(("nvidia.com/use-gpuuuid", f"none-{i}"),))
    return _with_task(made, cards=CardRequest(1, devices=devices))


def _tight_gang(i: int) -> Job:
    return replace(_plain(i, cards=CARDS, pods=2 * RACK, cpu_milli=1000 + i), topology=TopologyWish(TopologyMode.HARD, 1))


def _one_card(i: int) -> Job:
    return _plain(i, cards=1)


KINDS = {
    "affinity": Kind(_one_card, lambda i: PodConstraints(affinity=(PodTerm(HOST, _nobody(i)),))),
    "anti-affinity": Kind(_one_card, lambda i: PodConstraints(anti_affinity=(PodTerm("zone", _number(i)),))),
    "spread": Kind(_one_card, lambda i: PodConstraints(spread=(Spread(1, f"no-such-label-{i % 7}", True, _number(i)),))),
    "too large and apart": Kind(
        lambda i: _plain(i, cards=CARDS + 1), lambda i: PodConstraints(anti_affinity=(PodTerm(HOST, _number(i)),))
    ),
    "node affinity": Kind(_other_nodes),
    "card ids": Kind(_card_id),
    "shapes": Kind(lambda i: _plain(i, cards=CARDS + 1, cpu_milli=1000 + i)),
    "gangs in one domain": Kind(_tight_gang),
}


class World:
    """One queue, and a clock that is this process's processor time while a cycle runs."""

    def __init__(self) -> None:
        self.simulation = made = Simulation(policy_of(PolicyName.BINPACK), queues=(Queue(DEFAULT_QUEUE),), conf=default_conf())
        names = [f"node-{n:03}" for n in range(NODES)]
        made.put_nodes(node(name, cards=CARDS, labels={HOST: name, "zone": "one"}) for name in names)
        racks = [names[n : n + RACK] for n in range(0, NODES, RACK)]
        made.scheduler.on_fabric(
            [HyperNode(f"rack-{i}", 1, nodes=tuple(map(NodeName, some))) for i, some in enumerate(racks)], "compute"
        )
        guard = Neighbour(PodUid("guard-0"), "flood", {"guard": "yes"}, PodConstraints())
        made.scheduler.on_neighbours([guard])
        self.now = 100.0
        self._run([job("guard", cards=1)])
        self._next = 0
        self.cycles: list[float] = []
        self._memory = LongLived()

    def _run(self, jobs: Sequence[Job]) -> None:
        self.simulation.now = self.now
        self.simulation.submit(jobs)
        self.simulation.run()

    def waits_ms(self, count: int, flood: Iterable[Job] = (), kind: Kind | None = None) -> list[float]:
        """Of so many pods of the other namespace, ascending; jobs of `flood` come beside them, those first who are due."""
        made, began, waits = self.simulation, self.now, list[float]()
        due: dict[PodUid, float] = {}
        leaving: deque[tuple[float, PodUid]] = deque()
        came = flooded = 0
        floods = iter(flood)
        coming = next(floods, None)
        used_s = 0.0
        while len(waits) < count and used_s < PATIENCE_S:
            jobs: list[Job] = []
            while coming is not None and began + flooded / FLOOD_PER_S <= self.now:
                if kind is not None and kind.constraints is not None:
                    wishes = kind.constraints(flooded)
                    made.scheduler.on_neighbours([Neighbour(pod.uid, "flood", {}, wishes) for pod in coming.tasks[0].pods])
                jobs.append(coming)
                flooded, coming = flooded + 1, next(floods, None)
            while came < count and began + came / PER_S <= self.now:
                name = f"other-{self._next}"
                due[PodUid(f"{name}-0")] = began + came / PER_S
                jobs.append(replace(job(name, cards=1, created_at=self.now), namespace="other"))
                self._next, came = self._next + 1, came + 1
            gone = []
            while leaving and leaving[0][0] <= self.now:
                gone.append(leaving.popleft()[1])
            made.now = self.now
            started = time.process_time()
            if jobs:
                made.submit(jobs)
            if gone:
                made.finish(gone)
            out = made.step()
            between_cycles(made.scheduler, self._memory)
            took_s = time.process_time() - started
            used_s += took_s
            self.cycles.append(took_s)
            self.now += took_s
            for uid in [placement.pod_uid for plan in out.plans for placement in plan.placements]:
                if uid in due:
                    waits.append(1000 * (self.now - due.pop(uid)))
                    leaving.append((self.now + STAY_S, uid))
            if not out.more:
                times = [began + came / PER_S] if came < count else []
                times += [began + flooded / FLOOD_PER_S] if coming is not None else []
                times += [leaving[0][0]] if leaving else []
                times += [out.wake_at] if out.wake_at is not None else []
                self.now = max(self.now + WINDOW_S - min(took_s, WINDOW_S), min(times, default=self.now))
        waits += [1000 * (self.now - since) for since in due.values()]
        self.simulation.finish([uid for _, uid in leaving])
        return sorted(waits)


def measure(name: str, kind: Kind) -> None:
    world = World()
    world.waits_ms(20)
    calm_collector()
    alone = world.waits_ms(MEASURED)
    world.cycles.clear()
    coming = world.waits_ms(int(PER_S * COUNT / FLOOD_PER_S), map(kind.make, range(COUNT)), kind)
    longest = max(world.cycles)
    world.cycles.clear()
    standing = world.waits_ms(MEASURED)
    print(
        f"{name:22} p50 / p99, ms: alone {at(alone, 0.5):6.1f} / {at(alone, 0.99):6.1f}   while they come {at(coming, 0.5):8.1f} / {at(coming, 0.99):8.1f}"
        f"   while they stand {at(standing, 0.5):8.1f} / {at(standing, 0.99):8.1f}   longest cycle {1000 * longest:.0f}, {1000 * max(world.cycles):.0f}",
        flush=True,
    )
    report(f"{name}: p99 while they come, beyond that alone", at(coming, 0.99) - at(alone, 0.99), "ms", ADDED_MS, least=False)
    report(
        f"{name}: p99 while they stand, beyond that alone", at(standing, 0.99) - at(alone, 0.99), "ms", ADDED_MS, least=False
    )


def main() -> None:
    print(
        f"{COUNT:,} jobs of one namespace with wishes that do not come true; {PER_S:g} pods a second of another, in the same queue"
    )
    asked = os.environ.get("HBOX_BENCH_WISHES_KINDS", "")
    for name in asked.split(",") if asked else KINDS:
        measure(name, KINDS[name])
