"""Time of a pod by stage, at 50 pods a second on a real API server: `python -m tests.bench waits`.

Every job is traced; the load generator and the spans of all services use one clock. A stage that ends before its predecessor has a negative wait: `place`
begins as soon as the scheduler has the message, `announce` ends with the broker's answer. `HBOX_BENCH_RATED`: number of pods [1500].
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from hbox_cli.platform.assets import API_SERVER, ETCD, find_programs
from hbox_common.errors import InvalidRequest

from ..e2e.collector import Collector, Seen, collector
from ..real.control_plane import control_plane
from .load import Load
from .real import NODES, RATE_PER_S, hbox

RATED = int(os.environ.get("HBOX_BENCH_RATED", "1500"))
LIMITS = {"p50": 20, "p99": 45}
SLOW = 0.99

#: Moments of a pod's way, in order, each with what goes before it.
STAGES = {
    "created": "",
    "seen": "API server creates it, job-controller's watch shows it",
    "taken up": "job-controller's window",
    "placing": "the message to scheduler-core, its window",
    "placed": "the cycle",
    "committing": "the message to quota-ledger, what its lock waits for",
    "committed": "the transaction",
    "binding": "the message to the binder, written through",
    "bound": "the API server binds it",
    "told": "a watch shows it",
}


def main() -> None:
    try:
        find_programs()
    except InvalidRequest as e:
        raise SystemExit(f"the benchmark on a real API server cannot run: {e}") from e
    with tempfile.TemporaryDirectory(prefix="hbox-bench-") as scratch, collector() as got:
        folder = Path(scratch)
        os.environ |= traced(got.url)
        with control_plane(folder, (ETCD, API_SERVER)) as plane, hbox(plane, folder / "state"):
            created, bound = asyncio.run(_measure(plane.kubeconfig))
        show(created, bound, got)


async def _measure(kubeconfig: Path) -> tuple[dict[str, float], dict[str, float]]:
    """When each pod was created and seen with its node, in seconds since the epoch."""
    async with Load.connect(kubeconfig) as load:
        await load.nodes(NODES)
        await load.burst(500, scheduler="hbox")  # connections, caches, and something to have gone before
        await load.clean()
        await asyncio.sleep(5)
        since = time.time() - time.monotonic()
        await load.rate(RATED, per_s=RATE_PER_S, scheduler="hbox")
        await asyncio.sleep(3)  # a job's trace is complete when its phase is said
        return load.times(since)


def traced(collector: str) -> dict[str, str]:
    """Settings of services whose spans are sent at the end: sending them is work beside what is measured."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector,
        "OTEL_BSP_SCHEDULE_DELAY": "600000",
        "OTEL_BSP_MAX_QUEUE_SIZE": "262144",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "262144",
    }


def show(created: Mapping[str, float], bound: Mapping[str, float], got: Collector) -> None:
    """The table: each stage, of all pods and of those that waited longest."""
    ways = dict(_ways(created, bound, got.spans))
    waits = sorted(way[-1] - way[0] for way in ways.values())
    for quantile, share in (("p50", 0.5), ("p99", 0.99)):
        print(f"{quantile} {1000 * _at(waits, share):.0f} ms (limit {LIMITS[quantile]}), of {len(waits)} pods")
    limit = _at(waits, SLOW)
    slow = [way for way in ways.values() if way[-1] - way[0] >= limit]
    print(f"\n{'ms':>12} {'p50':>7} {'p90':>7} {'p99':>7} {'most':>7} {'of the slowest, mean':>21}")
    for i, (moment, words) in enumerate(list(STAGES.items())[1:]):
        steps = sorted(1000 * (way[i + 1] - way[i]) for way in ways.values())
        mean = sum(1000 * (way[i + 1] - way[i]) for way in slow) / len(slow)
        cells = " ".join(f"{_at(steps, share):7.1f}" for share in (0.5, 0.9, 0.99, 1.0))
        print(f"{moment:>12} {cells} {mean:21.1f}  {words}")
    print("\nthe slowest, by when they were created (s), and their stages (ms):")
    begin = min(created.values())
    for way in sorted(slow):
        cells = " ".join(f"{1000 * (b - a):6.0f}" for a, b in pairwise(way))
        print(f"{way[0] - begin:8.2f} {1000 * (way[-1] - way[0]):6.0f} = {cells}")


def _ways(created: Mapping[str, float], bound: Mapping[str, float], spans: Sequence[Seen]) -> Iterable[tuple[str, list[float]]]:
    traces: dict[str, dict[str, Seen]] = {}
    for span in sorted(spans, key=lambda span: span.start, reverse=True):
        traces.setdefault(span.trace, {})[span.name] = span  # the first of a name
    for steps in traces.values():
        root = steps.get("job")
        name = "" if root is None else str(root.attributes["name"])
        if root is None or name not in created or not {"announce", "place", "commit", "bind"} <= steps.keys():
            continue
        announce, place, commit, bind = (steps[step] for step in ("announce", "place", "commit", "bind"))
        # A job that was seen in the second after that of its creation begins, in its trace, with its creation as Kubernetes tells it, in whole seconds.
        seen = root.start if created[name] <= root.start <= announce.start else announce.start
        yield name, [created[name], seen, announce.start, place.start, place.end, commit.start, commit.end,
                     bind.start, bind.end, bound[name]]  # fmt: skip


def _at(sorted_: Sequence[float], share: float) -> float:
    return sorted_[min(len(sorted_) - 1, int(share * len(sorted_)))]
