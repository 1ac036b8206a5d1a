"""Work without cards on nodes with cards, by HBox's own policy, through all services and in `hbox simulate cycle`: it leaves idle cards what they will need.

plain   64 cores, 8 cards
hami    64 cores, 8 cards in ten slots each, as HAMi's plugin registers them
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import MERGE_PATCH, NODES, PODS, PRIORITYCLASSES, KubeClient

from .. import waiting
from .platform_world import Up, simulate_cycle, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, GPU = "default", "nvidia.com/gpu"
SPARE = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "spare"}, "value": -10}
REGISTER = [
    {"id": f"GPU-{i}", "index": i, "count": 10, "devmem": 40_960, "devcore": 100, "type": "NVIDIA-A100", "health": True}
    for i in range(8)
]


def nodes() -> list[dict[str, Any]]:
    hami = node("hami")
    hami["metadata"]["annotations"] = {"hami.io/node-nvidia-register": json.dumps(REGISTER)}
    hami["status"]["allocatable"] = hami["status"]["capacity"] = hami["status"]["capacity"] | {GPU: "80"}
    return [node("plain"), hami]


def pods(name: str, count: int, *, cpu: str, memory: str = "1Gi", cards: int = 0, level: str = "") -> list[dict[str, Any]]:
    resources: dict[str, Any] = {"requests": {"cpu": cpu, "memory": memory}}
    if cards:
        resources["limits"] = {GPU: str(cards)}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{i}", "namespace": SPACE},
            "spec": {
                "schedulerName": "hbox",
                **({"priorityClassName": level} if level else {}),
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": "pause", "resources": resources}],
            },
        }
        for i in range(count)
    ]


async def running(client: KubeClient) -> dict[str, int]:
    """Pods with a node that are not leaving, by name."""
    found: dict[str, int] = {}
    for pod in (await client.json("GET", PODS.path(SPACE)))["items"]:
        if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]:
            name = pod["metadata"]["name"].rpartition("-")[0]
            found[name] = found.get(name, 0) + 1
    return found


def reasons(platform: Up) -> set[str]:
    return {str(job["reason"]) for job in platform.json("jobs", "--state-is", "waiting")["items"] if job["reason"]}


async def test_idle_cards_find_their_cores_and_who_needs_more_takes_it_from_lower_priority(tmp_path: Path) -> None:
    with up(tmp_path / "state") as platform:
        async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:

            async def submit(bodies: list[dict[str, Any]]) -> None:
                for body in bodies:
                    await client.json("POST", PODS.path(SPACE), body=body)

            async def come_to_be(**expected: int) -> None:
                async def so() -> bool:
                    return await running(client) == expected

                await waiting.until(so, f"{expected}", timeout_s=60)

            await client.json("POST", PRIORITYCLASSES.path(), body=SPARE)
            for body in nodes():
                await client.json("POST", NODES.path(), body=body)
            await submit(pods("cpu", 40, cpu="1", level="spare"))
            await come_to_be(cpu=32)  # 16 cores of each node

            async def reason_given() -> bool:
                return await asyncio.to_thread(reasons, platform) == {
                    "0/2 nodes are available: 2 ResourcesKeptForIdleCards; 2 nodes keep cores and memory for idle cards"
                }

            await waiting.until(reason_given, "why eight wait", timeout_s=20)
            await submit(pods("small", 2, cpu="10m", memory="16Mi"))
            await come_to_be(cpu=32, small=2)
            for i in range(2):
                await client.json("DELETE", PODS.path(SPACE, f"small-{i}"), expect=(200, 202))
            await submit(pods("card", 14, cpu="6", cards=1))
            await come_to_be(cpu=32, card=14)
            await submit(pods("large", 2, cpu="14", cards=1))
            await come_to_be(cpu=16, card=14, large=2)  # 6 cores for each are there, 8 more have to be left
        assert platform.json("audit")["faults"] == []


async def test_a_node_for_cards_alone_takes_other_work_once_it_is_said_to_be_mixed(tmp_path: Path) -> None:
    closed = node("plain")
    closed["metadata"]["labels"] = {"hbox.io/cards-only": "true"}
    with up(tmp_path / "state") as platform:
        async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:

            async def come_to_be(**expected: int) -> None:
                async def so() -> bool:
                    return await running(client) == expected

                await waiting.until(so, f"{expected}", timeout_s=60)

            await client.json("POST", NODES.path(), body=closed)
            made = [*pods("cpu", 2, cpu="1"), *pods("card", 2, cpu="1", cards=1)]
            found = simulate_cycle(tmp_path, [closed, *made])
            assert sorted(one["pod"] for one in found["bindings"]) == [f"{SPACE}/card-0", f"{SPACE}/card-1"]
            assert {json.dumps(one["reasons"]) for one in found["pending"].values()} == {'{"NodeTakesCardsOnly": 1}'}
            for body in made:
                await client.json("POST", PODS.path(SPACE), body=body)
            await come_to_be(card=2)

            async def reason_given() -> bool:
                return await asyncio.to_thread(reasons, platform) == {"0/1 nodes are available: 1 NodeTakesCardsOnly"}

            await waiting.until(reason_given, "why two wait", timeout_s=20)
            mixed = {"metadata": {"labels": {"hbox.io/cards-only": None}}}
            await client.json("PATCH", NODES.path(name="plain"), body=mixed, content_type=MERGE_PATCH)
            await come_to_be(card=2, cpu=2)


def test_the_same_in_simulate_cycle(tmp_path: Path) -> None:
    def decide(*objects: dict[str, Any]) -> Any:
        return simulate_cycle(tmp_path, [*nodes(), SPARE, *objects])

    cpu, cards, large = (
        pods("cpu", 40, cpu="1", level="spare"),
        pods("card", 14, cpu="6", cards=1),
        pods("large", 2, cpu="14", cards=1),
    )
    first = decide(*cpu)
    assert len(first["bindings"]) == 32
    assert {json.dumps(one["reasons"]) for one in first["pending"].values()} == {'{"ResourcesKeptForIdleCards": 2}'}
    there = place(cpu, first)
    second = decide(*there, *cards)
    assert len(second["bindings"]) == 14
    there = place([*there, *cards], second)
    third = decide(*there, *large)
    assert sorted(one["pod"] for one in third["nominations"]) == [f"{SPACE}/large-0", f"{SPACE}/large-1"]
    assert len(third["evictions"]) == 16
    assert all(one["pod"].startswith(f"{SPACE}/cpu-") for one in third["evictions"])


def place(pods: list[dict[str, Any]], decided: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that have a place by now, running there."""
    where = {one["pod"].partition("/")[2]: one["node"] for one in decided["bindings"]}
    found = []
    for pod in pods:
        at = where.get(pod["metadata"]["name"]) or pod["spec"].get("nodeName")
        if at is not None:
            found.append(pod | {"spec": pod["spec"] | {"nodeName": at}, "status": {"phase": "Running"}})
    return found
