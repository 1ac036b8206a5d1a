"""40,000 running pods on 5,000 nodes of eight cards: start time and memory of the platform, and a burst.

Run it as `python -m tests.bench scale`; `HBOX_BENCH_SIZE=0.1` uses a tenth of nodes and pods. The burst is compared with one on 1,250 empty nodes. The API
server is the emulator in a separate process, so that its pods exist before the platform starts. Emulator and load generator use the same cores in both bursts,
so the services' cost per pod is printed with the rate.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .load import Load
from .platform import HBOX, cpu_s, rss_mib
from .scheduler import report

SIZE = float(os.environ.get("HBOX_BENCH_SIZE", "1"))
NODES, FEW_NODES = int(5000 * SIZE), int(1250 * SIZE)
BURST = int(4000 * SIZE)
RUNNING = 8 * NODES
COLD_START_S = 15.0
MEMORY_MIB = {"scheduler-core": 500.0, "quota-ledger": 700.0}
LEAST_SHARE = 50.0  #: percent of the rate at FEW_NODES


@dataclass(frozen=True, slots=True)
class Measured:
    ready_s: float  #: from the start of `hbox up` until every service is ready
    started_cpu_s: dict[str, float]  #: processor time until then, by service
    first_bound_s: float  #: from the start until a pod created right after it was ready has its node
    pods_per_s: float
    cpu_ms: float  #: a pod of the burst, all services together
    memory_mib: dict[str, float]  #: by service, after the burst


async def measure(folder: Path, *, nodes: int, running: int) -> Measured:
    """The platform's start and a burst, on a cluster that is there before it; as many cards are free as the burst asks for, or more."""
    with emulator(folder) as kubeconfig:
        async with Load.connect(kubeconfig) as load:
            await load.nodes(nodes)
            if running:
                with_cards = min(running, 8 * nodes - BURST)
                await load.settled(with_cards, nodes=nodes, scheduler="hbox")
                await load.settled(running - with_cards, nodes=nodes, scheduler="hbox", cards=0)
            began = time.monotonic()
            with _hbox(kubeconfig, folder / "state") as pids:
                ready_s = time.monotonic() - began
                started_cpu_s = {name: cpu_s(pid) for name, pid in pids.items()}
                await load.burst(1, scheduler="hbox", cards=0)
                first_bound_s = time.monotonic() - began
                before = sum(map(cpu_s, pids.values()))
                burst = await load.burst(BURST, scheduler="hbox")
                cpu_ms = 1000 * (sum(map(cpu_s, pids.values())) - before) / burst.pods
                memory = {name: rss_mib(pid) for name, pid in pids.items()}
    return Measured(ready_s, started_cpu_s, first_bound_s, burst.per_s, cpu_ms, memory)


def _in_folder(*, nodes: int, running: int) -> Measured:
    with tempfile.TemporaryDirectory(prefix="hbox-bench-") as scratch:
        return asyncio.run(measure(Path(scratch), nodes=nodes, running=running))


@contextmanager
def emulator(folder: Path) -> Iterator[Path]:
    """Its kubeconfig."""
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-m", "hbox_sandbox", "--kubeconfig-out", str(kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline().startswith("ready"):
                raise SystemExit("the emulated API did not get ready")
            yield kubeconfig
        finally:
            process.terminate()


@contextmanager
def _hbox(kubeconfig: Path, state: Path) -> Iterator[dict[str, int]]:
    """Process ids of its services by name, once all are ready."""
    errors = state.with_suffix(".err")
    with errors.open("wb") as err:
        up = subprocess.Popen(
            [HBOX, "up", "--kubeconfig", kubeconfig, "--as-given", "--state", state, "--ready-timeout", "300"],
            stdout=subprocess.PIPE, stderr=err, text=True,
        )  # fmt: skip
    try:
        assert up.stdout is not None
        if not any(line.startswith("ready") for line in up.stdout):
            raise SystemExit(f"hbox up did not get ready: {errors.read_text()[-500:]}")
        yield json.loads((state / "pids.json").read_text())
    finally:
        up.terminate()
        up.wait(60)


def main() -> None:
    few, many = _in_folder(nodes=FEW_NODES, running=0), _in_folder(nodes=NODES, running=RUNNING)
    there = f"{RUNNING:,} running pods, {NODES:,} nodes"
    report(f"{there}: start until ready", many.ready_s, "s", COLD_START_S, least=False)
    used = ", ".join(f"{name} {seconds:.1f}" for name, seconds in many.started_cpu_s.items())
    print(
        f"{'':4}until a new pod has its node {many.first_bound_s:.1f} s; {sum(many.started_cpu_s.values()):.1f} s of processor time: {used}"
    )
    for name, most in MEMORY_MIB.items():
        report(f"{there}: {name} after a burst", many.memory_mib[name], "MiB", most, least=False)
    share = 100 * many.pods_per_s / few.pods_per_s
    report(f"burst of {BURST:,}: rate, of that on {FEW_NODES:,} empty nodes", share, "%", LEAST_SHARE, least=True)
    for nodes, one in ((FEW_NODES, few), (NODES, many)):
        print(f"{'':4}{nodes:,} nodes: {one.pods_per_s:.0f} pods/s, services {one.cpu_ms:.2f} ms of processor time a pod")
    print(
        f"{'':4}memory of the others, MiB: {', '.join(f'{n} {m:.0f}' for n, m in many.memory_mib.items() if n not in MEMORY_MIB)}"
    )
