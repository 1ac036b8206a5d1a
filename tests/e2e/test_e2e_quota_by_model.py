"""Quota by card model on a running platform: two nodes of eight cards, H100 and A100.

vision    deserved 4 H100                 borrows nothing of A100's
speech    deserved 4 H100 and 8 A100      fills both nodes first
robots    limit 1 H100
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from hbox_common.kube import NODES, PODS, QUEUES, KubeClient

from .. import waiting
from .platform_world import Up, queue, until, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, GPU = "default", "nvidia.com/gpu"
NAMES = {"h100": "NVIDIA-H100-80GB-HBM3", "a100": "NVIDIA-A100-SXM4-80GB"}
PARTS = {"h100": "H100", "a100": "nvidia a100"}  #: names in the pods
H100, A100 = (f"{GPU}.{NAMES[model]}" for model in ("h100", "a100"))


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("models") / "state") as running:
        asyncio.run(_nodes(running))
        yield running


async def _nodes(running: Up) -> None:
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        for name, model in NAMES.items():
            body = node(name)
            body["metadata"]["labels"] |= {"nvidia.com/gpu.product": model}
            await client.json("POST", NODES.path(), body=body)


async def submit(client: KubeClient, name: str, count: int, model: str = "", *, first: int = 0) -> None:
    """Pods of one card; `model` names the one that they want."""
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: "1"}}}
    notes = {"scheduling.volcano.sh/queue-name": name} | ({"nvidia.com/use-gputype": PARTS[model]} if model else {})
    for number in range(first, first + count):
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{model or 'any'}-{number}", "annotations": notes},
            "spec": {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]},
        }
        await client.json("POST", PODS.path(SPACE), body=body)


def cards(running: Up) -> dict[str, tuple[int, int]]:
    """H100 and A100 by queue."""
    items = running.json("queue", "ls")["items"]
    return {item["name"]: (item["used"].get(H100, 0), item["used"].get(A100, 0)) for item in items if item["name"] != "default"}


async def settles(running: Up, **want: tuple[int, int]) -> None:
    """The queues come to have this, and keep it."""

    def there() -> bool:
        return cards(running) == want

    await asyncio.to_thread(until, there, timeout_s=60, what=f"{want}, found {cards(running)}")
    await asyncio.sleep(2.5)  # the scheduler looks for room every two seconds at least: nobody is taken from any more
    assert there(), cards(running)


def why(running: Up, name: str) -> str:
    jobs: list[dict[str, Any]] = running.json("jobs", "-q", name, "--state-is", "waiting")["items"]
    return str(jobs[0]["reason"]) if jobs else ""


async def test_a_department_takes_its_own_of_one_model_and_leaves_the_others_alone(platform: Up, client: KubeClient) -> None:
    queue(platform, "create", "vision", "--deserved", f"{H100}=4")
    queue(platform, "create", "speech", "--deserved", f"{H100}=4", "--deserved", f"{A100}=8")
    await submit(client, "speech", 8, "h100")
    await submit(client, "speech", 8, "a100")
    await settles(platform, vision=(0, 0), speech=(8, 8))
    listed = await client.json("GET", PODS.path(SPACE))
    before = {pod["metadata"]["uid"] for pod in listed["items"] if pod["spec"]["nodeName"] == "a100"}

    await submit(client, "vision", 2)  # of any model: there are H100 that are vision's own
    await settles(platform, vision=(2, 0), speech=(6, 8))
    await submit(client, "vision", 6, "h100")
    await settles(platform, vision=(4, 0), speech=(4, 8))
    await submit(client, "vision", 2, first=2)  # beyond what it deserves, of any model: nobody leaves
    await settles(platform, vision=(4, 0), speech=(4, 8))

    listed = await client.json("GET", PODS.path(SPACE))
    after = {pod["metadata"]["uid"] for pod in listed["items"] if pod["spec"].get("nodeName") == "a100"}
    assert after == before, "nobody on an A100 was touched"


async def test_a_limit_of_a_model_holds_and_is_told(platform: Up, client: KubeClient) -> None:
    said = queue(platform, "create", "robots", "--capability", f"{H100}=1", "--capability", f"{GPU}.H200=1")
    assert (
        "warning: no node has cards of model H200; the cluster's models: NVIDIA-A100-SXM4-80GB, NVIDIA-H100-80GB-HBM3" in said
    )
    fault = f"capability of {GPU}.H200: no node has cards of model H200"
    await asyncio.to_thread(until, lambda: fault in queue(platform, "show", "robots"), timeout_s=20, what="the fault")
    for number in range(6):
        await client.json("DELETE", PODS.path(SPACE, f"speech-a100-{number}"))
    for name in [pod["metadata"]["name"] for pod in (await client.json("GET", PODS.path(SPACE)))["items"]]:
        if name.startswith("vision"):
            await client.json("DELETE", PODS.path(SPACE, name))
    await settles(platform, vision=(0, 0), speech=(4, 2), robots=(0, 0))

    await submit(client, "robots", 3, "h100")
    await settles(platform, vision=(0, 0), speech=(4, 2), robots=(1, 0))
    told = "queue robots is at its limit of 1 card of NVIDIA-H100-80GB-HBM3: 1 node"
    await asyncio.to_thread(until, lambda: told in why(platform, "robots"), timeout_s=20, what="the reason")
    await submit(client, "robots", 3)  # they name no model: there are A100
    await settles(platform, vision=(0, 0), speech=(4, 2), robots=(1, 3))
    queue(platform, "set", "robots", "--capability", f"{H100}=2")
    await settles(platform, vision=(0, 0), speech=(4, 2), robots=(2, 3))


async def test_what_people_see_is_cards_by_model(platform: Up, client: KubeClient) -> None:
    tree = queue(platform, "tree")
    assert "NVIDIA-H100-80GB-HBM3" in tree
    assert "2 used, limit 2" in tree
    share = platform.json("share", "speech", "--resource", H100)
    assert (share["used"], share["deserved"], share["borrowed"]) == (4, 4, 0)
    assert "robots has 2 of nvidia.com/gpu.NVIDIA-H100-80GB-HBM3" in platform.hbox("share", "robots").stdout
    listed = await client.json("GET", QUEUES.path())
    [status] = [item["status"] for item in listed["items"] if item["metadata"]["name"] == "robots"]
    assert {name: int(units) for name, units in status["allocated"].items() if name.startswith(GPU)} == {
        GPU: 5,
        H100: 2,
        A100: 3,
    }
    audit = platform.json("audit", "--ledger")
    assert audit["faults"] == []
    assert platform.json("audit")["faults"] == []


async def test_partitions_of_mig_count_as_parts_of_cards(platform: Up, client: KubeClient) -> None:
    queue(platform, "create", "slices", "--capability", f"{GPU}=2")
    body = node("mig")
    amounts = {"cpu": "32", "memory": "64Gi", "pods": "110", "nvidia.com/mig-1g.10gb": "14", "nvidia.com/mig-3g.40gb": "4"}
    body["metadata"]["labels"] |= {
        "nvidia.com/mig.strategy": "mixed",
        "nvidia.com/gpu.count": "4",
        "nvidia.com/gpu.replicas": "0",
    }
    body["status"] |= {"capacity": amounts, "allocatable": amounts}
    await client.json("POST", NODES.path(), body=body)
    for profile, count in (("3g.40gb", 2), ("1g.10gb", 14)):
        limits = {f"nvidia.com/mig-{profile}": "1"}
        container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": limits}}
        for number in range(count):
            notes = {"scheduling.volcano.sh/queue-name": "slices"}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"slice-{profile}-{number}", "annotations": notes}}
            pod |= {"spec": {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]}}
            await client.json("POST", PODS.path(SPACE), body=pod)

    def used() -> tuple[int, int]:
        [item] = (item for item in platform.json("queue", "ls")["items"] if item["name"] == "slices")
        return item["used"].get("nvidia.com/mig-3g.40gb", 0), item["used"].get("nvidia.com/mig-1g.10gb", 0)

    # 2 x 3/7 + 8 x 1/7 = 2 cards
    await asyncio.to_thread(until, lambda: used() == (2, 8), timeout_s=60, what="two cards in parts")
    reached = "queue slices may use 2 of nvidia.com/gpu, 2 are in use and 0.14 more are asked for"
    await asyncio.to_thread(until, lambda: reached in why(platform, "slices"), timeout_s=30, what="the reason")
    await client.json("DELETE", PODS.path(SPACE, "slice-3g.40gb-0"))
    await asyncio.to_thread(until, lambda: used() == (1, 11), timeout_s=60, what="the slices of a pod that left")
    assert free(platform, "mig") == {"free": 1.71, "total": 4, "freePercent": []}


def free(running: Up, name: str) -> dict[str, Any]:
    [item] = (item for item in running.json("nodes")["items"] if item["name"] == name)
    return dict(item["cards"])


async def submit_units(client: KubeClient, name: str, count: int, *, first: int = 0, **labels: str) -> None:
    """Pods of one unit of cards, on nodes with these labels."""
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: "1"}}}
    for number in range(first, first + count):
        notes = {"scheduling.volcano.sh/queue-name": name}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{name}-{number}", "annotations": notes}}
        spec = {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]}
        pod["spec"] = spec | {"nodeSelector": labels}
        await client.json("POST", PODS.path(SPACE), body=pod)


async def shared_node(client: KubeClient, name: str, units: str, **labels: str) -> None:
    """A node that offers so many units under the plain name of cards."""
    body = node(name)
    body["metadata"]["labels"] |= {f"{GPU}.{key}": value for key, value in labels.items()} | {"kind": "shared"}
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: units}
    body["status"] |= {"capacity": amounts, "allocatable": amounts}
    await client.json("POST", NODES.path(), body=body)


async def relabel(client: KubeClient, name: str, **labels: str | None) -> None:
    change = {"metadata": {"labels": {f"{GPU}.{key}": value for key, value in labels.items()}}}
    await client.json("PATCH", NODES.path("", name), body=change, content_type="application/merge-patch+json")


async def allocated_units(client: KubeClient, name: str, units: int) -> bool:
    """Whether the status of the queue lists so many units as allocated, in sum and by model where a queue has limits by model, and no parts of cards."""
    listed = await client.json("GET", QUEUES.path())
    [queue] = [item for item in listed["items"] if item["metadata"]["name"] == name]
    allocated = queue.get("status", {}).get("allocated", {})
    found = {one: int(amount) for one, amount in allocated.items() if one.startswith(GPU)}
    return GPU in found and found.keys() <= {GPU, f"{GPU}.T4-SHARED"} and set(found.values()) == {units}


async def bound(client: KubeClient, name: str) -> int:
    """Pods of this queue with a node."""
    listed = (await client.json("GET", PODS.path(SPACE)))["items"]
    return sum(1 for pod in listed if pod["metadata"]["name"].startswith(f"{name}-") and pod["spec"].get("nodeName"))


async def one_of_the_new_part(client: KubeClient) -> bool:
    """Whether the two deleted pods of the queue `sliced` are gone, and one more has a node."""
    names = {pod["metadata"]["name"] for pod in (await client.json("GET", PODS.path(SPACE)))["items"]}
    return names.isdisjoint({"sliced-0", "sliced-1"}) and await bound(client, "sliced") == 7


def shown(running: Up, name: str) -> dict[str, Any]:
    [item] = (item for item in running.json("queue", "ls")["items"] if item["name"] == name)
    return dict(item["used"])


async def test_replicas_of_time_slicing_count_as_parts_of_cards(platform: Up, client: KubeClient) -> None:
    await shared_node(
        client, "sliced", "16", count="4", replicas="4", product="T4-SHARED", **{"sharing-strategy": "time-slicing"}
    )
    queue(platform, "create", "sliced", "--capability", f"{GPU}=2")
    await submit_units(client, "sliced", 3, kind="shared")
    parts = {"free": 3.25, "total": 4, "freePercent": []}
    await asyncio.to_thread(until, lambda: free(platform, "sliced") == parts, timeout_s=60, what="parts of cards")
    by_pod = platform.json("node", "show", "sliced")["parts"]
    assert by_pod == {"used": 0.75, "total": 4, "pods": {f"{SPACE}/sliced-{i}": 0.25 for i in range(3)}}
    assert shown(platform, "sliced")[GPU] == 0.75

    await submit_units(client, "sliced", 9, first=3, kind="shared")
    await asyncio.to_thread(until, lambda: shown(platform, "sliced")[GPU] == 2, timeout_s=60, what="two cards in parts")
    limit = "queue sliced is at its limit of 2 cards"
    await asyncio.to_thread(until, lambda: limit in why(platform, "sliced"), timeout_s=30, what="the reason")
    assert await bound(client, "sliced") == 8
    assert "nvidia.com/gpu:" not in platform.hbox("queue", "show", "sliced").stdout
    await waiting.until(lambda: allocated_units(client, "sliced", 8), "units in the queue's status", timeout_s=60)
    assert platform.json("audit", "--ledger")["faults"] == []

    # The labels change while pods run: the node shows other parts, and the queue holds what it was given.
    await relabel(client, "sliced", count="8", replicas="2")
    parts = {"free": 4, "total": 8, "freePercent": []}
    await asyncio.to_thread(until, lambda: free(platform, "sliced") == parts, timeout_s=60, what="parts by the new labels")
    await client.json("DELETE", PODS.path(SPACE, "sliced-0"))
    await client.json("DELETE", PODS.path(SPACE, "sliced-1"))
    # 8/4 before the deletions are seen; then 6/4 + 1/2 cards
    await waiting.until(lambda: one_of_the_new_part(client), "one pod of the new part", timeout_s=60)
    await asyncio.to_thread(
        until, lambda: shown(platform, "sliced")[GPU] == 2, timeout_s=60, what="two cards in parts of both sizes"
    )
    assert await bound(client, "sliced") == 7
    for nonsense in ("0", "1000000000", "four"):
        await relabel(client, "sliced", replicas=nonsense)
    whole = {"free": 9, "total": 16, "freePercent": []}
    await asyncio.to_thread(until, lambda: free(platform, "sliced")["total"] in (0, 16), timeout_s=60, what=f"{whole}")
    await client.json("DELETE", PODS.path(SPACE, "sliced-2"))
    await asyncio.sleep(2.5)
    # 5/4 + 1/2: no whole card is left of two.
    assert await bound(client, "sliced") == 6
    assert platform.json("audit")["faults"] == []
    assert platform.json("audit", "--ledger")["faults"] == []


async def test_limit_on_cards_holds_over_whole_and_shared_cards(platform: Up, client: KubeClient) -> None:
    await shared_node(client, "single", "14", product="A100-SXM4-80GB-MIG-1g.10gb")
    change = {"metadata": {"labels": {"nvidia.com/mig.strategy": "single", "kind": "mixed"}}}
    await client.json("PATCH", NODES.path("", "single"), body=change, content_type="application/merge-patch+json")
    await shared_node(client, "whole", "4", count="4", product="L40S")
    change = {"metadata": {"labels": {"kind": "mixed"}}}
    await client.json("PATCH", NODES.path("", "whole"), body=change, content_type="application/merge-patch+json")
    queue(platform, "create", "both", "--capability", f"{GPU}=1")
    await submit_units(client, "both", 9, kind="mixed")
    # One whole card, or seven partitions of one slice.
    await asyncio.to_thread(until, lambda: shown(platform, "both").get(GPU) == 1, timeout_s=60, what="one card")
    await asyncio.sleep(2.5)
    assert (await bound(client, "both"), shown(platform, "both")[GPU]) in ((1, 1), (7, 1))
    assert platform.json("audit", "--ledger")["faults"] == []
