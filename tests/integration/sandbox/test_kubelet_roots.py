"""What an emulated kubelet says of its pods stands in its checkpoints already, as a kubelet has it: node-agent reads first the one and then the others."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import MERGE_PATCH, NODES, PODS, KubeClient
from hbox_common.kubelet import ALLOCATABLE, LIST, call, decode_allocatable, decode_list
from hbox_sandbox.api.server import ApiServer
from hbox_sandbox.kubelet import KubeletRoots, Kubelets
from hbox_sandbox.kubelet.roots import DEVICE_IDS
from hbox_sandbox.kubelet.topology import NUMA

from ...waiting import until

NAME = "n0"


def node() -> dict[str, Any]:
    numa = {"policy": "restricted", "box": "h100", "memoryManager": "Static"}
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    return {
        "metadata": {"name": NAME, "annotations": {NUMA: json.dumps(numa)}},
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }


def guaranteed() -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": "8Gi"}
    container = {"name": "main", "image": "pause", "resources": {"requests": amounts, "limits": amounts}}
    return {"metadata": {"name": "a"}, "spec": {"nodeName": NAME, "containers": [container]}}


async def test_memory_of_a_pod_that_is_listed_stands_in_the_memory_managers_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbox_sandbox.kubelet.roots.EVERY_S", 60.0)  # nothing is written but because somebody asks
    api = ApiServer(port=0)
    kubelets = Kubelets(api.cluster)
    roots = KubeletRoots(api.cluster, tmp_path / "kubelets", topologies=kubelets.topologies)
    of_node = tmp_path / "kubelets" / NAME
    socket, state = of_node / "pod-resources" / "kubelet.sock", of_node / "memory_manager_state"

    async def listed() -> bool:
        pods = decode_list(await call(socket, LIST, timeout_s=5.0))
        return any(container.memory for pod in pods for container in pod.containers)

    async with api, KubeClient.connect(str(api.kubeconfig(tmp_path / "kubeconfig")), user_agent="test") as client:
        await client.json("POST", NODES.path(), body=node())
        running = [asyncio.create_task(one.run()) for one in (kubelets, roots)]
        await until(socket.exists, "the node's socket")
        await client.json("POST", PODS.path("default"), body=guaranteed())
        await until(listed, "the pod has memory of a NUMA node")
        entries = json.loads(state.read_text())["entries"]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    assert len(entries) == 1


async def test_devices_follow_the_node_object_and_pods_keep_theirs(tmp_path: Path) -> None:
    gpu = "nvidia.com/gpu"
    api = ApiServer(port=0)
    kubelets = Kubelets(api.cluster)
    roots = KubeletRoots(api.cluster, tmp_path / "kubelets", topologies=kubelets.topologies)
    socket = tmp_path / "kubelets" / NAME / "pod-resources" / "kubelet.sock"
    notes = {"metadata": {"annotations": {DEVICE_IDS: json.dumps({gpu: ["GPU-b"]})}}}

    async def given() -> list[str]:
        pods = decode_list(await call(socket, LIST, timeout_s=5.0))
        return [id_ for pod in pods for one in pod.containers for part in one.devices for id_ in part.ids]

    async def allocatable() -> list[str]:
        found = decode_allocatable(await call(socket, ALLOCATABLE, timeout_s=5.0))
        return [id_ for part in found.devices for id_ in part.ids]

    async with api, KubeClient.connect(str(api.kubeconfig(tmp_path / "kubeconfig")), user_agent="test") as client:
        body = node()
        body["metadata"]["annotations"] = {DEVICE_IDS: json.dumps({gpu: ["GPU-a", "GPU-b"]})}
        body["status"]["allocatable"] |= {gpu: "2"}
        await client.json("POST", NODES.path(), body=body)
        running = [asyncio.create_task(one.run()) for one in (kubelets, roots)]
        await until(socket.exists, "the node's socket")
        assert await allocatable() == ["GPU-a", "GPU-b"]
        pod = guaranteed()
        pod["spec"]["containers"][0]["resources"] = {"limits": {gpu: "2"}}
        await client.json("POST", PODS.path("default"), body=pod)
        await until(given, "the pod has its cards")
        await client.json("PATCH", NODES.path("", NAME), body=notes, content_type=MERGE_PATCH)
        assert await allocatable() == ["GPU-b"]
        assert await given() == ["GPU-a", "GPU-b"]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
