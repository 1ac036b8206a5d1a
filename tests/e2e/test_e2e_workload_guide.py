"""Every manifest of docs/guides/workloads is applied, with the pods that its controllers create: what starts together does so whole or not at all, and the
cards that kubelets gave are those of the claims."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from hbox_common.kube import NODES, PODS, KubeClient
from hbox_sandbox.trace import TraceNode
from hbox_sandbox.trace.manifests import node_manifest

from .. import guide_workloads, owners, waiting
from ..guide_workloads import FOLDER, cards_of, objects_of
from ..owners import Json
from .platform_world import Up, emptied, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE = "default"
#: Longer than job-controller takes for an owner that cannot be read, after which its pods would start one by one.
NEVER_S = 3.0


@dataclass(frozen=True, slots=True)
class Starts:
    """What the guide states of a manifest. `together`: pods that start whole or not at all, known as `job`; `cards`: what these ask for at least."""

    job: str
    together: int
    cards: int
    hami: bool = False  #: parts of cards: on nodes of HAMi's plugin


CASES = {
    "pytorchjob": Starts("pytorchjob/elastic", 2, 4),
    "mpijob": Starts("mpijob/allreduce", 3, 4),
    "raycluster": Starts("raycluster/ray", 3, 4),
    "leaderworkerset": Starts("leaderworkerset/vllm", 2, 8),
    "jobset": Starts("jobset/pipeline", 4, 2),
    "trainjob": Starts("jobset/finetune", 2, 2),
    "sparkapplication": Starts("sparkapplication/etl", 1, 0),
    "knative": Starts("revision/chat-00001", 2, 2),
    "sglang-deployment": Starts("deployment/sglang", 2, 4, hami=True),
    "sglang-statefulset": Starts("statefulset/sglang-distributed", 2, 8),
    "vllm-deployment": Starts("qwen-deployment-vllm-", 1, 2, hami=True),
    "xinference-deployment": Starts("xinference-worker-", 1, 1, hami=True),
    "rdma-pod": Starts("rdma", 1, 1),
    "cgpu-pod": Starts("cgpu", 1, 1, hami=True),
    "keda-scaledobject": Starts("", 0, 0),
}


def a_node(name: str, cards: int, *, hami: bool) -> Json:
    """Its cards are those of NVIDIA's plugin, of which the kubelet chooses, or of HAMi's, of which HBox does."""
    if hami and cards:
        found = node_manifest(TraceNode(name, 64_000, 512 * 1024, cards, "NVIDIA-A100-SXM4-80GB"), now="2026-01-01T00:00:00Z")
    else:
        found = node(name)
        for part in ("capacity", "allocatable"):
            found["status"][part] = found["status"][part] | {owners.GPU: str(cards)}
    for part in ("capacity", "allocatable"):
        found["status"][part] = found["status"][part] | {"rdma/hca": "8"}
    return found


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("guide") / "state") as running:
        yield running


@pytest.fixture
async def client(platform: Up) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        yield client
        await emptied(platform, client, SPACE)
        for one in (await client.json("GET", NODES.path()))["items"]:
            await client.json("DELETE", NODES.path(name=one["metadata"]["name"]))


def test_every_manifest_of_the_guide_is_applied() -> None:
    assert {file.stem for file in FOLDER.glob("*.yaml")} == CASES.keys()


async def pods_of(client: KubeClient) -> list[Json]:
    found: list[Json] = (await client.json("GET", PODS.path(SPACE)))["items"]
    return found


@pytest.mark.parametrize("name", CASES)
async def test_manifest_of_the_guide_starts_as_stated(platform: Up, client: KubeClient, name: str) -> None:
    case, objects = CASES[name], objects_of(name)
    await owners.install(client, *sorted({one["kind"] for one in objects} - {"Pod"}))
    if short := max(case.cards - 1, 0):
        await client.json("POST", NODES.path(), body=a_node("short", short, hami=case.hami))
    uids = await owners.create(client, SPACE, objects)
    expected = {one["metadata"]["name"] for one in objects if one["kind"] == "Pod"}
    if case.together:

        async def known() -> bool:
            jobs = (await asyncio.to_thread(platform.json, "jobs"))["items"]
            found = {job["name"].removeprefix(f"{SPACE}/"): job["pods"]["min"] for job in jobs}
            return any(job.startswith(case.job) and least == case.together for job, least in found.items())

        await waiting.until(known, f"{case.job} waits for {case.together} pods", timeout_s=60)
        if case.cards:
            await asyncio.sleep(NEVER_S)
            started = [pod for pod in await pods_of(client) if pod["spec"].get("nodeName")]
            assert [pod["metadata"]["name"] for pod in started if case.together > 1 or cards_of(pod)] == []
    await client.json("POST", NODES.path(), body=a_node("enough", 8, hami=case.hami))

    async def run() -> bool:
        phases = {pod["metadata"]["name"]: pod.get("status", {}).get("phase") for pod in await pods_of(client)}
        assert "Failed" not in phases.values(), phases
        return phases == dict.fromkeys(expected, "Running")

    await waiting.until(run, f"all pods of {name} run", timeout_s=90)
    audited = await asyncio.to_thread(platform.json, "audit")
    assert audited["faults"] == []
    await cards_agree(platform, client)
    await remove(client, objects)
    assert len(uids) == len(objects)


async def cards_agree(platform: Up, client: KubeClient) -> None:
    """Each card's pod by the kubelet, or by the annotation that HAMi's plugin has followed, is that of the claim."""

    async def agree() -> bool:
        for one in (await client.json("GET", NODES.path()))["items"]:
            name = one["metadata"]["name"]
            cards = (await asyncio.to_thread(platform.json, "node", "show", name))["cards"]
            books = {card["uuid"]: sorted(card["books"]) for card in cards if card["books"]}
            if "hami.io/node-nvidia-register" in one["metadata"].get("annotations", {}):
                given = given_by_hami([pod for pod in await pods_of(client) if pod["spec"].get("nodeName") == name])
            else:
                given = {card["uuid"]: sorted(card["kubelet"]) for card in cards if card["kubelet"]}
            if books != given:
                return False
        return True

    await waiting.until(agree, "the cards of claims and kubelets agree", timeout_s=30)


def given_by_hami(pods: list[Json]) -> dict[str, list[str]]:
    """Pods by the UUID of each card, from the records `uuid,type,MiB,cores:` of their containers."""
    found: dict[str, list[str]] = {}
    for pod in pods:
        text = pod["metadata"].get("annotations", {}).get("hami.io/vgpu-devices-allocated", "")
        for record in text.replace(";", "").split(":"):
            if record:
                found.setdefault(record.partition(",")[0], []).append(f"{SPACE}/{pod['metadata']['name']}")
    return {uuid: sorted(names) for uuid, names in found.items()}


async def remove(client: KubeClient, objects: list[Json]) -> None:
    for one in objects:
        body: dict[str, Any] = {"gracePeriodSeconds": 0}
        path = owners.path(one["kind"], SPACE, one["metadata"]["name"])
        await client.json("DELETE", path, body=body, expect=(200, 202, 404))


def test_parts_of_cards_in_the_guide_are_asked_for_by_hamis_names() -> None:
    """So that `hami` in the cases above follows the manifests."""
    parts = {
        name
        for name in CASES
        for one in guide_workloads.objects_of(name)
        if one["kind"] == "Pod" and "gpumem" in str(one["spec"])
    }
    assert parts == {name for name, case in CASES.items() if case.hami}
