"""Slices of NVIDIA's cards, handed over by the device plugins of the nodes as HAMi's do it: one pod a node at a time, by what the binding says.

gpu-0 to gpu-3   8 cards each, in ten slots, registered by the plugin
"""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from hbox_common.kube import EVENTS, NODES, PODS, KubeClient
from hbox_sandbox.kubelet.deviceplugin import PLUGIN_FAILS
from hbox_sandbox.kubelet.served import Cards

from .. import waiting
from .platform_world import Up, until, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, GPU, LOCK = "default", "nvidia.com/gpu", "hami.io/mutex.lock"
NODES_ = [f"gpu-{i}" for i in range(4)]


def registered(name: str, *, cards: int = 8, broken: bool = False) -> dict[str, Any]:
    register = [
        {
            "id": f"GPU-{name}-{i}", "index": i, "count": 10, "devmem": 40_960, "devcore": 100, "type": "NVIDIA-A100",
            "mode": "hami-core", "health": True,
        }
        for i in range(cards)
    ]  # fmt: skip
    body = node(name)
    body["metadata"]["annotations"] = {"hami.io/node-nvidia-register": json.dumps(register)}
    body["status"]["allocatable"] = body["status"]["capacity"] = body["status"]["capacity"] | {GPU: str(10 * cards)}
    return body


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("plugins") / "state") as running:
        asyncio.run(_nodes(running))
        yield running


async def _nodes(running: Up) -> None:
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        for name in NODES_:
            await client.json("POST", NODES.path(), body=registered(name))


def a_pod(name: str, *containers: dict[str, str], init: tuple[dict[str, str], ...] = (), **notes: str) -> dict[str, Any]:
    """Each container by its limits."""

    def of(kind: str, limits: tuple[dict[str, str], ...]) -> list[dict[str, Any]]:
        return [
            {"name": f"{kind}{i}", "image": "pause", "resources": {"requests": {"cpu": "10m"}, "limits": each}}
            for i, each in enumerate(limits)
        ]

    spec = {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": of("main", containers)}
    if init:
        spec["initContainers"] = of("init", init)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes}, "spec": spec}


async def create(client: KubeClient, *pods: dict[str, Any]) -> None:
    await asyncio.gather(*(client.json("POST", PODS.path(SPACE), body=pod) for pod in pods))


async def ended(client: KubeClient, prefix: str, count: int, timeout_s: float = 60) -> list[dict[str, Any]]:
    """The pods of this name, when none of them waits any more."""

    async def found() -> list[dict[str, Any]]:
        items = [p for p in (await client.json("GET", PODS.path(SPACE)))["items"] if p["metadata"]["name"].startswith(prefix)]
        over = len(items) == count and all(p["status"].get("phase", "Pending") != "Pending" for p in items)
        return items if over else []

    return list(await waiting.until(found, f"pods {prefix}*", timeout_s=timeout_s))


