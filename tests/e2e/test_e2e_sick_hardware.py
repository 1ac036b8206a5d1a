"""Hardware breaks while jobs run on it. A card falls off the bus: the gang on it ends whole and starts on other nodes, its neighbours stay, and the node is
used again after a boot. A contained memory error takes one card, and no pod leaves. An error of a program takes nothing.

The nodes' agents read the hardware of emulated nodes; the other services are killed on the way.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import EVENTS, NODES, PODGROUPS, PODS, KubeClient
from hbox_common.model import parse_slices
from hbox_sandbox.trace import TraceNode
from hbox_sandbox.trace.manifests import node_manifest

from .platform_world import Up, placed, until, up
from .traced_jobs import pod

pytestmark = pytest.mark.e2e

SPACE, WIDE, NAMES = "default", 5, ("n0", "n1", "n2")
FAST = {"HBOX_NVML_POLL_S": "0.5", "HBOX_VALIDATED_S": "1"}


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


async def uids_of(client: KubeClient) -> dict[str, str]:
    pods = (await client.json("GET", PODS.path(SPACE)))["items"]
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in pods}


async def device_errors(client: KubeClient, name: str) -> set[str]:
    """How the notes of the pod's Events DeviceError begin."""
    found = (await client.json("GET", EVENTS.path(SPACE)))["items"]
    return {
        " ".join(one["message"].split()[:2])
        for one in found
        if one["reason"] == "DeviceError" and one["involvedObject"]["name"] == name
    }


def bad_cards(platform: Up, name: str) -> list[str]:
    [found] = [one for one in platform.json("nodes")["items"] if one["name"] == name]
    return list(found["health"]["sickCards"])


def killed(platform: Up, service: str) -> None:
    before = platform.pids()[service]
    os.kill(before, signal.SIGKILL)
    until(lambda: platform.pids()[service] != before, timeout_s=30, what=f"another {service}")


def incidents(platform: Up, *more: str) -> dict[tuple[str, str], dict[str, Any]]:
    """By entity and state."""
    return {(one["entity"], one["state"]): one for one in platform.json("health", "incidents", *more)["items"]}


def inject(platform: Up, *words: str) -> None:
    injected = platform.hbox("health", "inject", *words)
    assert injected.returncode == 0, injected.stderr


async def test_a_gang_on_a_broken_card_restarts_elsewhere_and_its_neighbours_go_on(platform: Up) -> None:
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        for name in NAMES:
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
        where = await until_placed(client, "train-0", "train-1")
        assert where["train-0"] != where["train-1"], "no node has room for both"
        home = where["train-0"]
        for name in ("next", "stays"):
            notes = {"on_sick_hardware": "ignore"} if name == "stays" else {}
            body = member(name, "", 1, **notes)
            body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": home}
            await client.json("POST", PODS.path(SPACE), body=body)
        await until_placed(client, "train-0", "train-1", "next", "stays")
        victim = sorted(await cards_of(client, "train-0"))[0]
        sick = victim.partition(":")[2]
        uids = await uids_of(client)
        inject(platform, "xid-79", home, "--card", sick)
        until(lambda: victim in bad_cards(platform, home), timeout_s=30, what="a verdict")
        [stays] = platform.json("why", "stays")["sickPods"]
        assert (stays["node"], stays["state"], stays["policy"], stays["policyOf"]) == (home, "stays", "ignore", "job")
        assert stays["code"].startswith("node-fault")
        assert "delete it" in stays["next"]
        for service in ("health-monitor", "quota-ledger", "binder", "job-controller", "scheduler-core"):
            killed(platform, service)

        async def left() -> bool:
            return await gone(client, "train-0", "train-1")

        async with asyncio.timeout(60):
            while not await left():  # noqa: ASYNC110  asks the API server
                await asyncio.sleep(0.1)
        await submit(client, "train", WIDE)
        where = await until_placed(client, "train-0", "train-1", "next", "stays")
        assert home not in {where["train-0"], where["train-1"]}
        assert where["next"] == where["stays"] == home
        after = await uids_of(client)
        assert (after["next"], after["stays"]) == (uids["next"], uids["stays"])
        killed(platform, "health-monitor")
        [incident] = incidents(platform).values()
        assert (incident["entity"], incident["kind"], incident["action"]) == ("node", "node-fault", "reboot")
        inject(platform, "repaired", home)
        until(lambda: victim not in bad_cards(platform, home), timeout_s=30, what="the card's return")
        assert ("node", "closed") in incidents(platform, "--all")
        assert incidents(platform) == {}
        [receipt] = platform.json("why", "--evicted", "train")["receipts"]
        assert {pod["pod_uid"] for pod in receipt["pods"]} == {uids["train-0"], uids["train-1"]}
        assert f"{sick} of node {home} is sick" in receipt["message"]
        assert platform.json("audit")["faults"] == []


