"""ResourceQuotas by PriorityClass through all services: a PodGroup of a class of which its namespace may have no pods evicts nobody. `hbox simulate cycle`
says the same. tests/real/test_real_shares.py has the story on a real control plane.

team       may have so many pods of the class `urgent`
tenants    fill the node with pods of no class
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import MERGE_PATCH, NODES, PODGROUPS, PODS, PRIORITYCLASSES, RESOURCEQUOTAS, KubeClient

from .. import waiting
from .platform_world import Up, simulate_cycle, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

GPU, CARDS = "nvidia.com/gpu", 8
URGENT = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000}


def quota(pods: int) -> dict[str, Any]:
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["urgent"]}]}
    spec = {"hard": {"pods": str(pods)}, "scopeSelector": selector}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "urgent", "namespace": "team"}, "spec": spec}


def pod(space: str, name: str, *, group: str = "") -> dict[str, Any]:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": space,
            "annotations": {"scheduling.k8s.io/group-name": group} if group else {},
        },
        "spec": {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }


def gang(name: str, members: int) -> list[dict[str, Any]]:
    """Of class urgent, by its PodGroup alone."""
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"minMember": members, "queue": "default", "priorityClassName": "urgent"},
    }
    return [group, *(pod("team", f"{name}-{number}", group=name) for number in range(members))]


async def create(client: KubeClient, *objects: dict[str, Any]) -> None:
    for one in objects:
        of = {"Pod": PODS, "PodGroup": PODGROUPS, "ResourceQuota": RESOURCEQUOTAS}[one["kind"]]
        await client.json("POST", of.path(one["metadata"]["namespace"]), body=one)


async def running(client: KubeClient, space: str) -> list[str]:
    listed = await client.json("GET", PODS.path(space))
    return sorted(
        one["metadata"]["name"].rpartition("-")[0]
        for one in listed["items"]
        if one["spec"].get("nodeName") and "deletionTimestamp" not in one["metadata"]
    )


async def stays(client: KubeClient, team: list[str], tenants: int) -> None:
    async def there() -> bool:
        return await running(client, "team") == team and len(await running(client, "tenants")) == tenants

    await waiting.until(there, f"team {team}, tenants {tenants}", timeout_s=60)
    await asyncio.sleep(2.0)
    assert (await running(client, "team"), len(await running(client, "tenants"))) == (team, tenants)


async def why(client: KubeClient, name: str) -> str:
    found = await client.json("GET", PODS.path("team", name))
    return "".join(one.get("message", "") for one in found.get("status", {}).get("conditions", ()) if one["status"] == "False")


async def tells(client: KubeClient, name: str, said: str) -> None:
    async def reason_given() -> bool:
        return said in await why(client, name)

    await waiting.until(reason_given, said, timeout_s=60)


async def change(client: KubeClient, pods: int) -> None:
    body = {"spec": {"hard": {"pods": str(pods)}}}
    await client.json("PATCH", RESOURCEQUOTAS.path("team", "urgent"), body=body, content_type=MERGE_PATCH)


async def test_a_class_that_the_namespace_may_not_have_evicts_nobody(tmp_path: Path) -> None:
    with up(tmp_path / "state") as platform:
        async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
            await story(client, platform, tmp_path)


async def story(client: KubeClient, platform: Up, folder: Path) -> None:
    for space in ("team", "tenants"):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
        await client.json("POST", "/api/v1/namespaces", body=body)
    await client.json("POST", PRIORITYCLASSES.path(), body=URGENT)
    await client.json("POST", NODES.path(), body=node("n0"))
    tenants = [pod("tenants", f"tenant-{number}") for number in range(CARDS)]
    await create(client, quota(0), *tenants)
    await stays(client, [], CARDS)
    first, second = gang("first", 2), gang("second", 1)
    await create(client, *first)
    no = "ResourceQuota urgent of namespace team allows 0 pods of PriorityClass urgent, 0 are in use and 2 more are asked for"
    await tells(client, "first-0", no)
    await stays(client, [], CARDS)
    assert simulated(folder, quota(0), tenants, first) == (0, no)
    await change(client, 2)
    await stays(client, ["first", "first"], CARDS - 2)
    assert simulated(folder, quota(2), tenants, first)[0] == 2
    await create(client, *second)
    await tells(client, "second-0", "allows 2 pods of PriorityClass urgent, 2 are in use and 1 more are asked for")
    await stays(client, ["first", "first"], CARDS - 2)
    await client.json("DELETE", PODS.path("team", "first-0"))
    await stays(client, ["first", "second"], CARDS - 2)
    assert platform.json("audit")["faults"] == []


def simulated(
    folder: Path, limit: Mapping[str, Any], running: list[dict[str, Any]], waits: list[dict[str, Any]]
) -> tuple[int, str]:
    """How many `hbox simulate cycle` evicts, and why the first waits."""
    placed = [{**one, "spec": {**one["spec"], "nodeName": "n0"}, "status": {"phase": "Running"}} for one in running]
    said = simulate_cycle(folder, [node("n0"), URGENT, limit, *placed, *waits])
    return len(said["evictions"]), said["pending"]["team/first-0"]["message"].removeprefix("ResourceQuotaNotFit: ")
