"""OpenAPI v3 of what the server serves: `kubectl explain` and the validation of manifests read it."""

from __future__ import annotations

from .definitions import OBJECT_META, PATCH, REFERENCE, SCALE, closure, name_of
from .errors import Json
from .resources import METRICS, Registry, ResourceType

OPENAPI_V2, PROTOBUF_V2 = "/openapi/v2", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
#: OpenAPI v2 without definitions (`swagger: "2.0"`): kubectl reads it for kinds that v3 does not have, a List among them, and validates none of them.
EMPTY_V2 = b"\x0a\x032.0"
_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
    "application/strategic-merge-patch+json",
)
_API_VERSION = (
    "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal "
    "value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"
)
_KIND = (
    "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits "
    "requests to. Cannot be updated. In CamelCase. More info: "
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"
)
_METADATA = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"


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
        "components": {"schemas": closure(*names) | schemas},
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
    described: Json = {
        "apiVersion": {"type": "string", "description": _API_VERSION},
        "kind": {"type": "string", "description": _KIND},
        "metadata": {"description": _METADATA, "allOf": [{"$ref": REFERENCE + OBJECT_META}]},
    }
    schema["properties"] = {**(schema.get("properties") or {}), **described}
    schema["x-kubernetes-group-version-kind"] = [{"group": resource.group, "version": resource.version, "kind": resource.kind}]
    return schema
