"""Pools of nodes on a running platform: three nodes of eight cards, each in a pool of its own.

vision     owns the pool lab, deserves 4 of pooled, lends lab while it is idle
speech     no amounts: uses what is there
"""

import asyncio
import time
from collections.abc import Iterator

import pytest

from hbox_common.kube import NODES, PODS, KubeClient

from .. import waiting
from .platform_world import Up, queue, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, GPU = "default", "nvidia.com/gpu"
POOLS = {"lab-0": "lab", "n0": "", "open-0": "public"}
BACK_S = 10.0


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("pools") / "state") as running:
        asyncio.run(_nodes(running))
        yield running


async def _nodes(running: Up) -> None:
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        for name, pool in POOLS.items():
            body = node(name)
            body["metadata"]["labels"] |= {"hbox.io/pool": pool} if pool else {}
            await client.json("POST", NODES.path(), body=body)


async def submit(client: KubeClient, name: str, count: int, *, first: int = 0) -> None:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: "1"}}}
    for number in range(first, first + count):
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{number}", "annotations": {"scheduling.volcano.sh/queue-name": name}},
            "spec": {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]},
        }
        await client.json("POST", PODS.path(SPACE), body=body)


async def placed(client: KubeClient) -> dict[str, dict[str, int]]:
    """Pods that are not leaving, by queue and node."""
    found: dict[str, dict[str, int]] = {}
    for pod in (await client.json("GET", PODS.path(SPACE)))["items"]:
        if (on := pod["spec"].get("nodeName")) and "deletionTimestamp" not in pod["metadata"]:
            there = found.setdefault(pod["metadata"]["name"].split("-")[0], {})
            there[on] = there.get(on, 0) + 1
    return found


async def come_to_be(client: KubeClient, *, within_s: float = 40.0, **want: dict[str, int]) -> float:
    """The pods come to be there, and stay. Returns after how many seconds they were."""
    begin = time.monotonic()
    while (found := await placed(client)) != want:
        assert time.monotonic() - begin < within_s, f"{want}, found {found}"
        await asyncio.sleep(0.1)
    took = time.monotonic() - begin
    await asyncio.sleep(2.5)  # the scheduler looks for room every two seconds at least
    assert await placed(client) == want
    return took


async def test_own_nodes_are_closed_to_others_by_a_taint_that_is_put_back(client: KubeClient, platform: Up) -> None:  # it runs
    async def so() -> bool:
        nodes = (await client.json("GET", NODES.path()))["items"]
        return {one["metadata"]["name"]: one.get("spec", {}).get("taints") or [] for one in nodes} == {
            "lab-0": [{"key": "hbox.io/pool", "value": "lab", "effect": "NoSchedule"}],
            "n0": [],
            "open-0": [],
        }

    await waiting.until(so, "the taint of lab alone")
    body = {"spec": {"taints": None}}
    await client.json("PATCH", NODES.path(name="lab-0"), body=body, content_type="application/merge-patch+json")
    assert not await so()
    await waiting.until(so, "the taint of lab again")


async def test_pools_count_apart_own_nodes_come_first_and_what_is_lent_comes_back(platform: Up, client: KubeClient) -> None:
    queue(platform, "create", "speech")
    queue(platform, "create", "vision", "--deserved", f"{GPU}=4", "--pools", "lab, pooled", "--lent-pools", "lab")
    said = queue(platform, "show", "vision")
    assert "lends lab while idle to all queues" in said
    assert "may borrow idle nodes of pool lab, whose owners have them back at once" in queue(platform, "show", "speech")

    await submit(client, "speech", 24)  # all that there is: what is lent last
    await come_to_be(client, speech={"lab-0": 8, "n0": 8, "open-0": 8})

    await submit(client, "vision", 8)
    took = await come_to_be(client, speech={"n0": 8, "open-0": 8}, vision={"lab-0": 8})
    assert took < BACK_S, f"its own nodes were back after {took:.1f} s"

    await submit(client, "vision", 6, first=8)  # its own eight count against nothing: four of pooled are its own still
    await come_to_be(client, speech={"n0": 4, "open-0": 8}, vision={"lab-0": 8, "n0": 4})

    tree = queue(platform, "tree")
    assert "in lab" in tree
    nodes = platform.json("nodes", "--pools")["items"]
    assert {one["name"]: one["queues"] for one in nodes} == {
        "lab": {"vision": 8},
        "pooled": {"speech": 4, "vision": 4},
        "public": {"speech": 8},
    }
    used = {item["name"]: item["used"] for item in platform.json("queue", "ls")["items"]}
    assert (used["vision"][GPU], used["vision"][f"{GPU}@lab"], used["speech"][f"{GPU}@public"]) == (4, 8, 8)
    assert platform.json("audit", "--ledger")["faults"] == []
    assert platform.json("audit")["faults"] == []


async def test_an_owner_whose_amounts_are_by_model_has_back_what_it_lends(platform: Up, client: KubeClient) -> None:
    """Its session tries models one at a time, and a pool once had no card of any: what was lent never came back."""
    body = node("bio-0")
    body["metadata"]["labels"] |= {"hbox.io/pool": "bio", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    await client.json("POST", NODES.path(), body=body)
    amounts = ("--deserved", f"{GPU}.NVIDIA-H100-80GB-HBM3=8", "--pools", "bio", "--lent-pools", "bio")
    queue(platform, "create", "biology", *amounts)
    queue(platform, "create", "guests")
    await submit(client, "guests", 8)
    speech, vision = {"n0": 4, "open-0": 8}, {"lab-0": 8, "n0": 4}
    await come_to_be(client, speech=speech, vision=vision | {"bio-0": 2}, guests={"bio-0": 6})  # two of vision waited
    await submit(client, "biology", 8)
    took = await come_to_be(client, speech=speech, vision=vision, biology={"bio-0": 8})
    assert took < BACK_S, f"its own node was back after {took:.1f} s"
    assert platform.json("audit", "--ledger")["faults"] == []
