"""Kubelets that align pods to NUMA nodes, on a running platform: nobody is sent where they refuse."""

import asyncio
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from hbox_common.kube import NODES, PODS, KubeClient
from hbox_common.model.resources import parse_quantity
from hbox_sandbox.kubelet.topology import NUMA

from .. import waiting
from .platform_world import Up, placed, until, up
from .traced_jobs import node, pod

pytestmark = pytest.mark.e2e

BOXES: dict[str, dict[str, object]] = {
    "single-h100": {"policy": "single-numa-node", "box": "h100", "reserved": 2},
    "restricted-snc": {"policy": "restricted", "box": "snc", "scope": "pod"},
    "restricted-nps4": {"policy": "restricted", "box": "nps4"},
    "best-effort": {"policy": "best-effort", "box": "h100"},
}


#: Nodes of one test each, that others send nobody to.
OWN: dict[str, dict[str, object]] = {
    "idle": {"policy": "restricted", "box": "h100"},
    "memory": {"policy": "none", "box": "h100", "memoryManager": "Static", "reservedMemory": "1Gi"},
    "grouped": {"policy": "restricted", "box": "h100", "memoryManager": "Static"},
}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("numa") / "state") as running:
        asyncio.run(_fill(running))
        yield running


#: A pod for each strict box that its kubelet would refuse, though it is empty: CPUs beyond a zone; cards that are two zones wide, and one CPU, which is not.
PROBES = {"single-h100": (33, 1), "restricted-snc": (1, 4), "restricted-nps4": (1, 3)}


async def _fill(running: Up) -> None:
    """The boxes, and probes that come with them."""
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        for name, numa in (BOXES | OWN).items():
            body = node(name)
            body["metadata"]["annotations"] = {NUMA: json.dumps(numa)}
            if "memoryManager" in numa:  # all of its memory is for pods without cards
                body["metadata"].setdefault("labels", {})["hbox.io/memory-per-card"] = "0"
            await client.json("POST", NODES.path(), body=body)
        for name, (cpu, cards) in PROBES.items():
            await client.json("POST", PODS.path("default"), body=asked(f"probe-{name}", cpu=cpu, cards=cards, on=name))


def asked(name: str, *, cpu: float, cards: int = 0, on: str = "", memory: str = "64Mi") -> dict[str, Any]:
    body = pod(name)
    amounts = {"cpu": str(cpu), "memory": memory}
    body["spec"]["containers"][0]["resources"] = {
        "requests": amounts,
        "limits": amounts | ({"nvidia.com/gpu": str(cards)} if cards else {}),
    }
    if on:
        body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": on}
    return body


def refused(items: list[Any]) -> list[str]:
    return [
        f"{item['metadata']['name']}: {item['status'].get('message', '')}"
        for item in items
        if item["status"].get("phase") == "Failed"
    ]


async def pods_of(platform: Up) -> list[Any]:
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        found: Any = await client.json("GET", PODS.path("default"))
        return list(found["items"])


def why(platform: Up, name: str) -> str:
    return platform.hbox("why", f"default/{name}").stdout


def test_why_a_pod_waits_is_said_by_zone(platform: Up) -> None:
    zones = ("zone 0: 30 cpus free of 33 asked, 4 nvidia.com/gpu free of 1 asked", "zone 1: 32 cpus free of 33")
    for name in PROBES:
        expected = ("TopologyAffinityError", *(zones if name == "single-h100" else ()))
        until(
            lambda name=name, expected=expected: all(text in why(platform, f"probe-{name}") for text in expected),  # type: ignore[misc]
            timeout_s=30,
            what=f"the zones of {name}",
        )


def test_no_pod_that_is_placed_is_refused_by_a_kubelet(platform: Up) -> None:
    """Two hundred pods of many sizes come in waves and go again."""
    random = Random(7)

    async def play() -> int:
        came = 0
        async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
            for wave in range(6):
                names = []
                for i in range(24):
                    on = random.choice(list(BOXES))
                    cards = random.choice((0, 0, 1, 1, 2, 3, 4))
                    names.append(f"w{wave}-{i}")
                    body = asked(names[-1], cpu=random.choice((1, 2, 3, 4, 6, 8, 12, 16, 24)), cards=cards, on=on)
                    await client.json("POST", PODS.path("default"), body=body)
                await asyncio.sleep(4.0)
                there = await placed(client, "default")
                came += len([name for name in names if name in there])
                assert refused(await pods_of(platform)) == []
                for name in there:
                    if random.random() < 0.6:
                        await client.json("DELETE", PODS.path("default", name))
        return came

    came = asyncio.run(play())
    assert came > 40, "the boxes take that many, and more"
    assert refused(asyncio.run(pods_of(platform))) == []


