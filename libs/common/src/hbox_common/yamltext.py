"""Untrusted YAML and JSON parsed into plain values: files, standard input, ConfigMaps. The one place where such text is parsed.

The text may be hostile or faulty: 100,000 levels of nesting overflow a recursive parser, a few lines of nested aliases expand beyond any memory, and an alias
of its own container is infinite. So values are built from libyaml's events without recursion, aliased values are shared, and bytes, depth and number of values
(with aliases expanded, as a traversal sees them) are limited; a text beyond a limit raises InvalidRequest with line and column.

Scalars follow YAML 1.2 and Kubernetes: `on` and `2026-01-01` are strings, not a boolean and a date. JSON is parsed twenty times faster than YAML.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from .errors import InvalidRequest

#: Larger files are mistakes: 100,000 pods are about 200 MiB.
MAX_FILE_BYTES = 1 << 30
#: Of a file that people write: settings, policies, pools, kubeconfigs.
MAX_SETTINGS_BYTES = 4 << 20
#: No Kubernetes object nests deeper than some twenty levels, but for schemas of definitions.
MAX_DEPTH = 200
#: Values that aliases and merges may add to those that are written out.
MAX_ALIASED = 1_000_000

_MERGE = "<<"
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTHS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LONGEST_NUMBER = 64
_STR_TAGS = ("!", "tag:yaml.org,2002:str")


def contents_of(text: bytes) -> Iterator[Any]:
    """The documents of a text. Raises InvalidRequest, with line and column, if it is neither YAML nor JSON, or exceeds a limit.

    A duplicate key in a mapping is an error in YAML; in JSON the last one counts, as in Kubernetes.
    """
    if text.lstrip()[:1] == b"{":
        try:
            yield _shallow(msgspec.json.decode(text))
        except (msgspec.DecodeError, RecursionError):
            pass  # YAML may begin like JSON; the YAML parser reports the error
        else:
            return
    yield from _Builder(text).documents()


def content_of(text: bytes | str) -> Any:
    """The one document of a text; None where there is none. Raises InvalidRequest as `contents_of` does, and for a second one."""
    found = list(contents_of(text.encode(errors="surrogatepass") if isinstance(text, str) else text))
    if len(found) > 1:
        raise InvalidRequest(f"holds {len(found)} documents", hint="write one, without --- between")
    return found[0] if found else None


def read_file(path: Path, *, max_bytes: int = MAX_SETTINGS_BYTES) -> bytes:
    """The bytes of a file, without reading more than allowed of whatever it is. Raises InvalidRequest that names it."""
    try:
        with path.open("rb") as file:
            text = file.read(max_bytes + 1)
    except OSError as e:
        raise InvalidRequest(f"{path}: cannot be read: {e.strerror or e}", hint="name a file that is there and readable") from e
    if len(text) > max_bytes:
        raise InvalidRequest(f"{path}: is larger than {max_bytes >> 20} MiB", hint="write less, or name another file")
    return text


def settings_of(path: Path) -> Any:
    """The one document of a file that people write. Raises InvalidRequest that names file, line and column."""
    text = read_file(path)
    try:
        return content_of(text)
    except InvalidRequest as e:
        raise InvalidRequest(f"{path}: {e.message}", hint=e.hint) from e


def check(text: bytes) -> None:
    """Raises InvalidRequest, as `contents_of` does; for YAML that another program will parse."""
    for _ in _Builder(text).documents():
        pass


def _shallow(value: Any) -> Any:
    """The value. Raises InvalidRequest where it nests too deep."""
    level, depth = [value], 0
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise _too_deep(None)
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return value


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come."""

    value: Any
    anchor: str | None
    before: int  #: values counted before it
    key: str | None = None  #: of a mapping: whose value comes next
    merging: bool = False  #: its next value is to be merged
    merged: dict[str, Any] = field(default_factory=dict)


