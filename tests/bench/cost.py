"""Processor time per pod of each service and of the API server, under HBox's policy and a user's, in turn: `python -m tests.bench cost`.

The user's policy is the file that Volcano installs, as HBOX_SCHEDULER_CONF. The load is bursts, a gang and a steady rate on a real API server; it takes half as
long as `make bench REAL=1`, without kube-scheduler. Rates and waits depend on the machine, and other load makes everything more expensive: compare "of the API
server's" of builds and policies that ran in turn. `HBOX_BENCH_ROUNDS`: number of turns of each policy [3].
"""

import asyncio
import os
import statistics
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import NamedTuple

from hbox_cli.platform.assets import API_SERVER, ETCD, ControlPlane, find_programs
from hbox_common.errors import InvalidRequest

from ..policies import VOLCANO
from ..real.control_plane import control_plane
from .load import Load, Measured
from .platform import cpu_s
from .real import NODES, NOT_OURS, RATE_PER_S, cost_line, hbox, processes

BURST, GANG, RATED = 1500, 512, 500
#: What was put off (phases, Events) is no part of the next measurement.
REST_S = 5.0
#: How much dearer a user's policy may be.
POLICY_RATIO = 1.1


class Cost(NamedTuple):
    """Our processor time a pod."""

    ms: float
    of_api_server: float


def main() -> None:
    try:
        find_programs()
    except InvalidRequest as e:
        raise SystemExit(f"the benchmark on a real API server cannot run: {e}") from e
    rounds = int(os.environ.get("HBOX_BENCH_ROUNDS", "3"))
    with tempfile.TemporaryDirectory(prefix="hbox-bench-") as scratch:
        folder = Path(scratch)
        (folder / "volcano-scheduler.conf").write_text(VOLCANO)
        policies = {"HBox's policy": {}, "Volcano's": {"HBOX_SCHEDULER_CONF": str(folder / "volcano-scheduler.conf")}}
        found: dict[str, dict[str, list[Cost]]] = {}
        with control_plane(folder, (ETCD, API_SERVER)) as plane:
            asyncio.run(_nodes(plane))
            for turn in range(rounds):
                for policy, settings in policies.items():
                    print(f"{policy}, turn {turn + 1} of {rounds}", flush=True)
                    for what, cost in _turn(plane, folder / f"{turn}-{policy[0]}", settings).items():
                        found.setdefault(what, {}).setdefault(policy, []).append(cost)
    _beside(found)


async def _nodes(plane: ControlPlane) -> None:
    async with Load.connect(plane.kubeconfig) as load:
        await load.nodes(NODES)


def _turn(plane: ControlPlane, state: Path, settings: dict[str, str]) -> dict[str, Cost]:
    with hbox(plane, state, settings) as pids:
        return asyncio.run(_measure(plane, pids()))


async def _measure(plane: ControlPlane, pids: dict[str, int]) -> dict[str, Cost]:
    found: dict[str, Cost] = {}
    async with Load.connect(plane.kubeconfig) as load:
        await load.burst(1, scheduler="hbox")  # the first one pays for connections and caches
        everybody = processes(plane, pids)

        async def say(what: str, measured: Awaitable[Measured]) -> None:
            before = {name: cpu_s(pid) for name, pid in everybody.items()}
            done = await measured
            cost = {name: 1000 * (cpu_s(pid) - before[name]) / done.pods for name, pid in everybody.items()}
            waits = f"p50 {done.wait_ms(0.5):.0f}, p99 {done.wait_ms(0.99):.0f} ms, last bound after {done.last_bound_s:.2f} s"
            print(f"  {what}: {done.per_s:.0f} pods/s, {waits}\n    {cost_line(cost)}", flush=True)
            ours = sum(ms for name, ms in cost.items() if name not in NOT_OURS)
            found[what] = Cost(ours, ours / cost[API_SERVER])
            await load.clean()
            await asyncio.sleep(REST_S)

        await say(f"burst of {BURST}", load.burst(BURST, scheduler="hbox"))
        await say(f"gang of {GANG} x 8", load.burst(GANG, scheduler="hbox", cards=8, gang=True))
        await say(f"{RATE_PER_S} a second", load.rate(RATED, per_s=RATE_PER_S, scheduler="hbox"))
    return found


def _beside(found: dict[str, dict[str, list[Cost]]]) -> None:
    """The medians of both policies, and how much dearer the user's is."""
    for what, by_policy in found.items():
        ms = [statistics.median(cost.ms for cost in costs) for costs in by_policy.values()]
        said = ", ".join(
            f"{1000 * median:.0f} us under {policy} ({statistics.median(cost.of_api_server for cost in costs):.2f} of the API server's)"
            for median, (policy, costs) in zip(ms, by_policy.items(), strict=True)
        )
        print(f"{what}: our processor time a pod {said}: {ms[1] / ms[0]:.2f} x (budget {POLICY_RATIO:g})")
