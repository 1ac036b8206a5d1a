"""Processor time and peak memory of each service's start in a cluster with running pods: the first start of the platform, then one restart of each service.

Run it as `python -m tests.bench startup`: 40,000 pods on 5,000 nodes; `HBOX_BENCH_SIZE=2.5`: 100,000 on 12,500. A separate process writes the pods
into the store of an emulated API server. Each service is killed with -9 while no pod arrives, which measures its own start; `hbox up` restarts it.
`HBOX_BENCH_RESTARTS`: services to restart, comma-separated (default: all, none with ""). `HBOX_PROFILE`: folder for profiles of the main threads.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hbox_cli.platform.probe import readiness
from hbox_common.kube import NAMESPACES, NODES, PODS, QUEUES
from hbox_sandbox.api import ApiServer
from hbox_sandbox.api.handlers import perform, route
from hbox_sandbox.kubelet import Kubelets

from .load import NAMESPACE, node_body, node_name, pod_body, queue_body
from .platform import cpu_s, peak_mib
from .scale import BURST, DEPARTMENTS, KILLED, RUNNING, define, hbox  # fmt: skip
from .scale import NODES as NODE_COUNT
from .scale import QUEUES as QUEUE_COUNT

RESTARTED = [
    name for name in os.environ.get("HBOX_BENCH_RESTARTS", ",".join((*KILLED, "console"))).split(",") if name
]  # fmt: skip
PATIENCE_S = 900.0
#: A service has finished its start when it uses less processor time than this share of a second, for so many seconds.
IDLE, IDLE_S = 0.2, 3


@dataclass(frozen=True, slots=True)
class Started:
    ready_s: float  #: from the kill, or from the start of `hbox up`
    ready_cpu_s: float
    cpu_s: float  #: until it is idle
    peak_mib: float


@contextmanager
def filled(folder: Path) -> Iterator[Path]:
    """The kubeconfig of an emulated API server with nodes, queues and running pods."""
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-m", "tests.bench.startup", str(kubeconfig)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            _expect(process, "empty")
            define(kubeconfig)
            assert process.stdin is not None
            process.stdin.write("fill\n")
            process.stdin.flush()
            _expect(process, "ready")
            yield kubeconfig
        finally:
            process.terminate()


def _expect(process: "subprocess.Popen[str]", word: str) -> None:
    assert process.stdout is not None
    if process.stdout.readline().strip() != word:
        raise SystemExit("the emulated API server ended")


async def _serve(kubeconfig: Path) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with ApiServer() as api:
        api.kubeconfig(kubeconfig)
        print("empty", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        _fill(api)
        print("ready", flush=True)
        async with asyncio.TaskGroup() as group:
            kubelets = group.create_task(Kubelets(api.cluster).run())
            await stop.wait()
            kubelets.cancel()


def _fill(api: ApiServer) -> None:
    def write(method: str, path: str, body: dict[str, Any]) -> None:
        call = route(api.cluster, method, path, {})
        content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        perform(api.cluster, call, {}, content_type=content_type, body=msgspec.json.encode(body), agent="hbox-bench")

    write("POST", NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for i in range(NODE_COUNT):
        write("POST", NODES.path(), node_body(node_name(i)))
        write("PATCH", NODES.path(name=node_name(i)), {"spec": {"taints": None}})
    for i in range(DEPARTMENTS):
        write("POST", QUEUES.path(), queue_body(f"department-{i}"))
    queues = [f"queue-{i}" for i in range(QUEUE_COUNT)]
    for i, name in enumerate(queues):
        write("POST", QUEUES.path(), queue_body(name, parent=f"department-{i % DEPARTMENTS}"))
    for i in range(RUNNING):
        cards = int(i < 8 * NODE_COUNT - BURST)
        body = pod_body(f"pod-{i}", "hbox", cards, node=node_name(i % NODE_COUNT), queue=queues[i % QUEUE_COUNT])
        write("POST", PODS.path(NAMESPACE), body)
        write("PATCH", f"{PODS.path(NAMESPACE, f'pod-{i}')}/status", {"status": {"phase": "Running"}})


def restart(state: Path, name: str) -> Started:
    """Kill the service with -9, and wait until its next process is ready and idle."""
    pid = _pids(state)[name]
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    while (new := _pids(state).get(name, pid)) == pid:
        _patience(began, name)
    port = int(json.loads((state / "platform.json").read_text())["health"][name].rpartition(":")[2])
    while not asyncio.run(readiness(port)).ready:
        _patience(began, name)
    ready_s, ready_cpu_s = time.monotonic() - began, cpu_s(new)
    idle([new])
    return Started(ready_s, ready_cpu_s, cpu_s(new), peak_mib(new))


def idle(pids: Sequence[int]) -> None:
    """Wait until these processes use little processor time."""
    quiet, before = 0, sum(map(cpu_s, pids))
    while quiet < IDLE_S:
        time.sleep(1)
        used = sum(map(cpu_s, pids))
        quiet = quiet + 1 if used - before < IDLE * len(pids) else 0
        before = used


def _pids(state: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((state / "pids.json").read_text())
    return found


def _patience(began: float, name: str) -> None:
    if time.monotonic() > began + PATIENCE_S:
        raise SystemExit(f"{name} is not ready {PATIENCE_S:g} s after its end")
    time.sleep(0.05)


def _print(name: str, one: Started) -> None:
    print(f"{name:20} {one.ready_s:9.1f} {one.ready_cpu_s:14.1f} {one.cpu_s:13.1f} {one.peak_mib:9.0f}", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="hbox-bench-") as scratch, filled(Path(scratch)) as kubeconfig:
        measure(kubeconfig, Path(scratch) / "state")


def measure(kubeconfig: Path, state: Path) -> None:
    print(f"{RUNNING:,} running pods, {NODE_COUNT:,} nodes, {QUEUE_COUNT:,} queues")
    print(f"{'first start':20} {'ready, s':>9} {'processor, s':>14} {'until idle':>13} {'peak, MiB':>9}")
    began = time.monotonic()
    with hbox(kubeconfig, state, timeout_s=int(PATIENCE_S)) as pids:
        ready_s, ready_cpu_s = time.monotonic() - began, {name: cpu_s(pid) for name, pid in pids.items()}
        idle(list(pids.values()))
        every = [Started(ready_s, ready_cpu_s[name], cpu_s(pid), peak_mib(pid)) for name, pid in pids.items()]
        for name, one in zip(pids, every, strict=True):
            _print(name, one)
        _print(
            "all",
            Started(
                ready_s, sum(ready_cpu_s.values()), *(sum(getattr(one, of) for one in every) for of in ("cpu_s", "peak_mib"))
            ),
        )
        if RESTARTED:
            print("after kill -9")
        for name in RESTARTED:
            _print(name, restart(state, name))


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
