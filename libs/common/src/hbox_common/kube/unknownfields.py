"""Fields of a Queue's or PodGroup's spec that its kind does not have, and that HBox ignores.

A foreign definition may store them. Volcano's and HBox's own definitions drop them from objects of clients that do not validate; then they remain in the
manifest that `kubectl apply` stores in an annotation.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar

import msgspec

from hbox_common.model.bounds import sanitized

from .definitions import schema_of
from .objects import PodGroup, Queue

T = TypeVar("T", Queue, PodGroup)

#: Of one object: fields that are named, and characters of a field's name.
MOST, MOST_NAME = 4, 64
#: Longer names get no suggestion: a comparison with all fields takes time in proportion to the length.
MOST_COMPARED = 24
#: Longer specs and manifests are not examined. This runs for each change of an object, and a tenant chooses the size.
MOST_BYTES = 32 * 1024

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class _Read(msgspec.Struct):
    spec: msgspec.Raw = msgspec.Raw(b"{}")


_READ = msgspec.json.Decoder(_Read)
_SPEC = msgspec.json.Decoder(dict[str, Any])


class SpecFields:
    """The fields that the spec of a definition's kind has."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        self._schema = schema_of(definition)["properties"]["spec"]
        self._places: dict[str, str] = {}  #: by name, the path of the first field of this name
        for path in _paths(self._schema, "spec"):
            self._places.setdefault(path.rpartition(".")[2], path)

    def note(self, found: T, raw: bytes) -> T:
        """The object with its `unknown_fields`, by the bytes that it was decoded from: an informer's `enrich`."""
        unknown = self.unknown(_spec_of(raw))
        if len(unknown) < MOST and (applied := found.metadata.annotations.get(LAST_APPLIED)):
            dropped = [one for one in self.unknown(_spec_of(applied)) if one not in unknown]
            unknown += tuple(f"{one} (in the manifest that kubectl applied last)" for one in dropped[: MOST - len(unknown)])
        return msgspec.structs.replace(found, unknown_fields=unknown) if unknown else found

    def unknown(self, spec: Mapping[str, Any]) -> tuple[str, ...]:
        """A sentence for each of the first unknown fields, with the nearest known field."""
        sentences = [
            f"{path}.{name}: unknown field, ignored"
            + (f"; did you mean {near}?" if (near := self._near(name, at, path)) else "")
            for path, name, at in islice(_unknown(spec, self._schema, "spec"), MOST + 1)
        ]
        return (*sentences[:MOST], *(["more unknown fields"] if len(sentences) > MOST else []))

    def _near(self, name: str, at: Mapping[str, Any], path: str) -> str:
        """A sibling field with a similar name, a field of this name elsewhere in the spec, or a key of the only sibling map; empty if there is none."""
        if sibling := _similar(name, tuple(at["properties"])):
            return f"{path}.{sibling}"
        if name in self._places:
            return self._places[name]
        maps = [each for each, inner in at["properties"].items() if "additionalProperties" in inner]
        return f"{path}.{maps[0]}.{name}" if len(maps) == 1 else ""


def _spec_of(manifest: bytes | str) -> Mapping[str, Any]:
    """Empty if it cannot be read or is too long."""
    try:
        spec = _READ.decode(manifest).spec
        return _SPEC.decode(spec) if len(memoryview(spec)) <= MOST_BYTES else {}
    except (msgspec.DecodeError, RecursionError):
        return {}


def _unknown(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Of each unknown field: the path and the schema of the object that has it, and its name between them."""
    if isinstance(value, list):
        for at, item in enumerate(value):
            yield from _unknown(item, schema.get("items") or {}, f"{path}[{at}]")
    elif isinstance(value, dict) and "properties" in schema:
        for name, inner in value.items():
            if name in schema["properties"]:
                yield from _unknown(inner, schema["properties"][name], f"{path}.{name}")
            else:
                yield path, sanitized(name, MOST_NAME), schema


@lru_cache(maxsize=4096)
def _similar(name: str, names: tuple[str, ...]) -> str:
    """One of these names that resembles the name; empty if there is none."""
    if len(name) > MOST_COMPARED:
        return ""
    plain = {each.lower(): each for each in names}
    word = name.lower().replace("_", "").replace("-", "")
    if close := get_close_matches(word, plain, n=1):
        return plain[close[0]]
    return next((each for lower, each in plain.items() if len(word) > 3 and lower.startswith(word)), "")


def _paths(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Of all fields below."""
    if "items" in schema:
        yield from _paths(schema["items"], f"{path}[]")
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from _paths(inner, f"{path}.{name}")
