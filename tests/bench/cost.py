"""Processor time a pod of each service, beside the API server's own: bursts and a steady rate on a real API server. `python -m tests.bench cost`.

Half of what `make bench REAL=1` takes, without kube-scheduler. Rates and waits are the machine's, and what else it does makes everything dearer: compare
"of the API server's" of builds that ran in turn. `HBOX_BENCH_BURSTS`: how many bursts, 3 unless said.
"""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from hbox_cli.platform.assets import API_SERVER, ETCD, find_programs
from hbox_common.errors import InvalidRequest

from ..real.control_plane import control_plane
from .load import Load, Measured
from .platform import cpu_s
from .real import NODES, RATE_PER_S, cost_line, hbox, processes

BURST, RATED = 1500, 500
#: What was put off (phases, Events) is no part of the next measurement.
REST_S = 5.0


def main() -> None:
    try:
        find_programs()
    except InvalidRequest as e:
        raise SystemExit(f"the benchmark on a real API server cannot run: {e}") from e
    bursts = int(os.environ.get("HBOX_BENCH_BURSTS", "3"))
    with tempfile.TemporaryDirectory(prefix="hbox-bench-") as scratch:
        folder = Path(scratch)
        with control_plane(folder, (ETCD, API_SERVER)) as plane, hbox(plane, folder / "state") as pids:
            asyncio.run(_measure(plane.kubeconfig, lambda: processes(plane, pids()), bursts))


async def _measure(kubeconfig: Path, pids: Callable[[], dict[str, int]], bursts: int) -> None:
    async with Load.connect(kubeconfig) as load:
        await load.nodes(NODES)
        await load.burst(1, scheduler="hbox")  # the first one pays for connections and caches

        async def say(what: str, measured: Awaitable[Measured]) -> None:
            found = pids()
            before = {name: cpu_s(pid) for name, pid in found.items()}
            done = await measured
            cost = {name: 1000 * (cpu_s(pid) - before[name]) / done.pods for name, pid in found.items()}
            waits = f"p50 {done.wait_ms(0.5):.0f}, p99 {done.wait_ms(0.99):.0f} ms"
            print(f"{what}: {done.per_s:.0f} pods/s, {waits}\n  {cost_line(cost)}", flush=True)
            await load.clean()
            await asyncio.sleep(REST_S)

        for number in range(bursts):
            await say(f"burst {number + 1} of {BURST}", load.burst(BURST, scheduler="hbox"))
        await say(f"{RATE_PER_S} a second", load.rate(RATED, per_s=RATE_PER_S, scheduler="hbox"))
