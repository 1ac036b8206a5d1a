"""Inference servers: replicas over nodes are under one leaf, a scaler goes from and to zero, parts of cards are booked where plain plugins gave them."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Iterator

import pytest

from hbox_common.kube import HYPERNODES, NODES, KubeClient

from .. import waiting
from ..guide_workloads import manifests
from ..owner_controllers import Controllers
from ..owners import GPU, Json, create, install, leader_worker_set, patch, placed_of, pod_spec
from .platform_world import Up, emptied, up
from .test_e2e_fabric import hypernode
from .test_e2e_workload_guide import a_node, cards_agree, pods_of, remove

pytestmark = pytest.mark.e2e

SPACE = "default"
HOST = "kubernetes.io/hostname"
HARD = {"volcano.sh/network-topology-mode": "hard", "volcano.sh/network-topology-highest-tier": "1"}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("serving") / "state") as running:
        yield running


@pytest.fixture
async def client(platform: Up) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        yield client
        await emptied(platform, client, SPACE)
        for kind in (NODES, HYPERNODES):
            for one in (await client.json("GET", kind.path()))["items"]:
                await client.json("DELETE", kind.path(name=one["metadata"]["name"]))


def pod(name: str, cards: int, *, on: str | None = None) -> Json:
    spec = pod_spec(cards=cards) | ({"nodeSelector": {HOST: on}} if on else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def placed(client: KubeClient, prefix: str, count: int) -> dict[str, str]:
    async def there() -> bool:
        return len(await placed_of(client, SPACE, prefix)) == count

    await waiting.until(there, f"{count} placed pods of {prefix}", timeout_s=60)
    return await placed_of(client, SPACE, prefix)


async def test_a_replica_over_two_nodes_is_under_one_leaf_though_idle_nodes_are_under_others(
    platform: Up, client: KubeClient
) -> None:
    await install(client, "LeaderWorkerSet", "StatefulSet")
    used = {"n0": 3, "n1": 3, "n2": 0, "n3": 8, "n4": 0, "n5": 8}
    for name in used:
        await client.json("POST", NODES.path(), body=a_node(name, 8, hami=False))
    for number in range(3):
        members = {"exactMatch": {"name": f"n{2 * number}"}}, {"exactMatch": {"name": f"n{2 * number + 1}"}}
        await client.json("POST", HYPERNODES.path(), body=hypernode(f"leaf-{number}", 1, *members))
    spine = ({"exactMatch": {"name": f"leaf-{number}"}} for number in range(3))
    await client.json("POST", HYPERNODES.path(), body=hypernode("spine", 2, *spine))
    await create(client, SPACE, [pod(f"other-{name}", cards, on=name) for name, cards in used.items() if cards])
    await placed(client, "other-", 4)
    (top,) = manifests("leaderworkerset")
    of = copy.deepcopy(top["spec"]["leaderWorkerTemplate"]["workerTemplate"])
    of["spec"]["containers"][0]["resources"]["limits"][GPU] = "5"  # one pod a node
    objects = [*leader_worker_set("vllm", 1, 2, of=of | {"metadata": {}}, notes=HARD).objects]
    await create(client, SPACE, objects)
    assert set((await placed(client, "vllm-", 2)).values()) == {"n0", "n1"}
    assert (await asyncio.to_thread(platform.json, "audit"))["faults"] == []
    await remove(client, objects)  # also the owners: for these the places of deleted pods are kept


async def test_a_scaler_goes_from_zero_and_back(platform: Up, client: KubeClient) -> None:
    """As KEDA does: it changes the replicas, and controllers create and delete pods."""
    await install(client, "Deployment", "ReplicaSet")
    await client.json("POST", NODES.path(), body=a_node("n0", 1, hami=True))
    (top,) = [one for one in manifests("xinference-deployment") if one["metadata"]["name"] == "xinference-worker"]
    top["spec"]["replicas"] = 0
    controllers = Controllers(client, SPACE, kinds=("Deployment", "ReplicaSet"))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(controllers.run())
        await create(client, SPACE, [top])
        for replicas in (2, 0, 1):
            await patch(client, "Deployment", SPACE, "xinference-worker", {"spec": {"replicas": replicas}})
            await placed(client, "xinference-worker-", replicas)

            async def booked(replicas: int = replicas) -> bool:
                (card,) = (await asyncio.to_thread(platform.json, "node", "show", "n0"))["cards"]
                return len(card["books"]) == replicas

            await waiting.until(booked, f"{replicas} parts of the card are in use", timeout_s=60)
        await patch(client, "Deployment", SPACE, "xinference-worker", {"spec": {"replicas": 0}})
        await placed(client, "xinference-worker-", 0)
        task.cancel()
    assert (await asyncio.to_thread(platform.json, "audit"))["faults"] == []


async def test_parts_on_a_node_of_a_plain_plugin_are_booked_on_the_cards_that_it_gave(platform: Up, client: KubeClient) -> None:
    """It gives each pod cards of its own; the plan puts two parts on one card. Eight pods run on its eight cards, and no ninth is tried."""
    plain = a_node("n0", 8, hami=False)
    plain["metadata"]["labels"] |= {"nvidia.com/gpu.product": "A100-SXM4-40GB", "nvidia.com/gpu.memory": "40960"}
    await client.json("POST", NODES.path(), body=plain)
    (part,) = manifests("cgpu-pod")
    parts = [part | {"metadata": {"name": f"part-{number}"}} for number in range(2)]
    await create(client, SPACE, [*parts, *(pod(f"whole-{number}", 1) for number in range(7))])

    async def run() -> bool:
        phases = [one.get("status", {}).get("phase") for one in await pods_of(client)]
        assert "Failed" not in phases
        return phases.count("Running") == 8

    await waiting.until(run, "eight pods run", timeout_s=90)
    await cards_agree(platform, client)
    assert (await asyncio.to_thread(platform.json, "audit"))["faults"] == []
    assert [one["spec"].get("nodeName") for one in await pods_of(client)].count("n0") == 8
