"""Definitions and queues that `hbox up` brings, and those of others that it finds."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hbox_cli.platform import crds
from hbox_common.errors import InvalidRequest
from hbox_common.kube import (
    CRDS,
    HYPERNODES,
    MERGE_PATCH,
    PODGROUPS,
    PRIORITYCLASSES,
    QUEUES,
    KubeClient,
    apply,
    patch_status,
    wait_established,
)
from hbox_common.kube.definitions import FIELD_MANAGER, POD_GROUP, schema_of
from hbox_sandbox.api import ApiServer

from ...volcano_definitions import CURRENT, OLD, OPEN, Json, pod_groups, queues
from ...volcano_objects import HYPER_NODE_STATUS, HYPER_NODES, MISSPELT_POD_GROUPS, MISSPELT_QUEUES, QUEUE, QUEUE_STATUS
from ...volcano_objects import POD_GROUP as GROUP

PODGROUP_CRD = CRDS.path(name="podgroups.scheduling.volcano.sh")


@pytest.fixture
async def kube(tmp_path: Path) -> AsyncIterator[KubeClient]:
    async with ApiServer(seed=1) as server:
        config = server.kubeconfig(tmp_path / "kubeconfig")
        async with KubeClient.connect(str(config), user_agent="hbox-test/1") as client:
            yield client


async def bring(client: KubeClient) -> list[str]:
    said: list[str] = []
    await crds.bring(client, said.append)
    return said


async def test_an_empty_cluster_gets_all_of_it_once(kube: KubeClient) -> None:
    assert await bring(kube) == [
        "applied CRD queues.scheduling.volcano.sh", "applied CRD podgroups.scheduling.volcano.sh", "applied CRD hypernodes.topology.volcano.sh",
        "applied queue root", "applied queue default",
    ]  # fmt: skip
    root, default = [(await kube.json("GET", QUEUES.path(name=name)))["spec"] for name in ("root", "default")]
    assert (root["weight"], root["reclaimable"], default["weight"], default["reclaimable"]) == (1, False, 1, True)
    assert [line for line in await bring(kube) if "queue " in line] == []
    assert await crds.lacking(kube) == []


async def levels(client: KubeClient) -> tuple[list[str], dict[str, int]]:
    """What is said, and the PriorityClasses that there are then beside Kubernetes' own."""
    said: list[str] = []
    await crds.bring_levels(client, said.append)
    there = {one["metadata"]["name"]: one["value"] for one in (await client.json("GET", PRIORITYCLASSES.path()))["items"]}
    return said, {name: value for name, value in there.items() if not name.startswith("system-")}


async def test_levels_are_made_once_and_what_is_missing_of_them_again(kube: KubeClient) -> None:
    there = {"high": 300, "medium": 200, "low": -100, "offline": -200}
    assert await levels(kube) == ([f"made PriorityClass {name}" for name in there], there)
    assert await levels(kube) == ([], there)
    await kube.json("DELETE", PRIORITYCLASSES.path(name="low"))
    assert await levels(kube) == (["made PriorityClass low"], there)


async def test_beside_a_level_of_somebody_elses_no_other_is_made(kube: KubeClient) -> None:
    """What `high` means there is theirs to say: `medium` and `low` beside it would make it a level of HBox's."""
    theirs = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7}
    await kube.json("POST", PRIORITYCLASSES.path(), body=theirs)
    said, there = await levels(kube)
    assert there == {"high": 7, "offline": -200}
    assert said == [
        "made PriorityClass offline",
        "found PriorityClass high with another owner: medium, low not created, and HBox has no priority levels here",
    ]


async def test_new_queue_default_lists_only_everyday_classes(kube: KubeClient) -> None:
    theirs = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "usual"},
        "value": 7,
        "globalDefault": True,
    }
    await kube.json("POST", PRIORITYCLASSES.path(), body=theirs)
    await levels(kube)
    await crds.bring(kube, lambda _: None, listed=True)
    root, default = [(await kube.json("GET", QUEUES.path(name=name)))["metadata"] for name in ("root", "default")]
    assert default["annotations"] == {"hbox.io/priority-classes": "~none, usual, medium, low, offline"}
    assert "annotations" not in root


async def test_our_queues_go_with_their_definition_and_are_told_and_made_again(kube: KubeClient) -> None:
    await bring(kube)
    for name in ("root", "default"):
        await kube.json("DELETE", QUEUES.path(name=name))
    gone = "there is no Queue {}, as when its definition was deleted: `hbox definitions apply` makes it again"
    assert await crds.lacking(kube) == [gone.format("root"), gone.format("default")]
    assert [line for line in await bring(kube) if "queue " in line] == ["applied queue root", "applied queue default"]
    assert await crds.lacking(kube) == []


async def test_our_podgroups_have_no_status_subresource_like_volcanos(kube: KubeClient) -> None:
    """Its scheduler writes statuses with the object: they would be dropped."""
    await bring(kube)
    served = [entry["name"] for entry in (await kube.json("GET", PODGROUPS.list_of_kinds))["resources"]]
    assert {"podgroups", "queues", "queues/status"} <= set(served)
    assert "podgroups/status" not in served


@pytest.mark.parametrize("manager", ["kubectl-client-side-apply", "helm"])
async def test_a_definition_that_others_applied_over_ours_is_used_as_it_is(kube: KubeClient, manager: str) -> None:
    """Our label stays on it, which says nothing."""
    await bring(kube)
    before = await kube.json("GET", PODGROUP_CRD)
    await apply(kube, pod_groups(CURRENT), field_manager=manager)
    theirs = await kube.json("GET", PODGROUP_CRD)
    assert theirs["metadata"]["labels"] == before["metadata"]["labels"]
    said = await bring(kube)
    assert (await kube.json("GET", PODGROUP_CRD))["spec"] == theirs["spec"]
    (about,) = [line for line in said if "podgroups" in line]
    assert about.startswith("found CRD podgroups.scheduling.volcano.sh with another owner: used unchanged")


