"""A card is its UUID (ADR 85): cards fall off the bus, are renumbered, return and swap on a running platform while services are killed."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from hbox_common.kube import MERGE_PATCH, NODES, PODS, KubeClient
from hbox_common.model import parse_slices
from hbox_sandbox.kubelet.roots import DEVICE_IDS

from .. import waiting
from .platform_world import Up, until, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE = "default"
SERVICES = ("quota-ledger", "topology-collector", "health-monitor", "node-agent")
#: Register annotation, resource and what one card counts for in it.
MAKERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "hami": (
        "hami.io/node-nvidia-register", "nvidia.com/gpu",
        {"count": 10, "devmem": 40_960, "devcore": 100, "type": "NVIDIA-NVIDIA A100-SXM4-40GB", "mode": "hami-core"},
    ),
    "ascend": (
        "hami.io/node-register-Ascend910B3", "huawei.com/Ascend910B3",
        {"count": 4, "devmem": 65_536, "devcore": 20, "type": "Ascend910B3", "custominfo": {"NetworkID": 0}},
    ),
}  # fmt: skip
#: NVIDIA's own plugin: node-agent reads the ids of its cards from the kubelet.
MAKERS |= {name: (DEVICE_IDS, "nvidia.com/gpu", {"count": 1}) for name in ("plain", "plain-sick", "plain-planted")}
MAKERS |= {"sick": MAKERS["hami"], "planted": MAKERS["hami"]}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("uuid") / "state") as running:
        yield running


def register(maker: str, cards: str, *, sick: str = "") -> dict[str, str]:
    """The annotation of a plugin that numbers these cards, a letter each, from 0 up."""
    key, resource, one = MAKERS[maker]
    if key == DEVICE_IDS:
        return {key: json.dumps({resource: [f"{maker}-{card}" for card in cards if card not in sick]})}
    found = [{"id": f"{maker}-{card}", "index": i, "health": card not in sick, **one} for i, card in enumerate(cards)]
    return {key: json.dumps(found)}


async def registered(platform: Up, client: KubeClient, maker: str, cards: str, *, sick: str = "") -> None:
    """The plugin registers anew, and topology-collector has read it."""
    key, resource, one = MAKERS[maker]
    amounts = {resource: str(int(one["count"]) * len(cards))}
    healthy = {resource: str(len(set(cards) - set(sick)))} if key == DEVICE_IDS else amounts
    body = {"metadata": {"annotations": register(maker, cards, sick=sick)}}
    await client.json("PATCH", NODES.path("", maker), body=body, content_type=MERGE_PATCH)
    body = {"status": {"allocatable": healthy, "capacity": amounts}}
    await client.json("PATCH", f"{NODES.path('', maker)}/status", body=body, content_type=MERGE_PATCH)

    def seen() -> bool:
        return {card["uuid"] for card in shown(platform, maker) if not card.get("gone")} >= {f"{maker}-{c}" for c in cards}

    await asyncio.to_thread(until, seen, timeout_s=30, what=f"{maker} has {cards}")


def shown(platform: Up, maker: str) -> list[dict[str, Any]]:
    return [card for card in platform.json("nodes", "--devices")["items"] if card["node"] == maker]


def killed(platform: Up) -> None:
    """`kill -9` of the services that keep cards; each runs again."""
    before = platform.pids()
    for name in SERVICES:
        os.kill(before[name], signal.SIGKILL)
    until(lambda: all(platform.pids().get(n, before[n]) != before[n] for n in SERVICES), timeout_s=30, what="started again")


async def submit(client: KubeClient, maker: str, name: str) -> None:
    limits = {MAKERS[maker][1]: "1"}
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "10m"}, "limits": limits}}
    spec = {"schedulerName": "hbox", "nodeSelector": {"kubernetes.io/hostname": maker}, "containers": [container]}
    metadata = {"name": f"{maker}-{name}"}
    await client.json("POST", PODS.path(SPACE), body={"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


async def card(client: KubeClient, maker: str, name: str) -> str:
    """The letter of the card that the running pod was given."""

    async def found() -> str:
        pod = await client.json("GET", PODS.path(SPACE, f"{maker}-{name}"))
        text = (pod["metadata"].get("annotations") or {}).get("hbox.io/cards", "")
        return ",".join(s.card for s in parse_slices(text)) if pod["status"].get("phase") == "Running" else ""

    text = str(await waiting.until(found, f"{maker}-{name} runs", timeout_s=60))
    assert text.startswith(f"gpu:{maker}-"), text
    return text.removeprefix(f"gpu:{maker}-")


async def holders(client: KubeClient, maker: str) -> dict[str, str]:
    """Pod by card, for all pods that are bound; no card is booked twice."""
    found: dict[str, str] = {}
    for pod in (await client.json("GET", PODS.path(SPACE)))["items"]:
        name, text = pod["metadata"]["name"], (pod["metadata"].get("annotations") or {}).get("hbox.io/cards", "")
        if (
            not name.startswith(maker)
            or not pod["spec"].get("nodeName")
            or pod["status"].get("phase") in ("Failed", "Succeeded")
        ):
            continue
        for one in parse_slices(text):
            assert one.card not in found, f"{one.card} has {found[one.card]} and {name}"
            found[one.card] = name
    return found


@pytest.mark.parametrize("maker", ["hami", "ascend"])
async def test_cards_that_vanish_return_and_swap_are_never_booked_twice(platform: Up, client: KubeClient, maker: str) -> None:
    await made(client, maker, "abcd")
    await submit(client, maker, "p0")
    await submit(client, maker, "p1")
    held = {name: await card(client, maker, name) for name in ("p0", "p1")}
    lost, kept = held["p0"], held["p1"]
    idle = [c for c in "abcd" if c not in (lost, kept)]

    await registered(platform, client, maker, "".join(c for c in "abcd" if c != lost))
    await asyncio.to_thread(killed, platform)
    for i in range(3):
        await submit(client, maker, f"q{i}")
    given = {await card(client, maker, name) for name in await running(client, maker, "q", 2)}
    assert given == set(idle)
    before = await holders(client, maker)
    assert before[f"gpu:{maker}-{kept}"] == f"{maker}-p1"

    table = await asyncio.to_thread(shown, platform, maker)
    beside = {f"gpu:{c['uuid']}": one["pod"].removeprefix(f"{SPACE}/") for c in table for one in c["owners"]}
    assert beside == {id_: name for id_, name in before.items() if id_ != f"gpu:{maker}-{lost}"}
    gone = (await asyncio.to_thread(platform.json, "node", "show", maker))["gone"]
    assert [(g["name"], g["books"]) for g in gone] == [(f"{maker}-{lost}", [f"{SPACE}/{maker}-p0"])], gone
    assert await audit(platform) == []
    noted = (await asyncio.to_thread(platform.json, "audit"))["notes"]
    assert [n for n in noted if f"lost card {maker}-{lost}, which {SPACE}/{maker}-p0 holds" in n], noted

    await registered(platform, client, maker, "".join(reversed([lost, *idle, kept])))
    await asyncio.to_thread(killed, platform)
    freed, last = next((id_, name.removeprefix(f"{maker}-")) for id_, name in before.items() if "-q" in name)
    late = next(name for name in ("q0", "q1", "q2") if f"{maker}-{name}" not in before.values())
    await ended(client, maker, last)
    assert f"gpu:{maker}-{await card(client, maker, late)}" == freed
    after = await holders(client, maker)
    assert set(after) == {f"gpu:{maker}-{c}" for c in "abcd"}
    assert {id_: name for id_, name in after.items() if id_ != freed} == {k: v for k, v in before.items() if k != freed}
    assert await audit(platform) == []


async def test_cards_of_a_plain_plugin_that_vanish_return_and_swap_are_never_booked_twice(
    platform: Up, client: KubeClient
) -> None:
    maker = "plain"
    await made(client, maker, "abcd")
    for name in ("p0", "p1"):
        await submit(client, maker, name)
    held = await booked(platform, maker, {"p0", "p1"})
    lost, kept = held["p0"], held["p1"]
    idle = [c for c in "abcd" if c not in (lost, kept)]

    await registered(platform, client, maker, "".join(c for c in "abcd" if c != lost))
    await asyncio.to_thread(killed, platform)
    for i in range(3):
        await submit(client, maker, f"q{i}")
    # The kubelet admits by count: p0 still has one of the three cards that are allocatable.
    q0 = (await running(client, maker, "q", 1))[0]
    given = await booked(platform, maker, {"p1", q0})
    assert given["p1"] == kept
    assert given[q0] in idle
    gone = (await asyncio.to_thread(platform.json, "node", "show", maker))["gone"]
    assert [(g["name"], g["books"]) for g in gone] == [(f"{maker}-{lost}", [f"{SPACE}/{maker}-p0"])], gone
    assert await audit(platform) == []  # a Node object of a plain plugin has no UUIDs to compare

    await ended(client, maker, "p0")
    q1 = next(name for name in await running(client, maker, "q", 2) if name != q0)
    before = await booked(platform, maker, {"p1", q0, q1})
    assert before == given | {q1: (set(idle) - {given[q0]}).pop()}

    await registered(platform, client, maker, "".join(reversed([lost, *idle, kept])))
    await asyncio.to_thread(killed, platform)
    q2 = next(name for name in ("q0", "q1", "q2") if name not in (q0, q1))
    assert await booked(platform, maker, {"p1", q0, q1, q2}) == before | {q2: lost}
    assert await audit(platform) == []

    await registered(platform, client, maker, f"e{lost}{''.join(idle)}")
    await submit(client, maker, "r")
    await ended(client, maker, "p1")
    assert await booked(platform, maker, {q0, q1, q2, "r"}) == {name: before.get(name, lost) for name in (q0, q1, q2)} | {
        "r": "e"
    }
    assert await audit(platform) == []


async def test_sick_card_of_a_plain_plugin_keeps_its_verdict_when_it_vanishes(platform: Up, client: KubeClient) -> None:
    maker = "plain-sick"
    await made(client, maker, "abcd")
    await registered(platform, client, maker, "abcd")
    await registered(platform, client, maker, "abcd", sick="b")
    await asyncio.to_thread(until, lambda: bad(platform, maker) == {f"{maker}-b"}, timeout_s=30, what="the verdict")
    await registered(platform, client, maker, "acd")
    await asyncio.to_thread(killed, platform)
    for i in range(4):
        await submit(client, maker, f"q{i}")
    names = set(await running(client, maker, "q", 3))
    assert set((await booked(platform, maker, names)).values()) == set("acd")
    await registered(platform, client, maker, "abcd")  # well again, and in use once it has been so for `recover_after_s`
    await asyncio.to_thread(until, lambda: bad(platform, maker) == {f"{maker}-b"}, timeout_s=20, what="the same verdict")
    assert set(await booked(platform, maker, names)) == names
    assert await audit(platform) == []


async def ended(client: KubeClient, maker: str, name: str) -> None:
    await client.json("DELETE", PODS.path(SPACE, f"{maker}-{name}"), body={"gracePeriodSeconds": 0}, expect=(200, 202))


async def booked(platform: Up, maker: str, names: set[str]) -> dict[str, str]:
    """The card of each of these pods, by the books and by the kubelet alike; no card is booked twice."""

    def found() -> dict[str, str]:
        by: dict[str, dict[str, str]] = {"books": {}, "kubelet": {}}
        done = platform.hbox("-o", "json", "node", "show", maker)
        for one in json.loads(done.stdout)["cards"] if done.returncode == 0 else ():  # services that were killed answer soon
            for who, cards in by.items():
                assert len(one[who]) < 2, one
                cards |= {name.removeprefix(f"{SPACE}/{maker}-"): one["uuid"].removeprefix(f"{maker}-") for name in one[who]}
        return by["books"] if by["books"].keys() == names and by["books"] == by["kubelet"] else {}

    return dict(await asyncio.to_thread(until, found, timeout_s=60, what=f"cards of {sorted(names)} on {maker}"))


async def audit(platform: Up) -> list[str]:
    """The faults that `hbox audit` finds; with faults its exit status is 1."""
    done = await asyncio.to_thread(platform.hbox, "-o", "json", "audit")
    return list(json.loads(done.stdout)["faults"])


async def test_a_sick_card_that_vanishes_keeps_its_verdict_and_its_neighbour_is_used(platform: Up, client: KubeClient) -> None:
    maker = "sick"
    await made(client, maker, "abcd")
    await registered(platform, client, maker, "abcd", sick="b")
    await asyncio.to_thread(until, lambda: bad(platform, maker) == {f"{maker}-b"}, timeout_s=30, what="the verdict")
    await registered(platform, client, maker, "acd")
    await asyncio.to_thread(killed, platform)
    for i in range(4):
        await submit(client, maker, f"q{i}")
    assert {await card(client, maker, n) for n in await running(client, maker, "q", 3)} == set("acd")
    await registered(platform, client, maker, "abcd", sick="b")
    await asyncio.to_thread(until, lambda: bad(platform, maker) == {f"{maker}-b"}, timeout_s=30, what="the verdict again")
    assert len(await holders(client, maker)) == 3
    assert await audit(platform) == []


def bad(platform: Up, maker: str) -> set[str]:
    return {card["uuid"] for card in shown(platform, maker) if card["health"] != "ok"}


async def made(client: KubeClient, maker: str, cards: str) -> None:
    _, resource, one = MAKERS[maker]
    body = node(maker)
    body["metadata"]["annotations"] = register(maker, cards)
    size = {"cpu": "64", "memory": "512Gi", "pods": "110", resource: str(int(one["count"]) * len(cards))}
    body["status"] |= {"capacity": size, "allocatable": size}
    await client.json("POST", NODES.path(), body=body)


async def running(client: KubeClient, maker: str, prefix: str, count: int) -> list[str]:
    async def names() -> list[str]:
        pods = (await client.json("GET", PODS.path(SPACE)))["items"]
        found = [
            p["metadata"]["name"].removeprefix(f"{maker}-")
            for p in pods
            if p["metadata"]["name"].startswith(f"{maker}-{prefix}") and p["status"].get("phase") == "Running"
        ]
        return found if len(found) >= count else []

    return list(await waiting.until(names, f"{count} of {maker}-{prefix} run", timeout_s=60))


async def test_the_audit_finds_a_planted_renumbering(platform: Up, client: KubeClient) -> None:
    maker = "planted"
    await made(client, maker, "ab")
    await submit(client, maker, "p")
    held = await card(client, maker, "p")
    other = "ab".replace(held, "")
    path = PODS.path(SPACE, f"{maker}-p")
    key = "hami.io/vgpu-devices-allocated"
    text = (await client.json("GET", path))["metadata"]["annotations"][key]
    body = {"metadata": {"annotations": {key: text.replace(f"{maker}-{held}", f"{maker}-{other}")}}}
    await client.json("PATCH", path, body=body, content_type=MERGE_PATCH)
    faults = await audit(platform)
    assert len(faults) == 1, faults
    assert f"pod {SPACE}/{maker}-p runs on" in faults[0], faults
    assert f"{maker}-{other}" in faults[0], faults
    assert f"{maker}-{held}" in faults[0], faults
