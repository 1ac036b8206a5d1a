"""Tables, and the schemas that clients read: what `kubectl get` and `kubectl explain` print."""

from __future__ import annotations

import asyncio
import json

import pytest

from hbox_sandbox.api.definitions import definitions
from hbox_sandbox.api.printers import layout_of
from hbox_sandbox.api.resources import BUILT_IN, ResourceType

from ..waiting import until
from .kube_world import TABLE, Json, Raw, a_pod
from .openapi_schemas import read_schemas


def place(resource: ResourceType) -> str:
    return f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"


async def table(raw: Raw, path: str, **params: str) -> Json:
    status, body = await raw.call("GET", path, accept=TABLE, **params)
    assert (status, body["kind"], body["apiVersion"]) == (200, "Table", "meta.k8s.io/v1"), body
    return body


def cells(body: Json) -> list[dict[str, object]]:
    names = [each["name"] for each in body["columnDefinitions"]]
    return [dict(zip(names, row["cells"], strict=True)) for row in body["rows"]]


@pytest.mark.parametrize("resource", BUILT_IN, ids=lambda each: each.storage)
async def test_a_kind_has_the_columns_of_kubernetes(raw: Raw, resource: ResourceType) -> None:
    found = (await table(raw, f"{place(resource)}/{resource.plural}"))["columnDefinitions"]
    assert [(each["name"], each["type"], each["format"], each["priority"]) for each in found] == [
        (each.name, each.type, each.format, each.priority) for each in layout_of(resource).columns
    ]


async def test_published_schemas_are_those_of_kubernetes(raw: Raw) -> None:
    found = await read_schemas(raw.session, raw.base)
    assert found.keys() == definitions().keys()
    assert [name for name, schema in found.items() if schema != definitions()[name]] == []


async def test_published_fields_have_texts(raw: Raw) -> None:
    """A real server's are its own."""
    async with raw.session.get(f"{raw.base}/openapi/v3/api/v1") as response:
        schemas = (await response.json())["components"]["schemas"]
    fields = [field for schema in schemas.values() for field in (schema.get("properties") or {}).values()]
    assert sum("description" in field for field in fields) > 0.95 * len(fields)
    assert "Pod" in schemas["io.k8s.api.core.v1.Pod"]["description"]
    assert schemas["io.k8s.api.core.v1.Pod"]["properties"]["kind"]["description"]


