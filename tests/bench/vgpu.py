"""Slices of cards on a real API server, allocated by device plugins that make HAMi's calls: `python -m tests.bench vgpu`.

Each node has a plugin, which allocates for one pod at a time. A lean plugin reads the pod from its watch and makes two calls: the pod's annotations and the
node's lock. The other one makes the eight calls of HAMi's Allocate (v2.10) in sequence: node, pod, erase the container's cards, pod, phase, node, node, release
the lock. HAMi's own plugin makes five calls a second (client-go's default), which limits a node to a pod every two seconds under any scheduler; this one makes
as many as the API server answers. `bound`: the pod's node is observed; `handed over`: its lock is released; both since the first creation.

Below each figure: processor time per pod by process (the load generator's includes the plugins'), which shows the API server's part, and all calls to the API
server per pod.
"""

import asyncio
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hbox_cli.platform.assets import API_SERVER, ETCD, find_programs
from hbox_common.clock import monotonic_s
from hbox_common.errors import Conflict, InvalidRequest
from hbox_common.kube import MERGE_PATCH, NODES, PODS, Delta, Informer, KubeClient, Pod

from ..real.control_plane import control_plane
from .platform import cpu_s
from .real import NOT_OURS, hbox, processes

CARDS, SPACE = 8, "default"
REGISTER, LOCK = "hami.io/node-nvidia-register", "hami.io/mutex.lock"
TO_ALLOCATE, PHASE = "hami.io/vgpu-devices-to-allocate", "hami.io/bind-phase"
#: Half a card: 16 pods a node.
LIMITS = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "40000", "nvidia.com/gpucores": "50"}
#: Nodes, pods, whether plugins are lean, seconds for all to be bound (issue 15); 0: no budget.
ROWS = ((8, 100, True, 2.0), (100, 1000, True, 10.0), (100, 1000, False, 0.0))
PATIENCE_S = 180.0