async def test_a_contained_memory_error_takes_its_card_and_an_error_of_a_program_takes_nothing(platform: Up) -> None:
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        where = await until_placed(client, "train-0", "train-1")
        home = where["train-1"]
        mine = sorted(card.partition(":")[2] for card in await cards_of(client, "train-1"))
        inject(platform, "program-error", home, "--card", mine[0])
        inject(platform, "contained", home, "--card", mine[1])
        until(lambda: bad_cards(platform, home) == [f"gpu:{mine[1]}"], timeout_s=30, what="a verdict")
        found = incidents(platform)
        assert {(entity.partition(":")[0], one["code"], one["blame"]) for (entity, _), one in found.items()} == {
            ("gpu", "94", "hardware"),
            ("job", "31", "user"),
        }
        assert await until_placed(client, "train-0", "train-1") == where, "no pod leaves"
        async with asyncio.timeout(30):
            while not (noted := await device_errors(client, "train-1")):  # noqa: ASYNC110  asks the API server
                await asyncio.sleep(0.1)
        assert noted <= {"xid 31", "xid 94", "nvml row-pending"}
        assert platform.json("audit")["faults"] == []


def test_the_folder_of_the_platform_has_the_incidents(platform: Up) -> None:
    assert Path(platform.state / "health.db").exists()


def test_health_of_a_node_is_shown_and_an_unknown_node_is_an_error(platform: Up) -> None:
    assert platform.json("health", "show", "n0")["node"] == "n0"
    unknown = platform.hbox("health", "show", "n9")
    assert unknown.returncode != 0
    assert "there is no node n9" in unknown.stderr


async def test_operators_exempt_a_fault_maintain_a_node_and_close_an_incident(platform: Up) -> None:
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        name = "n3"
        box = TraceNode(name, cpu_milli=64_000, memory_mib=512 * 1024, cards=8, model="NVIDIA-H100-80GB-HBM3")
        await client.json("POST", NODES.path(), body=node_manifest(box, now="2026-01-01T00:00:00Z"))
        until(lambda: name in {one["name"] for one in platform.json("nodes")["items"]}, timeout_s=30, what="the node")
        card = platform.json("node", "show", name)["cards"][0]["uuid"]
        why = ("--reason", "card is ordered", "--operator", "ann")
        exempt = platform.json("health", "exempt", name, "--check", "card", "--owner", "ann", "--until", "1d", *why)
        [listed] = platform.json("health", "exemptions")["items"]
        assert (listed["id"], listed["node"], listed["check"], listed["owner"]) == (exempt["id"], name, "card", "ann")
        inject(platform, "contained", name, "--card", card)
        until(lambda: (f"gpu:{card}", "confirmed") in incidents(platform, name), timeout_s=30, what="an incident")
        assert incidents(platform, name)[f"gpu:{card}", "confirmed"]["heldBy"] == ["exemption"]
        assert bad_cards(platform, name) == []
        platform.json("health", "end-exemption", exempt["id"], *why)
        until(lambda: bad_cards(platform, name) != [], timeout_s=30, what="an isolated card")
        [incident] = incidents(platform, name).values()
        platform.json("health", "close", incident["id"], *why)
        until(lambda: bad_cards(platform, name) == [], timeout_s=30, what="a card in service")

        body = member("onwards", "", 1)
        body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": name}
        await client.json("POST", PODS.path(SPACE), body=body)
        await until_placed(client, "onwards")
        platform.json("health", "maintenance", name, "--for", "2h", *why)
        async with asyncio.timeout(60):
            while not await gone(client, "onwards"):  # noqa: ASYNC110  asks the API server
                await asyncio.sleep(0.1)

        def closed() -> bool:
            """The cordon waits while the limit of cordons is reached; the verdict does not."""
            return name in {one["node"] for one in platform.json("health", "ls")["items"]}

        until(closed, timeout_s=30, what="a verdict that closes the node")
        platform.json("health", "maintenance", name, "--end", *why)
        until(lambda: not closed(), timeout_s=30, what="the node in service")
        verbs = [one["verb"] for one in platform.json("health", "audit", name)["items"]]
        assert verbs == ["end-maintenance", "maintenance", "close", "exempt"]
        assert {one["operator"] for one in platform.json("health", "audit")["items"]} == {"ann"}
        policy = platform.json("health", "policy")
        assert {"name": "validated_s", "value": "1", "source": "setting"} in policy["values"]
        refused = platform.hbox("health", "close", "n3-none", "--reason", "x")
        assert (refused.returncode, "there is no open incident n3-none" in refused.stderr) == (5, True)
