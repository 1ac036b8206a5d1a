"""A card is sick, and its plain device plugin still offers it: the kubelet gives it to a pod, whose successors would follow it onto the same card. The node
takes no work until the plugin drops the card."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from hbox_common.errors import NotFound
from hbox_common.kube import MERGE_PATCH, NODES, PODS, KubeClient
from hbox_common.model import parse_slices
from hbox_sandbox.kubelet.roots import DEVICE_IDS

from .. import waiting
from .platform_world import Up, until, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, NAME, GPU = "default", "plain", "nvidia.com/gpu"
SICK, WELL = "GPU-plain-a", "GPU-plain-b"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("plugin") / "state", env={"HBOX_NVML_POLL_S": "0.5"}) as running:
        yield running


async def offers(client: KubeClient, *cards: str) -> None:
    body = {"metadata": {"annotations": {DEVICE_IDS: json.dumps({GPU: cards})}}}
    await client.json("PATCH", NODES.path("", NAME), body=body, content_type=MERGE_PATCH)
    amounts = {"status": {"allocatable": {GPU: str(len(cards))}}}
    await client.json("PATCH", f"{NODES.path('', NAME)}/status", body=amounts, content_type=MERGE_PATCH)


def shown(platform: Up) -> dict[str, Any]:
    [found] = [one for one in platform.json("nodes")["items"] if one["name"] == NAME]
    return dict(found)


async def submit(client: KubeClient, name: str) -> None:
    resources = {"requests": {"cpu": "10m"}, "limits": {GPU: "1"}}
    container = {"name": "main", "image": "pause", "resources": resources}
    spec = {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]}
    await client.json(
        "POST", PODS.path(SPACE), body={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    )


async def card_of(client: KubeClient, name: str) -> str:
    """The card of the running pod; `gone`: it was evicted."""

    async def found() -> str:
        pods = {one["metadata"]["name"]: one for one in (await client.json("GET", PODS.path(SPACE)))["items"]}
        if name not in pods:
            return "gone"
        pod = pods[name]
        if pod["status"].get("phase") != "Running" or pod["metadata"].get("deletionTimestamp"):
            return ""
        return ",".join(s.card for s in parse_slices(pod["metadata"]["annotations"]["hbox.io/cards"]))

    return str(await waiting.until(found, f"{name} has a card", timeout_s=60))


async def test_a_node_whose_plugin_hands_out_a_sick_card_takes_no_work_until_the_plugin_drops_it(platform: Up) -> None:
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        body = node(NAME)
        size = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "2"}
        body["metadata"]["annotations"] = {DEVICE_IDS: json.dumps({GPU: [SICK, WELL]})}
        body["status"] |= {"capacity": size, "allocatable": size}
        await client.json("POST", NODES.path(), body=body)

        def known() -> set[str]:
            return {one["uuid"] for one in platform.json("nodes", "--devices")["items"] if one["node"] == NAME}

        await asyncio.to_thread(until, lambda: known() == {SICK, WELL}, timeout_s=60, what="the cards")
        injected = await asyncio.to_thread(platform.hbox, "health", "inject", "dbe", NAME, "--card", SICK)
        assert injected.returncode == 0, injected.stderr
        is_sick = lambda: shown(platform)["health"]["sickCards"] == [f"gpu:{SICK}"]  # noqa: E731
        await asyncio.to_thread(until, is_sick, timeout_s=60, what="a verdict")
        assert shown(platform)["health"]["node"], "one card is no reason to close the node"
        landed, tries = "", 0
        while not landed:  # which card the kubelet chooses depends on the pod's name
            tries += 1
            assert tries < 12, "the kubelet never chooses the sick card"
            name = f"p{tries}"
            await submit(client, name)
            card = await card_of(client, name)
            closed = await asyncio.to_thread(_closes, platform)
            if closed:
                landed = name
            elif card != "gone":
                try:
                    await client.json("DELETE", PODS.path(SPACE, name), body={"gracePeriodSeconds": 0}, expect=(200, 202))
                except NotFound:  # it left the sick card, and counts only if it came long enough after the fault
                    if await asyncio.to_thread(_closes, platform):
                        landed = name
        await waiting.until(lambda: _gone(client, landed), f"{landed} left", timeout_s=30)
        [incident] = [one for one in platform.json("health", "incidents")["items"] if one["kind"] == "plugin"]
        assert f"device plugin of {GPU}" in incident["why"]
        await submit(client, landed)  # its successor: the kubelet would choose the same card
        await asyncio.sleep(3)
        pod = await client.json("GET", PODS.path(SPACE, landed))
        assert not pod["spec"].get("nodeName"), "no card pod is placed on the node"
        assert "device plugin" in shown(platform)["reason"]
        await offers(client, WELL)
        assert await card_of(client, landed) == f"gpu:{WELL}"
        assert [one["kind"] for one in platform.json("health", "incidents")["items"]] == ["card"]
        assert platform.json("audit")["faults"] == []


async def _gone(client: KubeClient, name: str) -> bool:
    return name not in {one["metadata"]["name"] for one in (await client.json("GET", PODS.path(SPACE)))["items"]}


def _closes(platform: Up) -> bool:
    """Whether the node is closed within some seconds: node-agent reports the kubelet's choice, and the ledger moves the claim."""
    try:
        until(lambda: not shown(platform)["health"]["node"], timeout_s=6, what="a closed node")
    except (AssertionError, TimeoutError):
        return False
    return True
