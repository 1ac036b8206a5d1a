"""Request bodies in Kubernetes' protobuf form, decoded into the JSON form of the same object.

Typed Go clients, `kubectl auth`, `create` and `drain` among them, send it and have no other (kubectl 1.33 and newer). A body is the four bytes `k8s\\0` and an
`Unknown`: apiVersion, kind and the message itself. `protobuf.json` has the fields of the messages, one message a line, from the generated.proto files of
Kubernetes 1.34; `python -m tests.conformance.protobuf_fields` writes it. Answers are JSON, which these clients accept.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any, TypeAlias

import msgspec

from .definitions import definitions
from .errors import Json, bad_request

MEDIA = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\0"
_META, _MACHINERY = "io.k8s.apimachinery.pkg.apis.meta.v1", "io.k8s.apimachinery.pkg"
_UNKNOWN = f"{_MACHINERY}.runtime.Unknown"
_UNSIGNED_BITS = 64

Fields: TypeAlias = Mapping[str, tuple[str, str, str]]


@cache
def _messages() -> Mapping[str, Fields]:
    """By the OpenAPI name of a message and the number of a field: its name, its type, and `map`, `repeated` or ""."""
    text = resources.files(__package__).joinpath("protobuf.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, dict[str, tuple[str, str, str]]])


@cache
def _names() -> Mapping[tuple[str, str], str]:
    """Messages by apiVersion and kind."""
    found = {
        ("policy/v1", "Eviction"): "io.k8s.api.policy.v1.Eviction",
        ("v1", "Binding"): "io.k8s.api.core.v1.Binding",
    }
    for name, schema in definitions().items():
        for each in schema.get("x-kubernetes-group-version-kind") or ():
            version = f"{each['group']}/{each['version']}" if each["group"] else each["version"]
            found.setdefault((version, each["kind"]), name)
    return found


def decode_protobuf(body: bytes) -> Json:
    """The object; 400 for a body that is none, or a kind that is not known."""
    if not body.startswith(_MAGIC):
        raise bad_request("the body of the request is not protobuf of Kubernetes: it does not begin with k8s\\0")
    try:
        envelope = _message(_UNKNOWN, body[len(_MAGIC) :])
        about, raw = envelope.get("typeMeta") or {}, base64.b64decode(envelope.get("raw", ""))
        version, kind = about.get("apiVersion", ""), about.get("kind", "")
        # DeleteOptions are sent in the version of their object.
        name = f"{_META}.DeleteOptions" if kind == "DeleteOptions" else _names().get((version, kind))
        if name is None or name not in _messages():
            raise bad_request(f'no kind "{kind}" is registered for version "{version}"')
        return {"apiVersion": version, "kind": kind, **_message(name, raw)}
    except (IndexError, KeyError, UnicodeDecodeError, ValueError, struct.error) as error:
        raise bad_request(f"the protobuf of the request cannot be decoded: {error}") from error


def _message(name: str, data: bytes) -> Json:
    fields, properties = _messages()[name], (definitions().get(name) or {}).get("properties")
    found: Json = {}
    for number, value in _entries(data):
        if str(number) not in fields:
            continue
        field, kind, many = fields[str(number)]
        if many == "map":
            pair = dict(_entries(value))
            found.setdefault(field, {})[pair.get(1, b"").decode()] = _value(kind, pair.get(2, _zero(kind)))
        elif many == "repeated":
            found.setdefault(field, []).append(_value(kind, value))
        elif properties is not None and field not in properties and kind in _messages():
            found |= _message(kind, value)  # embedded: its fields are those of the outer message in JSON
        else:
            found[field] = _value(kind, value)
    return {field: value for field, value in found.items() if value is not None and not (value == "" and name != _UNKNOWN)}


def _zero(kind: str) -> Any:
    return 0 if kind in ("int32", "int64", "bool") else b""


def _value(kind: str, value: Any) -> Any:
    match kind:
        case "string":
            return value.decode()
        case "bytes":
            return base64.b64encode(value).decode()
        case "bool":
            return bool(value)
        case "int32" | "int64":
            return value - 2**_UNSIGNED_BITS if value >= 2 ** (_UNSIGNED_BITS - 1) else value
        case "double":
            return struct.unpack("<d", value)[0]
    short = kind.removeprefix(f"{_META}.").removeprefix(f"{_MACHINERY}.")
    match short:
        case "Time" | "MicroTime" | "Timestamp":
            parts = dict(_entries(value))
            if not parts:
                return None
            time = datetime.fromtimestamp(_value("int64", parts.get(1, 0)), UTC)
            if short == "MicroTime":
                return time.replace(microsecond=parts.get(2, 0) // 1000).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            return time.strftime("%Y-%m-%dT%H:%M:%SZ")
        case "api.resource.Quantity":
            return dict(_entries(value)).get(1, b"0").decode()
        case "util.intstr.IntOrString":
            parts = dict(_entries(value))
            return parts.get(3, b"").decode() if parts.get(1) else _value("int64", parts.get(2, 0))
        case "FieldsV1" | "runtime.RawExtension":
            return msgspec.json.decode(dict(_entries(value)).get(1, b"") or b"null")
    return _message(kind, value)


def _entries(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: an int of a varint, bytes of everything else."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        match wire:
            case 0:
                value, at = _varint(data, at)
                yield number, value
            case 1:
                yield number, data[at : at + 8]
                at += 8
            case 2:
                size, at = _varint(data, at)
                if at + size > len(data):
                    raise ValueError("unexpected EOF")
                yield number, data[at : at + size]
                at += size
            case 5:
                yield number, data[at : at + 4]
                at += 4
            case _:
                raise ValueError(f"illegal wireType {wire}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
