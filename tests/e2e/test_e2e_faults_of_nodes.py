"""Faults of nodes that are no card's, on a running platform: ports go down and gangs over several nodes leave, and an agent falls silent. Agents of
emulated H100 boxes read the hardware."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from hbox_common.kube import NODES, PODGROUPS, PODS, KubeClient
from hbox_sandbox.kubelet.topology import NUMA
from hbox_sandbox.trace import TraceNode
from hbox_sandbox.trace.manifests import node_manifest

from .. import waiting
from .platform_world import Up, placed, until, up
from .traced_jobs import pod

pytestmark = pytest.mark.e2e

SPACE, NAMES = "default", ("n0", "n1", "n2")
#: Compute ports of an H100 box.
PORTS = tuple(f"mlx5_{i}" for i in (0, 3, 4, 5, 6, 9, 10, 11))
POLICIES = "silent_s: 15\nwaits: {port: 1, agent-silent: 16}\n"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    rules = tmp_path_factory.mktemp("rules")
    (rules / "policies.yaml").write_text(POLICIES)
    with up(tmp_path_factory.mktemp("faults") / "state", env={"HBOX_RULES_FOLDER": str(rules)}) as running:
        asyncio.run(_fill(running))
        yield running


async def _fill(running: Up) -> None:
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        for name in NAMES:
            box = TraceNode(name, cpu_milli=64_000, memory_mib=512 * 1024, cards=8, model="NVIDIA-H100-80GB-HBM3")
            body = node_manifest(box, now="2026-01-01T00:00:00Z")
            body["metadata"]["annotations"][NUMA] = json.dumps({"policy": "none", "cpuManager": "none", "box": "h100"})
            await client.json("POST", NODES.path(), body=body)


def shown(platform: Up, name: str) -> dict[str, Any]:
    [found] = [one for one in platform.json("nodes")["items"] if one["name"] == name]
    return dict(found)


def inject(platform: Up, *words: str) -> None:
    injected = platform.hbox("health", "inject", *words)
    assert injected.returncode == 0, injected.stderr


def member(name: str, group: str, cards: int) -> dict[str, Any]:
    body = pod(name, group)
    body["spec"]["terminationGracePeriodSeconds"] = 1
    body["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = str(cards)
    return body


async def submit(client: KubeClient, *names: str, group: str = "", cards: int) -> None:
    for name in names:
        await client.json("POST", PODS.path(SPACE), body=member(name, group, cards))


async def where(client: KubeClient, *names: str) -> dict[str, str]:
    async def found() -> dict[str, str]:
        at = await placed(client, SPACE)
        return {name: at[name] for name in names} if set(names) <= at.keys() else {}

    return dict(await waiting.until(found, f"{names} are placed", timeout_s=60))


async def left(client: KubeClient, *names: str) -> None:
    async def gone() -> bool:
        there = {one["metadata"]["name"] for one in (await client.json("GET", PODS.path(SPACE)))["items"]}
        return there.isdisjoint(names)

    await waiting.until(gone, f"{names} left", timeout_s=60)


async def test_a_gang_leaves_a_node_with_a_port_down_and_work_within_the_node_goes_on(platform: Up) -> None:
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "wide"}}
        await client.json("POST", PODGROUPS.path(SPACE), body=group | {"spec": {"minMember": 2}})
        await submit(client, "wide-0", "wide-1", group="wide", cards=8)
        home = (await where(client, "wide-0", "wide-1"))["wide-0"]
        inject(platform, "nic-down", home, "--adapter", PORTS[0])
        await left(client, "wide-0", "wide-1")
        health = shown(platform, home)["health"]
        assert (health["railsOff"], health["node"], health["multiGpu"], health["multiNode"]) == ([PORTS[0]], True, True, True)
        await submit(client, "wide-0", "wide-1", group="wide", cards=8)
        again = await where(client, "wide-0", "wide-1")
        assert set(again.values()) == set(NAMES) - {home}
        await submit(client, "one", cards=1)
        assert (await where(client, "one"))["one"] == home, "work on one card continues"
        for port in PORTS[1:]:
            inject(platform, "nic-down", home, "--adapter", port)
        await asyncio.to_thread(
            until, lambda: not shown(platform, home)["health"]["multiNode"], timeout_s=60, what="all ports down"
        )
        health = shown(platform, home)["health"]
        assert (set(health["railsOff"]), health["node"], health["multiGpu"]) == (set(PORTS), True, True)
        assert platform.json("audit")["faults"] == []


async def test_a_silent_agent_is_an_incident_that_takes_nothing_out_of_use(platform: Up) -> None:
    name = next(one for one in NAMES if shown(platform, one)["health"]["railsOff"] == [])
    await asyncio.sleep(12)  # its agent has sent a heartbeat
    inject(platform, "agent-killed", name)

    def silent() -> list[dict[str, Any]]:
        return [one for one in platform.json("health", "incidents")["items"] if one["kind"] == "agent-silent"]

    await asyncio.to_thread(until, silent, timeout_s=90, what="an incident")
    [incident] = silent()
    assert (incident["node"], incident["action"]) == (name, "report")
    health = shown(platform, name)["health"]
    assert (health["node"], health["sickCards"], health["railsOff"]) == (True, [], [])
