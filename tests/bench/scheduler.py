"""Decisions of the scheduler's core alone, without broker, database or API. Each plan is one that the service would publish."""

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

from hbox_common.model import CardRequest, Job, NodeState
from hbox_scheduler.app import calm_collector, collect_young
from hbox_scheduler.core.framework.conf import Conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.protocol.limits import Limits
from hbox_scheduler.core.simulate import Simulation, job, node

from ..policies import volcano


def rss_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


OURS, FGD, VOLCANOS = default_conf(), default_conf(PolicyName.FGD), volcano()


def cluster(nodes: int, conf: Conf = OURS) -> Simulation:
    """Nodes of eight cards, all free."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), limits=Limits(outstanding=1 << 30), conf=conf)
    simulation.put_nodes(_nodes(nodes))
    return simulation


def _nodes(count: int) -> list[NodeState]:
    return [node(f"node-{i:05}", cards=8, cpu=96, memory_mib=1 << 20) for i in range(count)]


def decide(simulation: Simulation, jobs: list[Job]) -> tuple[float, int]:
    """Seconds of decision and placements made, for jobs that are known already; the ledger's side is not part of it."""
    simulation.submit(jobs)
    placements = 0
    gc.collect()
    started = time.perf_counter()
    while True:
        out = simulation.scheduler.cycle(0.0)
        placements += sum(len(plan.placements) for plan in out.plans)
        collect_young()
        if not out.more:
            return time.perf_counter() - started, placements


def one_card_jobs(count: int, prefix: str = "one") -> list[Job]:
    return [job(f"{prefix}-{i}", cards=1, cpu_milli=4000, memory_mib=16384, created_at=float(i)) for i in range(count)]


def mixed_jobs(count: int) -> list[Job]:
    """Shapes that alternate, so that no two jobs in a row ask for the same: a share, a card, cpu alone, two cards."""
    shares = [CardRequest(1, cores=10 * i, memory_percent=10 * i) for i in range(1, 10)]
    shapes: list[tuple[CardRequest | int, int]] = [(share, 1000) for share in shares]
    shapes += (
        [(1, 1000 * cores) for cores in (2, 4, 6, 8)] + [(0, 1000 * cores) for cores in (1, 2, 4)] + [(2, 1000), (4, 1000)]
    )
    return [
        job(f"mixed-{i}", created_at=float(i), cards=shapes[i % len(shapes)][0], cpu_milli=shapes[i % len(shapes)][1])
        for i in range(count)
    ]


def report(what: str, value: float, unit: str, budget: float, *, least: bool) -> None:
    good = value >= budget if least else value <= budget
    print(f"{what:66} {value:>10,.1f} {unit:8} budget {'>=' if least else '<='} {budget:>8,g}  {'ok' if good else 'MISSED'}")


def best_of(runs: int, once: Callable[[], float], pick: Callable[[list[float]], float]) -> float:
    return pick([once() for _ in range(runs)])


def pods_per_s(nodes: int, jobs: list[Job], conf: Conf = OURS) -> float:
    def once() -> float:
        seconds, placements = decide(cluster(nodes, conf), jobs)
        assert placements == len(jobs), f"{placements} of {len(jobs)} placed"
        return placements / seconds

    return best_of(3, once, max)


