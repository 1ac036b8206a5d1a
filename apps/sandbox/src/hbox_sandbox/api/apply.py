"""Server-side apply: which manager owns which field, conflicts, and the merge.

Theory of operation. A set of fields is a set of paths; a path is a tuple of `f:name` (field), `k:{...}` (list item by its keys) and `v:...` (item
of a set) steps, the same spelling that `metadata.managedFields` uses. Ownership is recorded from an object's first apply on: earlier fields
belong to `before-first-apply`, as for objects older than the feature. Later plain writes take over the fields whose value they change.
A field is removed if its manager stops applying it and no other manager owns it.
(k8s.io/apimachinery `pkg/util/managedfields`; keys of built-in lists from the `listMapKey` tags in k8s.io/api.)
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from .errors import ApiError, Json, bad_request, cause
from .patch import merge_key, merges_values

Path: TypeAlias = tuple[str, ...]
Paths: TypeAlias = frozenset[Path]

_NEVER_OWNED = {("f:apiVersion",), ("f:kind",), ("f:metadata",), ("f:metadata", "f:name"), ("f:metadata", "f:namespace")}
_SERVER_FIELDS = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
)
_BUILT_IN_KEYS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("spec", "ports"): ("port", "protocol"),
    ("containers", "ports"): ("containerPort", "protocol"),
    ("spec", "topologySpreadConstraints"): ("topologyKey", "whenUnsatisfiable"),
}
_KEY_DEFAULTS = {"protocol": "TCP"}
_ABSENT: Any = object()


@dataclass(frozen=True, slots=True)
class Manager:
    """One entry of managedFields."""

    name: str
    operation: str
    subresource: str
    paths: Paths
    api_version: str
    time: str

    def same_as(self, other: Manager) -> bool:
        return (self.name, self.operation, self.subresource) == (other.name, other.operation, other.subresource)


@dataclass(frozen=True, slots=True)
class Shape:
    """How lists merge: by a custom resource's schema where there is one, else by the built-in table."""

    schema: Json | None
    custom: bool

    def step(self, name: str) -> Shape:
        properties = (self.schema or {}).get("properties") or {}
        extra = (self.schema or {}).get("additionalProperties")
        return replace(self, schema=properties.get(name) or (extra if isinstance(extra, dict) else None))

    def item(self) -> Shape:
        return replace(self, schema=(self.schema or {}).get("items"))

    def list_keys(self, parent: str, name: str) -> tuple[str, ...] | None:
        """Keys of an associative list, () for a set, None for an atomic list."""
        if self.custom:
            schema = self.schema or {}
            if schema.get("x-kubernetes-list-type") == "map":
                return tuple(schema.get("x-kubernetes-list-map-keys") or ())
            return () if schema.get("x-kubernetes-list-type") == "set" else None
        if (parent, name) in _BUILT_IN_KEYS:
            return _BUILT_IN_KEYS[parent, name]
        if merges_values(name):
            return ()
        key = merge_key(parent, name)
        return None if key is None else (key,)

    def atomic_map(self, name: str) -> bool:
        if self.custom:
            return (self.schema or {}).get("x-kubernetes-map-type") == "atomic"
        return name in ("nodeSelector", "selector", "secretRef", "configMapKeyRef", "secretKeyRef", "involvedObject")


def _steps(items: list[Any], keys: tuple[str, ...]) -> list[str]:
    if not keys:
        return [f"v:{json.dumps(item)}" for item in items]
    steps = []
    for item in items:
        values = {key: item.get(key, _KEY_DEFAULTS.get(key)) for key in sorted(keys)}
        if any(value is None for value in values.values()):
            raise bad_request(f"associative list with keys has an element that omits key field {keys}: {item}")
        steps.append(f"k:{json.dumps(values, separators=(',', ':'))}")
    return steps


def owned_paths(obj: Json, shape: Shape) -> Paths:
    """The leaves of `obj` (and the items of its associative lists), without what the server itself keeps."""
    found: set[Path] = set()
    _walk(obj, (), shape, found)
    server = {("f:metadata", f"f:{name}") for name in _SERVER_FIELDS}
    return frozenset(path for path in found if path not in _NEVER_OWNED and path[:2] not in server)


