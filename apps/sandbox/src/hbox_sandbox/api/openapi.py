"""OpenAPI v3 of what the server serves: `kubectl explain` and the validation of manifests read it."""

from __future__ import annotations

from collections.abc import Mapping

from .definitions import OBJECT_META, PATCH, REFERENCE, SCALE, closure, name_of, references
from .errors import Json
from .resources import METRICS, Registry, ResourceType

OPENAPI_V2, PROTOBUF_V2 = "/openapi/v2", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
#: OpenAPI v2 without definitions (`swagger: "2.0"`): kubectl reads it for kinds that v3 does not have, a List among them, and validates none of them.
EMPTY_V2 = b"\x0a\x032.0"
#: Its texts of apiVersion, kind and metadata are those of every object.
_ANY_OBJECT = "io.k8s.api.core.v1.Pod"
_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
    "application/strategic-merge-patch+json",
)


def document(registry: Registry, place: str, version: str) -> Json | None:
    """The document of `place` ("apis/apps/v1"), or with "" the index of all; None where nothing is served. `version`: of the server."""
    by_place: dict[str, list[ResourceType]] = {}
    for resource in registry:
        if resource in METRICS:
            continue
        by_place.setdefault(f"apis/{resource.api_version}" if resource.group else f"api/{resource.version}", []).append(
            resource
        )
    if not place:
        return {"paths": {each: {"serverRelativeURL": f"/openapi/v3/{each}"} for each in sorted(by_place)}}
    if place not in by_place:
        return None
    paths: Json = {}
    names, schemas = {OBJECT_META, PATCH}, {}
    for resource in by_place[place]:
        paths |= _paths(place, resource)
        if resource.custom:
            schemas[name_of(resource)] = _custom_schema(resource)
        else:
            names.add(name_of(resource))
            names |= {SCALE} if "scale" in resource.subresources else set()
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": version},
        "paths": paths,
        "components": {"schemas": {name: _described(name, schema) for name, schema in closure(*names).items()} | schemas},
    }


def _paths(place: str, resource: ResourceType) -> Json:
    space = "namespaces/{namespace}/" if resource.namespaced else ""
    collection = f"/{place}/{space}{resource.plural}"
    if "list" not in resource.verbs:
        return {collection: {"post": _operation(resource, "post")}}
    return {
        collection: {verb: _operation(resource, verb) for verb in ("get", "post", "delete")},
        f"{collection}/{{name}}": {verb: _operation(resource, verb) for verb in ("get", "put", "patch", "delete")},
    }


def _operation(resource: ResourceType, verb: str) -> Json:
    body = {"schema": {"$ref": REFERENCE + name_of(resource)}}
    operation: Json = {
        "x-kubernetes-action": verb,
        "x-kubernetes-group-version-kind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "responses": {"200": {"description": "OK", "content": {"application/json": body}}},
    }
    if verb in ("post", "put", "patch"):
        options = ("dryRun", "fieldManager", "fieldValidation", *(("force",) if verb == "patch" else ()))
        operation["parameters"] = [
            {"name": each, "in": "query", "schema": {"type": "boolean" if each == "force" else "string", "uniqueItems": True}}
            for each in options
        ]
        accepted: tuple[str, ...] = ("application/json", "application/yaml")
        if verb == "patch":
            body = {"schema": {"$ref": REFERENCE + PATCH}}
            accepted = _PATCHES[:3] if resource.custom else _PATCHES
        operation["requestBody"] = {"required": True, "content": dict.fromkeys(accepted, body)}
    return operation


def _custom_schema(resource: ResourceType) -> Json:
    schema = dict(resource.schema or {"type": "object"})
    texts = _texts(_ANY_OBJECT)
    described: Json = {
        "apiVersion": _field({"type": "string"}, texts.get("apiVersion", "")),
        "kind": _field({"type": "string"}, texts.get("kind", "")),
        "metadata": _field({"allOf": [{"$ref": REFERENCE + OBJECT_META}]}, texts.get("metadata", "")),
    }
    schema["properties"] = {**(schema.get("properties") or {}), **described}
    schema["x-kubernetes-group-version-kind"] = [{"group": resource.group, "version": resource.version, "kind": resource.kind}]
    return schema


def _described(name: str, schema: Json) -> Json:
    """The schema with the texts of its kind and fields."""
    texts = _texts(name)
    found = dict(schema)
    if "" in texts:
        found["description"] = texts[""]
    if fields := schema.get("properties"):
        found["properties"] = {field: _field(inner, texts.get(field, "")) for field, inner in fields.items()}
    return found


def _field(schema: Json, text: str) -> Json:
    """A field with its text; without one, with that of the kind that it refers to."""
    reference = next(references(schema), "")
    text = text or (_texts(reference).get("", "") if reference else "")
    return {**schema, "description": text} if text else schema


def _texts(name: str) -> Mapping[str, str]:
    """By field, the texts of a schema such as io.k8s.api.core.v1.Pod; its own under ""."""
    from hbox_common.kube.modeltexts import texts_of  # noqa: PLC0415  the models take a second, which a start does not need

    group, version, kind = name.split(".")[-3:]
    found = texts_of(group, version, kind)
    if found is None:
        return {}
    return {**found.fields, "": found.kind} if found.kind else found.fields
