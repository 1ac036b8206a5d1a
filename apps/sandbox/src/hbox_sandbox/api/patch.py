"""The three patches that need no ownership: JSON patch (RFC 6902), merge patch (RFC 7386) and Kubernetes' strategic merge patch."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from .errors import ApiError, Json, bad_request

# Lists of built-in resources that merge by key, by the names of the list and (where the name alone is not unique) its parent
# (patchStrategy and patchMergeKey tags in k8s.io/api). Taints and tolerations carry no such tag: they are replaced whole.
_MERGE_KEYS: Mapping[str, str] = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "addresses": "type",
    "ownerReferences": "uid",
    "imagePullSecrets": "name",
    "secrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "podIPs": "ip",
}
_PRIMITIVE_MERGE = frozenset({"finalizers", "podCIDRs"})


def merge_key(parent: str, name: str) -> str | None:
    """The key by which a built-in list merges; None for lists that are replaced whole."""
    if name == "ports":
        return "port" if parent == "spec" else "containerPort"
    return _MERGE_KEYS.get(name)


def merges_values(name: str) -> bool:
    """Whether a built-in list of plain values is a set."""
    return name in _PRIMITIVE_MERGE


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: objects merge, null deletes, anything else replaces. Neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(target: Json, operations: Any) -> Json:
    """RFC 6902 on a private copy of `target`. 400 for what is no patch, 422 where it cannot be applied (a failed `test` among them)."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    document: Any = copy.deepcopy(target)
    for operation in operations:
        if not isinstance(operation, dict) or "op" not in operation or not isinstance(operation.get("path"), str):
            raise bad_request("each operation of a JSON patch needs op and path")
        try:
            document = _operate(document, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise _unprocessable(
                f"the server rejected our request due to an error in our request: {operation}: {error}"
            ) from error
    if not isinstance(document, dict):
        raise _unprocessable("the patched document is not an object")
    return document


def _unprocessable(message: str) -> ApiError:
    return ApiError(422, "Invalid", message)


def _operate(document: Any, operation: Json) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _add(document, path, operation["value"])
        case "remove":
            return _remove(document, path)
        case "replace":
            _read(document, path)
            return operation["value"] if not path else _put(document, path, operation["value"])
        case "test":
            if _read(document, path) != operation.get("value"):
                raise ValueError(f"testing value {operation['path']} failed")
            return document
        case "copy":
            return _add(document, path, copy.deepcopy(_read(document, _pointer(operation["from"]))))
        case "move":
            source = _pointer(operation["from"])
            value = _read(document, source)
            return _add(_remove(document, source), path, value)
        case other:
            raise ValueError(f"unexpected kind: {other}")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(f"{text!r} is no JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _index(items: list[Any], part: str) -> int:
    at = int(part)
    if not 0 <= at < len(items):
        raise IndexError(f"index {part} is outside of the list")
    return at


def _read(document: Any, path: list[str]) -> Any:
    for part in path:
        document = document[_index(document, part)] if isinstance(document, list) else document[part]
    return document


def _put(document: Any, path: list[str], value: Any) -> Any:
    holder = _read(document, path[:-1])
    holder[_index(holder, path[-1]) if isinstance(holder, list) else path[-1]] = value
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    holder = _read(document, path[:-1])
    if not isinstance(holder, list):
        holder[path[-1]] = value
        return document
    at = len(holder) if path[-1] == "-" else int(path[-1])
    if not 0 <= at <= len(holder):
        raise IndexError(f"index {path[-1]} is outside of the list")
    holder.insert(at, value)
    return document


def _remove(document: Any, path: list[str]) -> Any:
    holder = _read(document, path[:-1])
    del holder[_index(holder, path[-1]) if isinstance(holder, list) else path[-1]]
    return document


def strategic_patch(target: Any, patch: Any, *, parent: str = "") -> Any:
    """Strategic merge for built-in resources: like a merge patch, but lists with a merge key merge by it. Knows `$patch`, `$retainKeys` and
    `$deleteFromPrimitiveList`; `$setElementOrder` is accepted and ignored (order of merged lists is the target's)."""
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    merged = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        merged = {key: value for key, value in merged.items() if key in patch["$retainKeys"]}
    for key, value in patch.items():
        if key in ("$patch", "$retainKeys") or key.startswith("$setElementOrder/"):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            merged[name] = [each for each in merged.get(name) or () if each not in value]
        elif value is None:
            merged.pop(key, None)
        elif isinstance(value, list):
            merged[key] = _merge_list(merged.get(key) or [], value, parent=parent, name=key)
        else:
            merged[key] = strategic_patch(merged.get(key), value, parent=key)
    return merged


def _merge_list(target: list[Any], patch: list[Any], *, parent: str, name: str) -> list[Any]:
    if merges_values(name):
        return target + [value for value in patch if value not in target]
    key = merge_key(parent, name)
    if key is None:
        return patch
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if item.get("$patch") != "replace"]
    merged = list(target)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        at = next((i for i, each in enumerate(merged) if each.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del merged[at]
        elif at is None:
            merged.append(strategic_patch({}, item, parent=name))
        else:
            merged[at] = strategic_patch(merged[at], item, parent=name)
    return merged