def _walk(value: Any, path: Path, shape: Shape, found: set[Path], *, parent: str = "", name: str = "") -> None:
    if isinstance(value, dict) and value and not shape.atomic_map(name):
        for key, inner in value.items():
            _walk(inner, (*path, f"f:{key}"), shape.step(key), found, parent=name, name=key)
        return
    keys = shape.list_keys(parent, name) if isinstance(value, list) and value else None
    if keys is None:
        found.add(path)
        return
    for step, item in zip(_steps(value, keys), value, strict=True):
        found.add((*path, step))
        if keys:
            _walk(item, (*path, step), shape.item(), found, parent=name, name=name)


def value_at(obj: Any, path: Path, shape: Shape) -> Any:
    """The value at a path, a marker where there is none; the items of lists are present or not, whatever is in them."""
    parent = name = ""
    for at, step in enumerate(path):
        if step.startswith("f:"):
            if not isinstance(obj, dict) or step[2:] not in obj:
                return _ABSENT
            parent, name = name, step[2:]
            obj, shape = obj[name], shape.step(name)
        else:
            keys = shape.list_keys(parent, name)
            if not isinstance(obj, list) or keys is None:
                return _ABSENT
            steps = _steps(obj, keys)
            if step not in steps:
                return _ABSENT
            obj, shape, parent = obj[steps.index(step)], shape.item(), name
            if at == len(path) - 1:
                return True
    return obj


def merged(live: Any, applied: Any, shape: Shape, *, parent: str = "", name: str = "") -> Any:
    """`applied` laid over `live`: objects and associative lists merge, the rest is replaced."""
    if isinstance(live, dict) and isinstance(applied, dict) and not shape.atomic_map(name):
        result = dict(live)
        for key, value in applied.items():
            result[key] = merged(live[key], value, shape.step(key), parent=name, name=key) if key in live else value
        return result
    keys = shape.list_keys(parent, name) if isinstance(live, list) and isinstance(applied, list) else None
    if keys is None:
        return applied
    result_items, steps = list(live), _steps(live, keys)
    for step, item in zip(_steps(applied, keys), applied, strict=True):
        if step in steps:
            at = steps.index(step)
            result_items[at] = merged(live[at], item, shape.item(), parent=name, name=name) if keys else item
        else:
            result_items.append(item)
    return result_items


def without(obj: Json, paths: Iterable[Path], shape: Shape) -> Json:
    """`obj` with these leaves removed (an item of a list before the fields in it), and objects that this leaves empty."""
    result: Json = copy.deepcopy(obj)
    for path in sorted(paths, key=len):
        _drop(result, path, shape, "", "")
    return result


def _drop(obj: Any, path: Path, shape: Shape, parent: str, name: str) -> None:
    step, rest = path[0], path[1:]
    if step.startswith("f:"):
        key = step[2:]
        if not isinstance(obj, dict) or key not in obj:
            return
        if rest:
            _drop(obj[key], rest, shape.step(key), name, key)
            if obj[key] in ({}, []):
                del obj[key]
        else:
            del obj[key]
        return
    keys = shape.list_keys(parent, name)
    if not isinstance(obj, list) or keys is None:
        return
    steps = _steps(obj, keys)
    if step in steps:
        at = steps.index(step)
        if rest:
            _drop(obj[at], rest, shape.item(), name, name)
        else:
            del obj[at]


def managers_of(obj: Json) -> list[Manager]:
    return [
        Manager(
            name=entry.get("manager", ""),
            operation=entry.get("operation", ""),
            subresource=entry.get("subresource", ""),
            paths=frozenset(_paths_of(entry.get("fieldsV1") or {}, ())),
            api_version=entry.get("apiVersion", ""),
            time=entry.get("time", ""),
        )
        for entry in obj["metadata"].get("managedFields") or ()
    ]


def _paths_of(tree: Json, path: Path) -> Iterable[Path]:
    for step, inner in tree.items():
        if step == ".":
            yield path
        elif inner:
            yield from _paths_of(inner, (*path, step))
        else:
            yield (*path, step)