async def test_a_row_has_the_metadata_of_its_object_or_all_or_nothing(raw: Raw, pods: str) -> None:
    await raw.made(pods, a_pod("a"))
    (row,) = (await table(raw, pods))["rows"]
    assert (row["object"]["kind"], row["object"]["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert row["object"]["metadata"]["name"] == "a"
    assert "spec" not in row["object"]
    (row,) = (await table(raw, pods, includeObject="Object"))["rows"]
    assert row["object"]["spec"]["containers"][0]["name"] == "main"
    (row,) = (await table(raw, pods, includeObject="None"))["rows"]
    assert row.get("object") is None
    status, body = await raw.call("GET", pods, accept=TABLE, includeObject="some")
    assert (status, body["reason"]) == (400, "BadRequest")


async def test_one_object_is_a_table_of_one_row(raw: Raw, pods: str) -> None:
    made = await raw.made(pods, a_pod("a"))
    body = await table(raw, f"{pods}/a")
    assert [row["cells"][:4] for row in body["rows"]] == [["a", "0/1", "Pending", "0"]]
    assert body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_pages_of_a_table_follow_each_other(raw: Raw, configmaps: str) -> None:
    for name in "abc":
        await raw.made(configmaps, {"metadata": {"name": f"m-{name}"}, "data": {name: "1"}})
    page = await table(raw, configmaps, limit="2", fieldSelector="metadata.name!=kube-root-ca.crt")
    assert [row["cells"][:2] for row in page["rows"]] == [["m-a", 1], ["m-b", 1]]
    rest = {"limit": "2", "continue": page["metadata"]["continue"], "fieldSelector": "metadata.name!=kube-root-ca.crt"}
    assert [row["cells"][0] for row in (await table(raw, configmaps, **rest))["rows"]] == ["m-c"]


async def test_a_watch_sends_rows_and_its_columns_once(raw: Raw, pods: str) -> None:
    await raw.made(pods, a_pod("a"))
    await raw.made(pods, a_pod("b"))
    lines: list[Json] = []
    async with (
        asyncio.timeout(10),
        raw.session.get(raw.base + pods, params={"watch": "1"}, headers={"Accept": TABLE}) as response,
    ):
        async for line in response.content:
            lines.append(json.loads(line))
            if len(lines) == 2:
                break
    assert [(each["type"], each["object"]["kind"]) for each in lines] == [("ADDED", "Table")] * 2
    assert [each["object"]["rows"][0]["cells"][0] for each in lines] == ["a", "b"]
    assert [bool(each["object"].get("columnDefinitions")) for each in lines] == [True, False]


async def test_the_states_of_containers_give_a_pods_status(raw: Raw, pods: str) -> None:
    await raw.made(pods, a_pod("a", nodeName="n1"))
    container = {"name": "main", "image": "busybox", "imageID": "", "ready": False, "restartCount": 3, "started": False}
    statuses: list[tuple[Json, tuple[str, str, str]]] = [
        ({"phase": "Running", "containerStatuses": [container | {"ready": True, "state": {"running": {}}}]}, ("1/1", "Running", "3")),
        ({"phase": "Pending", "containerStatuses": [container | {"state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
         ("0/1", "ImagePullBackOff", "3")),
        ({"phase": "Succeeded", "containerStatuses": [container | {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]},
         ("0/1", "Completed", "3")),
        ({"phase": "Failed", "containerStatuses": [container | {"state": {"terminated": {"exitCode": 7}}}]}, ("0/1", "ExitCode:7", "3")),
        ({"phase": "Failed", "reason": "Evicted", "containerStatuses": []}, ("0/1", "Evicted", "0")),
    ]  # fmt: skip
    for status, expected in statuses:
        code, body = await raw.patch(f"{pods}/a/status", {"status": {"reason": None} | status})
        assert code == 200, body
        (row,) = cells(await table(raw, f"{pods}/a"))
        assert (row["Ready"], row["Status"], row["Restarts"]) == expected


async def test_a_definitions_columns_are_printed(raw: Raw, namespace: str) -> None:
    group = f"{namespace}.example.com"
    columns = [
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status', "priority": 1},
        {"name": "First", "type": "string", "jsonPath": ".spec.names[0]"},
        {"name": "Names", "type": "string", "jsonPath": ".spec.names"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "additionalPrinterColumns": columns} | {
        "schema": {"openAPIV3Schema": schema}
    }
    names = {"kind": "Thing", "plural": "things"}
    definition = {
        "metadata": {"name": f"things.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    await raw.made("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    path = f"/apis/{group}/v1/namespaces/{namespace}/things"

    async def served() -> bool:
        return (await raw.get(path))[0] == 200

    await until(served, "the definition to be served")
    thing = {
        "apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"size": 4, "names": ["x", "y"]},
        "status": {"phase": "Done", "conditions": [{"type": "Big", "status": "False"}, {"type": "Ready", "status": "True"}]},
    }  # fmt: skip
    await raw.made(path, thing)
    await raw.made(path, {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "b"}})
    full, empty = cells(await table(raw, path))
    assert full.pop("Age")
    assert full == {"Name": "a", "Phase": "Done", "Size": 4, "Ready": "True", "First": "x", "Names": '["x","y"]'}
    assert [empty[name] for name in ("Phase", "Size", "Ready", "First", "Names")] == [None] * 5
    await raw.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{group}")


async def test_a_table_of_another_version_is_not_acceptable(raw: Raw, pods: str) -> None:
    status, body = await raw.call("GET", pods, accept="application/json;as=Table;v=v7;g=meta.k8s.io")
    assert (status, body["reason"]) == (406, "NotAcceptable")
