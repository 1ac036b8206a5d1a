"""Invented names: the cost of a neighbour's pods before, during and after the wait of many pods of a tenant whose requests name what nothing else names.

Run it as `python -m tests.bench names`. `HBOX_BENCH_SIZE`: of 5,000 nodes [1]; `HBOX_BENCH_NAMES`: numbers of names, separated by commas [300];
`HBOX_BENCH_NAMES_KINDS`: kinds (`tests/invented_names.py`), separated by commas [all]. Scheduler-core's core alone, in one process; times are processor time.
The neighbour's one-card pods are placed one at a time, each in a cycle of its own, by turns with those of an equal cluster without such names.
`HBOX_BENCH_NAMES_LEFT=1` prints where names are still held afterwards.
"""

import gc
import os
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

from hbox_common.model import PodUid, Queue, QueueName
from hbox_common.runtime import LongLived
from hbox_scheduler.app import between_cycles, calm_collector
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.protocol.limits import Limits
from hbox_scheduler.core.simulate import Simulation, job

from ..invented_names import KINDS, Kind, bring, held, nodes, pass_time, remove, settle
from .scheduler import report, rss_mib

SIZE = float(os.environ.get("HBOX_BENCH_SIZE", "1"))
NODES = int(5_000 * SIZE)
COUNTS = [int(one) for one in os.environ.get("HBOX_BENCH_NAMES", "300").split(",")]
WARM, MEASURED = 30, 60
#: Limit: the neighbour's pods afterwards, to those before.
RATIO = 1.1


@dataclass(frozen=True, slots=True)
class Size:
    """Resource columns, model codes, label columns; MiB of all Python objects."""

    columns: int
    models: int
    labels: int
    mib: float


class World:
    def __init__(self) -> None:
        self.simulation = Simulation(
            policy_of(PolicyName.BINPACK),
            queues=(Queue(QueueName("default")), Queue(QueueName("team"))),
            conf=default_conf(),
            limits=Limits(outstanding=1 << 30),
        )
        self.simulation.now = 100.0
        self.simulation.put_nodes(nodes(NODES))
        self._memory = LongLived()
        self._next = 0
        for _ in range(WARM):
            self.pod_ms()
        calm_collector()

    def pod_ms(self) -> float:
        """Milliseconds of one pod of the neighbour, from arrival to claim. It ends at once."""
        made, name = self.simulation, f"neighbour-{self._next}"
        self._next += 1
        made.now += 0.01
        pod = replace(job(name, cards=1, cpu_milli=4000, queue="team", created_at=made.now), namespace="neighbour")
        started = time.process_time()
        made.submit([pod])
        while PodUid(f"{name}-0") not in made.claims:
            made.step()
        took = 1000 * (time.process_time() - started)
        made.finish([PodUid(f"{name}-0")])
        made.step()
        self.collect()
        return took

    def collect(self) -> None:
        """As the service does, between cycles."""
        between_cycles(self.simulation.scheduler, self._memory)

    def size(self) -> Size:
        gc.collect()
        columns = self.simulation.scheduler.columns
        traced = tracemalloc.get_traced_memory()[0] / 2**20 if tracemalloc.is_tracing() else rss_mib()
        return Size(len(columns.allocatable), len(columns.model_names), len(columns.descriptions), traced)


def _pods_ms(world: World, control: World) -> tuple[float, float]:
    """Medians of one pod of each world, taken by turns."""
    both = [(world.pod_ms(), control.pod_ms()) for _ in range(MEASURED)]
    return median(one for one, _ in both), median(other for _, other in both)


def _spent_ms(act: Callable[[], None]) -> float:
    started = time.process_time()
    act()
    return 1000 * (time.process_time() - started)


def measure(name: str, kind: Kind, count: int, control: World) -> None:
    world = World()
    numbers, simulation = range(count), world.simulation
    before, first = _pods_ms(world, control), world.size()

    def come() -> None:
        if kind.come is not None:
            bring(simulation, kind, numbers)
        else:
            for i in range(0, count, 50):
                bring(simulation, kind, range(i, min(i + 50, count)))
                simulation.step()
                world.collect()
        settle(simulation, world.collect)

    def go() -> None:
        remove(simulation, kind, numbers)
        settle(simulation, world.collect)
        pass_time(simulation, world.collect)

    each = _spent_ms(come) / count
    during_ms, during = _pods_ms(world, control), world.size()
    gone = _spent_ms(go) / count
    after, last = _pods_ms(world, control), world.size()
    left = held({"scheduler": simulation.scheduler})
    print(
        f"{name:24} {count:6,}: pod of the neighbour {before[0]:5.2f} ms before, {during_ms[0]:5.2f} during, {after[0]:5.2f} after ({before[1]:.2f}, "
        f"{during_ms[1]:.2f}, {after[1]:.2f} without names); the tenant's {each:.2f} + {gone:.2f} ms; "
        f"columns {first.columns} {during.columns} {last.columns}, models {first.models} {during.models} {last.models}, "
        f"labels {first.labels} {during.labels} {last.labels}, MiB {first.mib:.0f} {during.mib:.0f} {last.mib:.0f}; names left {left.total():,}",
        flush=True,
    )
    for path, places in left.most_common(20) if os.environ.get("HBOX_BENCH_NAMES_LEFT") else ():
        print(f"    {places:8,} {path}")
    for when, (own, other) in (("while they wait", during_ms), ("afterwards", after)):
        ratio = own / other * before[1] / before[0]
        report(f"{name}, {count:,}: a pod {when}, percent of before", 100 * ratio, "%", 100 * RATIO, least=False)


def main() -> None:
    asked = os.environ.get("HBOX_BENCH_NAMES_KINDS", "")
    print(f"{NODES:,} nodes of 8 cards")
    control = World()
    for count in COUNTS:
        for name in asked.split(",") if asked else KINDS:
            measure(name, KINDS[name], count, control)


if __name__ == "__main__":
    main()
