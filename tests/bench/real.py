"""The whole platform and kube-scheduler on one real API server in one run: `make bench REAL=1`.

etcd and kube-apiserver come from KUBEBUILDER_ASSETS or `make kube-assets`. Absolute figures depend on the machine; compare the ratio with the limits of
docs/benchmarks.md. Figures of peers are published ones or our measurements on 2 cores (sources: real-api-bench).
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hbox_cli.platform.assets import API_SERVER, ETCD, ControlPlane, find_programs
from hbox_common.errors import InvalidRequest

from ..real.control_plane import control_plane, kube_scheduler
from .load import Load
from .platform import HBOX, cpu_s, rss_mib

NODES = 1250
BURST = 4000
GANGS = (512, 1024)
RATE_PER_S, RATED = 50, 1500
RATIO = 0.8  #: processor time of all of ours to the API server's own, in a burst
BOUND = 8000
PATIENCE_S = 600.0

PEER = "default-scheduler"
NOT_OURS = (ETCD, API_SERVER, "load generator")

#: Words, unit, budget, what others need.
ROWS = {
    "burst": ("burst of one-card pods", "pods/s", "1.5 x kube-scheduler", "YuniKorn 226-246, Volcano 61, KAI 34"),
    "gang 512": ("gang 512 x 8, last bound", "s", "1.5", "Volcano 3.9, KAI 9.0"),
    "gang 1024": ("gang 1,024 x 8, last bound", "s", "3.0", "Volcano 13.4"),
    "p50": ("50 a second, p50", "ms", "20", "YuniKorn 610, Volcano at 20/s 1,000"),
    "p99": ("50 a second, p99", "ms", "60", "YuniKorn 1,100, Volcano at 20/s 1,800"),
    "restart": ("scheduler-core killed, next bound", "s", "2", "kube-scheduler 0.9, Volcano 3.2"),
}

SCHEDULER_CONF = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
clientConnection: {{kubeconfig: {kubeconfig}, qps: 5000, burst: 10000, contentType: application/vnd.kubernetes.protobuf}}
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy: {{type: MostAllocated, resources: [{{name: nvidia.com/gpu, weight: 1}}]}}
"""


@dataclass(slots=True)
class Figures:
    """What one scheduler did."""

    values: dict[str, float] = field(default_factory=dict)  #: by ROWS
    cpu_ms: dict[str, float] = field(default_factory=dict)  #: a pod of the burst, by process
    memory: dict[str, float] = field(default_factory=dict)  #: MiB after the burst (scheduler-core: with BOUND pods), by process


def main(scale: float = 1.0) -> None:
    """`scale` makes everything smaller, to see that it works; figures are then no measure of anything."""
    try:
        programs = find_programs()
    except InvalidRequest as e:
        raise SystemExit(f"the benchmark on a real API server cannot run: {e}") from e
    if not os.access(programs / "kube-scheduler", os.X_OK):
        raise SystemExit(f"{programs} has no kube-scheduler to compare with: build all with `make kube-assets`")
    with tempfile.TemporaryDirectory(prefix="hbox-bench-") as scratch:
        folder = Path(scratch)
        with control_plane(folder, (ETCD, API_SERVER)) as plane:
            peer, ours = asyncio.run(_both(plane, folder, scale))
    _table(peer, ours)


async def _both(plane: ControlPlane, folder: Path, scale: float) -> tuple[Figures, Figures]:
    nodes = round(NODES * scale)
    async with Load.connect(plane.kubeconfig) as load:
        _say(f"{nodes} nodes")
        await load.nodes(nodes)
        with kube_scheduler(plane, folder, SCHEDULER_CONF.format(kubeconfig=plane.kubeconfig)) as pid:
            peer = await _measure(load, PEER, processes(plane, {"kube-scheduler": pid}), load.clean, scale)
        with hbox(plane, folder / "state") as pids:

            async def clean() -> None:
                await load.clean()
                await _books(folder / "state", 0)

            ours = await _measure(load, "hbox", processes(plane, pids()), clean, scale)
            _say("restart of scheduler-core")
            await load.settled(round(BOUND * scale), nodes=nodes, scheduler="hbox")
            await _books(folder / "state", round(BOUND * scale))
            os.kill(pids()["scheduler-core"], signal.SIGKILL)
            ours.values["restart"] = (await load.burst(1, scheduler="hbox")).last_bound_s
            ours.memory["scheduler-core"] = rss_mib(pids()["scheduler-core"])
    return peer, ours


