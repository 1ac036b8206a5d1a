"""Binding rates of the API server alone, of kube-scheduler and of HBox in one run: `python -m tests.bench ceiling`.

Bursts of one-card pods on one API server, in turn: created and then bound by the load generator, which is an upper bound for every scheduler; bound by a
process that watches and binds each pod to the next node, without a decision, quota or record (`anywhere`); kube-scheduler; HBox. The ratio of a scheduler to
the second shows how much of the machine's rate it uses. `HBOX_BENCH_ROUNDS`: number of turns [2].
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

from hbox_cli.platform.assets import API_SERVER, ETCD, ControlPlane, find_programs
from hbox_common.errors import InvalidRequest
from hbox_common.kube import PODS, Delta, Informer, KubeClient, Pod

from ..real.control_plane import control_plane, kube_scheduler
from .load import NAMESPACE, Load, bind_pod, node_name
from .platform import cpu_s
from .real import BURST, NODES, PEER, SCHEDULER_CONF, hbox, processes

ANYWHERE = "anywhere"
#: Bindings at a time: fewer starve the API server, more gain nothing.
BINDINGS = 32


def main(scale: float = 1.0) -> None:
    """`scale` makes everything smaller, to see that it works; figures are then no measure of anything."""
    try:
        find_programs()
    except InvalidRequest as e:
        raise SystemExit(f"the benchmark on a real API server cannot run: {e}") from e
    rounds = int(os.environ.get("HBOX_BENCH_ROUNDS", "2"))
    rates: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="hbox-bench-") as scratch:
        folder = Path(scratch)
        with control_plane(folder, (ETCD, API_SERVER)) as plane:
            asyncio.run(_nodes(plane, round(NODES * scale)))
            for turn in range(rounds):
                (folder / str(turn)).mkdir()
                asyncio.run(_turn(plane, folder / str(turn), scale, rates, costs))
    limit = statistics.median(rates[ANYWHERE])
    peer = statistics.median(rates[PEER])
    print(f"{'':42} {'pods/s':>24} {'to kube-scheduler':>18} {'to binding anywhere':>20} {'own CPU ms a pod':>17}")
    for who, words in _WORDS.items():
        each = ", ".join(f"{rate:.0f}" for rate in rates[who])
        middle = statistics.median(rates[who])
        own = f"{statistics.median(costs[who]):.2f}" if who in costs else ""
        print(f"{words:42} {each:>24} {middle / peer:>17.2f}x {middle / limit:>19.2f}x {own:>17}")


_WORDS = {
    "": "created, then bound by the load generator",
    ANYWHERE: "bound anywhere, no decision",
    PEER: "kube-scheduler",
    "hbox": "HBox",
}


async def _nodes(plane: ControlPlane, count: int) -> None:
    async with Load.connect(plane.kubeconfig) as load:
        await load.nodes(count)


async def _turn(
    plane: ControlPlane, folder: Path, scale: float, rates: dict[str, list[float]], costs: dict[str, list[float]]
) -> None:
    nodes, pods = round(NODES * scale), round(BURST * scale)
    async with Load.connect(plane.kubeconfig) as load:

        async def burst(scheduler: str, ours: dict[str, int]) -> None:
            await load.burst(1, scheduler=scheduler)  # the first one pays for connections and caches
            own = [pid for name, pid in processes(plane, ours).items() if name in ours]
            before = sum(map(cpu_s, own))
            done = await load.burst(pods, scheduler=scheduler)
            rates.setdefault(scheduler, []).append(done.per_s)
            costs.setdefault(scheduler, []).append(1000 * (sum(map(cpu_s, own)) - before) / done.pods)
            await load.clean()

        rates.setdefault("", []).append((await load.create_and_bind(pods, nodes=nodes)).per_s)
        await load.clean()
        with _anywhere(plane, nodes) as pid:
            await burst(ANYWHERE, {ANYWHERE: pid})
        with kube_scheduler(plane, folder, SCHEDULER_CONF.format(kubeconfig=plane.kubeconfig)) as pid:
            await burst(PEER, {PEER: pid})
        with hbox(plane, folder / "state") as pids:
            await burst("hbox", pids())


@contextmanager
def _anywhere(plane: ControlPlane, nodes: int) -> Iterator[int]:
    """Its process id."""
    process = subprocess.Popen([sys.executable, "-m", __name__, str(plane.kubeconfig), str(nodes)], stdin=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


async def bind_anywhere(kubeconfig: str, nodes: int) -> None:
    """Binds the pods of this scheduler's name to one node after the other, until it is ended."""
    places = cycle(map(node_name, range(nodes)))
    waiting: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    async with (
        KubeClient.connect(kubeconfig, user_agent=ANYWHERE, connections=BINDINGS + 2) as client,
        asyncio.TaskGroup() as group,
    ):

        async def bind() -> None:
            while True:
                name, node = await waiting.get()
                await bind_pod(client, name, node)

        async def on_pods(deltas: Sequence[Delta[Pod]]) -> None:
            for delta in deltas:
                if delta.new is not None and delta.old is None:
                    waiting.put_nowait((delta.new.metadata.name, next(places)))

        selector = f"spec.schedulerName={ANYWHERE},spec.nodeName="
        group.create_task(Informer(client, PODS, Pod, namespace=NAMESPACE, field_selector=selector).run(on_pods))
        for _ in range(BINDINGS):
            group.create_task(bind())


if __name__ == "__main__":
    import uvloop

    uvloop.run(bind_anywhere(sys.argv[1], int(sys.argv[2])))
