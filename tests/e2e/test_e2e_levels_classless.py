"""Jobs without a class on a running platform with levels: a borrower gives back to an owner whatever the data says of the classless, and inside a queue high
takes from them where `default` says so. `hbox simulate cycle` says the same.

owner       deserves 4 of the node's 8 cards
borrower    no amounts; fills the node with pods of no class
"""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, PODS, QUEUES, KubeClient

from .. import waiting
from .platform_world import own_policy, simulate_cycle, up
from .test_e2e_weights import SPACE, queue
from .traced_jobs import node

pytestmark = pytest.mark.e2e

GPU = "nvidia.com/gpu"
LEVELS = {"high": 300, "medium": 200, "low": -100}
CLASSES = [
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
    for name, value in LEVELS.items()
]
TREE = [queue("owner", 1, deserved={GPU: "4"}), queue("borrower", 1)]


def pod(name: str, of: str, level: str = "") -> dict[str, Any]:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: "1"}}}
    spec: dict[str, Any] = {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]}
    if level:
        spec |= {"priorityClassName": level, "priority": LEVELS[level]}
    notes = {"scheduling.volcano.sh/queue-name": of}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE, "annotations": notes},
        "spec": spec,
    }


PLAIN = [pod(f"plain-{number}", "borrower") for number in range(8)]
OWNERS = [pod(f"owner-{number}", "owner") for number in range(4)]
HIGH = [pod(f"high-{number}", "borrower", "high") for number in range(2)]


@pytest.mark.parametrize(("default", "left"), [("none", 2), ("low", 2), ("medium", 4)])
async def test_the_classless_give_to_owners_and_to_high_where_the_data_says_so(default: str, left: int, tmp_path: Path) -> None:
    """left: of the classless, once an owner has asked for its share and high for two cards of the borrower's."""
    shown = own_policy()
    levels = f"  - name: levels\n    arguments: {{default: {default}}}"
    conf = tmp_path / "volcano-scheduler.conf"
    conf.write_text(shown.replace("  - name: levels", levels))
    high = 4 - left
    assert simulated(tmp_path, PLAIN, OWNERS) == {"plain": 4}
    assert simulated(tmp_path, PLAIN[:4] + OWNERS, HIGH) == ({"plain": high} if high else {})
    with up(tmp_path / "state", "--levels", env={"HBOX_SCHEDULER_CONF": str(conf)}) as platform:
        async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
            await client.json("POST", NODES.path(), body=node("n0"))
            for one in TREE:
                await client.json("POST", QUEUES.path(), body=one)
            await create(client, PLAIN)
            await come_to_be(client, plain=8)
            await create(client, OWNERS)
            await come_to_be(client, plain=4, owner=4)
            await create(client, HIGH)
            await come_to_be(client, owner=4, plain=left, **({"high": high} if high else {}))
        assert platform.json("audit")["faults"] == []


async def create(client: KubeClient, pods: list[dict[str, Any]]) -> None:
    for one in pods:
        await client.json("POST", PODS.path(SPACE), body=one)


async def come_to_be(client: KubeClient, **wanted: int) -> None:
    """And stay so."""

    async def placed() -> dict[str, int]:
        listed = await client.json("GET", PODS.path(SPACE))
        return Counter(
            one["metadata"]["name"].partition("-")[0]
            for one in listed["items"]
            if one["spec"].get("nodeName") and "deletionTimestamp" not in one["metadata"]
        )

    async def there() -> bool:
        return await placed() == wanted

    await waiting.until(there, f"{wanted}", timeout_s=60)
    await asyncio.sleep(2.0)
    assert await placed() == wanted


def simulated(folder: Path, running: list[dict[str, Any]], waits: list[dict[str, Any]]) -> dict[str, int]:
    """Whom `hbox simulate cycle` evicts."""
    placed = [{**one, "spec": {**one["spec"], "nodeName": "n0"}, "status": {"phase": "Running"}} for one in running]
    items = [node("n0"), *CLASSES, *TREE, *placed, *waits]
    said = simulate_cycle(folder, items, policy=(folder / "volcano-scheduler.conf").read_text())
    return Counter(one["pod"].partition("/")[2].partition("-")[0] for one in said["evictions"])
