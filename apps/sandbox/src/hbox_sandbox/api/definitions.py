"""The schemas of Kubernetes' own kinds, as kube-apiserver 1.34 publishes them in OpenAPI v3: names, types, defaults, merge keys.

`schemas.json` has those of the kinds that the emulator serves, one a line, and what they refer to, without texts: `openapi` adds those of the official client's
models. `python -m tests.conformance.openapi_schemas` writes it anew from a real API server; the conformance suite compares the two. It is read when needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from .errors import Json
from .resources import ResourceType

REFERENCE = "#/components/schemas/"
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
PATCH = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch"

SCALE = "io.k8s.api.autoscaling.v1.Scale"


@cache
def definitions() -> Mapping[str, Json]:
    """Schemas by their names in `components.schemas`."""
    text = resources.files(__package__).joinpath("schemas.json").read_bytes()
    found: dict[str, Json] = msgspec.json.decode(text)
    return found


@cache
def _by_kind() -> Mapping[tuple[str, str, str], str]:
    found: dict[tuple[str, str, str], str] = {}
    for name, schema in definitions().items():
        for each in schema.get("x-kubernetes-group-version-kind") or ():
            found[each["group"], each["version"], each["kind"]] = name
    return found


def name_of(resource: ResourceType) -> str:
    """The name of a kind's schema; that of a custom resource is its group reversed, version and kind."""
    if not resource.custom:
        return _by_kind()[resource.group, resource.version, resource.kind]
    return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])


def schema_of(resource: ResourceType) -> Json | None:
    """The schema of a kind; None for a custom resource without one."""
    return resource.schema if resource.custom else definitions()[name_of(resource)]


def resolve(schema: Json) -> Json:
    """The schema behind a reference, or the schema itself."""
    while True:
        inner = schema.get("allOf")
        reference = schema.get("$ref") or (inner[0].get("$ref") if inner and len(inner) == 1 else None)
        if reference is None:
            return schema
        schema = definitions()[reference.removeprefix(REFERENCE)]


def closure(*names: str) -> dict[str, Json]:
    """Schemas and all that they refer to."""
    found: dict[str, Json] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = definitions()[name]
            waiting += references(found[name])
    return found


def references(value: Any) -> Iterator[str]:
    """Names of the schemas to which a schema refers."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref" and isinstance(inner, str):
                yield inner.removeprefix(REFERENCE)
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)
