"""`kubectl explain` describes every field of Queue, PodGroup and HyperNode, and `kubectl get` prints their main fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from hbox_common.kube.definitions import DEFINITIONS, schema_of
from hbox_common.kube.definitiontexts import _SHARED, _TEXTS, description_of

EACH = pytest.mark.parametrize("definition", DEFINITIONS, ids=[one["spec"]["names"]["kind"] for one in DEFINITIONS])


def fields(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield path, schema
    for name, below in (schema.get("properties") or {}).items():
        yield from fields(below, f"{path}.{name}".lstrip("."))
    if "items" in schema and "properties" in schema["items"]:
        yield from (one for one in fields(schema["items"], f"{path}[]") if one[0] != f"{path}[]")


@EACH
def test_each_field_has_a_description(definition: Mapping[str, Any]) -> None:
    assert [path for path, schema in fields(schema_of(definition)) if not schema.get("description", "").endswith(".")] == []


@EACH
def test_each_description_is_of_a_field(definition: Mapping[str, Any]) -> None:
    kind = definition["spec"]["names"]["kind"]
    assert set(_TEXTS[kind]) <= {path for path, _ in fields(schema_of(definition))}


def test_each_shared_description_is_used() -> None:
    used = {
        description_of(definition["spec"]["names"]["kind"], path)
        for definition in DEFINITIONS
        for path, _ in fields(schema_of(definition))
    }
    assert set(_SHARED.values()) <= used


@EACH
def test_columns_show_fields_of_the_schema(definition: Mapping[str, Any]) -> None:
    known = {path for path, _ in fields(schema_of(definition))}
    columns = definition["spec"]["versions"][0]["additionalPrinterColumns"]
    assert columns
    for column in columns:
        path = column["jsonPath"].lstrip(".").replace("[0]", "[]").replace('[?(@.type=="Unschedulable")]', "[]")
        # The last part of an amount is the resource.
        assert path in known or path.split(".")[0] == "metadata" or ".".join(path.split(".")[:2]) in known, path
    assert "AGE" in {column["name"] for column in columns}
