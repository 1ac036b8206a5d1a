"""What `fieldValidation` asks for: fields that a kind does not have are refused (Strict), named in a warning (Warn), or left alone (Ignore).

Values of the wrong JSON type in Kubernetes' own kinds are refused in the words of Go's decoder. Without the parameter neither is looked for: it
costs as much as the rest of a write, and HBox's services do not ask for it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from .definitions import OBJECT_META, REFERENCE, definitions, name_of, resolve, schema_of
from .errors import ApiError, Json, bad_request, cause, invalid
from .resources import ResourceType
from .schema import unknown_in

_SCALARS: dict[str, tuple[type, ...]] = {"string": (str,), "boolean": (bool,), "integer": (int,), "number": (int, float)}
_GO = {"string": "string", "boolean": "bool", "number": "float64"}


class FieldValidation(StrEnum):
    UNSET = ""
    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


def check_fields(resource: ResourceType, obj: Json, validation: FieldValidation, *, patch: Any = None) -> list[str]:
    """Check an object in the form in which a client sent it; `patch`: the patch that made it. Returns warnings; under Warn, drops unknown fields of
    Kubernetes' own kinds in place. 400, or 422 for a patch."""
    if validation not in (FieldValidation.WARN, FieldValidation.STRICT):
        return []
    refused = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
    if not resource.custom and (problem := _mistyped(obj, definitions()[name_of(resource)], resource.kind, "")):
        raise bad_request(f"{refused}: {problem}")
    unknown = list(unknown_in(obj, schema_of(resource), custom=resource.custom))
    if isinstance(obj.get("metadata"), dict) and resource.custom:
        unknown += unknown_in(obj["metadata"], definitions()[OBJECT_META], custom=False, path="metadata")
    if not unknown:
        return []
    texts = [f'unknown field "{path}"' for _, _, path in unknown]
    if validation is FieldValidation.WARN:
        for holder, name, _ in unknown:
            if not resource.custom:
                del holder[name]
        return texts
    text = f"strict decoding error: {', '.join(texts)}"
    if patch is None:
        raise bad_request(f"{refused}: {text}")
    given = msgspec.json.encode(msgspec.json.encode(patch).decode()).decode()
    raise invalid("", "", "", [cause("patch", f"Invalid value: {given}: {text}")])


def check_applied(resource: ResourceType, obj: Json, validation: FieldValidation, place: str) -> None:
    """Check the body of a server-side apply, which needs a type for each of its fields; `place`: its namespace and name. Raises ApiError."""
    if validation is not FieldValidation.STRICT:
        return
    for _, _, path in unknown_in(obj, schema_of(resource), custom=resource.custom):
        text = f"failed to create typed patch object ({place}; {resource.api_version}, Kind={resource.kind}): .{path}: field not declared in schema"
        raise ApiError(500, "", text)


def _mistyped(value: Any, schema: Json, struct: str, path: str) -> str:
    """The first value of a wrong type, as Go's decoder words it; "" if there is none. `struct`: the Go type that has the field."""
    schema, reference = resolve(schema), _reference(schema)
    expected = schema.get("type")
    if value is None or expected is None:
        return ""
    if expected in _SCALARS:
        fits = isinstance(value, _SCALARS[expected]) and (expected == "boolean" or not isinstance(value, bool))
        return "" if fits else _wrong(value, struct, path, _GO.get(expected) or schema.get("format", "int64"))
    if expected == "array":
        if not isinstance(value, list):
            return _wrong(value, struct, path, f"[]{_go_type(schema.get('items') or {})}")
        return next((found for item in value if (found := _mistyped(item, schema.get("items") or {}, struct, path))), "")
    if not isinstance(value, dict):
        return _wrong(value, struct, path, _go_type({"$ref": reference} if reference else schema))
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    inner_struct = reference.rpartition(".")[2] or struct
    for name, inner in value.items():
        below = properties.get(name) or (extra if isinstance(extra, dict) else None)
        where = f"{path}.{name}" if name in properties and path else name if name in properties else path
        if below is not None and (found := _mistyped(inner, below, inner_struct, where)):
            return found
    return ""


def _reference(schema: Json) -> str:
    inner = schema.get("allOf") or ()
    return str(schema.get("$ref") or (inner[0].get("$ref", "") if inner else ""))


def _go_type(schema: Json) -> str:
    if reference := _reference(schema):
        return f"v1.{reference.removeprefix(REFERENCE).rpartition('.')[2]}"
    match schema.get("type"):
        case "array":
            return f"[]{_go_type(schema.get('items') or {})}"
        case "object":
            return f"map[string]{_go_type(schema.get('additionalProperties') or {})}"
        case "integer":
            return str(schema.get("format", "int64"))
        case kind:
            return _GO.get(str(kind), "interface {}")


def _wrong(value: Any, struct: str, path: str, expected: str) -> str:
    kinds = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return f"json: cannot unmarshal {kinds[type(value)]} into Go struct field {struct}.{path} of type {expected}"