_REQUESTS = re.compile(r"^apiserver_request_total\{([^}]*)\} (\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Figures:
    """`cpu_ms`: a pod, by process; `calls`: a pod, by verb and resource."""

    bound_s: float
    over_s: float
    wrong: list[str]
    cpu_ms: dict[str, float]
    calls: dict[str, float]


class Plugins:
    """The kubelets and device plugins of all nodes."""

    def __init__(self, client: KubeClient, tasks: asyncio.TaskGroup, *, lean: bool) -> None:
        self._client, self._tasks, self._lean = client, tasks, lean
        self.progress = asyncio.Event()
        self.bound: dict[str, float] = {}
        self.handed_over: dict[str, float] = {}
        self.wrong: list[str] = []
        self._taken: set[str] = set()
        self._one: dict[str, asyncio.Lock] = {}

    async def see(self, deltas: Sequence[Delta[Pod]]) -> None:
        now = monotonic_s()
        for delta in deltas:
            pod = delta.new
            if pod is None or not pod.spec.node_name or pod.metadata.uid in self._taken:
                continue
            self._taken.add(pod.metadata.uid)
            self.bound[pod.metadata.name] = now
            self._tasks.create_task(self._admit(pod))

    async def _admit(self, pod: Pod) -> None:
        node, name = pod.spec.node_name, pod.metadata.name
        async with self._one.setdefault(node, asyncio.Lock()):
            if self._lean:
                if pod.metadata.annotations[TO_ALLOCATE].count("NVIDIA") != 1:
                    self.wrong.append(f"{name}: {pod.metadata.annotations[TO_ALLOCATE]}")
                await self._annotate(name, {TO_ALLOCATE: ";;", PHASE: "success"})
                unlocked = {"metadata": {"annotations": {LOCK: None}}}
                found = await self._client.json("PATCH", NODES.path(name=node), body=unlocked, content_type=MERGE_PATCH)
                assert LOCK not in found["metadata"]["annotations"]
                self.handed_over[name] = monotonic_s()
                self.progress.set()
                return
            lock = (await self._node(node))["metadata"]["annotations"].get(LOCK, "")
            if lock.split(",")[1:] != [pod.metadata.namespace, name]:
                self.wrong.append(f"{name}: {node} is locked by {lock or 'nobody'}")
                return
            current = await self._client.json("GET", PODS.path(SPACE, name))
            if current["metadata"]["annotations"][TO_ALLOCATE].count("NVIDIA") != 1:
                self.wrong.append(f"{name}: {current['metadata']['annotations'][TO_ALLOCATE]}")
            await self._annotate(name, {TO_ALLOCATE: ";;"})
            await self._client.json("GET", PODS.path(SPACE, name))
            await self._annotate(name, {PHASE: "success"})
            await self._release(node)
            self.handed_over[name] = monotonic_s()
            self.progress.set()
        status = {"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}}
        await self._client.json("PATCH", PODS.path(SPACE, name, "status"), body=status, content_type=MERGE_PATCH)

    async def _release(self, node: str) -> None:
        await self._node(node)
        while True:
            found = await self._node(node)
            body = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"], "annotations": {LOCK: None}}}
            try:
                await self._client.json("PATCH", NODES.path(name=node), body=body, content_type=MERGE_PATCH)
            except Conflict:
                continue
            return

    async def _node(self, node: str) -> Any:
        return await self._client.json("GET", NODES.path(name=node))

    async def _annotate(self, pod: str, notes: dict[str, str]) -> None:
        await self._client.json(
            "PATCH", PODS.path(SPACE, pod), body={"metadata": {"annotations": notes}}, content_type=MERGE_PATCH
        )


def main() -> None:
    try:
        find_programs()
    except InvalidRequest as e:
        raise SystemExit(f"the benchmark on a real API server cannot run: {e}") from e
    for nodes, pods, lean, budget_s in ROWS:
        with tempfile.TemporaryDirectory(prefix="hbox-bench-") as scratch:
            folder = Path(scratch)
            with control_plane(folder, (ETCD, API_SERVER)) as plane, hbox(plane, folder / "state") as pids:
                found = asyncio.run(_measure(plane.kubeconfig, lambda: processes(plane, pids()), nodes, pods, lean=lean))
        print(
            f"{pods} slices over {nodes} nodes, {'lean' if lean else 'HAMi'}: bound in {found.bound_s:.2f} s ({pods / found.bound_s:.0f}/s"
            f"{f', budget {budget_s:g} s' if budget_s else ''}), "
            f"handed over in {found.over_s:.2f} s ({pods / found.over_s:.0f}/s); {len(found.wrong)} wrong",
            *found.wrong[:3],
            _costs(found.cpu_ms),
            _calls(found.calls),
            sep="\n  ",
            flush=True,
        )


def _costs(cpu_ms: dict[str, float]) -> str:
    ours = sum(ms for name, ms in cpu_ms.items() if name not in NOT_OURS)
    each = ", ".join(f"{name} {ms:.2f}" for name, ms in sorted(cpu_ms.items(), key=lambda item: -item[1]) if ms >= 0.005)
    whole = sum(cpu_ms.values())
    return (
        f"processor time: {whole:.1f} ms a pod, of which {cpu_ms[API_SERVER]:.1f} the API server's and {ours:.1f} ours: {each}"
    )


def _calls(calls: dict[str, float]) -> str:
    each = ", ".join(f"{name} {count:.2f}" for name, count in sorted(calls.items(), key=lambda item: -item[1]) if count >= 0.05)
    return f"calls: {sum(calls.values()):.1f} a pod: {each}"


async def _requests(client: KubeClient) -> Counter[str]:
    """Calls that the API server has answered, but watches, by verb and resource."""
    found: Counter[str] = Counter()
    for labels, count in _REQUESTS.findall((await client.expected("GET", "/metrics")).body.decode()):
        of = dict(_LABEL.findall(labels))
        if of["verb"] != "WATCH" and of["resource"] in ("pods", "nodes", "events"):
            found[f"{of['verb']} {of['resource']}{'/' if of['subresource'] else ''}{of['subresource']}"] += round(float(count))
    return found


async def _measure(kubeconfig: Path, pids: Callable[[], dict[str, int]], nodes: int, pods: int, *, lean: bool) -> Figures:
    async with (
        KubeClient.connect(str(kubeconfig), user_agent="hbox-bench", connections=64) as client,
        asyncio.TaskGroup() as tasks,
    ):
        await asyncio.gather(*(_node(client, f"gpu-{i}") for i in range(nodes)))
        plugins = Plugins(client, tasks, lean=lean)
        informer = Informer(client, PODS, Pod, namespace=SPACE)
        watching = tasks.create_task(informer.run(plugins.see))
        await informer.synced.wait()
        await client.json("POST", PODS.path(SPACE), body=_pod("first"))
        await _until(plugins, 1)  # pays for connections and caches
        calls = await _requests(client)
        found = pids()
        before = {name: cpu_s(pid) for name, pid in found.items()}
        began = monotonic_s()
        limit = asyncio.Semaphore(32)

        async def create(i: int) -> None:
            async with limit:
                await client.json("POST", PODS.path(SPACE), body=_pod(f"slice-{i}"))

        await asyncio.gather(*(create(i) for i in range(pods)))
        await _until(plugins, pods + 1)
        cpu_ms = {name: 1000 * (cpu_s(pid) - before[name]) / pods for name, pid in found.items()}
        made = await _requests(client) - calls
        watching.cancel()
        return Figures(
            max(plugins.bound.values()) - began,
            max(plugins.handed_over.values()) - began,
            plugins.wrong,
            cpu_ms,
            {name: count / pods for name, count in made.items()},
        )


async def _until(plugins: Plugins, count: int) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while len(plugins.handed_over) + len(plugins.wrong) < count:
                plugins.progress.clear()
                await plugins.progress.wait()
    except TimeoutError:
        got = f"{len(plugins.bound)} bound, {len(plugins.handed_over)} handed over"
        raise SystemExit(f"of {count} pods {got} within {PATIENCE_S:g} s") from None


async def _node(client: KubeClient, name: str) -> None:
    cards = [
        {
            "id": f"GPU-{name}-{i}",
            "index": i,
            "count": 10,
            "devmem": 81_920,
            "devcore": 100,
            "type": "NVIDIA-A100",
            "health": True,
        }
        for i in range(CARDS)
    ]
    size = {"cpu": "128", "memory": "1024Gi", "pods": "110", "nvidia.com/gpu": str(10 * CARDS)}
    meta = {
        "name": name,
        "labels": {"kubernetes.io/hostname": name},
        "annotations": {REGISTER: json.dumps(cards)},
    }
    status = {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]}
    await client.json("POST", NODES.path(), body={"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status})
    await client.json("PATCH", NODES.path(name=name), body={"spec": {"taints": None}}, content_type=MERGE_PATCH)


def _pod(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}, "limits": LIMITS}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": "hbox", "containers": [container]},
    }
