"""Cards and their RDMA adapters, on a running platform: node-agent reads the boxes' PCI trees, and jobs that talk over RDMA get cards beside adapters of their
own."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from hbox_common.kube import NODES, PODS, KubeClient
from hbox_sandbox.kubelet.topology import NUMA
from hbox_sandbox.trace import TraceNode
from hbox_sandbox.trace.manifests import node_manifest

from .platform_world import Up, placed, until, up
from .traced_jobs import node, pod

pytestmark = pytest.mark.e2e

#: The adapters beside cards 0 to 7 of an H100 box.
ADAPTERS = [f"mlx5_{i}" for i in (0, 3, 4, 5, 6, 9, 10, 11)]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("rdma") / "state") as running:
        asyncio.run(_fill(running))
        yield running


def registered(name: str, **numa: object) -> dict[str, Any]:
    """An H100 box whose cards HAMi's plugin registers, and hands over as HBox chose."""
    box = TraceNode(name, cpu_milli=64_000, memory_mib=512 * 1024, cards=8, model="NVIDIA-H100-80GB-HBM3")
    found = node_manifest(box, now="2026-01-01T00:00:00Z")
    found["metadata"]["annotations"][NUMA] = json.dumps({"policy": "none", "cpuManager": "none", "box": "h100", **numa})
    for part in ("capacity", "allocatable"):
        found["status"].setdefault(part, {})["rdma/hca"] = "8"
    return found


async def _fill(running: Up) -> None:
    strict = node("strict")
    strict["metadata"]["annotations"] = {NUMA: json.dumps({"policy": "restricted", "box": "h100"})}
    for part in ("capacity", "allocatable"):
        strict["status"][part] = {**strict["status"][part], "rdma/hca": "8"}
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        for body in (
            registered("whole"),
            registered("broken", down=["mlx5_3"]),
            strict,
            registered("far", box="l20", acs=True),
        ):
            await client.json("POST", NODES.path(), body=body)
    for name in ("whole", "broken"):
        until(lambda name=name: nearest(running, name).get(0), timeout_s=60, what=f"the adapters of {name}")  # type: ignore[misc]


def nearest(platform: Up, name: str) -> dict[int, list[str]]:
    """Of each card, by what the scheduler is told."""
    numa = platform.json("node", "show", name)["numa"]
    return {one["card"]: one["adapters"] for one in (numa or {"adapters": []})["adapters"] if one["near"]}


def job(name: str, on: str, *, rdma: int = 0, cpu: str = "1") -> dict[str, Any]:
    body = pod(name)
    amounts = {"cpu": cpu, "memory": "64Mi"}
    limits = amounts | {"nvidia.com/gpu": "4"} | ({"rdma/hca": str(rdma)} if rdma else {})
    body["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": limits}
    body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": on}
    return body


async def run(platform: Up, *bodies: dict[str, Any]) -> None:
    """One after the other, each until it has its place."""
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        for body in bodies:
            await client.json("POST", PODS.path("default"), body=body)
            async with asyncio.timeout(30):
                while body["metadata"]["name"] not in await placed(client, "default"):  # noqa: ASYNC110  asks the API server
                    await asyncio.sleep(0.1)


def books(platform: Up, name: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for card in platform.json("node", "show", name)["cards"]:
        for holder in card["books"]:
            found.setdefault(holder.removeprefix("default/"), []).append(card["index"])
    return found


def test_the_nearest_adapters_of_each_card_are_shown(platform: Up) -> None:
    assert nearest(platform, "whole") == {card: [name] for card, name in enumerate(ADAPTERS)}
    shown = platform.hbox("node", "show", "broken", "--numa").stdout
    assert "NEAREST ADAPTERS" in shown
    assert "adapters without an active port: mlx5_3" in shown
    assert "each of 8 cards has an RDMA adapter below its own host bridge" in platform.hbox("check", "node", "whole").stdout
    assert "no port of mlx5_3 is active" in platform.hbox("check", "node", "broken").stdout
    assert "have no adapter below their own host bridge" in platform.hbox("check", "node", "far").stdout


def test_bridges_that_redirect_are_told(platform: Up) -> None:
    assert "no redirect at 32 bridges between cards and adapters" in platform.hbox("check", "node", "whole").stdout
    found = platform.hbox("check", "node", "far")
    assert (found.returncode, "redirects at 8 of 8 bridges" in found.stdout) == (0, True)
    assert (
        "ACS redirect on at bridges between cards and adapters: 0000:12:00.0"
        in platform.hbox("node", "show", "far", "--numa").stdout
    )


async def test_two_jobs_of_four_cards_get_cards_beside_their_own_adapters(platform: Up) -> None:
    await run(platform, job("a", "whole", rdma=4), job("b", "whole", rdma=4))
    got, near = await asyncio.to_thread(books, platform, "whole"), await asyncio.to_thread(nearest, platform, "whole")
    rails = {name: {near[card][0] for card in cards} for name, cards in got.items()}
    assert {name: len(own) for name, own in rails.items()} == {"a": 4, "b": 4}
    assert not rails["a"] & rails["b"]


async def test_a_card_without_its_adapter_goes_to_the_job_that_needs_none(platform: Up) -> None:
    await run(platform, job("rails", "broken", rdma=4), job("plain", "broken"))
    assert await asyncio.to_thread(books, platform, "broken") == {"rails": [0, 2, 3, 4], "plain": [1, 5, 6, 7]}
    told = (await asyncio.to_thread(platform.hbox, "why", "--placed", "rails")).stdout
    assert "rdma-aware" in json.dumps(await asyncio.to_thread(platform.json, "why", "--placed", "rails")), told


async def test_an_adapter_that_comes_up_again_is_heard_of(platform: Up) -> None:
    port = next(platform.state.rglob("far/host/sys/devices/pci*/**/infiniband/mlx5_0/ports/1/state"))
    port.write_text("1: DOWN")

    def down() -> bool:
        return "mlx5_0" in platform.json("node", "show", "far")["numa"]["adaptersDown"]

    await asyncio.to_thread(until, down, timeout_s=40, what="the adapter is down")
    port.write_text("4: ACTIVE")
    await asyncio.to_thread(until, lambda: not down(), timeout_s=40, what="it is up again")


async def test_a_kubelet_that_aligns_cards_and_rdma_devices_refuses_nobody(platform: Up) -> None:
    await run(platform, job("x", "strict", rdma=4, cpu="4"), job("y", "strict", rdma=4, cpu="4"))

    def both() -> Any:
        found = platform.json("node", "show", "strict")["containers"]
        return found if len(found) == 2 else None

    for one in await asyncio.to_thread(until, both, timeout_s=30, what="what the kubelet gave"):
        zones = {part["resource"]: set(part["numa"]) for part in one["devices"]}
        assert len(zones["rdma/hca"]) == 1
        assert zones["rdma/hca"] == zones["nvidia.com/gpu"]
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        found: Any = await client.json("GET", PODS.path("default"))
    assert [item["metadata"]["name"] for item in found["items"] if item["status"].get("phase") == "Failed"] == []
