"""One scheduler for all nodes, and two by node pool, for the same pods: processor time of the decisions alone.

With a core each, two schedulers take as long as the slower one; on one core, the sum. The ledger, which both share, is not included.

Then the same with 91,000 running jobs on 12,500 nodes (`core`): each of two schedulers has half of the nodes, and the claims of all, by which queues are
limited everywhere. Each is a process of its own. `HBOX_BENCH_SIZE=0.1` uses a tenth of nodes and jobs.
"""

import json
import subprocess
import sys
import time

from hbox_scheduler.app import calm_collector, collect_young
from hbox_scheduler.core.policy.default import default_conf

from .core import NODES as ALL_NODES
from .core import RUNNING, World
from .flood import at
from .scheduler import cluster, one_card_jobs, report, rss_mib

NODES, PODS = 5_000, 10_000
#: Limit: what each of two schedulers costs, of what one alone costs.
LEAST_SAVED = 60.0


def processor_s(nodes: int, pods: int) -> tuple[float, float]:
    """Seconds to place so many one-card pods on so many nodes, of this process alone, and MiB that it all takes."""
    before = rss_mib()
    simulation = cluster(nodes)
    simulation.submit(one_card_jobs(pods))
    placed, started = 0, time.process_time()
    while True:
        out = simulation.scheduler.cycle(0.0)
        placed += sum(len(plan.placements) for plan in out.plans)
        collect_young()
        if not out.more:
            break
    assert placed == pods
    return time.process_time() - started, rss_mib() - before


def main() -> None:
    halves = [processor_s(NODES // 2, PODS // 2) for _ in range(2)]
    wholes = [processor_s(NODES, PODS) for _ in range(2)]
    half, whole = min(seconds for seconds, _ in halves), min(seconds for seconds, _ in wholes)
    print(f"one scheduler, {NODES} nodes, {PODS} pods: {whole:.2f} s of processor time, {PODS / whole:,.0f} pods/s")
    print(f"one of two shards by pool, half of both:   {half:.2f} s of processor time, {PODS / 2 / half:,.0f} pods/s")
    print(
        f"two side by side: {PODS / half:,.0f} pods/s where each has a core, {whole / half:.2f} x; on one core {whole / 2 / half:.2f} x"
    )
    print(f"MiB for nodes and pods: {wholes[0][1]:.0f} of one, {halves[0][1]:.0f} of each of two (the first of two runs)")

    one, two = _processor(ALL_NODES), _processor(ALL_NODES // 2)
    there = f"each of two, of one alone, with {RUNNING:,} running jobs"
    for what, unit in (("memory", "MiB"), ("start", "s"), ("pod", "ms")):
        print(f"{what}: {one[what]:.1f} {unit} of one with {ALL_NODES:,} nodes, {two[what]:.1f} of each of two")
        report(f"{there}: {what}", 100 * two[what] / one[what], "%", LEAST_SAVED, least=False)


def _processor(nodes: int) -> dict[str, float]:
    """What a scheduler with so many of the nodes costs: MiB, processor seconds until it has placed its first pod, and milliseconds a pod (p50)."""
    command = [sys.executable, "-m", "tests.bench.shards", str(nodes)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


def _measure(nodes: int) -> dict[str, float]:
    before, world, began = rss_mib(), World(default_conf(), loaded=False, nodes=nodes), time.process_time()
    world.load()
    calm_collector()
    world.place([world.new("first")])
    start, times = time.process_time() - began, []
    for _ in range(200):
        world.simulation.now += 0.02
        world.end()
        times.append(world.place([world.new("pod")]))
    return {"memory": rss_mib() - before, "start": start, "pod": at(sorted(times), 0.5)}


if __name__ == "__main__":
    print(json.dumps(_measure(int(sys.argv[1]))))
