"""Running pods on nodes of eight cards: start time and memory of the platform, a burst, and kills of each service.

Run it as `python -m tests.bench scale`: 40,000 pods on 5,000 nodes; `HBOX_BENCH_SIZE=2.5`: 100,000 on 12,500, with the limits of that size; 0.1
uses a tenth. Pods are in 2,000 queues of 50 departments at size 2.5, in proportion at others. The burst is compared with one on 1,250 empty
nodes. The API server is the emulator in a separate process, so that its pods exist before the platform starts. Emulator and load generator use
the same cores in both bursts, so the services' cost per pod is printed with the rate. Then 50 pods a second arrive, and one service after the
other is killed with -9: `HBOX_BENCH_KILLS=0` leaves this out.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .load import Load
from .platform import HBOX, cpu_s, rss_mib
from .scheduler import report

SIZE = float(os.environ.get("HBOX_BENCH_SIZE", "1"))
KILLS = os.environ.get("HBOX_BENCH_KILLS", "1") != "0"
NODES, FEW_NODES = int(5000 * SIZE), int(1250 * min(SIZE, 1))
BURST = int(4000 * min(SIZE, 1))
RUNNING = 8 * NODES
QUEUES, DEPARTMENTS = int(800 * SIZE), max(1, int(20 * SIZE))
RATE = 50.0  #: pods a second during kills
KILLED = ("scheduler-core", "quota-ledger", "job-controller", "topology-collector", "health-monitor", "binder")


@dataclass(frozen=True, slots=True)
class Limits:
    ready_s: float
    first_bound_s: float | None
    memory_mib: Mapping[str, float]
    all_mib: float | None
    share: float  #: percent of the rate at FEW_NODES
    kill_s: Mapping[str, float]


OF_5000 = Limits(15.0, None, {"scheduler-core": 500.0, "quota-ledger": 700.0}, None, 50.0, {})
OF_12500 = Limits(
    35.0, 40.0, {"scheduler-core": 600.0, "quota-ledger": 900.0, "job-controller": 700.0}, 3072.0, 60.0,
    {"scheduler-core": 6.0, "quota-ledger": 12.0, "job-controller": 25.0},
)  # fmt: skip
LIMITS = OF_12500 if NODES >= 12_500 else OF_5000


@dataclass(frozen=True, slots=True)
class Measured:
    ready_s: float  #: from the start of `hbox up` until every service is ready
    started_cpu_s: dict[str, float]  #: processor time until then, by service
    first_bound_s: float  #: from the start until a pod created right after it was ready has its node
    pods_per_s: float
    cpu_ms: float  #: a pod of the burst, all services together
    memory_mib: dict[str, float]  #: by process, after the burst
    kill_s: dict[str, float] = field(default_factory=dict)  #: by killed service, until a pod created after it has its node
    audit: str = ""  #: the last line of `hbox audit` in the end


async def measure(folder: Path, *, nodes: int, running: int, kills: bool) -> Measured:
    """The platform's start, a burst and kills, on a cluster that is there before it; as many cards are free as the burst asks for, or more."""
    with emulator(folder) as kubeconfig:
        async with Load.connect(kubeconfig) as load:
            await load.nodes(nodes)
            await asyncio.to_thread(define, kubeconfig)
            queues = await load.departments(DEPARTMENTS, queues=QUEUES)
            if running:
                with_cards = min(running, 8 * nodes - BURST)
                await load.settled(with_cards, nodes=nodes, scheduler="hbox", queues=queues)
                await load.settled(running - with_cards, nodes=nodes, scheduler="hbox", cards=0, queues=queues)
            began = time.monotonic()
            with hbox(kubeconfig, folder / "state") as pids:
                ready_s = time.monotonic() - began
                _progress(f"{nodes:,} nodes: ready after {ready_s:.1f} s")
                started_cpu_s = {name: cpu_s(pid) for name, pid in pids.items()}
                await load.burst(1, scheduler="hbox", cards=0)
                first_bound_s = time.monotonic() - began
                before = sum(map(cpu_s, pids.values()))
                burst = await load.burst(BURST, scheduler="hbox", queues=queues)
                cpu_ms = 1000 * (sum(map(cpu_s, pids.values())) - before) / burst.pods
                memory = {name: rss_mib(pid) for name, pid in pids.items()}
                _progress(
                    f"first pod bound {first_bound_s:.1f} s, burst {burst.per_s:.0f} pods/s, {sum(memory.values()):.0f} MiB"
                )
                kill_s = {}
                for name in KILLED if kills else ():
                    kill_s[name] = await killed(load, folder / "state", name)
                    _progress(f"{name} killed: {kill_s[name]:.1f} s until a later pod was bound")
                audit = await asyncio.to_thread(_audit, folder / "state") if kills else ""
    return Measured(ready_s, started_cpu_s, first_bound_s, burst.per_s, cpu_ms, memory, kill_s, audit)


