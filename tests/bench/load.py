"""Load through a real API server, measured from outside: the time of each pod's creation, and the time at which a watch shows its node."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hbox_common.clock import monotonic_s
from hbox_common.errors import NotFound
from hbox_common.kube import MERGE_PATCH, NAMESPACES, NODES, PODGROUPS, PODS, QUEUES, Delta, Informer, KubeClient, Pod

NAMESPACE = "load"
#: Requests at a time.
CONCURRENCY = 64
PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds; `waits` are from before a pod's creation was asked for until its node was seen, in ascending order."""

    pods: int
    last_bound_s: float  #: from the first creation
    waits: Sequence[float]

    @property
    def per_s(self) -> float:
        return self.pods / self.last_bound_s

    def wait_ms(self, share: float) -> float:
        """The wait that `share` of the pods did not exceed."""
        return 1000 * self.waits[max(0, math.ceil(share * len(self.waits)) - 1)]


class Load:
    """Made by `connect`; one measurement at a time."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self._created: dict[str, float] = {}
        self._bound: dict[str, float] = {}
        self._present: set[str] = set()
        self._changed = asyncio.Event()
        self._count = 0

    @classmethod
    @asynccontextmanager
    async def connect(cls, kubeconfig: Path) -> AsyncIterator["Load"]:
        async with (
            KubeClient.connect(str(kubeconfig), user_agent="hbox-bench", connections=CONCURRENCY + 8) as client,
            asyncio.TaskGroup() as group,
        ):
            load = cls(client)
            await client.json(
                "POST",
                NAMESPACES.path(),
                body={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
                expect=(201, 409),
            )
            informer = Informer(client, PODS, Pod, namespace=NAMESPACE)
            watching = group.create_task(informer.run(load._on_pods))
            await informer.synced.wait()
            yield load
            watching.cancel()

    async def nodes(self, count: int, *, cards: int = 8, labels: Mapping[str, str] = MappingProxyType({})) -> None:
        """Ready nodes of one size, without kubelets behind them. labels: more of them."""

        async def make(i: int) -> None:
            name = node_name(i)
            await self.client.json("POST", NODES.path(), body=node_body(name, cards=cards, labels=labels))
            # The API server taints what is new as not ready, and waits for a controller that is not here.
            await self.client.json("PATCH", NODES.path(name=name), body={"spec": {"taints": None}}, content_type=MERGE_PATCH)

        await in_parallel(make, range(count))

    async def burst(
        self, count: int, *, scheduler: str, cards: int = 1, gang: bool = False, queues: Sequence[str] = ("",)
    ) -> Measured:
        """So many pods as fast as they can be created, in one PodGroup where `gang`, else by turns in `queues`."""
        prefix = self.begin()
        if gang:
            await self._group(prefix, count)
        group = prefix if gang else ""
        await in_parallel(
            lambda i: self.create(pod_body(f"{prefix}-{i}", scheduler, cards, group=group, queue=queues[i % len(queues)])),
            range(count),
        )
        return await self.all_bound(count)

    async def gangs(self, count: int, *, members: int, queue: str) -> Measured:
        """So many gangs of HBox's, of members with one card each."""
        prefix = self.begin()
        await in_parallel(lambda i: self._group(f"{prefix}-{i}", members, queue=queue), range(count))
        pods = [pod_body(f"{prefix}-{i}-{m}", "hbox", 1, group=f"{prefix}-{i}") for i in range(count) for m in range(members)]
        await in_parallel(lambda i: self.create(pods[i]), range(len(pods)))
        return await self.all_bound(len(pods))

    async def _group(self, name: str, least: int, *, queue: str = "") -> None:
        spec = {"minMember": least, **({"queue": queue} if queue else {})}
        body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
        await self.client.json("POST", PODGROUPS.path(NAMESPACE), body=body)

    async def queue(self, name: str, *, deserved: int) -> None:
        """A queue that deserves so many cards."""
        await self.client.json("POST", QUEUES.path(), body=queue_body(name, deserved={"nvidia.com/gpu": str(deserved)}))

    async def departments(self, count: int, *, queues: int) -> list[str]:
        """Departments of equal weight, and in them so many queues; returns the names of the queues."""

        async def make(name: str, parent: str) -> None:
            await self.client.json("POST", QUEUES.path(), body=queue_body(name, parent=parent))

        await in_parallel(lambda i: make(f"department-{i}", ""), range(count))
        await in_parallel(lambda i: make(f"queue-{i}", f"department-{i % count}"), range(queues))
        return [f"queue-{i}" for i in range(queues)]

    async def rate(self, count: int, *, per_s: float, scheduler: str, cards: int = 1) -> Measured:
        """So many pods, evenly spaced."""
        prefix, began = self.begin(), monotonic_s()
        async with asyncio.TaskGroup() as group:
            for i in range(count):
                await asyncio.sleep(began + i / per_s - monotonic_s())
                group.create_task(self.create(pod_body(f"{prefix}-{i}", scheduler, cards)))
        return await self.all_bound(count)

    def times(self, offset: float) -> tuple[dict[str, float], dict[str, float]]:
        """When each pod of the last measurement was created, and when its node was seen, by this clock plus `offset`."""
        created, bound = ({name: at + offset for name, at in some.items()} for some in (self._created, self._bound))
        return created, bound

    async def settled(self, count: int, *, nodes: int, scheduler: str, cards: int = 1, queues: Sequence[str] = ("",)) -> None:
        """So many pods that have their nodes already, one after the other."""
        prefix = self.begin()
        await in_parallel(
            lambda i: self.create(
                pod_body(f"{prefix}-{i}", scheduler, cards, node=node_name(i % nodes), queue=queues[i % len(queues)])
            ),
            range(count),
        )

    async def create_and_bind(self, count: int, *, nodes: int) -> Measured:
        """So many pods of one card that no scheduler takes; when all are created they are bound to one node after the other."""
        prefix = self.begin()
        await in_parallel(lambda i: self.create(pod_body(f"{prefix}-{i}", "no-scheduler", 1)), range(count))
        await in_parallel(lambda i: bind_pod(self.client, f"{prefix}-{i}", node_name(i % nodes)), range(count))
        return await self.all_bound(count)

    async def clean(self) -> None:
        """No pods and no PodGroups are left."""
        for kind in (PODS, PODGROUPS):
            try:
                await self.client.json("DELETE", kind.path(NAMESPACE), params={"gracePeriodSeconds": "0"}, timeout_s=120)
            except NotFound:
                pass  # kube-scheduler is measured before anybody has installed PodGroups
        async with asyncio.timeout(PATIENCE_S):
            while self._present:
                self._changed.clear()
                await self._changed.wait()

    def begin(self) -> str:
        """Begin a measurement; returns a new prefix for the names of its objects."""
        self._created.clear()
        self._bound.clear()
        self._count += 1
        return f"load-{self._count}"

    async def create(self, pod: dict[str, Any]) -> None:
        """Create one of the measured pods."""
        self._created[pod["metadata"]["name"]] = monotonic_s()
        await self.client.json("POST", PODS.path(NAMESPACE), body=pod, timeout_s=60)

    async def all_bound(self, count: int, *, since: float | None = None) -> Measured:
        """Returns once so many pods have nodes. `since`: when the first of their objects was created, if that was no pod."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while len(self._bound) < count:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise SystemExit(f"only {len(self._bound)} of {count} pods were bound within {PATIENCE_S:g} s") from None
        waits = sorted(bound - self._created[name] for name, bound in self._bound.items())
        first = min(self._created.values()) if since is None else since
        return Measured(count, max(self._bound.values()) - first, waits)

    async def _on_pods(self, deltas: Sequence[Delta[Pod]]) -> None:
        now = monotonic_s()
        for delta in deltas:
            if delta.new is None:
                assert delta.old is not None
                self._present.discard(delta.old.metadata.name)
                continue
            name = delta.new.metadata.name
            self._present.add(name)
            if delta.new.spec.node_name and name in self._created:
                self._bound.setdefault(name, now)
        self._changed.set()


def node_name(number: int) -> str:
    return f"n{number:05d}"


def node_body(name: str, *, cards: int = 8, labels: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    size = {"cpu": "128", "memory": "1024Gi", "pods": "110", "nvidia.com/gpu": str(cards)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def queue_body(name: str, *, parent: str = "", deserved: Mapping[str, str] | None = None) -> dict[str, Any]:
    """`deserved`: amounts of a queue that has no weight."""
    spec = {"deserved": deserved} if deserved else {"weight": 1, **({"parent": parent} if parent else {})}
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


async def bind_pod(client: KubeClient, name: str, node: str) -> None:
    """Without a look at what is free there."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    await client.json("POST", f"{PODS.path(NAMESPACE, name)}/binding", body=body)


def pod_body(name: str, scheduler: str, cards: int, *, group: str = "", node: str = "", queue: str = "") -> dict[str, Any]:
    resources: dict[str, Any] = {"requests": {"cpu": str(cards or 1), "memory": f"{4 * (cards or 1)}Gi"}}
    if cards:
        resources["limits"] = {"nvidia.com/gpu": str(cards)}
    notes = {"scheduling.k8s.io/group-name": group, "scheduling.volcano.sh/queue-name": queue}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {key: value for key, value in notes.items() if value}},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "image": "pause", "resources": resources}],
            **({"nodeName": node} if node else {}),
        },
    }


async def in_parallel(make: Callable[[int], Awaitable[None]], numbers: Iterable[int]) -> None:
    """`make` for each, CONCURRENCY at a time, begun in order."""
    left = iter(numbers)

    async def work() -> None:
        for number in left:
            await make(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENCY):
            group.create_task(work())
