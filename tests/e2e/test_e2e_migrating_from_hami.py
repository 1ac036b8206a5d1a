"""Nodes and pods of HAMi with HBox: HBox does not allocate the cards that HAMi's scheduler allocated.

a, b   two cards of 40 GiB of HAMi's plugin; on each three pods of HAMi's share one card, on b the second one
late   its kubelet publishes 40 slots before the plugin registers four cards
"""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from hbox_common.kube import MERGE_PATCH, NODES, PODS, KubeClient

from .. import waiting
from .platform_world import Up, until, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, GPU = "default", "nvidia.com/gpu"
LARGE = {GPU: "1", "nvidia.com/gpumem": "38000", "nvidia.com/gpucores": "90"}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("hami") / "state") as running:
        yield running


def register(name: str, cards: int) -> str:
    found = [
        {
            "id": f"GPU-{name}-{i}", "index": i, "count": 10, "devmem": 40_960, "devcore": 100, "type": "NVIDIA-NVIDIA A100-SXM4-40GB",
            "mode": "hami-core", "health": True,
        }
        for i in range(cards)
    ]  # fmt: skip
    return json.dumps(found)


def of_hami(name: str, *, cards: int, slots: int) -> dict[str, Any]:
    body = node(name)
    body["metadata"]["annotations"] = {"hami.io/node-nvidia-register": register(name, cards)} if cards else {}
    body["status"]["allocatable"] = body["status"]["capacity"] = body["status"]["capacity"] | {GPU: str(slots)}
    return body


def pod(name: str, limits: dict[str, str], *, on: str = "", given: str = "", pinned: str = "") -> dict[str, Any]:
    """`on`, `given`: the node and the cards that HAMi's scheduler chose; `pinned`: the only node of its selector."""
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "10m"}, "limits": limits}}
    allocation = {f"hami.io/vgpu-devices-{what}": given for what in ("allocated", "to-allocate")}
    binding = {"hami.io/vgpu-node": on, "hami.io/bind-phase": "allocating", "hami.io/bind-time": "1795266000"}
    notes = allocation | binding if given else {}
    spec: dict[str, Any] = {"schedulerName": "hami-scheduler" if on else "hbox", "containers": [container]}
    spec |= {"nodeName": on} if on else {}
    spec |= {"nodeSelector": {"kubernetes.io/hostname": pinned}} if pinned else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes}, "spec": spec}


async def create(client: KubeClient, *pods: dict[str, Any]) -> None:
    """Creates pods in turn. A pod bound by HAMi's scheduler gets its cards before the next one is created."""
    for one in pods:
        await client.json("POST", PODS.path(SPACE), body=one)
        if "nodeName" in one["spec"]:
            await waiting.until(partial(runs, client, one["metadata"]["name"]), "the plugin allocates its cards", timeout_s=60)


async def runs(client: KubeClient, name: str) -> bool:
    return bool((await client.json("GET", PODS.path(SPACE, name)))["status"].get("phase") == "Running")


async def given(client: KubeClient, name: str) -> str:
    """The id of the card that HBox allocated to the pod."""

    async def found() -> str:
        notes = (await client.json("GET", PODS.path(SPACE, name)))["metadata"].get("annotations") or {}
        return str(notes.get("hami.io/vgpu-devices-allocated", "")).partition(",")[0]

    return str(await waiting.until(found, f"pod {name} has a card", timeout_s=60))


async def test_cards_and_slices_allocated_by_hamis_scheduler_are_not_allocated_again(platform: Up, client: KubeClient) -> None:
    for name, card in (("a", 0), ("b", 1)):
        await client.json("POST", NODES.path(), body=of_hami(name, cards=2, slots=20))
        text = f"GPU-{name}-{card},NVIDIA,12000,30:;"
        limits = {GPU: "1", "nvidia.com/gpumem": "12000", "nvidia.com/gpucores": "30"}
        await create(client, *(pod(f"old-{name}{i}", limits, on=name, given=text) for i in range(3)))
    await asyncio.to_thread(
        until, lambda: used(platform, "b").get("GPU-b-1") == 36_000, timeout_s=20, what="the cards that HAMi allocated"
    )
    await create(client, *(pod(f"new-{name}", LARGE, pinned=name) for name in "ab"))
    assert [await given(client, f"new-{name}") for name in "ab"] == ["GPU-a-1", "GPU-b-0"]
    assert used(platform, "b") == {"GPU-b-0": 38_000, "GPU-b-1": 36_000}
    audit = await asyncio.to_thread(platform.hbox, "audit")
    assert audit.returncode == 0, audit.stdout
    await create(client, pod("none", LARGE, pinned="b"))
    await asyncio.to_thread(until, lambda: "CardInsufficient" in why(platform, "none"), timeout_s=30, what="the reason")


def used(platform: Up, name: str) -> dict[str, int]:
    """Allocated MiB by card."""
    cards = platform.json("nodes", "--devices")["items"]
    return {card["uuid"]: card["memoryMib"]["used"] for card in cards if card["node"] == name}


def why(platform: Up, name: str) -> str:
    return platform.hbox("why", name).stdout


async def test_slots_are_not_cards_before_the_plugin_registers_cards(platform: Up, client: KubeClient) -> None:
    await client.json("POST", NODES.path(), body=of_hami("late", cards=0, slots=40))
    await create(client, *(pod(f"early-{i}", {GPU: "1"}, pinned="late") for i in range(8)))
    await asyncio.to_thread(until, lambda: "late" in platform.hbox("nodes").stdout, timeout_s=20, what="the node")
    notes = {"metadata": {"annotations": {"hami.io/node-nvidia-register": register("late", 4)}}}
    await client.json("PATCH", NODES.path("", "late"), body=notes, content_type=MERGE_PATCH)
    found = {await given(client, name) for name in await bound(client, 4)}
    assert found == {f"GPU-late-{i}" for i in range(4)}


async def bound(client: KubeClient, count: int) -> list[str]:
    """The bound pods, once there are `count` of them."""

    async def names() -> list[str]:
        pods = [p for p in (await client.json("GET", PODS.path(SPACE)))["items"] if p["metadata"]["name"].startswith("early-")]
        found = [p["metadata"]["name"] for p in pods if p["spec"].get("nodeName")]
        return found if len(found) >= count else []

    return list(await waiting.until(names, f"{count} pods have a node", timeout_s=60))