async def test_our_own_of_an_older_version_is_brought_up_to_date(kube: KubeClient) -> None:
    older: Json = {**POD_GROUP, "spec": {**POD_GROUP["spec"]}}
    (version,) = older["spec"]["versions"]
    older["spec"]["versions"] = [{**version, "subresources": {"status": {}}}]
    await apply(kube, older, field_manager=FIELD_MANAGER)
    assert "applied CRD podgroups.scheduling.volcano.sh" in await bring(kube)
    assert not (await kube.json("GET", PODGROUP_CRD))["spec"]["versions"][0].get("subresources")


async def test_what_a_definition_does_not_keep_is_told(kube: KubeClient) -> None:
    for body in (pod_groups(OLD), queues(parent=False)):
        await kube.json("POST", CRDS.path(), body=body)
    told = "; it does not keep {}: HBox does not see what is written there"
    said = await bring(kube)
    fields = {"podgroups": "spec.networkTopology, spec.subGroupPolicy", "queues": "spec.affinity, spec.parent"}
    for plural, missing in fields.items():
        (about,) = [line for line in said if f"CRD {plural}." in line]
        assert about.endswith(told.format(missing))
    assert await crds.lacking(kube) == [
        f"CRD {plural}.scheduling.volcano.sh{told.format(fields[plural])}" for plural in ("queues", "podgroups")
    ]


def test_a_definition_that_keeps_all_fields_lacks_none() -> None:
    assert crds.lacks(pod_groups(OPEN), POD_GROUP) == []


def test_fields_below_lists_and_objects_are_looked_at() -> None:
    theirs: Any = pod_groups(CURRENT)
    spec = theirs["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["subGroupPolicy"] = {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}}
    spec["networkTopology"] = {"type": "object", "properties": {"mode": {"type": "string"}}}
    assert crds.lacks(theirs, POD_GROUP) == [
        "spec.networkTopology.highestTierAllowed", "spec.networkTopology.highestTierName",
        *(f"spec.subGroupPolicy[].{field}" for field in ("labelSelector", "matchLabelKeys", "minSubGroups", "networkTopology", "subGroupSize")),
    ]  # fmt: skip


def test_a_definition_of_another_version_is_refused() -> None:
    theirs = pod_groups(OLD)
    theirs["spec"]["versions"][0]["name"] = "v1"
    with pytest.raises(InvalidRequest, match="does not serve v1beta1"):
        crds.lacks(theirs, POD_GROUP)


async def test_definitions_keep_all_fields_of_volcanos_objects(kube: KubeClient) -> None:
    await bring(kube)
    strict = {"fieldValidation": "Strict"}
    queue = await kube.json("POST", QUEUES.path(), body=QUEUE, params=strict)
    group = await kube.json("POST", PODGROUPS.path("default"), body=GROUP, params=strict)
    assert (queue["spec"], group["spec"], group["status"]) == (QUEUE["spec"], GROUP["spec"], GROUP["status"])
    stored = await patch_status(kube, QUEUES, namespace=None, name="whole", status=QUEUE_STATUS)
    assert stored["status"] == QUEUE_STATUS
    for one in HYPER_NODES:
        made = await kube.json("POST", HYPERNODES.path(), body=one, params=strict)
        assert made["spec"] == one["spec"]
    stored = await patch_status(kube, HYPERNODES, namespace=None, name="exact", status=HYPER_NODE_STATUS)
    assert stored["status"] == HYPER_NODE_STATUS


@pytest.mark.parametrize(
    ("manifest", "part", "path"),
    [(QUEUE, *case) for case in MISSPELT_QUEUES] + [(GROUP, *case) for case in MISSPELT_POD_GROUPS],
)
async def test_misspelt_fields_are_refused_by_strict_validation(
    kube: KubeClient, manifest: Json, part: Json, path: str
) -> None:
    await bring(kube)
    where = QUEUES.path() if manifest is QUEUE else PODGROUPS.path("default")
    body = {**manifest, "metadata": {"name": "misspelt"}, "spec": part}
    with pytest.raises(InvalidRequest, match=re.escape(f'unknown field "{path}"')):
        await kube.json("POST", where, body=body, params={"fieldValidation": "Strict"})


async def test_objects_with_stray_fields_stay_readable_after_an_upgrade(kube: KubeClient) -> None:
    """Earlier versions of HBox installed definitions that kept unknown fields."""
    older: Any = json.loads(json.dumps(POD_GROUP))
    schema_of(older)["properties"]["spec"]["x-kubernetes-preserve-unknown-fields"] = True
    await apply(kube, older, field_manager=FIELD_MANAGER)
    await wait_established(kube, older["metadata"]["name"])
    body = {**GROUP, "metadata": {"name": "stray"}, "spec": {"minMember": 2, "minMembers": 3}}
    made = await kube.json("POST", PODGROUPS.path("default"), body=body)
    assert made["spec"]["minMembers"] == 3
    assert "applied CRD podgroups.scheduling.volcano.sh" in await bring(kube)
    patch = {"spec": {"minMember": 4}}
    changed = await kube.json("PATCH", PODGROUPS.path("default", "stray"), body=patch, content_type=MERGE_PATCH)
    assert changed["spec"]["minMember"] == 4
    assert "minMembers" not in changed["spec"]