class _Builder:
    def __init__(self, text: bytes) -> None:
        self._text = text
        self._aliased = 0  # values that stand behind aliases
        self._values = 0

    def documents(self) -> Iterator[Any]:
        number = 1
        try:
            parser = yaml.CSafeLoader(self._text)
            while (event := parser.get_event()) is not None:
                if isinstance(event, yaml.DocumentStartEvent):
                    yield self._document(parser)
                    number += 1
        except yaml.MarkedYAMLError as e:
            raise _at(e.problem_mark or e.context_mark, str(e.problem or e.context)) from e
        except (yaml.YAMLError, UnicodeError) as e:
            raise InvalidRequest(
                f"document {number}: {' '.join(str(e).split())}", hint="the file has to be YAML or JSON"
            ) from e

    def _document(self, parser: Any) -> Any:
        """One value, which `DocumentEnd` follows. Anchors are of one document."""
        open_: list[_Open] = []
        anchors: dict[str, tuple[Any, int]] = {}
        while True:
            event = parser.get_event()
            kind = type(event)
            if kind is yaml.ScalarEvent:
                self._values += 1
                if open_ and (at := open_[-1]).key is None and not at.merging and type(at.value) is dict:
                    self._key(at, event)
                    if event.anchor is not None:
                        anchors[event.anchor] = (event.value, 1)
                    continue
                value: Any = scalar(event.value) if event.implicit[0] else event.value
                if event.anchor is not None:
                    anchors[event.anchor] = (value, 1)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._values += 1
                if open_ and (at := open_[-1]).key is None and not at.merging and type(at.value) is dict:
                    raise _at(event.start_mark, "a key has to be a word")
                if len(open_) >= MAX_DEPTH:
                    raise _too_deep(event.start_mark)
                open_.append(_Open({} if kind is yaml.MappingStartEvent else [], event.anchor, self._values))
                continue
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                done = open_.pop()
                value = {**done.merged, **done.value} if done.merged else done.value
                if done.anchor is not None:
                    anchors[done.anchor] = (value, 1 + self._values - done.before)
            elif kind is yaml.AliasEvent:
                value = self._alias(event, open_, anchors)
            else:  # the document's end, behind nothing
                return None
            if not open_:
                parser.get_event()
                return value
            self._put(open_[-1], value, event)

    def _key(self, at: _Open, event: Any) -> None:
        if event.value == _MERGE and event.implicit[0]:
            at.merging = True
        elif event.value in at.value:
            raise _at(event.start_mark, f"duplicate key {event.value[:80]!r}")
        else:
            at.key = event.value

    def _put(self, at: _Open, value: Any, event: Any) -> None:
        if type(at.value) is list:
            at.value.append(value)
        elif at.merging:
            at.merging = False
            for one in value if type(value) is list else [value]:
                if type(one) is not dict:
                    raise _at(event.start_mark, "only keys and values can be merged")
                self._count(len(one), event)
                at.merged = {**one, **at.merged}
        else:
            at.value[at.key] = value
            at.key = None

    def _alias(self, event: Any, open_: list[_Open], anchors: dict[str, tuple[Any, int]]) -> Any:
        if open_ and (at := open_[-1]).key is None and not at.merging and type(at.value) is dict:
            raise _at(event.start_mark, "a key has to be a word")
        if any(one.anchor == event.anchor for one in open_):
            raise _at(event.start_mark, f"the alias {event.anchor[:80]!r} is inside the node that it names")
        if event.anchor not in anchors:
            raise _at(event.start_mark, f"found undefined alias {event.anchor[:80]!r}")
        value, size = anchors[event.anchor]
        self._count(size, event)
        return value

    def _count(self, size: int, event: Any) -> None:
        self._values += size
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            raise _at(
                event.start_mark, f"more than {MAX_ALIASED} values stand behind aliases", "write them out, or fewer of them"
            )


def _too_deep(mark: Any) -> InvalidRequest:
    return _at(mark, f"nested too deep: more than {MAX_DEPTH} levels", "no Kubernetes object is")


def _at(mark: Any, what: str, hint: str = "the file has to be YAML or JSON") -> InvalidRequest:
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return InvalidRequest(f"{place}{what}", hint=hint)


@lru_cache(maxsize=100_000)
def scalar(text: str) -> str | int | float | bool | None:
    """A plain scalar by YAML 1.2's core schema, but for octal and hexadecimal numbers, which Kubernetes does not write."""
    if text in _NULLS:
        return None
    if (truth := _TRUTHS.get(text)) is not None:
        return truth
    if text[0] in "-+.0123456789" and len(text) <= _LONGEST_NUMBER:
        if _INT.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
    return text
