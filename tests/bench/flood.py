"""100,000 pending pods of one namespace, and five pods a second of another: the delay of the latter, and the memory of every service.

Run it as `python -m tests.bench flood`. `HBOX_BENCH_FLOOD`: number of pods [100,000]. `HBOX_BENCH_FLOOD_KIND`: `large` (each requests more cards than any
node has), `shapes` (the same, in HBOX_BENCH_FLOOD_SHAPES shapes [500]), `quota` (the queue's capability is used up), `hostile` (each with its own shape of 16
KiB, 128 KiB of annotations, long policy annotations and an affinity to all pods), `churn` (each is deleted at once), `rewrite` (annotations of 200 of them
change all the time), `groups` (PodGroups without pods), `namespaces` (one for each pod), `queues` (one for each pod).

A wait is the time from a pod's creation until its node is observed: before the flood, while it arrives, while it is pending, while job-controller,
scheduler-core and quota-ledger are killed, and while the flood is deleted at once. API server and load generator use the same cores and would do so without
HBox, so the benchmark also measures a flood of pods of another scheduler, which HBox ignores. `HBOX_BENCH_FLOOD_STAGES=1` traces every job and prints the other
namespace's time by stage; tracing a flood has its own cost.
"""

import asyncio
import json
import math
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from hbox_common.kube import MERGE_PATCH, NAMESPACES, PODGROUPS, PODS, QUEUES, Delta, Informer, KubeClient, Pod
from hbox_common.model.annotations import WALLTIME

from ..e2e.collector import collector
from .platform import HBOX, cpu_s, peak_mib, rss_mib
from .scheduler import report
from .waits import show, traced

FLOOD = int(os.environ.get("HBOX_BENCH_FLOOD", "100000"))
STAGES = bool(os.environ.get("HBOX_BENCH_FLOOD_STAGES"))
KIND = os.environ.get("HBOX_BENCH_FLOOD_KIND", "large")
NODES = 100
SHAPES = int(os.environ.get("HBOX_BENCH_FLOOD_SHAPES", "500"))
#: Killed in the middle of the flood; none where spans are awaited, which go with their processes.
KILLED = () if STAGES else ("job-controller", "scheduler-core", "quota-ledger")
#: Of the other namespace.
PER_S, PODS_MEASURED = 5.0, 200
#: A device plugin has long taken over a pod's cards then: before that its node is locked for others.
STAY_S = 1.0
#: How fast the flood comes, at most; so many requests at a time.
FLOOD_PER_S, CONCURRENCY = 400.0, 16
TIMES_P99 = 2.0
#: What every service may take with 100,000 pods pending; what it does take stands in docs/benchmarks.md.
MEMORY_MIB = {
    "job-controller": 1000.0, "scheduler-core": 1000.0, "quota-ledger": 400.0, "binder": 300.0, "topology-collector": 200.0,
    "health-monitor": 200.0, "node-agent": 200.0, "nats-server": 700.0,
}  # fmt: skip
QUIET_S = 5.0
PATIENCE_S = 900.0


def _hostile(number: int, scheduler: str) -> dict[str, Any]:
    """A pod as large as a tenant can make it before the cluster's store is full of a few thousand: each its own shape, long notes, a wish about everybody."""
    body = _pod(f"{scheduler}-{number}", 9, scheduler=scheduler, queue="flood")
    body["metadata"]["annotations"] |= {f"example.com/{i}": f"{number}-" + 16_000 * "x" for i in range(8)}
    body["metadata"]["annotations"][WALLTIME] = "y" * 2048
    body["metadata"]["labels"] = {f"example.com/{i}": f"{number}" for i in range(60)}
    terms = [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [f"{number}-{i}-{200 * 'n'}" for i in range(64)]}]
    chosen = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": terms}]}}
    everybody = {"labelSelector": {"matchExpressions": [{"key": f"k{number}", "operator": "DoesNotExist"}]}}
    apart = {"requiredDuringSchedulingIgnoredDuringExecution": [{**everybody, "topologyKey": "kubernetes.io/hostname"}]}
    body["spec"]["affinity"] = {"nodeAffinity": chosen, "podAntiAffinity": apart}
    return body


