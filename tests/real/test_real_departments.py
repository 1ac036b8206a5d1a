"""What departments rely on, on a real API server with each service's own account: own nodes closed by a taint, lent and taken back, ranks and receipts."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from hbox_common.kube import EVENTS, MERGE_PATCH, NODES, PODGROUPS, PODS, KubeClient

from .. import waiting
from ..e2e.platform_world import Up, queue, up
from ..e2e.traced_jobs import node
from .control_plane import control_plane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SPACE, GPU = "default", "nvidia.com/gpu"
TAINT = {"key": "hbox.io/pool", "value": "lab", "effect": "NoSchedule"}
GANG, MEMBERS = "borrowed", 8


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """With a controller for evictions and kwok for kubelets."""
    with (
        control_plane(tmp_path_factory.mktemp("departments")) as plane,
        up(tmp_path_factory.mktemp("platform") / "state", "--kubeconfig", str(plane.kubeconfig)) as running,
    ):
        running.kubeconfig = plane.kubeconfig  # type: ignore[attr-defined]
        yield running


@pytest.fixture
async def client(platform: Up) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(str(platform.kubeconfig), user_agent="test") as connected:  # type: ignore[attr-defined]
        yield connected


def pod(name: str, of: str, *, group: str = "") -> dict[str, Any]:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: "1"}}}
    notes = {"scheduling.volcano.sh/queue-name": of, **({"scheduling.k8s.io/group-name": group} if group else {})}
    spec = {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes}, "spec": spec}


async def placed(client: KubeClient, prefix: str) -> dict[str, dict[str, Any]]:
    """Pods with a node that are not leaving, by name."""
    pods = (await client.json("GET", PODS.path(SPACE)))["items"]
    return {
        one["metadata"]["name"]: one
        for one in pods
        if one["spec"].get("nodeName")
        and "deletionTimestamp" not in one["metadata"]
        and one["metadata"]["name"].startswith(prefix)
    }


async def our_taints(client: KubeClient, name: str) -> list[dict[str, str]]:
    taints = (await client.json("GET", NODES.path(name=name)))["spec"].get("taints") or []
    return [one for one in taints if one["key"] == "hbox.io/pool"]


async def test_an_owners_nodes_are_tainted_lent_to_a_gang_and_had_back_with_receipts(platform: Up, client: KubeClient) -> None:
    own = node("lab-0")
    own["metadata"]["labels"] = {**own["metadata"].get("labels", {}), "hbox.io/pool": "lab"}
    await client.json("POST", NODES.path(), body={"apiVersion": "v1", "kind": "Node", **own})
    patch = {"status": own["status"]}
    await client.json("PATCH", f"{NODES.path(name='lab-0')}/status", body=patch, content_type=MERGE_PATCH)

    async def closed() -> bool:
        return await our_taints(client, "lab-0") == [TAINT]

    await waiting.until(closed, "the taint of its pool", timeout_s=60)
    await client.json("PATCH", NODES.path(name="lab-0"), body={"spec": {"taints": None}}, content_type=MERGE_PATCH)
    await waiting.until(closed, "the taint again", timeout_s=60)

    queue(platform, "create", "borrower")
    queue(platform, "create", "owner", "--pools", "lab", "--lent-pools", "lab")
    group = {"metadata": {"name": GANG}, "spec": {"minMember": MEMBERS, "queue": "borrower"}}
    body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", **group}
    await client.json("POST", PODGROUPS.path(SPACE), body=body)
    for number in range(MEMBERS):
        await client.json("POST", PODS.path(SPACE), body=pod(f"{GANG}-{number}", "borrower", group=GANG))

    async def borrowed() -> bool:
        return len(await placed(client, GANG)) == MEMBERS

    await waiting.until(borrowed, "the gang on what is lent", timeout_s=60)
    ranks = {name: one["metadata"]["annotations"]["hbox.io/rank"] for name, one in (await placed(client, GANG)).items()}
    assert ranks == {f"{GANG}-{number}": str(number) for number in range(MEMBERS)}

    await client.json("POST", PODS.path(SPACE), body=pod("mine", "owner"))

    async def had_back() -> bool:
        return set(await placed(client, "")) == {"mine"}

    await waiting.until(had_back, "the owner's pod, and all of the gang gone", timeout_s=60)
    receipts = platform.json("why", "--evicted", f"{SPACE}/{GANG}")["receipts"]
    assert {one["pod"] for receipt in receipts for one in receipt["pods"]} == {f"{GANG}-{n}" for n in range(MEMBERS)}
    assert {receipt["for"]["name"] for receipt in receipts} == {"mine"}

    async def events() -> set[str]:
        found = (await client.json("GET", EVENTS.path(SPACE)))["items"]
        return {
            one["involvedObject"]["kind"] for one in found if one["reason"] == "Preempted" and "default/mine" in one["message"]
        }

    async def published() -> bool:
        return await events() == {"Pod", "PodGroup"}

    await waiting.until(published, "Events on pods and PodGroup", timeout_s=30)

    unlabelled = {"metadata": {"labels": {"hbox.io/pool": None}}}
    await client.json("PATCH", NODES.path(name="lab-0"), body=unlabelled, content_type=MERGE_PATCH)

    async def open_again() -> bool:
        return not await our_taints(client, "lab-0")

    await waiting.until(open_again, "no taint of a pool that it left", timeout_s=60)
    assert json.loads(platform.hbox("-o", "json", "audit").stdout)["faults"] == []