def store_managers(obj: Json, managers: list[Manager]) -> None:
    entries = []
    for each in managers:
        if not each.paths:
            continue
        tree: Json = {}
        for path in sorted(each.paths):
            node = tree
            for step in path:
                node = node.setdefault(step, {})
        for path in each.paths:
            node = tree
            for step in path:
                node = node[step]
            if node:
                node["."] = {}
        entry: Json = {"manager": each.name, "operation": each.operation, "apiVersion": each.api_version, "time": each.time}
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": tree}
        entries.append(entry | ({"subresource": each.subresource} if each.subresource else {}))
    obj["metadata"].pop("managedFields", None)
    if entries:
        obj["metadata"]["managedFields"] = entries


def apply(live: Json | None, applied: Json, *, me: Manager, force: bool, shape: Shape) -> Json:
    """Return the new object. `me`: the applying manager (its paths are ignored). Raises 409, with one cause per field, if the value of another
    manager would change and `force` is off."""
    mine = owned_paths(applied, shape)
    if live is None:
        created = copy.deepcopy(applied)
        created.setdefault("metadata", {})
        store_managers(created, [replace(me, paths=mine)])
        return created
    managers = managers_of(live) or [
        replace(me, name="before-first-apply", operation="Update", subresource="", paths=owned_paths(live, shape))
    ]
    others = [each for each in managers if not each.same_as(me)]
    before = next((each for each in managers if each.same_as(me)), replace(me, paths=frozenset()))
    contested = {path for path in mine if value_at(live, path, shape) != value_at(applied, path, shape)}
    clashes = [(each, sorted(each.paths & contested)) for each in others if each.paths & contested]
    if clashes and not force:
        raise _conflict(clashes)
    others = [replace(each, paths=each.paths - contested) for each in others]
    kept = mine.union(*(each.paths for each in others))
    abandoned = [
        path for path in before.paths - mine if path not in kept and not any(path == each[: len(path)] for each in kept)
    ]
    result = without(merged(live, applied, shape), abandoned, shape)
    after = before if before.paths == mine and result == live else replace(me, paths=mine)
    store_managers(result, [*others, after])
    return result


def _conflict(clashes: list[tuple[Manager, list[Path]]]) -> ApiError:
    causes = []
    for manager, paths in clashes:
        by = f'conflict with "{manager.name}"' + (
            f" with subresource {json.dumps(manager.subresource)}" if manager.subresource else ""
        )
        by += f" using {manager.api_version}" if manager.operation == "Update" else ""
        causes += [cause(_dotted(path), by, "FieldManagerConflict") for path in paths]
    count = f"{len(causes)} conflict" + ("s" if len(causes) > 1 else "")
    message = f"Apply failed with {count}: " + ", ".join(f"{each['message']}: {each['field']}" for each in causes)
    return ApiError(409, "Conflict", message, details={"causes": causes})


def _dotted(path: Path) -> str:
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += f".{step[2:]}"
        elif step.startswith("k:"):
            text += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(step[2:]).items()) + "]"
        else:
            text += f"[={step[2:]}]"
    return text


def record_update(old: Json, new: Json, *, me: Manager, shape: Shape) -> None:
    """A plain write on an object whose ownership is kept: the writer takes over what it changed. Objects never applied keep no ownership."""
    managers = managers_of(old)
    if not managers:
        new["metadata"].pop("managedFields", None)
        return
    present = owned_paths(new, shape)
    changed = frozenset(path for path in present if value_at(old, path, shape) != value_at(new, path, shape))
    before = next((each for each in managers if each.same_as(me)), replace(me, paths=frozenset()))
    others = [each for each in managers if not each.same_as(me)]
    others = [
        replace(each, paths=frozenset(path for path in each.paths - changed if value_at(new, path, shape) is not _ABSENT))
        for each in others
    ]
    mine = frozenset(path for path in before.paths | changed if value_at(new, path, shape) is not _ABSENT)
    store_managers(new, [*others, before if mine == before.paths else replace(me, paths=mine)])