async def killed(load: Load, state: Path, name: str) -> float:
    """Kill a service with -9 while pods arrive. Returns the seconds until a pod created after the kill has its node, once all pods have theirs."""
    arriving = asyncio.create_task(load.rate(int(20 * RATE), per_s=RATE, scheduler="hbox", cards=0))
    await asyncio.sleep(5)
    at = time.monotonic()
    os.kill(json.loads((state / "pids.json").read_text())[name], signal.SIGKILL)
    await arriving
    created, bound = load.times(0.0)
    return min(when for pod, when in bound.items() if created[pod] > at) - at


def _progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _in_folder(*, nodes: int, running: int, kills: bool = False) -> Measured:
    with tempfile.TemporaryDirectory(prefix="hbox-bench-") as scratch:
        return asyncio.run(measure(Path(scratch), nodes=nodes, running=running, kills=kills))


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


def define(kubeconfig: Path) -> None:
    subprocess.run([HBOX, "definitions", "apply", "--kubeconfig", kubeconfig], check=True, capture_output=True)


def _audit(state: Path) -> str:
    """The result as printed; raises SystemExit if a check fails."""
    found = subprocess.run([HBOX, "audit", "--state", state, "--patience", "60"], check=False, capture_output=True, text=True)
    if found.returncode:
        raise SystemExit(f"hbox audit: {found.stdout}{found.stderr}")
    return found.stdout.strip().splitlines()[-1]


@contextmanager
def hbox(kubeconfig: Path, state: Path, *, timeout_s: int = 300) -> Iterator[dict[str, int]]:
    """Process ids of its services by name, once all are ready. `timeout_s`: until then."""
    errors = state.with_suffix(".err")
    with errors.open("wb") as err:
        up = subprocess.Popen(
            [HBOX, "up", "--kubeconfig", kubeconfig, "--as-given", "--state", state, "--ready-timeout", str(timeout_s)],
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
    few, many = _in_folder(nodes=FEW_NODES, running=0), _in_folder(nodes=NODES, running=RUNNING, kills=KILLS)
    there = f"{RUNNING:,} running pods, {NODES:,} nodes"
    report(f"{there}: start until ready", many.ready_s, "s", LIMITS.ready_s, least=False)
    if LIMITS.first_bound_s is not None:
        report(f"{there}: start until a new pod has its node", many.first_bound_s, "s", LIMITS.first_bound_s, least=False)
    used = ", ".join(f"{name} {seconds:.1f}" for name, seconds in many.started_cpu_s.items())
    print(
        f"{'':4}until a new pod has its node {many.first_bound_s:.1f} s; {sum(many.started_cpu_s.values()):.1f} s of processor time: {used}"
    )
    for name, most in LIMITS.memory_mib.items():
        report(f"{there}: {name} after a burst", many.memory_mib[name], "MiB", most, least=False)
    total = sum(many.memory_mib.values())
    if LIMITS.all_mib is not None:
        report(f"{there}: all processes, broker included", total, "MiB", LIMITS.all_mib, least=False)
    share = 100 * many.pods_per_s / few.pods_per_s
    report(f"burst of {BURST:,}: rate, of that on {FEW_NODES:,} empty nodes", share, "%", LIMITS.share, least=True)
    for nodes, one in ((FEW_NODES, few), (NODES, many)):
        print(f"{'':4}{nodes:,} nodes: {one.pods_per_s:.0f} pods/s, services {one.cpu_ms:.2f} ms of processor time a pod")
    others = ", ".join(f"{name} {mib:.0f}" for name, mib in many.memory_mib.items() if name not in LIMITS.memory_mib)
    print(f"{'':4}memory of the others, MiB: {others}; of all {total:.0f}")
    for name, seconds in many.kill_s.items():
        text = f"{there}, {RATE:g} pods/s: kill -9 of {name} until a later pod has its node"
        if name in LIMITS.kill_s:
            report(text, seconds, "s", LIMITS.kill_s[name], least=False)
        else:
            print(f"{'':4}{text}: {seconds:.1f} s")
    if many.audit:
        print(f"{'':4}hbox audit after the kills: {many.audit}")
