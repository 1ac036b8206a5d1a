"""Cards of two vendors on a running platform: `green` has eight of NVIDIA's, `red` two of AMD's as HAMi's plugin registers them, `plain` four of AMD's as its
own device plugin counts them."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from hbox_common.kube import NODES, PODS, KubeClient

from .platform_world import Up, given_of, queue, until, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, GREEN, RED = "default", "nvidia.com/gpu", "amd.com/gpu"
MI300X, MI210 = "AMD_Instinct_MI300X_OAM", "AMD_Instinct_MI210"
REGISTER = [
    {"id": f"AMD-{i}", "index": i, "count": 4, "devmem": 196_608, "devcore": 304, "type": MI300X, "health": True}
    for i in range(2)
]


def red(name: str, cards: int, **metadata: Any) -> dict[str, Any]:
    body = node(name)
    size = {"cpu": "64", "memory": "512Gi", "pods": "110", RED: str(cards)}
    body["status"] |= {"capacity": size, "allocatable": size}
    body["metadata"] |= metadata
    return body


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("vendors") / "state") as running:
        asyncio.run(_nodes(running))
        yield running


async def _nodes(running: Up) -> None:
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        registered = red("red", 8, annotations={"hami.io/node-amd-register": json.dumps(REGISTER)})
        counted = red("plain", 4, labels={"kubernetes.io/hostname": "plain", "amd.com/gpu.product-name": MI210})
        for body in (node("green"), registered, counted):
            await client.json("POST", NODES.path(), body=body)


async def submit(client: KubeClient, name: str, notes: dict[str, str] | None = None, **limits: str) -> None:
    asked = {key.replace("amd_", "amd.com/").replace("nvidia_", "nvidia.com/"): amount for key, amount in limits.items()}
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": asked}}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": notes or {}},
        "spec": {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    await client.json("POST", PODS.path(SPACE), body=body)


async def placed(platform: Up, client: KubeClient, *names: str) -> dict[str, tuple[str, str]]:
    """Node and cards of these pods, when all have one."""
    deadline = asyncio.get_running_loop().time() + 60
    while True:
        pods = [await client.json("GET", PODS.path(SPACE, name)) for name in names]
        if all(pod["spec"].get("nodeName") for pod in pods):
            return {
                pod["metadata"]["name"]: (pod["spec"]["nodeName"], pod["metadata"]["annotations"]["hbox.io/cards"])
                for pod in pods
            }
        assert asyncio.get_running_loop().time() < deadline, platform.json("jobs")["items"]
        await asyncio.sleep(0.1)


async def test_whole_cards_of_either_vendor_go_to_its_own_nodes(platform: Up, client: KubeClient) -> None:
    await submit(client, "whole-red", amd_gpu="4")
    await submit(client, "whole-green", nvidia_gpu="8")
    found = await placed(platform, client, "whole-red", "whole-green")
    where, cards = found["whole-red"]
    assert (where, given_of(cards)) == ("plain", "100:0,100:0,100:0,100:0"), "no other node has four of them"
    assert found["whole-green"][0] == "green"


async def test_a_card_of_the_second_vendor_is_shared(platform: Up, client: KubeClient) -> None:
    for name in ("half-a", "half-b"):
        await submit(client, name, amd_gpu="1", amd_gpumem="90000", amd_gpucores="50")
    await submit(client, "alone", {"amd.com/use-gputype": MI300X}, amd_gpu="1")
    found = await placed(platform, client, "half-a", "half-b", "alone")
    assert {where for where, _ in found.values()} == {"red"}
    (half,) = {found["half-a"][1], found["half-b"][1]}
    assert given_of(half) == "50:90000"
    assert given_of(f"{half},{found['alone'][1]}") == "50:90000,100:196608", "the other card"


async def test_who_finds_none_is_told_of_the_cards_that_he_asks_for(platform: Up, client: KubeClient) -> None:
    await submit(client, "late", amd_gpu="1")

    def reason() -> str:
        jobs = platform.json("jobs", "--state-is", "waiting")["items"]
        return next((str(job["reason"]) for job in jobs if "late" in job["name"] and job["reason"]), "")

    said = await asyncio.to_thread(until, reason, timeout_s=20, what="the reason")
    assert said.startswith("0/3 nodes are available: 2 CardsInUse, 1 NodeInsufficientDevice"), said
    await client.json("DELETE", PODS.path(SPACE, "alone"))
    assert (await placed(platform, client, "late"))["late"][0] == "red"


async def test_what_people_see_names_the_vendors_cards(platform: Up) -> None:
    nodes = {item["name"]: item for item in platform.json("nodes")["items"]}
    assert [
        (nodes[name]["model"], nodes[name]["cards"]["free"], nodes[name]["cards"]["total"]) for name in ("red", "plain")
    ] == [
        (MI300X, 0, 2),
        (MI210, 0, 4),
    ]
    share = platform.json("share", "default", "--resource", RED)
    assert (share["resource"], share["used"]) == (RED, 7)
    told = platform.hbox("share", "default", "--resource", RED).stdout.splitlines()
    assert told[0].startswith(f"default has 7 of {RED}: it deserves none of its own")
    assert all(line.startswith("  ") for line in told[1:])
    assert len(told) > 1, "a line each"
    [queues] = [item for item in platform.json("queue", "ls")["items"] if item["name"] == "default"]
    assert (queues["used"][RED], queues["used"][GREEN]) == (7, 8)
    assert "15" in platform.hbox("queue", "ls").stdout
    assert "7 used" in queue(platform, "tree", "--resource", RED)
    audit = platform.hbox("audit")
    assert audit.returncode == 0, audit.stdout + audit.stderr


async def test_a_quota_limits_the_second_vendors_memory(platform: Up, client: KubeClient) -> None:
    made = platform.hbox("quota", "set", SPACE, "--vendor", "amd", "--gpumem", "1000", "--dry-run")
    assert made.returncode == 0, made.stderr
    assert "amd.com/gpumem: no limit -> 1000" in made.stdout
