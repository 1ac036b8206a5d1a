"""Some bare pods and a gang, and the traces that come of them."""

import asyncio
from pathlib import Path
from typing import Any

from hbox_common.kube import NODES, PODGROUPS, PODS, KubeClient

from .collector import Collector, Seen

BARE, GANG = 5, 32


def node(name: str) -> dict[str, Any]:
    size = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(name: str, group: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"scheduling.k8s.io/group-name": group} if group else {}},
        "spec": {
            "schedulerName": "hbox",
            "containers": [
                {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}}
            ],
        },
    }


async def submit(kubeconfig: Path) -> None:
    """Eight nodes of eight cards, BARE pods of one card, and a gang of GANG such pods, all at once."""
    async with KubeClient.connect(str(kubeconfig), user_agent="test") as client:
        for i in range(8):
            await client.json("POST", NODES.path(), body=node(f"n{i}"))
        for i in range(BARE):
            await client.json("POST", PODS.path("default"), body=pod(f"bare-{i}"))
        await client.json(
            "POST",
            PODGROUPS.path("default"),
            body={
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": "gang"},
                "spec": {"minMember": GANG},
            },
        )
        async with asyncio.TaskGroup() as group:
            for i in range(GANG):
                group.create_task(client.json("POST", PODS.path("default"), body=pod(f"gang-{i}", "gang")))


def traces(got: Collector) -> dict[str, list[Seen]]:
    """Traces that have their root, by the name of the job."""
    found = {}
    for spans in got.traces().values():
        for root in spans:
            if not root.parent:
                found[str(root.attributes["name"])] = spans
    return found


def started(got: Collector) -> dict[str, list[Seen]]:
    """Those of jobs that run."""
    return {name: spans for name, spans in traces(got).items() if any(span.name == "start" for span in spans)}
