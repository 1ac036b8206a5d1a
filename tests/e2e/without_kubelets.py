"""A platform on an emulated cluster without kubelets: a test sets a pod to Running, and a victim ends when a test deletes it."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hbox_common.kube import NODES, PODGROUPS, PODS, PRIORITYCLASSES, KubeClient
from hbox_common.kube.transport import MERGE_PATCH

from .platform_world import Up, up

SPACE = "default"
RUNNING = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}


@contextmanager
def dark_cluster(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> Iterator[Up]:
    """`hbox up` on such a cluster; its kubeconfig is `folder`/kubeconfig."""
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-m", "hbox_sandbox", "--kubelets", "off", "--kubeconfig-out", str(kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sandbox:
        try:
            assert sandbox.stdout is not None
            assert sandbox.stdout.readline().startswith("ready ")
            with up(folder / "state", "--kubeconfig", str(kubeconfig), "--as-given", *words, env=env) as running:
                yield running
        finally:
            sandbox.terminate()


def node(name: str, *, cards: int = 1, cpu: int = 128, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    size = {"cpu": str(cpu), "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(cards)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(
    name: str,
    *,
    cards: int = 1,
    cpu: str = "1",
    level: str = "",
    at: str = "",
    group: str = "",
    queue: str = "",
    scheduler: str = "hbox",
) -> dict[str, Any]:
    notes = {"scheduling.k8s.io/group-name": group} if group else {}
    notes |= {"scheduling.volcano.sh/queue-name": queue} if queue else {}
    limits = {"cpu": cpu} | ({"nvidia.com/gpu": str(cards)} if cards else {})
    spec: dict[str, Any] = {
        "schedulerName": scheduler,
        "containers": [{"name": "main", "image": "pause", "resources": {"requests": limits, "limits": limits}}],
    }
    spec |= {"priorityClassName": level} if level else {}
    spec |= {"nodeSelector": {"kubernetes.io/hostname": at}} if at else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes}, "spec": spec}


def group(name: str, *, cards: int = 1, members: int = 1, queue: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {"minMember": members, "minResources": {"nvidia.com/gpu": str(cards)} if cards else {}}
    spec |= {"queue": queue} if queue else {}
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


class Cluster:
    """Actions of a test on the cluster."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client

    async def nodes(self, *nodes: dict[str, Any]) -> None:
        for one in nodes:
            await self.client.json("POST", NODES.path(), body=one)

    async def levels(self, **values: int) -> None:
        for name, value in values.items():
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
            await self.client.json("POST", PRIORITYCLASSES.path(), body=body)

    async def submit(self, *objects: dict[str, Any]) -> None:
        for one in objects:
            kind = PODS if one["kind"] == "Pod" else PODGROUPS
            await self.client.json("POST", kind.path(SPACE), body=one)

    async def runs(self, name: str) -> None:
        path = PODS.path(SPACE, name, "status")
        await self.client.json("PATCH", path, body=RUNNING, content_type=MERGE_PATCH)

    async def delete(self, name: str) -> None:
        """Deletes the pod without a grace period."""
        await self.client.json("DELETE", PODS.path(SPACE, name), body={"gracePeriodSeconds": 0}, expect=(200, 202, 404))

    async def leaving(self) -> set[str]:
        """Pods with a deletionTimestamp."""
        pods = (await self.client.json("GET", PODS.path(SPACE)))["items"]
        return {one["metadata"]["name"] for one in pods if "deletionTimestamp" in one["metadata"]}

    async def cleared(self) -> None:
        """Deletes all pods, PodGroups and nodes."""
        for kind, space in ((PODS, SPACE), (PODGROUPS, SPACE), (NODES, "")):
            for one in (await self.client.json("GET", kind.path(space or None)))["items"]:
                name = one["metadata"]["name"]
                path = kind.path(space or None, name)
                await self.client.json("DELETE", path, body={"gracePeriodSeconds": 0}, expect=(200, 202, 404))