async def test_idle_cards_keep_cores_in_their_own_zone(platform: Up) -> None:
    """Two zones of 32 CPUs and 4 cards keep 24 CPUs each. Of 16 CPUs by sum, which the node lends, none would be left to the cards of zone 0."""
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:

        async def come(*bodies: dict[str, Any]) -> None:
            for body in bodies:
                await client.json("POST", PODS.path("default"), body=body)

        async def there(prefix: str) -> int:
            return sum(name.startswith(prefix) for name in await placed(client, "default"))

        await come(asked("idle-wide", cpu=16, on="idle"))
        said = await asyncio.to_thread(
            until,
            lambda: (text := why(platform, "idle-wide")) and "zone 0 keeps" in text and text,
            timeout_s=30,
            what="why the wide pod waits",
        )
        assert "zone 0 keeps 24 cpus of 32 free for cards 0, 1, 2, 3" in said
        assert "zone 1 keeps 24 cpus of 32 free for cards 4, 5, 6, 7" in said
        await come(*(asked(f"idle-lent-{i}", cpu=4, on="idle") for i in range(3)))

        async def lent() -> bool:
            return await there("idle-lent") == 2

        await waiting.until(lent, "two pods on the cores that zone 0 lends", timeout_s=30)
        await come(asked("idle-cards", cpu=24, cards=4, on="idle"))

        async def cards() -> bool:
            return await there("idle-cards") == 1

        await waiting.until(cards, "the cards of zone 0 with the cores that were kept", timeout_s=30)

        async def third() -> bool:
            return await there("idle-lent") == 3

        await waiting.until(third, "zone 0 has nothing left: the kubelet gives of what zone 1 lends", timeout_s=30)
        assert await there("idle-wide") == 0
    assert refused(await pods_of(platform)) == []


async def test_pods_that_arrive_with_a_strict_node_wait_for_its_first_report(platform: Up) -> None:
    """Pods that the node has room for by sums, and its kubelet would refuse, in the same moment as the node: none fails. One that fits starts."""
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        late = node("late")
        late["metadata"]["annotations"] = {NUMA: json.dumps({"policy": "single-numa-node", "box": "h100"})}
        wide = [asked(f"late-wide-{i}", cpu=1, cards=5, on="late") for i in range(3)]
        await client.json("POST", NODES.path(), body=late)
        for body in (*wide, asked("late-fits", cpu=2, cards=1, on="late")):
            await client.json("POST", PODS.path("default"), body=body)

        async def started() -> bool:
            return "late-fits" in await placed(client, "default")

        await waiting.until(started, "a pod that fits into a NUMA node", timeout_s=40)
        assert refused(await pods_of(platform)) == []
        await asyncio.to_thread(
            until,
            lambda: all(text in why(platform, "late-wide-0") for text in ("TopologyAffinityError", "zone 0: ")),
            timeout_s=30,
            what="why a wide pod waits",
        )
        assert refused(await pods_of(platform)) == []


@pytest.mark.parametrize("box", ["memory", "grouped"])
async def test_pods_go_where_the_memory_manager_has_a_place_for_them(platform: Up, box: str) -> None:
    """Two zones with half of the node's memory each, under the static memory manager. What is free on the node is not what a zone gives: pods of 6, 6 and 3
    tenths fill the zones as no sum says, and a pod of both zones ties them to a group. Nobody is sent where the kubelet would fail him."""
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        there = await client.json("GET", NODES.path(name=box))
        gib = int(parse_quantity(there["status"]["allocatable"]["memory"])) // 2**30

        async def come(name: str, tenths: int) -> None:
            size = f"{gib * 1024 * tenths // 20}Mi"
            await client.json("POST", PODS.path("default"), body=asked(f"{box}-{name}", cpu=0.5, on=box, memory=size))

        async def started(*names: str) -> None:
            async def so() -> bool:
                return {f"{box}-{name}" for name in names} == {
                    n for n in await placed(client, "default") if n.startswith(f"{box}-")
                }

            await waiting.until(so, f"{names} on {box}", timeout_s=30)

        await come("a", 6)
        await started("a")
        await come("b", 6)
        await started("a", "b")
        await come("c", 6)  # 8 tenths of a zone are free, four in each
        said = await asyncio.to_thread(
            until,
            lambda: (text := why(platform, f"{box}-c")) and "zone 1" in text and text,
            timeout_s=30,
            what="why the third pod waits",
        )
        assert "MiB of memory free of" in said
        assert "UnexpectedAdmissionError" in said, (
            "without a hint of memory a topology manager admits, and the allocation fails"
        )
        await come("d", 3)
        await started("a", "b", "d")
        for name in ("a", "b", "d", "c"):
            await client.json("DELETE", PODS.path("default", f"{box}-{name}"))
        await started()
        await come("wide", 12)  # of both zones: they are a group, and give nothing alone
        await started("wide")
        await come("e", 2)
        if box == "memory":  # the topology manager does not look at it: the group has room
            await started("wide", "e")
        else:
            await asyncio.to_thread(
                until,
                lambda: "memory with zone" in why(platform, f"{box}-e"),
                timeout_s=30,
                what="why a small pod waits",
            )
    assert refused(await pods_of(platform)) == []
