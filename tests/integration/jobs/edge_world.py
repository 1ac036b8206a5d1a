"""A world for the services at Kubernetes' edge: the API emulator as a process, a real nats-server, and eyes on both."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from hbox_common.bus import Bus, Delivery, EmbeddedServer, Start
from hbox_common.events import Event
from hbox_common.kube import (
    MERGE_PATCH,
    NODES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODGROUPS,
    PODS,
    STORAGECLASSES,
    KubeClient,
    apply,
    wait_established,
)
from hbox_common.kube.definitions import POD_GROUP
from hbox_common.runtime import Health

from ... import forked
from ...waiting import until


class Kube:
    """What a user and a binder do."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client

    async def install(self) -> None:
        await apply(self.client, POD_GROUP, field_manager="test")
        await wait_established(self.client, "podgroups.scheduling.volcano.sh")

    async def pod(
        self, name: str, *, group: str = "", requests: dict[str, str] | None = None, claims: Sequence[str] = (), **meta: Any
    ) -> dict[str, Any]:
        annotations = {"scheduling.k8s.io/group-name": group} if group else {}
        container = {"name": "main", "image": "busybox", "resources": {"requests": requests or {"cpu": "1"}, "limits": {}}}
        if requests and "nvidia.com/gpu" in requests:
            container["resources"]["limits"] = {"nvidia.com/gpu": requests["nvidia.com/gpu"]}  # type: ignore[index]
        volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        body = {
            "metadata": {"name": name, "annotations": annotations, **meta},
            "spec": {"schedulerName": "hbox", "containers": [container], "volumes": volumes},
        }
        made: dict[str, Any] = await self.client.json("POST", PODS.path("default"), body=body)
        return made

    async def claim(self, name: str, *, volume: str = "", storage_class: str = "") -> None:
        """A PersistentVolumeClaim, bound where a volume is named."""
        notes = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
        spec = {"volumeName": volume} if volume else {"storageClassName": storage_class} if storage_class else {}
        body = {"metadata": {"name": name, "annotations": notes}, "spec": spec}
        await self.client.json("POST", PERSISTENTVOLUMECLAIMS.path("default"), body=body)

    async def volume(self, name: str, *, zone: str, storage_class: str = "") -> None:
        """A PersistentVolume within reach of a zone's nodes; of a class: one that is available."""
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
        affinity = {"required": {"nodeSelectorTerms": [term]}}
        body = {"metadata": {"name": name}, "spec": {"nodeAffinity": affinity, "storageClassName": storage_class}}
        await self.client.json("POST", PERSISTENTVOLUMES.path(), body=body)
        if storage_class:
            path = f"{PERSISTENTVOLUMES.path(name=name)}/status"
            await self.client.json("PATCH", path, body={"status": {"phase": "Available"}}, content_type=MERGE_PATCH)

    async def storage_class(self, name: str, provisioner: str = "example.org/csi") -> None:
        """One whose claims are bound once a pod has its node."""
        body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        await self.client.json("POST", STORAGECLASSES.path(), body=body)

    async def podgroup(self, name: str, min_member: int, **spec: Any) -> dict[str, Any]:
        body = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"minMember": min_member, "queue": "research", **spec},
        }
        made: dict[str, Any] = await self.client.json("POST", PODGROUPS.path("default"), body=body)
        return made

    async def bind(self, pod: str, node: str, **annotations: str) -> None:
        body = {"metadata": {"name": pod, "annotations": annotations}, "target": {"kind": "Node", "name": node}}
        await self.client.json("POST", PODS.path("default", pod, "binding"), body=body)

    async def delete_pod(self, name: str) -> None:
        await self.client.json("DELETE", PODS.path("default", name), body={"gracePeriodSeconds": 0})

    async def node(self, name: str, *, gpus: int = 8, **meta: Any) -> None:
        body = {
            "metadata": {"name": name, **meta},
            "status": {
                "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        await self.client.json("POST", NODES.path(), body=body)
        await self.client.json("PATCH", NODES.path(name=name, subresource="status"), body=body, content_type=MERGE_PATCH)

    async def patch_node(self, name: str, body: dict[str, Any], *, subresource: str | None = None) -> None:
        await self.client.json("PATCH", NODES.path(name=name, subresource=subresource), body=body, content_type=MERGE_PATCH)

    async def delete_node(self, name: str) -> None:
        await self.client.json("DELETE", NODES.path(name=name))


@asynccontextmanager
async def listening(bus: Bus, *types: type[Event]) -> AsyncIterator[list[Event]]:
    """All messages of these types (of one stream), from the stream's beginning on, as they come."""
    heard: list[Event] = []

    async def hear(deliveries: Sequence[Delivery]) -> None:
        heard.extend(delivery.event for delivery in deliveries)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(bus.follow(list(types), hear, start=Start.ALL))
        yield heard
        task.cancel()


@asynccontextmanager
async def running(service: Callable[[Any, Health], Awaitable[None]], settings: Any) -> AsyncIterator[Health]:
    """The service as a task of this process, ready; cancelled in the end, as on SIGTERM."""
    health = Health("test")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_call(service, settings, health))
        await until(lambda: health.ready, what="the service is ready")
        yield health
        task.cancel()


async def _call(service: Callable[[Any, Health], Awaitable[None]], settings: Any, health: Health) -> None:
    await service(settings, health)


@contextmanager
def process(module: str, *, kubeconfig: Path, nats_url: str) -> Iterator[forked.Service]:
    """The service as a process of its own; killed (-9) in the end."""
    env = {**os.environ, "HBOX_KUBECONFIG": str(kubeconfig), "HBOX_NATS_URL": nats_url, "HBOX_LOG_FORMAT": "text"}
    started = forked.service(module, env=env)
    try:
        yield started
    finally:
        started.kill()
        started.join(10.0)


__all__ = ["EmbeddedServer", "Kube", "listening", "process", "running"]
