"""Pods and gangs that come and go all the time on nodes that are no machines, so that only HBox's own pods cost the real ones anything; and what became of
them: how long nobody was bound, whom nobody bound, and which gangs were torn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path

from hbox_common.clock import monotonic_s, new_id
from hbox_common.errors import Conflict, HBoxError, NotFound, Unavailable
from hbox_common.kube import MERGE_PATCH, NODES, PODGROUPS, PODS, Informer, KubeClient, Pod
from hbox_common.kube.reflector import Delta

from .. import waiting
from .cluster import CARDS, GPU, IMAGE, TENANT, gang
from .timeline import Timeline

#: One job in so many seconds, every third a gang, for so long each once it is bound.
EVERY_S, RUNS_S = 0.25, 3.0
MEMBERS = 4
EMULATED = tuple(f"emulated-{i}" for i in range(8))
TAINT = "hbox.test/emulated"
#: The node controller gives a node up whose status nobody renews for 40 s.
RENEWED_S = 10.0
#: There is no kubelet that would end them.
AT_ONCE = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}


@dataclass(slots=True)
class Seen:
    """Times are monotonic."""

    created: dict[str, str] = field(default_factory=dict)  #: gang, or "" by pod
    bound: dict[str, float] = field(default_factory=dict)
    platform: Timeline = field(default_factory=Timeline)

    def longest_pause(self, begin: float, end: float) -> tuple[float, float]:
        """From when to when."""
        times = [begin, *sorted(at for at in self.bound.values() if begin <= at <= end), end]
        return max(pairwise(times), key=lambda pause: pause[1] - pause[0])

    def unbound(self) -> list[str]:
        return sorted(self.created.keys() - self.bound.keys())

    def torn(self, within_s: float) -> list[str]:
        """Gangs whose members were bound further apart than that, or not all."""
        gangs: dict[str, list[float | None]] = {}
        for pod, name in self.created.items():
            if name:
                gangs.setdefault(name, []).append(self.bound.get(pod))
        return [
            name
            for name, times in gangs.items()
            if any(t is None for t in times) or max(t for t in times if t) - min(t for t in times if t) > within_s
        ]


@asynccontextmanager
async def load(kubeconfig: Path) -> AsyncIterator[Seen]:
    """While the block lasts; behind it every job that came is waited for, and all is taken away."""
    seen, ending = Seen(), asyncio.Event()
    async with KubeClient.connect(str(kubeconfig), user_agent="test") as client:
        await _nodes(client)
        try:
            async with asyncio.TaskGroup() as tasks:
                informer = Informer(client, PODS, Pod, namespace=TENANT)

                async def notice(deltas: Sequence[Delta[Pod]]) -> None:
                    now = monotonic_s()
                    for delta in deltas:
                        pod = delta.new
                        if (
                            pod is None
                            or not pod.spec.node_name
                            or pod.metadata.name not in seen.created.keys() - seen.bound.keys()
                        ):
                            continue
                        seen.bound[pod.metadata.name] = now
                        tasks.create_task(_end(client, pod.metadata.name))

                every = [tasks.create_task(informer.run(notice)), tasks.create_task(_renew(client))]
                every += [tasks.create_task(watch(client)) for watch in (seen.platform.watch_pods, seen.platform.watch_leases)]
                coming = tasks.create_task(_come(client, seen, ending))
                yield seen
                ending.set()
                await coming
                await waiting.until(lambda: not seen.unbound(), f"{len(seen.unbound())} are not bound", timeout_s=60)
                await asyncio.sleep(RUNS_S + 1)
                for task in every:
                    task.cancel()
        finally:
            for path in (PODGROUPS.path(TENANT), PODS.path(TENANT)):
                with suppress(HBoxError):
                    await client.json("DELETE", path, body=AT_ONCE)
            for name in EMULATED:
                with suppress(HBoxError):
                    await client.json("DELETE", NODES.path(name=name))


async def _come(client: KubeClient, seen: Seen, ending: asyncio.Event) -> None:
    run = new_id()[:6]  # gangs of a load before this one may still be there
    for number in count():
        if ending.is_set():
            return
        name, members = f"load-{run}-{number}", MEMBERS if number % 3 == 0 else 1
        group, *pods = gang(name, members=members, cards=1, image=IMAGE)
        if members > 1:
            await _create(client, PODGROUPS.path(TENANT), group)
        for pod in pods:
            pod["spec"]["tolerations"] = [{"key": TAINT, "operator": "Exists"}]
            pod["spec"]["nodeSelector"] = {TAINT: "true"}
            if members == 1:
                pod["metadata"]["annotations"] = {}
            seen.created[pod["metadata"]["name"]] = name if members > 1 else ""
            await _create(client, PODS.path(TENANT), pod)
        with suppress(TimeoutError):
            await asyncio.wait_for(ending.wait(), EVERY_S)


async def _end(client: KubeClient, name: str) -> None:
    await asyncio.sleep(RUNS_S)
    with suppress(NotFound, Unavailable):  # what stays holds its card, and goes at the end
        await client.json("DELETE", PODS.path(TENANT, name), body=AT_ONCE)


async def _create(client: KubeClient, path: str, body: dict[str, object]) -> None:
    while True:
        try:
            await client.json("POST", path, body=body)
        except Conflict:
            return  # by a try whose answer did not come
        except Unavailable:
            continue  # of a machine that is busy with the upgrade
        return


async def _nodes(client: KubeClient) -> None:
    for name in EMULATED:
        metadata = {"name": name, "labels": {TAINT: "true", "kubernetes.io/hostname": name}}
        spec = {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}
        await client.json("POST", NODES.path(), body={"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})
    await _say_ready(client)


async def _renew(client: KubeClient) -> None:
    while True:
        await asyncio.sleep(RENEWED_S)
        with suppress(Unavailable):
            await _say_ready(client)


async def _say_ready(client: KubeClient) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    has = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(CARDS)}
    condition = {"type": "Ready", "status": "True", "reason": "Emulated", "lastHeartbeatTime": now, "lastTransitionTime": now}
    body = {"status": {"capacity": has, "allocatable": has, "conditions": [condition]}}
    for name in EMULATED:
        await client.json("PATCH", NODES.path(name=name, subresource="status"), body=body, content_type=MERGE_PATCH)
