"""Structural schemas of custom resources: prune, default, validate (JSON types, required, enum, bounds, pattern). CEL rules are not evaluated."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

from .definitions import resolve
from .errors import Json, cause

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_ROOT = frozenset({"apiVersion", "kind", "metadata"})


def shape_custom(obj: Json, schema: Json | None) -> list[Json]:
    """Prune unknown fields and fill in defaults, in place; returns the causes of invalidity."""
    if schema is None:
        return []
    for holder, name, _ in list(_unknown(obj, schema, "", root=True)):
        del holder[name]
    _default(obj, schema)
    causes: list[Json] = []
    for name, value in obj.items():
        if name not in _ROOT:
            _check(value, (schema.get("properties") or {}).get(name) or {}, name, causes)
    return causes + _missing(obj, schema, "")


def _missing(value: Json, schema: Json, prefix: str) -> list[Json]:
    absent = (name for name in schema.get("required") or () if name not in value)
    return [cause(prefix + name, "Required value", "FieldValueRequired") for name in absent]


def unknown_in(obj: Json, schema: Json | None, *, custom: bool, path: str = "") -> Iterator[tuple[Json, str, str]]:
    """Each field that the schema does not have, in the order in which they stand: what holds it, its name, its path. `custom`: the schema is that of a custom
    resource: objects without properties have no fields, and the metadata is not part of it."""
    if schema is None:
        return iter(())
    return iter(list(_unknown(obj, schema, path, root=custom and not path, is_open=not custom)))


def _unknown(
    value: Any, schema: Json, path: str, *, root: bool = False, is_open: bool = False
) -> Iterator[tuple[Json, str, str]]:
    if isinstance(value, list):
        items = resolve(schema).get("items") or {}
        for at, item in enumerate(value):
            yield from _unknown(item, items, f"{path}[{at}]", is_open=is_open)
        return
    schema = resolve(schema)
    if not isinstance(value, dict) or schema.get("x-kubernetes-embedded-resource"):
        return
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    if is_open and not properties and extra is None:
        return
    for name, inner in value.items():
        where = f"{path}.{name}" if path else name
        if root and name in _ROOT:
            continue
        if name in properties:
            yield from _unknown(inner, properties[name], where, is_open=is_open)
        elif isinstance(extra, dict):
            yield from _unknown(inner, extra, where, is_open=is_open)
        elif not extra and not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield value, name, where


def _default(value: Any, schema: Json) -> None:
    if isinstance(value, list):
        for item in value:
            _default(item, schema.get("items") or {})
        return
    if not isinstance(value, dict):
        return
    properties = schema.get("properties") or {}
    for name, inner in properties.items():
        if "default" in inner and (name not in value or (value[name] is None and not inner.get("nullable"))):
            value[name] = copy.deepcopy(inner["default"])
        if name in value:
            _default(value[name], inner)
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        for name in value:
            if name not in properties:
                _default(value[name], extra)


def _check(value: Any, schema: Json, path: str, causes: list[Json]) -> None:
    if value is None and schema.get("nullable"):
        return
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            causes.append(_invalid_type(path, value, "integer,string"))
        return
    expected = schema.get("type")
    if expected and not _is(value, expected):
        causes.append(_invalid_type(path, value, expected))
        return
    causes.extend(_invalid(path, value, problem) for problem in _problems(value, schema))
    if isinstance(value, dict):
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        causes += _missing(value, schema, f"{path}.")
        for name, inner in value.items():
            if name in properties:
                _check(inner, properties[name], f"{path}.{name}", causes)
            elif isinstance(extra, dict):
                _check(inner, extra, f"{path}.{name}", causes)
    elif isinstance(value, list):
        for at, item in enumerate(value):
            _check(item, schema.get("items") or {}, f"{path}[{at}]", causes)


def _is(value: Any, expected: str) -> bool:
    if isinstance(value, bool):
        return expected == "boolean"
    if expected == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(expected, (object,)))


def _problems(value: Any, schema: Json) -> list[str]:
    found = []
    if "enum" in schema and value not in schema["enum"]:
        return [
            f"Unsupported value: {_quoted(value)}: supported values: " + ", ".join(_quoted(each) for each in schema["enum"])
        ]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            found.append(f"should be greater than or equal to {schema['minimum']}")
        if "maximum" in schema and value > schema["maximum"]:
            found.append(f"should be less than or equal to {schema['maximum']}")
    elif isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            found.append(f"should be at least {schema['minLength']} chars long")
        if len(value) > schema.get("maxLength", len(value)):
            found.append(f"may not be more than {schema['maxLength']} bytes")
        if "pattern" in schema and not re.search(schema["pattern"], value):
            found.append(f"should match '{schema['pattern']}'")
    elif isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            found.append(f"should have at least {schema['minItems']} items")
        if len(value) > schema.get("maxItems", len(value)):
            found.append(f"must have at most {schema['maxItems']} items")
    return found


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _invalid(path: str, value: Any, problem: str) -> Json:
    if problem.startswith("Unsupported value"):
        return cause(path, problem, "FieldValueNotSupported")
    return cause(path, f"Invalid value: {_quoted(value)}: {path} in body {problem}")


def _invalid_type(path: str, value: Any, expected: str) -> Json:
    got = "null" if value is None else next((name for name, kinds in _TYPES.items() if _is(value, name) and kinds), "unknown")
    return cause(
        path,
        f"Invalid value: {_quoted(got)}: {path} in body must be of type {expected}: {_quoted(got)}",
        "FieldValueTypeInvalid",
    )
