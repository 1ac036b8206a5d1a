"""A node whose kubelet refuses pods rests for the kind of pods that it refuses: through all services, with a plain device plugin.

bad     8 cards, their plugin fails whatever it is asked for; 6 cards of it are in use, so that it is the first choice of the policy
good    8 cards
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from hbox_common.kube import MERGE_PATCH, NODES, PODS, KubeClient
from hbox_sandbox.kubelet.deviceplugin import PLUGIN_FAILS

from .. import waiting
from .platform_world import Up, until, up
from .traced_jobs import node

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SPACE, GPU = "default", "nvidia.com/gpu"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("platform") / "state", "--policy", "binpack") as running:
        yield running


def pod(name: str, *, cards: int = 1, on: str = "") -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "pause",
        "resources": {"requests": {"cpu": "1"}, "limits": {GPU: str(cards)} if cards else {}},
    }
    where = {"nodeSelector": {"kubernetes.io/hostname": on}} if on else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {"schedulerName": "hbox", "containers": [container]} | where,
    }


async def taken_up(client: KubeClient, name: str) -> tuple[str, str]:
    """Node and phase of a pod, once a kubelet has admitted or refused it."""

    async def seen() -> tuple[str, str] | None:
        found = await client.json("GET", PODS.path(SPACE, name))
        phase = found["status"]["phase"]
        return (found["spec"]["nodeName"], phase) if phase in ("Running", "Failed") else None

    found: tuple[str, str] = await waiting.until(seen, f"a kubelet admits or refuses {name}", timeout_s=40)
    return found


async def fails(client: KubeClient, why: str | None) -> None:
    body = {"metadata": {"annotations": {PLUGIN_FAILS: why}}}
    await client.json("PATCH", NODES.path(name="bad"), body=body, content_type=MERGE_PATCH)


async def test_replacements_avoid_a_refusing_node_until_it_admits_a_pod(platform: Up, client: KubeClient) -> None:
    for name in ("bad", "good"):
        await client.json("POST", NODES.path(), body=node(name))
    await client.json("POST", PODS.path(SPACE), body=pod("fill", cards=6, on="bad"))
    assert await taken_up(client, "fill") == ("bad", "Running")
    await fails(client, "no healthy devices present")

    tried = []
    for number in range(16):  # like a ReplicaSet, which creates the next pod when the last one failed
        name = f"p-{number}"
        await client.json("POST", PODS.path(SPACE), body=pod(name))
        tried.append(await taken_up(client, name))
        if tried[-1][1] == "Running":
            await client.json("DELETE", PODS.path(SPACE, name), body={"gracePeriodSeconds": 0})
        if number == 2:
            os.kill(platform.pids()["job-controller"], signal.SIGKILL)
        await asyncio.sleep(0.3)
    refused = tried.count(("bad", "Failed"))
    assert 1 <= refused <= 5, tried
    assert len(tried) - refused == tried.count(("good", "Running")), tried

    await client.json("POST", PODS.path(SPACE), body=pod("pinned", on="bad"))
    await client.json("POST", PODS.path(SPACE), body=pod("plain", cards=0, on="bad"))
    assert await taken_up(client, "plain") == ("bad", "Running")

    def why() -> str:
        out = platform.hbox("why", "pinned").stdout
        return out if "1 NodeDevicePluginFails" in out else ""

    said = await asyncio.to_thread(until, why, timeout_s=60, what="the pending reason of a pod pinned to the node")
    assert "bad: its kubelet refused pods with cards" in said
    assert "no healthy devices present" in said
    items = {item["name"]: item for item in platform.json("nodes")["items"]}
    assert items["bad"]["refuses"][0]["kind"] == "cards"
    assert items["good"]["refuses"] == []
    check = platform.hbox("check")
    assert check.returncode == 6
    assert "bad: its kubelet refused pods with cards" in check.stdout

    await fails(client, None)
    admitted = pod("again", on="bad")
    await client.json("POST", PODS.path(SPACE), body=admitted)

    async def ran() -> bool:
        return (await taken_up(client, "again")) == ("bad", "Running")

    await waiting.until(ran, "the node takes pods with cards again", timeout_s=90)

    def well() -> bool:
        items = {item["name"]: item for item in platform.json("nodes")["items"]}
        return not items["bad"]["refuses"]

    await asyncio.to_thread(until, well, timeout_s=20, what="a node that admits pods again")
    assert platform.hbox("check").returncode == 0
