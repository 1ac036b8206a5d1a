"""Pods whose containers ask for cards each by itself, on a running platform: `green` has two cards of NVIDIA's as HAMi's plugin registers them, `both` one of
these and one of Hygon's. What is placed is the same over a restart of the ledger, and the same story is told by `hbox simulate cycle`."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, PODS, KubeClient

from .platform_world import Up, given_of, simulate_cycle, until, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE = "default"
GPU, DCU = "nvidia.com/gpu", "hygon.com/dcunum"


def registered(name: str, cards: int, dcus: int = 0) -> dict[str, Any]:
    body = node(name)
    size = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(10 * cards), **({DCU: str(4 * dcus)} if dcus else {})}
    body["status"] |= {"capacity": size, "allocatable": size}
    found = [
        {
            "id": f"{name}-GPU-{i}",
            "index": i,
            "count": 10,
            "devmem": 8000,
            "devcore": 100,
            "type": "NVIDIA-A100",
            "health": True,
        }
        for i in range(cards)
    ]
    body["metadata"]["labels"] = {"kubernetes.io/hostname": name}
    body["metadata"]["annotations"] = {"hami.io/node-nvidia-register": json.dumps(found)}
    if dcus:
        body["metadata"]["annotations"]["hami.io/node-dcu-register"] = f"{name}-DCU-0,4,32768,100,DCU-Z100L,0,true:"
    return body


def container(name: str, **limits: str) -> dict[str, Any]:
    names = {"gpu": GPU, "mem": "nvidia.com/gpumem", "cores": "nvidia.com/gpucores", "dcu": DCU, "dcumem": "hygon.com/dcumem"}
    asked = {names[key]: amount for key, amount in limits.items()}
    return {"name": name, "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": asked}}


def pod(name: str, *containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **notes: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": SPACE,
            "annotations": {key.replace("__", "/").replace("_", "-"): text for key, text in notes.items()},
        },
        "spec": {
            "schedulerName": "hbox",
            "terminationGracePeriodSeconds": 1,
            "containers": list(containers),
            **({"initContainers": list(init)} if init else {}),
        },
    }


#: Its first container loads 6000 MiB of a card and ends; then two run side by side, on slices that one card holds together.
LOADER = pod(
    "loader", container("serve", gpu="1", mem="3000", cores="30"), container("plain"), container("cache", gpu="1", mem="2000", cores="20"),
    init=(container("load", gpu="1", mem="6000", cores="10"),),
)  # fmt: skip
LOADER["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "green"}
MIXED = pod("mixed", container("a", gpu="1", mem="1000", cores="10"), container("b", dcu="1", dcumem="1000"))


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("device-requests") / "state") as running:
        asyncio.run(_nodes(running))
        yield running


async def _nodes(running: Up) -> None:
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        for body in (registered("green", 2), registered("both", 1, 1)):
            await client.json("POST", NODES.path(), body=body)


async def placed(platform: Up, client: KubeClient, name: str) -> tuple[str, str]:
    """Node and cards of a pod, when it has one."""
    deadline = asyncio.get_running_loop().time() + 60
    while True:
        found = await client.json("GET", PODS.path(SPACE, name))
        if found["spec"].get("nodeName"):
            return found["spec"]["nodeName"], found["metadata"]["annotations"]["hbox.io/cards"]
        assert asyncio.get_running_loop().time() < deadline, platform.json("jobs")["items"]
        await asyncio.sleep(0.1)


async def test_containers_get_slices_and_the_init_container_takes_no_more_than_the_most_at_a_time(
    platform: Up, client: KubeClient
) -> None:
    await client.json("POST", PODS.path(SPACE), body=LOADER)
    where, cards = await placed(platform, client, "loader")
    assert where == "green"
    assert given_of(cards) == "50:6000::2", (
        "50 % for the two that run together, 6000 MiB while the first one loads, two of the card's shares"
    )


async def test_a_pod_of_two_kinds_goes_where_both_are(platform: Up, client: KubeClient) -> None:
    await client.json("POST", PODS.path(SPACE), body=MIXED)
    where, cards = await placed(platform, client, "mixed")
    assert (where, [part.split(":")[0] for part in cards.split(",")]) == ("both", ["gpu", "gpu"])
    found = {item["name"]: item for item in platform.json("nodes", "--devices")["items"]}
    dcu = found["both/16"]
    assert (dcu["kind"], dcu["slots"], dcu["memoryMib"]["used"]) == ("DCU", {"used": 1, "total": 4}, 1000)
    assert [owner["pod"] for owner in dcu["owners"]] == ["default/mixed"]
    lines = platform.hbox("nodes", "--devices").stdout.splitlines()
    assert any(line.split()[:3] == ["both", "16", "DCU"] and "default/mixed" in line for line in lines), lines
    kinds = {item["kind"]: item["cards"]["total"] for item in platform.json("nodes", "--kinds")["items"]}
    assert kinds == {"NVIDIA": 3, "DCU": 1}


async def test_what_does_not_fit_says_why_and_comes_when_there_is_room(platform: Up, client: KubeClient) -> None:
    """Two containers of which each needs a card for itself: `green` has one idle card, `both` none."""
    big = pod("big", container("a", gpu="1", mem="7900"), container("b", gpu="1", mem="7900"))
    await client.json("POST", PODS.path(SPACE), body=big)

    def reason() -> str:
        jobs = platform.json("jobs", "--state-is", "waiting")["items"]
        return next((str(job["reason"]) for job in jobs if "big" in job["name"] and job["reason"]), "")

    said = await asyncio.to_thread(until, reason, timeout_s=20, what="the reason")
    assert "CardInsufficientMemory" in said, said
    told = await asyncio.to_thread(platform.json, "why", "big")
    (cards,) = told["cardReasons"]
    assert (cards["pods"], cards["nodes"], cards["fitting"]) == (["big"], 2, 0)
    assert {one["node"] for one in cards["best"]} == {"green", "both"}
    assert cards["labels"]["CardInsufficientMemory"] >= 2
    assert "1/1 CardInsufficientMemory" in (await asyncio.to_thread(platform.hbox, "why", "big")).stdout
    for name in ("loader", "mixed"):
        await client.json("DELETE", PODS.path(SPACE, name))
    where, cards = await placed(platform, client, "big")
    assert (where, given_of(cards)) == ("green", "0:7900,0:7900")


async def test_the_ledger_knows_the_same_after_a_restart_and_its_audit_is_clean(platform: Up, client: KubeClient) -> None:
    await client.json(
        "POST", PODS.path(SPACE), body=pod("pair", container("a", gpu="1", mem="500"), container("b", gpu="1", mem="700"))
    )
    where, cards = await placed(platform, client, "pair")
    assert (where, given_of(cards)) == ("both", "0:1200::2")
    before = platform.pids()["quota-ledger"]
    os.kill(before, signal.SIGKILL)
    await asyncio.to_thread(until, lambda: platform.pids()["quota-ledger"] != before, timeout_s=60, what="another quota-ledger")

    def clean() -> bool:
        done = platform.hbox("audit", "-o", "json")
        return done.returncode == 0 and json.loads(done.stdout)["faults"] == []

    await asyncio.to_thread(until, clean, timeout_s=60, what="a clean audit")
    proof = platform.json("audit", "--ledger")
    assert proof["faults"] == []
    third = pod("third", container("a", gpu="1", mem="6700"), container("b", gpu="1", mem="100"))
    await client.json("POST", PODS.path(SPACE), body=third)
    where, cards = await placed(platform, client, "third")
    assert (where, given_of(cards)) == ("both", "0:6800::2"), "all that the books leave of the card"


def test_the_same_story_is_told_of_a_saved_cluster(tmp_path: Path) -> None:
    said = simulate_cycle(tmp_path, [registered("green", 2), registered("both", 1, 1), LOADER, MIXED])
    found = {one["pod"]: (one["node"], one["devices"]) for one in said["bindings"]}
    assert found["default/mixed"] == ("both", ["both-GPU-0", "both-DCU-0"])
    assert found["default/loader"][1] in (["green-GPU-0"], ["both-GPU-0"])