def _pod(name: str, cards: int, *, cpu_milli: int = 1000, scheduler: str = "hbox", queue: str = "") -> dict[str, Any]:
    asked = {"cpu": f"{cpu_milli}m", "memory": "1Gi"}
    resources = {"requests": asked, "limits": {**asked, "nvidia.com/gpu": str(cards)}}
    annotations = {"scheduling.volcano.sh/queue-name": queue} if queue else {}
    spec = {"schedulerName": scheduler, "containers": [{"name": "main", "image": "pause", "resources": resources}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": spec}


class Neighbour:
    """Pods of one card, one after the other; each leaves STAY_S after it got its node, so that there is room for the next."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._created: dict[str, float] = {}
        self._bound: dict[str, float] = {}
        self._count = 0
        self._changed = asyncio.Event()
        self._leaving: asyncio.Queue[str] = asyncio.Queue()

    async def watch(self, informer: Informer[Pod]) -> None:
        await informer.run(self._on_pods)

    async def leave(self) -> None:
        """Until cancelled."""
        while True:
            name = await self._leaving.get()
            await asyncio.sleep(self._bound[name] + STAY_S - time.monotonic())
            path = PODS.path("other", name)
            await self._client.json("DELETE", path, params={"gracePeriodSeconds": "0"}, timeout_s=120)

    async def _on_pods(self, deltas: Sequence[Delta[Pod]]) -> None:
        now = time.monotonic()
        for delta in deltas:
            if delta.new is not None and delta.new.spec.node_name and delta.new.metadata.name not in self._bound:
                self._bound[delta.new.metadata.name] = now
                self._leaving.put_nowait(delta.new.metadata.name)
        self._changed.set()

    async def waits_ms(self, until: Callable[[int], bool]) -> list[float]:
        """Of pods made until it says so, by how many there were; ascending. A pod without a node after PATIENCE_S has waited for so long."""
        mine: list[str] = []
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            while not until(len(mine)):
                await asyncio.sleep(max(0.0, began + len(mine) / PER_S - time.monotonic()))
                self._count += 1
                mine.append(name := f"one-{self._count}")
                self._created[name] = time.monotonic()
                group.create_task(self._client.json("POST", PODS.path("other"), body=_pod(name, 1), timeout_s=60))
        deadline = time.monotonic() + PATIENCE_S
        while any(name not in self._bound for name in mine) and time.monotonic() < deadline:
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), 1.0)
        late = time.monotonic()
        return sorted(1000 * (self._bound.get(name, late) - self._created[name]) for name in mine)

    def times(self) -> tuple[dict[str, float], dict[str, float]]:
        """When each pod was created and seen with its node, by name, in seconds since the epoch."""
        since = time.time() - time.monotonic()
        bound = {name: since + seen for name, seen in self._bound.items()}
        return {name: since + made for name, made in self._created.items() if name in bound}, bound


def at(waits: Sequence[float], share: float) -> float:
    return waits[max(0, math.ceil(share * len(waits)) - 1)]


async def _flood(client: KubeClient, count: int, scheduler: str) -> None:
    """So many pods, or what KIND makes in their place, not faster than FLOOD_PER_S."""
    left = iter(range(count))
    began = time.monotonic()
    make = MAKERS.get(KIND, _make_pod)

    async def work() -> None:
        for i in left:
            await asyncio.sleep(began + i / FLOOD_PER_S - time.monotonic())
            await make(client, i, scheduler)

    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENCY):
            group.create_task(work())


async def _make_pod(client: KubeClient, i: int, scheduler: str) -> None:
    if KIND == "hostile":
        body = _hostile(i, scheduler)
    else:
        shape = 1000 + i % SHAPES if KIND in ("shapes", "churn") else 1000
        body = _pod(f"{scheduler}-{i}", 1 if KIND == "quota" else 9, cpu_milli=shape, scheduler=scheduler, queue="flood")
    await client.json("POST", PODS.path("flood"), body=body, timeout_s=120)


async def _churn(client: KubeClient, i: int, scheduler: str) -> None:
    """A pod that is deleted again at once."""
    await _make_pod(client, i, scheduler)
    await client.json("DELETE", PODS.path("flood", f"{scheduler}-{i}"), params={"gracePeriodSeconds": "0"}, timeout_s=120)


async def _rewrite(client: KubeClient, i: int, scheduler: str) -> None:
    """The first REWRITTEN are made; a note of one of them that policies read is written anew each time."""
    if i < REWRITTEN:
        await _make_pod(client, i, scheduler)
        return
    name = f"{scheduler}-{i % REWRITTEN}"
    body = {"metadata": {"annotations": {WALLTIME: f"{i}s"}}}
    await client.json("PATCH", PODS.path("flood", name), body=body, content_type=MERGE_PATCH, timeout_s=120, expect=(200, 404))


async def _group(client: KubeClient, i: int, scheduler: str) -> None:
    """A PodGroup without pods; for another scheduler, a pod of it alone."""
    if scheduler != "hbox":
        await _make_pod(client, i, scheduler)
        return
    spec = {"minMember": 8, "queue": "flood", "minResources": {"nvidia.com/gpu": f"{i}"}}
    body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": f"g{i}"}, "spec": spec}
    await client.json("POST", PODGROUPS.path("flood"), body=body, timeout_s=120)


async def _namespace(client: KubeClient, i: int, scheduler: str) -> None:
    """A namespace with one pod."""
    space = f"space-{scheduler}-{i}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
    await client.json("POST", NAMESPACES.path(), body=body, timeout_s=120)
    await client.json("POST", PODS.path(space), body=_pod("one", 9, cpu_milli=1000 + i, scheduler=scheduler), timeout_s=120)


async def _queue(client: KubeClient, i: int, scheduler: str) -> None:
    """A queue with a pod in it; for another scheduler, the pod alone."""
    if scheduler == "hbox":
        body = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": f"q{i}"},
            "spec": {"weight": 1, "deserved": {"nvidia.com/gpu": 1}},
        }
        await client.json("POST", QUEUES.path(), body=body, timeout_s=120)
    await client.json(
        "POST", PODS.path("flood"), body=_pod(f"{scheduler}-{i}", 9, scheduler=scheduler, queue=f"q{i}"), timeout_s=120
    )


#: What a flood is of, beside pods.
MAKERS = {"churn": _churn, "rewrite": _rewrite, "groups": _group, "namespaces": _namespace, "queues": _queue}
#: Pods that are written again and again.
REWRITTEN = 200


async def _beside(neighbour: Neighbour, work: Awaitable[None]) -> tuple[list[float], float]:
    """The neighbour's waits while `work` is done, and for how long that was, in seconds."""
    began = time.monotonic()
    task = asyncio.ensure_future(work)
    waits = await neighbour.waits_ms(lambda made: task.done() and made >= 20)
    await task
    return waits, time.monotonic() - began


async def _killed(state: Path, name: str, pids: dict[str, int]) -> None:
    """Kill a service; until it runs again and 5 s more, so that what it tells others anew is part of it. Its new pid is in `pids`."""
    os.kill(pids[name], signal.SIGKILL)
    before = pids[name]
    while pids[name] == before or not await asyncio.to_thread(_ready, state, name):
        await asyncio.sleep(0.2)
        pids.update(json.loads((state / "pids.json").read_text()))
    await asyncio.sleep(QUIET_S)


def _ready(state: Path, name: str) -> bool:
    address = json.loads((state / "platform.json").read_text())["health"][name]
    try:
        with urlopen(f"{address}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


async def _gone(client: KubeClient) -> None:
    """All pods of the flood, by one request, and 5 s more."""
    await client.json("DELETE", PODS.path("flood"), params={"gracePeriodSeconds": "0"}, timeout_s=600)
    await asyncio.sleep(QUIET_S)


async def _measure(state: Path, pids: dict[str, int]) -> tuple[dict[str, float], dict[str, float]]:
    """Times of the neighbour's pods that came with the flood."""
    config = str(state / "kubeconfig")
    async with (
        KubeClient.connect(config, user_agent="bench") as client,
        KubeClient.connect(config, user_agent="flood", connections=CONCURRENCY + 2) as flooding,
        asyncio.TaskGroup() as group,
    ):
        for name in ("other", "flood"):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await client.json("POST", NAMESPACES.path(), body=body)
        spec = {"capability": {"nvidia.com/gpu": 1 if KIND == "quota" else 10 * FLOOD}}
        queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "flood"}, "spec": spec}
        await client.json("POST", QUEUES.path(), body=queue)
        neighbour = Neighbour(client)
        informer = Informer(client, PODS, Pod, namespace="other")
        watching = [group.create_task(neighbour.watch(informer)), group.create_task(neighbour.leave())]
        await informer.synced.wait()
        await neighbour.waits_ms(lambda made: made >= 10)  # the first pay for connections

        def said(what: str, waits: Sequence[float]) -> None:
            print(
                f"{what:58} p50 {at(waits, 0.5):7.0f}  p99 {at(waits, 0.99):7.0f}  longest {waits[-1]:7.0f} ms  ({len(waits)} pods)",
                flush=True,
            )

        alone = await neighbour.waits_ms(lambda made: made >= PODS_MEASURED)
        said("alone", alone)
        control, _ = await _beside(neighbour, _flood(flooding, min(FLOOD, 20_000), "nobody"))
        said("while as many of another scheduler's come", control)
        control_goes, _ = await _beside(neighbour, _gone(flooding))
        said("while these are deleted", control_goes)
        await asyncio.sleep(QUIET_S)
        before = {name: cpu_s(pid) for name, pid in pids.items()}
        earlier = neighbour.times()[0].keys()
        coming, took_s = await _beside(neighbour, _flood(flooding, FLOOD, "hbox"))
        created, bound = neighbour.times()
        said(f"while {FLOOD:,} come ({FLOOD / took_s:.0f}/s)", coming)
        used = {name: cpu_s(pid) - before[name] for name, pid in pids.items()}
        print(f"{'':4}processor time while they come, s: {', '.join(f'{n} {s:.1f}' for n, s in used.items())}", flush=True)
        peaks = {name: peak_mib(pid) for name, pid in pids.items()}
        await asyncio.sleep(QUIET_S)
        before, began = {name: cpu_s(pid) for name, pid in pids.items()}, time.monotonic()
        standing = await neighbour.waits_ms(lambda made: made >= PODS_MEASURED)
        said(f"while {FLOOD:,} stand", standing)
        spent = time.monotonic() - began
        used = {name: (cpu_s(pid) - before[name]) / spent for name, pid in pids.items()}
        print(f"{'':4}cores while they stand: {', '.join(f'{n} {s:.2f}' for n, s in used.items())}", flush=True)
        for name in (one for one in KILLED if one in pids):
            killed, took_s = await _beside(neighbour, _killed(state, name, pids))
            said(f"while {name} is killed among them", killed)
        for name, pid in pids.items():
            peaks[name] = max(peaks.get(name, 0.0), peak_mib(pid))
        before = {name: cpu_s(pid) for name, pid in pids.items()}
        leaving, took_s = await _beside(neighbour, _gone(flooding))
        said(f"while all of them are deleted ({took_s:.0f} s)", leaving)
        used = {name: cpu_s(pid) - before[name] for name, pid in pids.items()}
        print(f"{'':4}processor time while they go, s: {', '.join(f'{n} {s:.1f}' for n, s in used.items())}", flush=True)
        after = await neighbour.waits_ms(lambda made: made >= PODS_MEASURED)
        said("alone again", after)
        report(
            "p99 while they come, of that beside another scheduler's",
            at(coming, 0.99) / at(control, 0.99),
            "times",
            TIMES_P99,
            least=False,
        )
        report("p99 while they stand, of that alone", at(standing, 0.99) / at(alone, 0.99), "times", TIMES_P99, least=False)
        report(
            "p99 while they go, of that beside another scheduler's",
            at(leaving, 0.99) / at(control_goes, 0.99),
            "times",
            TIMES_P99,
            least=False,
        )
        for name, most in MEMORY_MIB.items():
            if name in pids:
                peak = max(peaks[name], peak_mib(pids[name]))
                report(
                    f"{FLOOD:,} pending: {name} at its peak (after: {rss_mib(pids[name]):.0f})", peak, "MiB", most, least=False
                )
        for task in watching:
            task.cancel()
    return {name: made for name, made in created.items() if name not in earlier}, bound


def main() -> None:
    print(f"{FLOOD:,} pods that wait ({KIND}) of one namespace; {PER_S:g} pods a second of another; {NODES} nodes of 8 cards")
    state = Path(tempfile.mkdtemp(prefix="hbox-bench-"))
    try:
        if not STAGES:
            _run(state, {})
            return
        with collector() as got:
            created, bound = _run(state, traced(got.url))
        show(created, bound, got)
    finally:
        if not os.environ.get("HBOX_BENCH_KEEP"):
            shutil.rmtree(state, ignore_errors=True)


def _run(state: Path, env: Mapping[str, str]) -> tuple[dict[str, float], dict[str, float]]:
    with (state / "up.err").open("wb") as errors:
        words = [str(HBOX), "up", "--state", str(state), "--nodes", f"{NODES}x8"]
        up = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, **env})
        try:
            assert up.stdout is not None
            if not any(line.startswith("ready") for line in up.stdout):
                raise SystemExit(f"hbox up did not get ready; see {state}/logs")
            return asyncio.run(_measure(state, json.loads((state / "pids.json").read_text())))
        finally:
            up.terminate()
            up.wait(60)
