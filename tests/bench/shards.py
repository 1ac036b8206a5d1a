"""One scheduler for all nodes, and two by node pool, for the same pods: processor time of the decisions alone.

With a core each, two schedulers take as long as the slower one; on one core, the sum. The ledger, which both share, is not included.
"""

import time

from hbox_scheduler.app import collect_young

from .scheduler import cluster, one_card_jobs, rss_mib

NODES, PODS = 5_000, 10_000


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
