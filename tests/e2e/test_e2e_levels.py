"""The three levels on a running platform, by its own policy: high preempts low, medium takes no part; shares are taken back from all of them.
`hbox simulate cycle` foretells each step. tests/real/test_real_shares.py has the story on a real control plane.

owner       deserves 4 of the node's 8 cards
borrower    no amounts
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, PODS, PRIORITYCLASSES, QUEUES, KubeClient

from .. import waiting
from .platform_world import Up, foretold, queue, until, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, GPU = "default", "nvidia.com/gpu"


def bodies(level: str, count: int, *, of: str = "borrower", name: str = "", first: int = 0) -> list[dict[str, Any]]:
    """Named by their level where they have no other name."""
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: "1"}}}
    spec: dict[str, Any] = {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]}
    if level:
        spec["priorityClassName"] = level
    notes = {"scheduling.volcano.sh/queue-name": of}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name or level}-{number}", "namespace": SPACE, "annotations": notes},
            "spec": spec,
        }
        for number in range(first, first + count)
    ]


async def submit(client: KubeClient, *pods: dict[str, Any]) -> None:
    for one in pods:
        await client.json("POST", PODS.path(SPACE), body=one)


async def placed(client: KubeClient) -> dict[str, int]:
    """Pods with a node that are not leaving, by their names without the number."""
    found: dict[str, int] = {}
    for pod in (await client.json("GET", PODS.path(SPACE)))["items"]:
        if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]:
            name = pod["metadata"]["name"].split("-")[0]
            found[name] = found.get(name, 0) + 1
    return found


def waits(running: Up, of: str) -> bool:
    return any(job["reason"] for job in running.json("jobs", "-q", of, "--state-is", "waiting")["items"])


async def test_high_preempts_low_medium_takes_no_part_and_owners_get_their_share_from_all(tmp_path: Path) -> None:
    with up(tmp_path / "state", "--levels", "--list-classes") as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await story(client, running, tmp_path)
            await queue_default_rejects_high(client, running)


async def story(client: KubeClient, running: Up, folder: Path) -> None:
    classes = {one["metadata"]["name"]: one["value"] for one in (await client.json("GET", PRIORITYCLASSES.path()))["items"]}
    assert classes["high"] > classes["medium"] > 0 > classes["low"]
    await client.json("POST", NODES.path(), body=node("n0"))
    queue(running, "create", "borrower")
    queue(running, "create", "owner", "--deserved", f"{GPU}=4")

    async def come_to_be(**expected: int) -> None:
        async def so() -> bool:
            return await placed(client) == expected

        await waiting.until(so, str(expected), timeout_s=40)

    async def go(*pods: dict[str, Any], **expected: int) -> None:
        """So many of a level leave for these pods, as it is foretold."""
        assert await foretold(client, folder, *pods) == expected
        await submit(client, *pods)

    await submit(client, *bodies("low", 8))
    await come_to_be(low=8)
    await go(*bodies("medium", 1))
    await asyncio.to_thread(until, lambda: waits(running, "borrower"), timeout_s=20, what="why medium waits")
    assert await placed(client) == {"low": 8}, "of higher priority than low, and it takes no part"
    await go(*bodies("high", 2), low=2)
    await come_to_be(low=6, high=2)
    await go(*bodies("low", 1, of="owner", name="own"), low=1)
    await come_to_be(low=5, own=1, high=2)  # one of the borrower's left for one of the owner's
    await go(*bodies("high", 8, first=2), low=5)
    await come_to_be(own=1, high=7)  # the owner's stays: high preempts inside its own queue
    await go(*bodies("", 3, of="owner", name="plain"), high=3)
    await come_to_be(own=1, high=4, plain=3)  # the owner's share comes from high too
    assert running.json("audit")["faults"] == []


async def queue_default_rejects_high(client: KubeClient, running: Up) -> None:
    """With the same list as the chart's queue default."""
    default = await client.json("GET", QUEUES.path(name="default"))
    assert default["metadata"]["annotations"]["hbox.io/priority-classes"] == "~none, medium, low, offline"
    await submit(client, *bodies("high", 1, of="default", name="rejected"))
    await asyncio.to_thread(until, lambda: waits(running, "default"), timeout_s=20, what="why high waits")
    [job] = running.json("jobs", "-q", "default", "--state-is", "waiting")["items"]
    assert job["reason"].startswith("QueueNotForPriorityClass")
