"""Statuses of custom resources whose definition has no status subresource, and what HBox makes of either kind."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from hbox_common.errors import NotFound
from hbox_common.kube import KubeClient, Resource, StatusPatcher

from ..volcano_definitions import SHAPES, Json, Shape, definition, pod_groups
from ..waiting import until
from .kube_world import KubeApi, Raw

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STATUS = {"phase": "Inqueue", "running": 0, "conditions": [{"type": "Unschedulable", "status": "True", "message": "no room"}]}
_groups = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Groups:
    """PodGroups of an API group of the test's own, and their definition."""

    raw: Raw
    group: str
    namespace: str
    client: KubeClient

    @property
    def resource(self) -> Resource:
        return Resource(self.group, "v1beta1", "podgroups", namespaced=True)

    @property
    def path(self) -> str:
        return self.resource.path(self.namespace)

    async def define(self, body: Json) -> None:
        path = f"{CRDS}/podgroups.{self.group}"
        code, found = await self.raw.get(path)
        if code == 404:
            await self.raw.made(CRDS, body)
        else:
            body = body | {"metadata": {**body["metadata"], "resourceVersion": found["metadata"]["resourceVersion"]}}
            assert (await self.raw.put(path, body))[0] == 200
        there = "status" in body["spec"]["versions"][0]["subresources"]

        async def served() -> bool:
            _, listed = await self.raw.get(self.resource.list_of_kinds)
            names = [entry["name"] for entry in listed.get("resources", ())]
            return "podgroups" in names and ("podgroups/status" in names) is there and (await self.raw.get(self.path))[0] == 200

        await until(served, "the definition is served", timeout_s=30)

    async def shaped(self, shape: Shape) -> None:
        await self.define(pod_groups(shape, group=self.group))

    async def make(self, name: str, **more: object) -> Json:
        body = {"apiVersion": f"{self.group}/v1beta1", "kind": "PodGroup", "metadata": {"name": name}, "spec": {"minMember": 2}}
        return await self.raw.made(self.path, body | more)

    async def status(self, name: str) -> Json:
        _, found = await self.raw.get(f"{self.path}/{name}")
        status: Json = found.get("status", {})
        return status


@pytest.fixture
async def groups(raw: Raw, kube_api: KubeApi, namespace: str) -> AsyncIterator[Groups]:
    group = f"statuses{next(_groups)}.example.com"
    async with KubeClient.connect(str(kube_api.kubeconfig), user_agent="conformance") as client:
        yield Groups(raw, group, namespace, client)
    await raw.delete(f"{CRDS}/podgroups.{group}")


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
async def test_without_the_subresource_a_status_is_a_field_like_any_other(groups: Groups, shape: Shape) -> None:
    await groups.shaped(shape)
    made = await groups.make("g", status={"phase": "Pending", "news": 1})
    assert made["status"] == {"phase": "Pending"} | ({"news": 1} if shape.keeps_unknown else {})
    code, answer = await groups.raw.patch(f"{groups.path}/g/status", {"status": {"phase": "Inqueue"}})
    not_there = f'podgroups.{groups.group} "g" not found'
    assert (code, answer["reason"], answer["message"]) == (404, "NotFound", not_there)
    assert (await groups.raw.get(f"{groups.path}/g/status"))[0] == 404
    code, changed = await groups.raw.patch(f"{groups.path}/g", {"status": {"phase": "Inqueue"}})
    assert (code, changed["status"]["phase"]) == (200, "Inqueue")
    assert changed["metadata"]["generation"] == made["metadata"]["generation"] + 1
    fence = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}, "status": {"phase": "Running"}}
    code, _ = await groups.raw.patch(f"{groups.path}/g", fence)
    assert code == 422  # a uid is no precondition of a patch, but a field that does not change
    code, _ = await groups.raw.patch(f"{groups.path}/g", {"status": {"phase": "Imagined"}})
    assert code == (422 if shape.phase_enum else 200)


async def test_a_uid_is_no_fence_at_the_status_of_a_custom_resource_but_a_test_of_it_is(groups: Groups) -> None:
    await groups.shaped(Shape(status_subresource=True))
    await groups.make("g")
    other = "00000000-0000-0000-0000-000000000000"
    path = f"{groups.path}/g/status"
    code, changed = await groups.raw.patch(path, {"metadata": {"uid": other}, "status": {"phase": "Running"}})
    assert (code, changed["status"]["phase"], changed["metadata"]["uid"] == other) == (200, "Running", False)
    operations: list[Json] = [
        {"op": "test", "path": "/metadata/uid", "value": other},
        {"op": "add", "path": "/status", "value": {"phase": "Inqueue"}},
    ]
    code, answer = await groups.raw.patch(path, operations, "json")
    assert (code, answer["reason"]) == (422, "Invalid")
    operations[0]["value"] = changed["metadata"]["uid"]
    code, changed = await groups.raw.patch(path, operations, "json")
    assert (code, changed["status"]) == (200, {"phase": "Inqueue"})


@pytest.mark.parametrize("shape", [*SHAPES.values(), Shape(status_subresource=True)], ids=[*SHAPES, "subresource"])
async def test_statuses_are_written_where_the_definition_keeps_them(groups: Groups, shape: Shape) -> None:
    await groups.shaped(shape)
    uid = (await groups.make("g"))["metadata"]["uid"]
    patcher = StatusPatcher(groups.client, groups.resource)
    await patcher.patch(namespace=groups.namespace, name="g", status=STATUS, uid=uid)
    assert await groups.status("g") == STATUS
    with pytest.raises(NotFound):
        await patcher.patch(namespace=groups.namespace, name="g", status={"phase": "Running"}, uid="another")
    with pytest.raises(NotFound):
        await patcher.patch(namespace=groups.namespace, name="nobody", status=STATUS, uid=uid)
    assert await groups.status("g") == STATUS


async def test_a_definition_that_changes_is_followed(groups: Groups) -> None:
    """Each way: what the server answers then is "not found" for an object that is there, or success for a status that is dropped."""
    patcher = StatusPatcher(groups.client, groups.resource)
    await groups.shaped(Shape())
    uid = (await groups.make("g"))["metadata"]["uid"]
    for number, there in enumerate((False, True, False, True)):
        await groups.shaped(Shape(status_subresource=there))

        async def written(running: int = number) -> bool:
            await patcher.patch(namespace=groups.namespace, name="g", status={"phase": "Running", "running": running}, uid=uid)
            return (await groups.status("g")).get("running") == running

        assert await written(), f"status subresource: {there}"


async def test_fields_that_a_definition_drops_keep_no_other_from_being_written(
    groups: Groups, caplog: pytest.LogCaptureFixture
) -> None:
    status = {"type": "object", "properties": {"phase": {"type": "string"}}}
    schema: Json = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
    schema["properties"]["status"] = status
    await groups.define(definition("PodGroup", "podgroups", groups.group, schema, namespaced=True, status=False))
    uid = (await groups.make("g"))["metadata"]["uid"]
    patcher = StatusPatcher(groups.client, groups.resource)
    for _ in range(2):
        await patcher.patch(namespace=groups.namespace, name="g", status=STATUS, uid=uid)
    assert await groups.status("g") == {"phase": "Inqueue"}
    assert [r.getMessage() for r in caplog.records if "does not keep" in r.getMessage()] == [
        "the definition of podgroups does not keep conditions, running of their statuses"
    ]
