"""Changes of a gang's objects under it: the minimum of its PodGroup, its PodGroup, its PriorityClass. One platform, one node for each test."""

from collections.abc import AsyncIterator, Iterator
from copy import deepcopy
from typing import Any

import pytest

from hbox_common.kube import EVENTS, MERGE_PATCH, NODES, PODGROUPS, PODS, PRIORITYCLASSES, KubeClient

from .. import waiting
from .platform_world import Up, emptied, placed, up
from .test_e2e_elastic_gangs import SPACE, gang
from .traced_jobs import node

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("gangs-and-their-groups")]

SILENT = {"verb": "watch", "resource": "podgroups", "watch_silent": True}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("gangs") / "state") as running:
        yield running


@pytest.fixture
async def client(running: Up) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        yield client


def on(name: str, members: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The pods, pinned to this node."""
    for one in members:
        one["spec"]["nodeSelector"] = {"kubernetes.io/hostname": name}
    return members


async def create(client: KubeClient, *objects: dict[str, Any]) -> None:
    for one in objects:
        kinds = {"Pod": PODS, "PodGroup": PODGROUPS, "Node": NODES, "PriorityClass": PRIORITYCLASSES}
        kind = kinds[one["kind"]]
        path = kind.path(SPACE) if one["kind"] in ("Pod", "PodGroup") else kind.path()
        await client.json("POST", path, body=one)


async def count(client: KubeClient, prefix: str, wanted: int, *, timeout_s: float = 30) -> None:
    async def so() -> bool:
        return len(await placed(client, SPACE, prefix)) == wanted

    await waiting.until(so, f"{wanted} of {prefix} have places", timeout_s=timeout_s)


async def messages(client: KubeClient, pod: str) -> str:
    """The message of the pod's condition PodScheduled=False."""
    found = await client.json("GET", PODS.path(SPACE, pod))
    conditions = found.get("status", {}).get("conditions") or []
    return next((str(c.get("message", "")) for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "")


async def test_gang_is_not_bound_in_part_after_its_minimum_is_raised_behind_a_lagging_watch(
    running: Up, client: KubeClient
) -> None:
    """Three cards; two pods of the gang run, and two more arrive with a minimum of four."""
    one = node("lag")
    one["status"]["allocatable"]["nvidia.com/gpu"] = one["status"]["capacity"]["nvidia.com/gpu"] = "3"
    group, *members = gang("grows", "default", pods=4, needs=2)
    on("lag", members)
    await create(client, one, group, *members[:2])
    await count(client, "grows-", 2)
    await client.json("PUT", "/_sandbox/faults", body={"rules": [SILENT]})
    try:
        await client.json("PATCH", PODGROUPS.path(SPACE, "grows"), body={"spec": {"minMember": 4}}, content_type=MERGE_PATCH)
        await create(client, members[2])
        await waiting.until(lambda: messages(client, "grows-2"), "the third pod has a reason to wait", timeout_s=20)
        assert len(await placed(client, SPACE, "grows-")) == 2
        await create(client, members[3])
    finally:
        await client.json("PUT", "/_sandbox/faults", body={"rules": []})
    await waiting.until(lambda: messages(client, "grows-3"), "the fourth pod has a reason to wait", timeout_s=20)
    assert len(await placed(client, SPACE, "grows-")) == 2
    await emptied(running, client, SPACE)


async def test_gang_fills_up_soon_after_its_podgroup_is_recreated_under_running_pods(running: Up, client: KubeClient) -> None:
    """One pod is created while the PodGroup is missing, another after the PodGroup was recreated."""
    group, *members = gang("ray", "default", pods=4, needs=2)
    on("ray", members)
    await create(client, node("ray"), group, *members[:2])
    await count(client, "ray-", 2)
    await client.json("DELETE", PODGROUPS.path(SPACE, "ray"))
    await create(client, members[2])

    async def says_why() -> bool:
        return "not found" in await messages(client, "ray-2")

    await waiting.until(says_why, "the pod's condition names the missing PodGroup", timeout_s=20)
    await create(client, group)
    await count(client, "ray-", 3, timeout_s=8)
    await client.json("DELETE", PODGROUPS.path(SPACE, "ray"))
    await create(client, group, members[3])
    await count(client, "ray-", 4, timeout_s=8)
    assert running.json("audit")["faults"] == []


async def test_later_pods_of_a_running_gang_get_places_after_its_priority_class_is_deleted(
    running: Up, client: KubeClient
) -> None:
    group, *members = gang("classy", "default", pods=2, needs=1)
    group["spec"]["priorityClassName"] = "tmp"
    on("classy", members)
    tmp = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "tmp"}, "value": 50}
    await create(client, node("classy"), tmp, group, members[0])
    await count(client, "classy-", 1)
    await client.json("DELETE", PRIORITYCLASSES.path(None, "tmp"))
    await create(client, members[1])
    await count(client, "classy-", 2)


async def test_pod_with_an_unread_gang_label_gets_an_event(running: Up, client: KubeClient) -> None:
    _, *members = gang("sp", "default", pods=1, needs=1)
    on("sp", members)
    (pod,) = members
    pod["metadata"]["annotations"] = {}
    pod["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "g"}
    await create(client, node("sp"), pod)

    async def says_so() -> bool:
        events = (await client.json("GET", EVENTS.path(SPACE)))["items"]
        return any(e.get("reason") == "GangNotRead" and "sp-0" in e["metadata"]["name"] for e in events)

    await waiting.until(says_so, "an Event names the label that is not read", timeout_s=20)
    waits = deepcopy(pod)
    waits["metadata"]["name"] = "sp-1"
    on("none", [waits])
    await create(client, waits)

    async def condition_names_label() -> bool:
        return "GangNotRead: label scheduling.x-k8s.io/pod-group" in await messages(client, "sp-1")

    await waiting.until(condition_names_label, "the condition of a pod that waits names the label, too", timeout_s=20)
    assert "GangNotRead: label scheduling.x-k8s.io/pod-group" in running.hbox("why", f"{SPACE}/sp-1").stdout
