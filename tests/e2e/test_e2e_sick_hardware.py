"""A card breaks while a gang runs on it: it is excluded, the gang ends whole and starts elsewhere, its neighbour stays, and the card returns when it is well.

The nodes' agents read the hardware of emulated nodes; health-monitor and ledger are killed on the way.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, PODGROUPS, PODS, KubeClient
from hbox_common.model import parse_slices
from hbox_sandbox.kubelet.hardware import NodeHardware
from hbox_sandbox.trace import TraceNode
from hbox_sandbox.trace.manifests import node_manifest

from .platform_world import Up, placed, until, up
from .traced_jobs import pod

pytestmark = pytest.mark.e2e

SPACE, WIDE = "default", 5
FAST = {"HBOX_NVML_POLL_S": "0.5"}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("sick") / "state", env=FAST) as running:
        yield running


def member(name: str, group: str, cards: int, **notes: str) -> dict[str, Any]:
    body = pod(name, group)
    body["metadata"]["annotations"] |= {f"hbox.io/{key.replace('_', '-')}": text for key, text in notes.items()}
    body["spec"]["terminationGracePeriodSeconds"] = 1
    body["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = str(cards)
    return body


async def submit(client: KubeClient, group: str, cards: int) -> None:
    """The pods of a gang of two, as its controller creates them, also again."""
    for name in (f"{group}-0", f"{group}-1"):
        await client.json("POST", PODS.path(SPACE), body=member(name, group, cards))


async def until_placed(client: KubeClient, *names: str) -> dict[str, str]:
    async with asyncio.timeout(60):
        while not set(names) <= (found := await placed(client, SPACE)).keys():  # noqa: ASYNC110  asks the API server
            await asyncio.sleep(0.1)
    return found


async def cards_of(client: KubeClient, name: str) -> set[str]:
    found = await client.json("GET", PODS.path(SPACE, name))
    return {s.card for s in parse_slices(found["metadata"]["annotations"]["hbox.io/cards"])}


async def gone(client: KubeClient, *names: str) -> bool:
    there = {one["metadata"]["name"] for one in (await client.json("GET", PODS.path(SPACE)))["items"]}
    return there.isdisjoint(names)


def bad_cards(platform: Up, name: str) -> list[str]:
    [found] = [one for one in platform.json("nodes")["items"] if one["name"] == name]
    return list(found["health"]["sickCards"])


def killed(platform: Up, service: str) -> None:
    before = platform.pids()[service]
    os.kill(before, signal.SIGKILL)
    until(lambda: platform.pids()[service] != before, timeout_s=30, what=f"another {service}")


async def test_a_gang_on_a_broken_card_restarts_elsewhere_and_its_neighbours_go_on(platform: Up) -> None:
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        for name in ("n0", "n1"):
            box = TraceNode(name, cpu_milli=64_000, memory_mib=512 * 1024, cards=8, model="NVIDIA-H100-80GB-HBM3")
            await client.json("POST", NODES.path(), body=node_manifest(box, now="2026-01-01T00:00:00Z"))
        group = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "train"},
            "spec": {"minMember": 2},
        }
        await client.json("POST", PODGROUPS.path(SPACE), body=group)
        await submit(client, "train", WIDE)
        for name in ("next", "stays"):
            notes = {"on_sick_hardware": "ignore"} if name == "stays" else {}
            await client.json("POST", PODS.path(SPACE), body=member(name, "", 1, **notes))
        where = await until_placed(client, "train-0", "train-1", "next", "stays")
        assert {where["train-0"], where["train-1"]} == {"n0", "n1"}, "no node has room for both"
        home = where["train-0"]
        hardware = NodeHardware(platform.state / "kubelets" / home)
        uuids = [card["uuid"] for card in platform.json("node", "show", home)["cards"]]
        addresses = {uuid: f"0000:{0x18 + place:02x}:00.0" for place, uuid in enumerate(uuids)}
        hardware.cards(addresses)
        victim = sorted(await cards_of(client, "train-0"))[0]
        sick = victim.partition(":")[2]
        hardware.card(sick, lost=True)
        hardware.kernel(f"NVRM: Xid (PCI:{addresses[sick][:-2]}): 79, pid=1, name=x, GPU has fallen off the bus.")
        until(lambda: victim in bad_cards(platform, home), timeout_s=30, what="a verdict")
        killed(platform, "health-monitor")
        killed(platform, "quota-ledger")

        async def left() -> bool:
            return await gone(client, "train-0", "train-1")

        async with asyncio.timeout(60):
            while not await left():  # noqa: ASYNC110  asks the API server
                await asyncio.sleep(0.1)
        await submit(client, "train", WIDE)
        await until_placed(client, "train-0", "train-1", "next", "stays")
        assert victim not in await cards_of(client, "train-0") | await cards_of(client, "train-1")
        killed(platform, "health-monitor")
        [incident] = platform.json("health", "incidents")["items"]
        assert (incident["entity"], incident["kind"], incident["state"]) == (victim, "gpu-lost", "confirmed")
        hardware.card(sick)
        until(lambda: victim not in bad_cards(platform, home), timeout_s=30, what="the card's return")
        [incident] = platform.json("health", "incidents", "--all")["items"]
        assert incident["state"] == "closed"
        receipts = platform.json("why", "--evicted", "train")
        assert f"{sick} of node {home} is sick" in str(receipts)
        assert platform.json("audit")["faults"] == []


def test_the_folder_of_the_platform_has_the_incidents(platform: Up) -> None:
    assert Path(platform.state / "health.db").exists()