def gang_ms(nodes: int, pods: int, conf: Conf = OURS, runs: int = 100) -> tuple[float, float, float]:
    """Milliseconds: p50 and p99 by the clock, and p99 of this process's own processor time, which other processes do not disturb."""
    simulation = cluster(nodes, conf)
    clock, processor = [], []
    for i in range(runs):
        gang = job(f"gang-{i}", pods=pods, cards=8, cpu_milli=64_000)
        simulation.submit([gang])
        started, used = time.perf_counter(), time.process_time()
        plans = simulation.scheduler.cycle(0.0).plans
        clock.append(1000 * (time.perf_counter() - started))
        processor.append(1000 * (time.process_time() - used))
        assert len(plans) == 1
        assert len(plans[0].placements) == pods
        simulation.accept(plans)
        simulation.finish(pod.uid for pod in gang.tasks[0].pods)
        collect_young()  # as the service does, between cycles
    p99 = int(0.99 * (runs - 1))
    return sorted(clock)[runs // 2], sorted(clock)[p99], sorted(processor)[p99]


def verdict_ms(nodes: int) -> float:
    simulation = cluster(nodes)
    simulation.submit([job(f"full-{i}", cards=8, cpu_milli=64_000) for i in range(nodes)])
    simulation.run()
    times = []
    for i in range(20):
        simulation.submit([job(f"late-{i}", pods=16, cards=8, cpu_milli=1000 + i)])
        started = time.perf_counter()
        verdicts = simulation.scheduler.cycle(0.0).verdicts
        times.append(1000 * (time.perf_counter() - started))
        assert sum(verdicts[0].reasons.values()) == nodes
    return max(times)


def unlike_jobs(count: int) -> list[Job]:
    """No two ask for the same."""
    return [
        job(f"unlike-{i}", cards=1 + i % 8, cpu_milli=1000 + i, memory_mib=1024 + i, created_at=float(i)) for i in range(count)
    ]


def release_ms(waiting: list[Job], conf: Conf = OURS) -> float:
    """One pod ends while jobs wait: the cycle that starts those that fit now."""
    simulation, nodes = cluster(1250, conf), 1250
    simulation.submit([job(f"full-{i}", cards=8, cpu_milli=64_000) for i in range(nodes)])
    placed = [plan.placements[0].pod_uid for plan in simulation.run()]
    simulation.submit(waiting)
    simulation.run()
    times = []
    for pod in placed[:20]:
        simulation.now += 3.0
        simulation.finish([pod])
        started = time.perf_counter()
        plans = simulation.scheduler.cycle(simulation.now).plans
        times.append(1000 * (time.perf_counter() - started))
        assert plans
        simulation.accept(plans)
        collect_young()
    return sorted(times)[len(times) // 2]


def session_ms(running: int, conf: Conf = OURS) -> tuple[float, float]:
    """One pod placed beside so many that run, each in a session of its own: milliseconds by the clock and of processor time, medians."""
    simulation = cluster(1250, conf)
    simulation.submit(one_card_jobs(running))
    simulation.run()
    assert len(simulation.claims) == running
    clock, processor = [], []
    for number in range(20):
        simulation.submit([job(f"late-{number}", cards=1, created_at=float(running + number))])
        started, used = time.perf_counter(), time.process_time()
        plans = simulation.scheduler.cycle(0.0).plans
        clock.append(1000 * (time.perf_counter() - started))
        processor.append(1000 * (time.process_time() - used))
        assert len(plans) == 1
        simulation.accept(plans)
        collect_young()
    return sorted(clock)[10], sorted(processor)[10]


def memory() -> None:
    """First of all: what the other measurements have taken is not given back."""
    before = rss_mib()
    simulation = cluster(1250)
    simulation.submit(one_card_jobs(10_000))
    simulation.run()
    print(f"{'memory of 1,250 nodes and 10,000 placed pods':66} {rss_mib() - before:>10,.1f} MiB")
    report("memory of this process with them", rss_mib(), "MiB", 300, least=False)


def main() -> None:
    calm_collector()  # as the service does
    memory()
    for conf, name in ((OURS, ""), (VOLCANOS, ", Volcano's policy")):
        report(f"one-card jobs, 1,250 nodes{name}", pods_per_s(1250, one_card_jobs(4000), conf), "pods/s", 20_000, least=True)
        report(
            f"one-card jobs, 12,500 nodes{name}", pods_per_s(12_500, one_card_jobs(4000), conf), "pods/s", 10_000, least=True
        )
        report(f"18 shapes in turn, 1,250 nodes{name}", pods_per_s(1250, mixed_jobs(4000), conf), "pods/s", 10_000, least=True)
        p50, p99, processor = gang_ms(1250, 1024, conf)
        report(f"gang of 1,024 pods x 8 cards, 1,250 nodes, p99{name}", p99, "ms", 5, least=False)
        print(f"{'  the same: p50 by the clock, p99 of processor time':66} {p50:>10,.1f} {processor:.1f} ms")
        unlike = release_ms(unlike_jobs(8000), conf)
        report(f"a pod ends, 8,000 jobs wait, no two alike, median{name}", unlike, "ms", 50, least=False)
        print(f"{'  the same, of 18 shapes':66} {release_ms(mixed_jobs(8000), conf):>10,.1f} ms")
        session, processor = session_ms(8000, conf)
        report(f"a pod beside 8,000 that run{name}", session, "ms", 10, least=False)
        print(f"{'  the same: of processor time':66} {processor:>10,.1f} ms")
    print(f"{'18 shapes in turn, 1,250 nodes, policy fgd':66} {pods_per_s(1250, mixed_jobs(2000), FGD):>10,.1f} pods/s")
    report("verdict with reasons on a gang that does not fit, 1,250 nodes, max", verdict_ms(1250), "ms", 20, least=False)


if __name__ == "__main__":
    main()
