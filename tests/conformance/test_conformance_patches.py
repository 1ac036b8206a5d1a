"""The four patches and custom resources (checklist items 6 and 10)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator

import pytest

from ..waiting import until
from .kube_world import Json, Raw, a_pod

GROUP = f"conformance{os.getpid()}.hbox.io"
WIDGETS = f"widgets.{GROUP}"
SCHEMA: Json = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1},
                "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
                "amount": {"x-kubernetes-int-or-string": True},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
                    },
                },
            },
        },
        "status": {"type": "object", "properties": {"state": {"type": "string"}}},
    },
}


def a_crd() -> Json:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": SCHEMA},
    }
    names = {"plural": "widgets", "kind": "Widget", "singular": "widget", "shortNames": ["wd"]}
    spec = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": WIDGETS},
        "spec": spec,
    }


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def established(raw: Raw) -> bool:
    _, crd = await raw.get(f"{CRDS}/{WIDGETS}")
    conditions = crd.get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


@pytest.fixture
async def widgets(raw: Raw, namespace: str) -> AsyncIterator[str]:
    await raw.post(CRDS, a_crd())
    path = f"/apis/{GROUP}/v1/namespaces/{namespace}/widgets"

    async def served() -> bool:
        return await established(raw) and (await raw.get(path))[0] == 200

    await until(served)
    yield path
    await raw.delete(path)


async def test_a_new_custom_resource_is_served_once_it_is_established_and_gone_with_its_definition(
    raw: Raw, widgets: str
) -> None:
    _, groups = await raw.get("/apis")
    assert GROUP in [each["name"] for each in groups["groups"]]
    _, resources = await raw.get(f"/apis/{GROUP}/v1")
    entry = next(each for each in resources["resources"] if each["name"] == "widgets")
    assert (entry["kind"], entry["shortNames"], entry["namespaced"]) == ("Widget", ["wd"], True)
    await raw.made(widgets, {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 1}})
    watching = asyncio.create_task(raw.watch(widgets, until=lambda events: events[-1]["type"] == "DELETED", timeout_s=20))
    assert (await raw.delete(f"{CRDS}/{WIDGETS}"))[0] == 200

    async def gone() -> bool:
        return (await raw.get(widgets))[0] == 404

    await until(gone, timeout_s=20)
    await watching  # the server ends it, whatever it has told by then


def a_widget(name: str, **spec: object) -> Json:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1, **spec}}


async def test_custom_resources_are_defaulted_and_pruned(raw: Raw, widgets: str) -> None:
    widget = await raw.made(widgets, a_widget("a", unknown=1, any={"x": {"y": 1}}, amount="50%"))
    assert widget["spec"] == {"size": 1, "mode": "fast", "any": {"x": {"y": 1}}, "amount": "50%"}
    assert widget["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"size": 0}, "spec.size"),
        ({"size": "big"}, "spec.size"),
        ({"mode": "odd"}, "spec.mode"),
        ({"parts": [{}]}, "spec.parts[0].name"),
    ],
)
async def test_custom_resources_are_validated(raw: Raw, widgets: str, spec: Json, field: str) -> None:
    status, body = await raw.post(widgets, a_widget("a", **spec))
    assert (status, body["reason"]) == (422, "Invalid")
    assert field in [each["field"] for each in body["details"]["causes"]]


async def test_fields_that_a_definition_does_not_have_are_refused_where_that_is_asked(raw: Raw, widgets: str) -> None:
    wrong = {
        "metadata": {"name": "w"},
        "spec": {"size": 1, "colour": "red", "parts": [{"name": "a", "cuont": 1}], "any": {"x": 1}},
    }
    wrong |= {"apiVersion": f"{GROUP}/v1", "kind": "Widget"}
    status, body = await raw.post(widgets, wrong, fieldValidation="Strict")
    assert (status, body["reason"]) == (400, "BadRequest")
    for path in ("spec.colour", "spec.parts[0].cuont"):
        assert f'unknown field "{path}"' in body["message"]
    assert "strict decoding error: " in body["message"]
    assert "spec.any" not in body["message"]
    assert (await raw.post(widgets, wrong, fieldValidation="Ignore"))[0] == 201
    status, body = await raw.patch(f"{widgets}/w", {"spec": {"colour": "red"}}, fieldValidation="Strict")
    assert (status, body["reason"]) == (422, "Invalid")
    assert 'strict decoding error: unknown field "spec.colour"' in body["message"]
    assert (await raw.patch(f"{widgets}/w", {"spec": {"size": 2}}, fieldValidation="Strict"))[0] == 200
    assert (await raw.patch(f"{widgets}/w", {"spec": {"size": 3}}, fieldValidation="Loose"))[0] in (400, 422)


async def openapi(raw: Raw, path: str) -> Json:
    """What is there; the real server does not always call it JSON."""
    async with raw.session.get(raw.base + path, headers={"Accept": "application/json"}) as response:
        assert response.status == 200
        document: Json = json.loads(await response.read())
        return document


async def test_kubectl_is_told_that_fields_can_be_validated(raw: Raw, widgets: str) -> None:
    """It asks before it creates or applies anything, and refuses to where there is no answer."""
    for place, kind in (("api/v1", "Pod"), (f"apis/{GROUP}/v1", "Widget"), ("apis/scheduling.k8s.io/v1", "PriorityClass")):

        async def described(place: str = place, kind: str = kind) -> Json | None:
            root = await openapi(raw, "/openapi/v3")
            if place not in root["paths"]:
                return None
            document = await openapi(raw, root["paths"][place]["serverRelativeURL"])
            patches = [path["patch"] for path in document["paths"].values() if "patch" in path]
            return next((one for one in patches if one.get("x-kubernetes-group-version-kind", {}).get("kind") == kind), None)

        found = await until(described)
        assert found is not None
        names = {parameter.get("name", parameter.get("$ref", "")) for parameter in found["parameters"]}
        assert any("fieldValidation" in name for name in names), names


async def test_the_status_of_a_custom_resource_is_a_thing_apart(raw: Raw, widgets: str) -> None:
    widget = await raw.made(widgets, a_widget("a") | {"status": {"state": "early"}})
    assert "status" not in widget
    status, after = await raw.patch(
        f"{widgets}/a/status", {"status": {"state": "on"}, "spec": {"size": 5}, "metadata": {"labels": {"x": "1"}}}
    )
    assert (status, after["status"], after["spec"]["size"], after["metadata"]["generation"]) == (200, {"state": "on"}, 1, 1)
    assert "labels" not in after["metadata"]
    status, after = await raw.patch(f"{widgets}/a", {"status": {"state": "off"}, "spec": {"size": 2}})
    assert (status, after["status"], after["spec"]["size"], after["metadata"]["generation"]) == (200, {"state": "on"}, 2, 2)


async def test_custom_resources_refuse_strategic_patches_and_unversioned_updates(raw: Raw, widgets: str) -> None:
    widget = await raw.made(widgets, a_widget("a"))
    status, body = await raw.patch(f"{widgets}/a", {"spec": {"size": 2}}, "strategic-merge")
    assert (status, body["reason"]) == (415, "UnsupportedMediaType")
    del widget["metadata"]["resourceVersion"]
    status, body = await raw.put(f"{widgets}/a", widget)
    assert (status, body["reason"]) == (422, "Invalid")


async def test_a_broken_definition_is_invalid(raw: Raw) -> None:
    status, body = await raw.post(CRDS, a_crd() | {"metadata": {"name": "other.name"}})
    assert (status, body["reason"]) == (422, "Invalid")
    assert "metadata.name" in [each["field"] for each in body["details"]["causes"]]


async def test_a_merge_patch_merges_objects_replaces_lists_and_deletes_by_null(raw: Raw, widgets: str) -> None:
    await raw.made(widgets, a_widget("a", any={"keep": 1, "drop": 2}, parts=[{"name": "p"}, {"name": "q"}]))
    status, after = await raw.patch(f"{widgets}/a", {"spec": {"any": {"drop": None, "new": 3}, "parts": [{"name": "r"}]}})
    assert (status, after["spec"]["any"], after["spec"]["parts"]) == (200, {"keep": 1, "new": 3}, [{"name": "r"}])


async def test_a_patch_with_a_stale_version_is_a_conflict(raw: Raw, configmaps: str) -> None:
    made = await raw.made(configmaps, {"metadata": {"name": "a"}})
    await raw.patch(f"{configmaps}/a", {"data": {"x": "1"}})
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "2"}}
    assert (await raw.patch(f"{configmaps}/a", stale))[0] == 409
    uid = {"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}, "data": {"x": "2"}}
    assert (await raw.patch(f"{configmaps}/a", uid))[0] == 422


async def test_json_patches(raw: Raw, configmaps: str) -> None:
    await raw.made(configmaps, {"metadata": {"name": "a", "annotations": {"y/z": "2"}}, "data": {"x": "1"}})
    operations = [
        {"op": "test", "path": "/data/x", "value": "1"},
        {"op": "replace", "path": "/data/x", "value": "3"},
        {"op": "remove", "path": "/metadata/annotations/y~1z"},
        {"op": "add", "path": "/data/w", "value": "4"},
        {"op": "copy", "from": "/data/w", "path": "/data/v"},
        {"op": "move", "from": "/data/w", "path": "/data/u"},
    ]
    status, after = await raw.patch(f"{configmaps}/a", operations, "json")
    assert (status, after["data"]) == (200, {"x": "3", "v": "4", "u": "4"})
    assert "annotations" not in after["metadata"] or after["metadata"]["annotations"] == {}
    for broken in ([{"op": "test", "path": "/data/x", "value": "9"}], [{"op": "remove", "path": "/data/none"}]):
        status, body = await raw.patch(f"{configmaps}/a", broken, "json")
        assert (status, body["reason"]) == (422, "Invalid")
    assert (await raw.patch(f"{configmaps}/a", {"data": {}}, "json"))[0] == 400


async def test_strategic_patches_merge_lists_by_their_keys(raw: Raw, pods: str) -> None:
    await raw.made(pods, a_pod("a"))
    for kind, value in (("Ready", "False"), ("hbox.io/Waiting", "True"), ("Ready", "True")):
        conditions = [{"type": kind, "status": value}]
        status, pod = await raw.patch(f"{pods}/a/status", {"status": {"conditions": conditions}}, "strategic-merge")
        assert status == 200
    assert {each["type"]: each["status"] for each in pod["status"]["conditions"]} == {
        "Ready": "True",
        "hbox.io/Waiting": "True",
    }
    drop = [{"type": "Ready", "$patch": "delete"}]
    status, pod = await raw.patch(f"{pods}/a/status", {"status": {"conditions": drop}}, "strategic-merge")
    assert [each["type"] for each in pod["status"]["conditions"]] == ["hbox.io/Waiting"]


async def test_strategic_patches_replace_taints_whole(raw: Raw, namespace: str) -> None:
    path = f"/api/v1/nodes/{namespace}"
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoSchedule"}]
    await raw.made("/api/v1/nodes", {"metadata": {"name": namespace}, "spec": {"taints": taints}})
    _, node = await raw.patch(
        path, {"spec": {"taints": [{"key": "c", "effect": "NoExecute"}], "unschedulable": True}}, "strategic-merge"
    )
    assert [each["key"] for each in node["spec"]["taints"]] == ["c"]
    _, node = await raw.patch(path, {"spec": {"unschedulable": None}}, "strategic-merge")
    assert "unschedulable" not in node["spec"]
    await raw.delete(path)


async def test_an_unknown_patch_type_is_refused(raw: Raw, configmaps: str) -> None:
    await raw.made(configmaps, {"metadata": {"name": "a"}})
    status, body = await raw.call("PATCH", f"{configmaps}/a", {}, content_type="application/json")
    assert (status, body["reason"]) == (415, "UnsupportedMediaType")


def a_map(**data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}


async def test_apply_creates_and_applying_again_changes_nothing(raw: Raw, configmaps: str) -> None:
    status, made = await raw.patch(f"{configmaps}/a", a_map(x="1"), "apply", fieldManager="me")
    assert (status, made["data"]) == (201, {"x": "1"})
    entry = made["metadata"]["managedFields"][0]
    assert (entry["manager"], entry["operation"], entry["fieldsV1"]["f:data"]["f:x"]) == ("me", "Apply", {})
    status, again = await raw.patch(f"{configmaps}/a", a_map(x="1"), "apply", fieldManager="me")
    assert (status, again["metadata"]["resourceVersion"]) == (200, made["metadata"]["resourceVersion"])


async def test_apply_removes_what_its_manager_no_longer_applies(raw: Raw, configmaps: str) -> None:
    await raw.patch(f"{configmaps}/a", a_map(x="1", y="2"), "apply", fieldManager="me")
    await raw.patch(f"{configmaps}/a", a_map(y="2", z="3"), "apply", fieldManager="you")
    _, after = await raw.patch(f"{configmaps}/a", a_map(), "apply", fieldManager="me")
    assert after["data"] == {"y": "2", "z": "3"}


async def test_apply_over_anothers_field_is_a_conflict_unless_forced(raw: Raw, configmaps: str) -> None:
    await raw.patch(f"{configmaps}/a", a_map(x="1"), "apply", fieldManager="me")
    status, body = await raw.patch(f"{configmaps}/a", a_map(x="2"), "apply", fieldManager="you")
    assert (status, body["reason"]) == (409, "Conflict")
    assert body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "me"', "field": ".data.x"}
    ]
    status, after = await raw.patch(f"{configmaps}/a", a_map(x="2"), "apply", fieldManager="you", force="true")
    assert (status, after["data"]) == (200, {"x": "2"})
    status, _ = await raw.patch(f"{configmaps}/a", a_map(x="1"), "apply", fieldManager="me")
    assert status == 409
    status, _ = await raw.patch(f"{configmaps}/a", a_map(x="2"), "apply", fieldManager="me")
    assert status == 200


async def test_a_plain_write_takes_over_the_fields_that_it_changes(raw: Raw, configmaps: str) -> None:
    await raw.patch(f"{configmaps}/a", a_map(x="1", y="1"), "apply", fieldManager="me")
    await raw.patch(f"{configmaps}/a", {"data": {"x": "2"}}, fieldManager="hand")
    status, body = await raw.patch(f"{configmaps}/a", a_map(x="1", y="1"), "apply", fieldManager="me")
    assert status == 409
    assert [each["field"] for each in body["details"]["causes"]] == [".data.x"]
    assert 'conflict with "hand"' in body["message"]


async def test_what_was_there_before_the_first_apply_is_contested_too(raw: Raw, configmaps: str) -> None:
    await raw.made(configmaps, a_map(x="1"))
    assert (await raw.patch(f"{configmaps}/a", a_map(x="2"), "apply", fieldManager="me"))[0] == 409
    assert (await raw.patch(f"{configmaps}/a", a_map(x="1"), "apply", fieldManager="me"))[0] == 200


async def test_apply_merges_associative_lists_item_by_item(raw: Raw, widgets: str) -> None:
    one = a_widget("a", parts=[{"name": "p", "count": 1}])
    two = {**a_widget("a", parts=[{"name": "q", "count": 2}])}
    await raw.patch(f"{widgets}/a", one, "apply", fieldManager="me")
    status, after = await raw.patch(f"{widgets}/a", two, "apply", fieldManager="you")
    assert status == 200
    assert after["spec"]["parts"] == [{"name": "p", "count": 1}, {"name": "q", "count": 2}]
    _, after = await raw.patch(f"{widgets}/a", a_widget("a"), "apply", fieldManager="me")
    assert after["spec"]["parts"] == [{"name": "q", "count": 2}]


async def test_apply_to_a_status_leaves_the_rest_alone(raw: Raw, widgets: str) -> None:
    await raw.patch(f"{widgets}/a", a_widget("a"), "apply", fieldManager="me")
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": "a"}, "status": {"state": "on"}}
    status, after = await raw.patch(f"{widgets}/a/status", body, "apply", fieldManager="me")
    assert (status, after["status"], after["spec"]["size"]) == (200, {"state": "on"}, 1)


async def test_apply_needs_a_manager_and_takes_yaml(raw: Raw, configmaps: str) -> None:
    status, _ = await raw.patch(f"{configmaps}/a", a_map(x="1"), "apply")
    assert status in (400, 422)
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '1'}\n"
    status, made = await raw.patch(f"{configmaps}/a", text, "apply", fieldManager="me")
    assert (status, made["data"]) == (201, {"x": "1"})