def handed_over(pods: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """What is wrong with these pods, by name: nothing where all run with the cards that HBox chose."""
    faults = []
    for pod in pods:
        name, notes = pod["metadata"]["name"], pod["metadata"]["annotations"]
        where = pod["spec"].get("nodeName")
        if pod["status"]["phase"] != "Running":
            faults.append((name, pod["status"].get("message", pod["status"]["phase"])))
            continue
        chosen = [slice_.split(":")[1:] for slice_ in notes["hbox.io/cards"].split(",")]
        wanted = "".join(f"{uuid},NVIDIA,{memory},{cores}:" for uuid, cores, memory in chosen)
        if notes["hami.io/vgpu-devices-allocated"].replace(";", "") != wanted:
            faults.append((name, f"{notes['hami.io/vgpu-devices-allocated']}, and not {wanted}"))
        if notes["hami.io/vgpu-devices-to-allocate"].strip(";") or notes["hami.io/bind-phase"] != "success":
            faults.append((name, f"{notes['hami.io/bind-phase']}: {notes['hami.io/vgpu-devices-to-allocate']} is left"))
        if (notes["hami.io/vgpu-node"], pod["metadata"]["labels"]["hami.io/vgpu-node"]) != (where, where):
            faults.append((name, f"on {where}, and assigned to {notes['hami.io/vgpu-node']}"))
    return faults


async def no_locks(client: KubeClient) -> None:
    async def free() -> bool:
        items = (await client.json("GET", NODES.path()))["items"]
        return not any(LOCK in (item["metadata"].get("annotations") or {}) for item in items)

    await waiting.until(free, "nodes without locks", timeout_s=30)


async def clear(client: KubeClient, prefix: str) -> None:
    for pod in (await client.json("GET", PODS.path(SPACE)))["items"]:
        if pod["metadata"]["name"].startswith(prefix):
            await client.json("DELETE", PODS.path(SPACE, pod["metadata"]["name"]))


SLICE = {GPU: "1", "nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "10"}


async def test_a_hundred_slices_at_once_are_handed_over_as_chosen(client: KubeClient) -> None:
    await create(client, *(a_pod(f"burst-{i}", SLICE) for i in range(100)))
    pods = await ended(client, "burst-", 100)
    assert handed_over(pods) == []
    used = Counter((p["spec"]["nodeName"], p["metadata"]["annotations"]["hbox.io/cards"].split(":")[1]) for p in pods)
    assert max(used.values()) <= 10
    await no_locks(client)
    await clear(client, "burst-")


async def test_whole_cards_and_slices_of_one_pod_each_come_as_chosen(client: KubeClient) -> None:
    await create(client, a_pod("whole-0", {GPU: "2"}), a_pod("whole-1", {GPU: "8"}), a_pod("whole-2", SLICE))
    assert handed_over(await ended(client, "whole-", 3)) == []


def _another(platform: Up, killed: int) -> bool:
    return platform.pids()["binder"] != killed


async def test_binder_killed_in_the_middle_loses_nothing(platform: Up, client: KubeClient) -> None:
    await clear(client, "whole-")
    await create(client, *(a_pod(f"killed-{i}", SLICE) for i in range(100)))
    for seen in (10, 40, 70):

        async def so_many(seen: int = seen) -> bool:
            items = (await client.json("GET", PODS.path(SPACE)))["items"]
            return sum(bool(p["spec"].get("nodeName")) for p in items if p["metadata"]["name"].startswith("killed-")) >= seen

        await waiting.until(so_many, f"{seen} bound", timeout_s=60)
        killed = platform.pids()["binder"]
        os.kill(killed, signal.SIGKILL)
        await waiting.until(partial(_another, platform, killed), "another binder", timeout_s=60)
    assert handed_over(await ended(client, "killed-", 100, 120)) == []
    await no_locks(client)


async def test_a_pod_is_allocated_by_the_container_that_asks(client: KubeClient) -> None:
    await clear(client, "killed-")
    await create(
        client,
        a_pod("many-0", {}, SLICE, {}),
        a_pod("many-1", {}, SLICE, init=({},)),
        a_pod("many-2", SLICE, {}),
    )
    pods = await ended(client, "many-", 3)
    assert handed_over(pods) == []
    allocated = {p["metadata"]["name"]: p["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"] for p in pods}
    shapes = {name: ["GPU" in entry for entry in text.split(";")[:-1]] for name, text in allocated.items()}
    assert shapes == {"many-0": [False, True, False], "many-1": [False, False, True], "many-2": [True, False]}


async def test_a_node_whose_plugin_fails_pods_is_steered_around_and_everybody_is_told(platform: Up, client: KubeClient) -> None:
    """`fair-a` fails what it is asked for; `fair-b` is like it. By their order the first one is taken."""
    for name in ("fair-a", "fair-b"):
        body = registered(name, cards=2)
        body["metadata"]["labels"]["pair"] = "yes"
        await client.json("POST", NODES.path(), body=body)

    def wants(name: str, **where: str) -> dict[str, Any]:
        pod = a_pod(name, SLICE)
        return pod | {"spec": pod["spec"] | {"nodeSelector": where}}

    async def fails(note: str | None) -> None:
        body = {"metadata": {"annotations": {PLUGIN_FAILS: note}}}
        await client.json("PATCH", NODES.path(name="fair-a"), body=body, content_type="application/merge-patch+json")

    await fails("no NVML here")
    here = {"kubernetes.io/hostname": "fair-a"}
    for number in range(4):
        await create(client, wants(f"fails-{number}", **here))
        (pod,) = await ended(client, f"fails-{number}", 1, 60)
        assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "UnexpectedAdmissionError")

    await fails(None)
    await create(client, wants("steered", pair="yes"), wants("pinned", **here))

    def why() -> str:
        out = platform.hbox("why", "pinned").stdout
        return out if "NodeDevicePluginFails" in out else ""

    assert "fair-a: its kubelet refused pods with cards, 4 times in a row" in await asyncio.to_thread(
        until, why, timeout_s=6, what="its reason"
    )
    items = {item["name"]: item for item in (await asyncio.to_thread(platform.json, "nodes"))["items"]}
    assert items["fair-a"]["devicePlugin"]["failures"] == 4
    assert items["fair-a"]["reason"].startswith(
        "its kubelet refused pods with cards, 4 times in a row, the last default/fails-3: UnexpectedAdmissionError: Pod was rejected:"
    )

    def ending() -> str:
        """Its job is known for a moment longer than its pod runs."""
        said = platform.hbox("why", "fails-3").stderr
        return said if "default/fails-3 has ended: the kubelet of its node refused it" in said else ""

    assert "no NVML here" in await asyncio.to_thread(until, ending, timeout_s=6, what="its end")

    async def event() -> list[str]:
        items = (await client.json("GET", EVENTS.path(SPACE)))["items"]
        return [e["message"] for e in items if e["reason"] == "FailedAllocation" and e["involvedObject"]["name"] == "fails-3"]

    (message,) = await waiting.until(event, "an Event", timeout_s=20)
    assert "no NVML here" in message
    (steered,) = await ended(client, "steered", 1, 20)
    assert (steered["status"]["phase"], steered["spec"]["nodeName"]) == ("Running", "fair-b")
    (pinned,) = await ended(client, "pinned", 1, 30)
    assert (pinned["status"]["phase"], pinned["spec"]["nodeName"]) == ("Running", "fair-a")

    def well() -> bool:
        items = {item["name"]: item for item in platform.json("nodes")["items"]}
        return items["fair-a"]["devicePlugin"] is None

    await asyncio.to_thread(until, well, timeout_s=20, what="a node that hands cards over again")


async def test_a_lock_whose_pod_is_gone_keeps_nobody_waiting(client: KubeClient) -> None:
    await clear(client, "many-")
    note = {"metadata": {"annotations": {LOCK: f"2026-01-01T00:00:00Z,{SPACE},nobody"}}}
    await client.json("PATCH", NODES.path(name="gpu-0"), body=note, content_type="application/merge-patch+json")
    await create(
        client,
        a_pod("after-0", SLICE) | {"spec": a_pod("", SLICE)["spec"] | {"nodeSelector": {"kubernetes.io/hostname": "gpu-0"}}},
    )
    assert handed_over(await ended(client, "after-", 1, 30)) == []
    await no_locks(client)


async def test_pods_of_one_second_on_a_node_of_volcanos_plugin_have_their_own_cards(client: KubeClient) -> None:
    """It tells pods apart by their seconds and their numbers of cards alone: the lock has them come one by one."""
    body = node("volcano-0")
    register = "".join(f"GPU-volcano-0-{i},10,40960,NVIDIA-A100,true,hami-core:" for i in range(2))
    body["metadata"]["annotations"] = {"volcano.sh/node-vgpu-register": register}
    has = {"volcano.sh/vgpu-number": "20", "volcano.sh/vgpu-memory": "81920", "volcano.sh/vgpu-cores": "200"}
    body["status"]["allocatable"] = body["status"]["capacity"] = body["status"]["capacity"] | has
    await client.json("POST", NODES.path(), body=body)
    asks = [
        {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": str(2000 + i), "volcano.sh/vgpu-cores": "10"}
        for i in range(12)
    ]
    await create(client, *(a_pod(f"volcano-{i}", limits) for i, limits in enumerate(asks)))
    for pod in await ended(client, "volcano-", len(asks)):
        notes = pod["metadata"]["annotations"]
        assert pod["status"]["phase"] == "Running", pod["status"]
        _, _, cores, memory = notes["hbox.io/cards"].split(":")
        assert notes["volcano.sh/vgpu-ids-new"].endswith(f",NVIDIA,{memory},{cores}:")
        assert (notes["volcano.sh/devices-to-allocate"].strip(";:"), notes["volcano.sh/bind-phase"]) == ("", "success")

    async def free() -> bool:
        found = await client.json("GET", NODES.path(name="volcano-0"))
        return "hamivgpu" not in found["metadata"]["annotations"]

    await waiting.until(free, "the node has no lock", timeout_s=30)
    await clear(client, "volcano-")


async def test_instances_of_divided_cards_are_made_where_they_were_chosen(client: KubeClient) -> None:
    """The plugin refuses what no card has, and what overlaps."""
    told = Cards("mig-0", count=2, mode="mig", slots=7)
    body = node("mig-0")
    body["metadata"]["annotations"] = {"hami.io/node-nvidia-register": told.register()}
    body["status"]["allocatable"] = body["status"]["capacity"] = body["status"]["capacity"] | {GPU: "14"}
    await client.json("POST", NODES.path(), body=body)
    large = [a_pod(f"mig-large-{i}", {GPU: "1", "nvidia.com/gpumem": "18000"}) for i in range(2)]
    small = [a_pod(f"mig-small-{i}", {GPU: "1", "nvidia.com/gpumem": "4000"}) for i in range(5)]
    for pod in (*large, *small):
        pod["metadata"]["annotations"] = {"nvidia.com/vgpu-mode": "mig"}
    await create(client, *large, *small)
    taken: dict[str, set[int]] = {}
    for pod in await ended(client, "mig-", len(large) + len(small)):
        assert pod["status"]["phase"] == "Running", pod["status"]
        [made] = json.loads(pod["metadata"]["annotations"]["hami.io/vgpu-mig-allocations"])
        assert made["profile"] == ("3g.20gb" if "large" in pod["metadata"]["name"] else "1g.5gb")
        assert made["migUUID"].startswith("MIG-")
        start = made["placement"].get("start", 0)
        own = set(range(start, start + made["placement"]["size"]))
        assert not own & taken.setdefault(made["gpuUUID"], set())
        taken[made["gpuUUID"]] |= own
    await clear(client, "mig-")
