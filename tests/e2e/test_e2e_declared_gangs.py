"""Gangs that Kubernetes' and Grove's objects, an Indexed Job's setting and a LeaderWorkerSet's sub-groups declare, on the running platform."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import MERGE_PATCH, NODES, PODS, KubeClient, Resource

from .. import owners, waiting
from ..owners import Json, create, install, leader_worker_set, placed_of
from .platform_world import Up, queue, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE = "default"
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
HYPERNODES = Resource("topology.volcano.sh", "v1alpha1", "hypernodes", namespaced=False)
SUB_GROUP = "leaderworkerset.sigs.k8s.io/subgroup-index"


@asynccontextmanager
async def cluster(
    tmp_path: Path, nodes: int, *kinds: str, env: dict[str, str] | None = None
) -> AsyncIterator[tuple[Up, KubeClient]]:
    with up(tmp_path / "state", env=env) as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await install(client, *kinds)
            for number in range(nodes):
                await client.json("POST", NODES.path(), body=node(f"n{number}"))
            yield running, client
        assert running.json("audit")["faults"] == []


async def has(client: KubeClient, prefix: str, count: int) -> None:
    async def there() -> bool:
        return len(await placed_of(client, SPACE, prefix)) == count

    await waiting.until(there, f"{count} pods of {prefix} have places", timeout_s=60)


async def stays_empty(client: KubeClient, prefix: str) -> None:
    for _ in range(6):
        await asyncio.sleep(0.5)
        assert await placed_of(client, SPACE, prefix) == {}


def grouped(name: str, of: Json, count: int) -> list[Json]:
    """Pods without an owner. `of`: labels, or a `schedulingGroup`."""
    pods = []
    for number in range(count):
        one = owners.make("Pod", f"{name}-{number}", owners.pod_spec(), labels=of.get("labels"))
        one["spec"] |= {key: value for key, value in of.items() if key == "schedulingGroup"}
        pods.append(one)
    return pods


def indexed(name: str, parallelism: int) -> list[Json]:
    """A Job and its pods, which name it by the uid that the API server assigns."""
    tree = owners.batch_job(name, parallelism)
    for one in tree.pods:
        del one["metadata"]["labels"]["batch.kubernetes.io/controller-uid"]
    return list(tree.objects)


async def test_indexed_jobs_start_whole_by_the_label_of_their_namespace(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1, "Job") as (_, client):
        await create(client, SPACE, indexed("single", 3))
        await has(client, "single-", 3)
        label = {"metadata": {"labels": {"hbox.io/indexed-jobs": "gang"}}}
        await client.json("PATCH", NAMESPACES.path(name=SPACE), body=label, content_type=MERGE_PATCH)
        await asyncio.sleep(1)
        await create(client, SPACE, indexed("sweep", 6))
        await stays_empty(client, "sweep-")
        await client.json("POST", NODES.path(), body=node("n1"))
        await has(client, "sweep-", 6)


async def test_a_podgang_starts_with_the_minimum_of_each_pod_group(tmp_path: Path) -> None:
    groups = [{"name": "serve-prefill", "minReplicas": 3}, {"name": "serve-decode", "minReplicas": 6}]
    gang = owners.make("PodGang", "serve", {"podgroups": groups})
    members = [
        one
        for name, count in (("serve-prefill", 5), ("serve-decode", 6))
        for one in grouped(name, {"labels": {"grove.io/podgang": "serve", "grove.io/podclique": name}}, count)
    ]
    async with cluster(tmp_path, 1, "PodGang") as (running, client):
        await create(client, SPACE, [gang, *members])
        await stays_empty(client, "serve-")
        names = [job["name"] for job in running.json("jobs")["items"]]
        assert names == [f"{SPACE}/podgang/serve"]
        await client.json("POST", NODES.path(), body=node("n1"))
        await has(client, "serve-", 11)


async def test_the_condition_of_kubernetes_podgroups_is_written_once_it_is_true_for_ever(tmp_path: Path) -> None:
    group = owners.make("KubernetesPodGroup", "train", {"schedulingPolicy": {"gang": {"minCount": 9}}}) | {"kind": "PodGroup"}
    where = owners.RESOURCES["KubernetesPodGroup"]

    async with cluster(tmp_path, 1, "KubernetesPodGroup") as (_, client):

        async def condition() -> dict[str, Any]:
            thing = await client.json("GET", where.path(SPACE, "train"))
            found = [one for one in (thing.get("status") or {}).get("conditions") or () if one["type"] != "Other"]
            return found[0] if found else {}

        other = {"status": {"conditions": [{"type": "Other", "status": "True", "reason": "Test", "message": ""}]}}
        body = {key: value for key, value in group.items() if key != "metadata"} | {"metadata": {"name": "train"}}
        await client.json("POST", where.path(SPACE), body=body)
        await client.json("PATCH", where.path(SPACE, "train", "status"), body=other, content_type=MERGE_PATCH)
        await create(client, SPACE, grouped("train", {"schedulingGroup": {"podGroupName": "train"}}, 9))

        async def unschedulable() -> bool:
            one = await condition()
            return (one.get("status"), one.get("reason")) == ("False", "Unschedulable") and bool(one["message"])

        await waiting.until(unschedulable, "the PodGroup states that it waits", timeout_s=30)
        assert await placed_of(client, SPACE, "train-") == {}
        lower = {"spec": {"schedulingPolicy": {"gang": {"minCount": 8}}}}
        await client.json("PATCH", where.path(SPACE, "train"), body=lower, content_type=MERGE_PATCH)
        await has(client, "train-", 8)

        async def scheduled() -> bool:
            one = await condition()
            return (one.get("type"), one.get("status")) == ("PodGroupInitiallyScheduled", "True")

        await waiting.until(scheduled, "the PodGroup states that it was scheduled", timeout_s=30)
        for name in list(await placed_of(client, SPACE, "train-"))[:4]:
            await client.json("DELETE", PODS.path(SPACE, name), body={"gracePeriodSeconds": 0})
        await asyncio.sleep(3)
        assert (await condition())["status"] == "True"
        thing = await client.json("GET", where.path(SPACE, "train"))
        assert {one["type"] for one in thing["status"]["conditions"]} == {"Other", "PodGroupInitiallyScheduled"}


def leaf(name: str, members: Sequence[str]) -> Json:
    selectors = [{"type": "Node", "selector": {"exactMatch": {"name": one}}} for one in members]
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {"tier": 1, "members": selectors},
    }


async def test_sub_groups_of_a_leaderworkerset_stay_in_one_leaf_each(tmp_path: Path) -> None:
    """Leaves of two and three nodes, one node for each pod: in the order of ranks along the fabric, the first sub-group would be in both leaves."""
    tree = leader_worker_set("lws", 1, 5, of=owners.template(cards=5))
    top, policy = tree.objects[0], {"subGroupSize": 2, "subGroupPolicyType": "LeaderExcluded"}
    top["spec"]["leaderWorkerTemplate"]["subGroupPolicy"] = policy
    for one in tree.pods:
        labels = one["metadata"]["labels"]
        if (index := int(labels["leaderworkerset.sigs.k8s.io/worker-index"])) > 0:
            labels[SUB_GROUP] = str((index - 1) // 2)
    async with cluster(tmp_path, 5, "LeaderWorkerSet", "StatefulSet") as (_, client):
        for name, members in (("leaf0", ("n0", "n1")), ("leaf1", ("n2", "n3", "n4"))):
            await client.json("POST", HYPERNODES.path(), body=leaf(name, members))
        await asyncio.sleep(2)
        await create(client, SPACE, tree.objects)
        await has(client, "lws-0", 5)
        places = await placed_of(client, SPACE, "lws-0")
        together = Counter(
            (index, places[f"lws-0-{worker}"] in ("n0", "n1")) for worker, index in ((1, 0), (2, 0), (3, 1), (4, 1))
        )
        assert sorted(together.values()) == [2, 2], f"each sub-group is in one leaf: {places}"


async def test_elastic_gang_grows_after_others_and_shrinks_before_them(tmp_path: Path) -> None:
    classes = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
    policy = {"schedulingPolicy": {"priorityClass": "urgent"}}
    urgent = owners.training_job("urgent", {"Worker": 2}, runPolicy=policy).objects
    async with cluster(tmp_path, 1, "PyTorchJob") as (_, client):
        level = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000}
        await client.json("POST", classes.path(), body=level)
        await create(client, SPACE, owners.training_job("first", {"Worker": 4}).objects)
        await has(client, "first-", 4)
        await create(client, SPACE, owners.training_job("grows", {"Worker": 8}, elasticPolicy={"minReplicas": 2}).objects)
        await has(client, "grows-", 4)
        await create(client, SPACE, owners.training_job("later", {"Worker": 4}).objects)
        await stays_empty(client, "later-")
        half = node("n1")
        half["status"] |= {key: half["status"][key] | {"nvidia.com/gpu": "4"} for key in ("capacity", "allocatable")}
        await client.json("POST", NODES.path(), body=half)
        await has(client, "later-", 4)
        assert len(await placed_of(client, SPACE, "grows-")) == 4, (
            "the job that waits comes before more pods of the elastic one"
        )
        await create(client, SPACE, urgent)
        await has(client, "urgent-", 2)
        await has(client, "grows-", 2)
        assert len(await placed_of(client, SPACE, "first-")) == len(await placed_of(client, SPACE, "later-")) == 4
        for name in list(await placed_of(client, SPACE, "urgent-")):
            await client.json("DELETE", PODS.path(SPACE, name), body={"gracePeriodSeconds": 0})
        await has(client, "grows-", 4)


async def test_pods_beyond_the_replicas_start_alone_after_the_gang(tmp_path: Path) -> None:
    tree = owners.training_job("train", {"Worker": 9})
    *members, forged = owners.training_job("train", {"Worker": 10}).pods
    assert [one["metadata"]["name"] for one in members] == [one["metadata"]["name"] for one in tree.pods]
    async with cluster(tmp_path, 1, "PyTorchJob") as (running, client):
        await create(client, SPACE, [tree.top, *members, forged])

        async def explained() -> bool:
            jobs = {job["name"]: job["reason"] for job in running.json("jobs")["items"]}
            return "ExtraPod" in jobs.get(f"{SPACE}/train-worker-9", "") and f"{SPACE}/pytorchjob/train" in jobs

        await waiting.until(explained, "the pod beyond the replicas is a job of its own", timeout_s=30)
        await stays_empty(client, "train-")
        await client.json("POST", NODES.path(), body=node("n1"))
        await has(client, "train-", 10)
        jobs = {job["name"]: job["pods"] for job in running.json("jobs")["items"]}
        assert jobs[f"{SPACE}/pytorchjob/train"]["min"] == 9


async def test_defaults_of_kinds_are_read_again_while_the_platform_runs(tmp_path: Path) -> None:
    kinds, space = tmp_path / "kinds", f"{SPACE}/pytorchjob/"
    kinds.mkdir()
    async with cluster(tmp_path, 1, "PyTorchJob", env={"HBOX_KINDS_DIR": str(kinds)}) as (running, client):
        queue(running, "create", "training")

        async def queues() -> dict[str, str]:
            return {job["name"]: job["queue"] for job in running.json("jobs")["items"]}

        await create(client, SPACE, owners.training_job("before", {"Worker": 1}).objects)
        await has(client, "before-", 1)
        assert await queues() == {f"{space}before": "default"}
        (kinds / "defaults.yaml").write_text(
            "defaultsFor: [pytorchjobs.kubeflow.org]\ndefaults: {queue: training, minimum: 2}\n"
        )
        await asyncio.sleep(6)
        await create(client, SPACE, owners.training_job("after", {"Worker": 9}).objects)
        await has(client, "after-", 7)
        assert (await queues())[f"{space}after"] == "training"
        own = {"schedulingPolicy": {"queue": "default", "minAvailable": 9}}
        await create(client, SPACE, owners.training_job("own", {"Worker": 9}, runPolicy=own).objects)
        await stays_empty(client, "own-")
        assert (await queues())[f"{space}own"] == "default"