async def _measure(
    load: Load, scheduler: str, pids: dict[str, int], clean: Callable[[], Awaitable[None]], scale: float
) -> Figures:
    figures = Figures()
    await load.burst(1, scheduler=scheduler)  # the first one pays for connections and caches
    _say(f"{scheduler}: burst")
    before = {name: cpu_s(pid) for name, pid in pids.items()}
    burst = await load.burst(round(BURST * scale), scheduler=scheduler)
    figures.cpu_ms = {name: 1000 * (cpu_s(pid) - before[name]) / burst.pods for name, pid in pids.items()}
    figures.memory = {name: rss_mib(pid) for name, pid in pids.items()}
    figures.values["burst"] = burst.per_s
    await clean()
    for pods in GANGS:
        _say(f"{scheduler}: {pods} pods of 8 cards")
        gang = await load.burst(round(pods * scale), scheduler=scheduler, cards=8, gang=scheduler != PEER)
        figures.values[f"gang {pods}"] = gang.last_bound_s
        await clean()
    _say(f"{scheduler}: {RATE_PER_S} pods a second")
    rated = await load.rate(round(RATED * scale), per_s=RATE_PER_S, scheduler=scheduler)
    figures.values |= {"p50": rated.wait_ms(0.5), "p99": rated.wait_ms(0.99)}
    await clean()
    return figures


@contextmanager
def hbox(plane: ControlPlane, state: Path, settings: Mapping[str, str] | None = None) -> Iterator[Callable[[], dict[str, int]]]:
    """Gives its processes by name, as they are now; `settings` are environment variables."""
    errors = state.with_suffix(".err")
    with errors.open("wb") as err:
        up = subprocess.Popen(
            [HBOX, "up", "--kubeconfig", plane.kubeconfig, "--state", state],
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            env={**os.environ, **(settings or {})},
        )
    try:
        assert up.stdout is not None
        if not any(line.startswith("ready") for line in up.stdout):
            raise SystemExit(f"hbox up did not get ready: {errors.read_text()[-500:]}")
        yield lambda: json.loads((state / "pids.json").read_text())
    finally:
        up.terminate()
        up.wait(40)


async def _books(state: Path, pods: int) -> None:
    """Returns when the platform's books have so many pods on nodes: what went before is digested."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        asked = await asyncio.to_thread(_nodes, state)
        found = sum(node["pods"] for node in json.loads(asked.stdout)["items"]) if asked.returncode == 0 else -1
        if found == pods:
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"the books have {found} pods and not {pods} after {PATIENCE_S:g} s")
        await asyncio.sleep(1)


def _nodes(state: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HBOX, "--state", state, "-o", "json", "nodes"], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def processes(plane: ControlPlane, others: dict[str, int]) -> dict[str, int]:
    """Process ids of what takes part, by name: the control plane's, these, and ourselves."""
    found = {"load generator": os.getpid()}
    for entry in Path("/proc").iterdir():
        try:
            program, *words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if Path(program).name in (ETCD, API_SERVER) and any(str(plane.folder) in word for word in words):
            found[Path(program).name] = int(entry.name)
    return found | others


def _table(peer: Figures, ours: Figures) -> None:
    print(f"{'':34} {'HBox':>8} {'kube-scheduler':>15}  {'budget':22} others")
    for key, (words, unit, budget, others) in ROWS.items():
        beside = f"{peer.values[key]:.{_digits(unit)}f}" if key in peer.values else ""
        print(f"{words + ', ' + unit:34} {ours.values[key]:8.{_digits(unit)}f} {beside:>15}  {budget:22} {others}")
    print(
        f"\nburst: {ours.values['burst'] / peer.values['burst']:.2f} x kube-scheduler; kube-scheduler has no gangs: the same pods one by one"
    )
    print(f"\n{'':20} {'HBox: CPU ms a pod':>19} {'MiB':>5} {'kube-scheduler: CPU ms a pod':>30} {'MiB':>5}")
    for name in sorted(ours.cpu_ms | peer.cpu_ms, key=lambda n: -max(ours.cpu_ms.get(n, 0), peer.cpu_ms.get(n, 0))):
        cells = [f"{f.cpu_ms[name]:.2f} {f.memory[name]:5.0f}" if name in f.cpu_ms else "" for f in (ours, peer)]
        print(f"{name:20} {cells[0]:>25} {cells[1]:>36}")
    print(cost_line(ours.cpu_ms))


def cost_line(cpu_ms: dict[str, float], budget: float = RATIO) -> str:
    """Processor time a pod, by process, and of all of ours to the API server's own: on a machine that does other things too this says more than the rate."""
    mine = {name: ms for name, ms in cpu_ms.items() if name not in NOT_OURS}
    each = ", ".join(f"{name} {1000 * ms:.0f}" for name, ms in sorted(mine.items(), key=lambda item: -item[1]))
    ours, theirs = sum(mine.values()), cpu_ms[API_SERVER]
    ratio = (
        f"{ours / theirs:.2f} of the API server's {1000 * theirs:.0f} (budget {budget:g})"
        if theirs
        else "no time of the API server's"
    )
    return f"processor time of HBox: {1000 * ours:.0f} us a pod, {ratio}: {each}"


def _digits(unit: str) -> int:
    return 2 if unit == "s" else 0


def _say(what: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
