"""Kubelets that align pods to NUMA nodes, on a running platform: nobody is sent where they refuse."""

import asyncio
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from hbox_common.kube import NODES, PODS, KubeClient
from hbox_sandbox.kubelet.topology import NUMA

from .platform_world import Up, placed, until, up
from .traced_jobs import node, pod

pytestmark = pytest.mark.e2e

BOXES = {
    "single-h100": {"policy": "single-numa-node", "box": "h100", "reserved": 2},
    "restricted-snc": {"policy": "restricted", "box": "snc", "scope": "pod"},
    "restricted-nps4": {"policy": "restricted", "box": "nps4"},
    "best-effort": {"policy": "best-effort", "box": "h100"},
}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("numa") / "state") as running:
        asyncio.run(_fill(running))
        yield running


#: A pod for each strict box that its kubelet would refuse, though it is empty: CPUs beyond a zone; cards that are two zones wide, and one CPU, which is not.
PROBES = {"single-h100": (33, 1), "restricted-snc": (1, 4), "restricted-nps4": (1, 3)}


async def _fill(running: Up) -> None:
    """The boxes. A pod that comes before the zones of its node are known is refused there: probes are made anew until they wait."""
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        for name, numa in BOXES.items():
            body = node(name)
            body["metadata"]["annotations"] = {NUMA: json.dumps(numa)}
            await client.json("POST", NODES.path(), body=body)
        for name, (cpu, cards) in PROBES.items():
            for _ in range(30):
                await client.json("POST", PODS.path("default"), body=asked(f"probe-{name}", cpu=cpu, cards=cards, on=name))
                await asyncio.sleep(2.0)
                there = await client.json("GET", PODS.path("default", f"probe-{name}"))
                if not there["spec"].get("nodeName"):
                    break
                await client.json("DELETE", PODS.path("default", f"probe-{name}"))
                await asyncio.sleep(1.0)


def asked(name: str, *, cpu: int, cards: int = 0, on: str = "") -> dict[str, Any]:
    body = pod(name)
    amounts = {"cpu": str(cpu), "memory": "64Mi"}
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
    for name in PROBES:
        said = until(
            lambda name=name: (text := why(platform, f"probe-{name}")) and "TopologyAffinityError" in text and text,  # type: ignore[misc]
            timeout_s=30,
            what=f"the zones of {name}: {why(platform, f'probe-{name}')}",
        )
        if name == "single-h100":
            assert "zone 0: 30 cpus free of 33 asked, 4 nvidia.com/gpu free of 1 asked; zone 1: 32 cpus free of 33" in said


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
