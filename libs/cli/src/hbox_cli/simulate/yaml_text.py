"""YAML and JSON text into plain values.

Scalars are read as YAML 1.2 and Kubernetes mean them: `on` and `2026-01-01` are words, not a truth and a date. libyaml parses; values are built here,
at twice the pace of PyYAML's constructors, which a saved cluster of tens of thousands of pods needs. JSON is read twenty times faster still.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec
import yaml

from hbox_common.errors import InvalidRequest

#: Values in one file, aliases followed. Far above any cluster's: a few lines of nested aliases stand for more than fits any memory.
MAX_VALUES = 50_000_000

_STR = "tag:yaml.org,2002:str"
_MERGE = "<<"
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTHS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LONGEST_NUMBER = 64


def contents_of(text: bytes) -> Iterator[Any]:
    """The documents of a text. Raises InvalidRequest, with line and column, for what is neither YAML nor JSON."""
    if text.lstrip()[:1] == b"{":
        try:
            yield msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            pass  # YAML may begin so too
        else:
            return
    yield from _Builder(text).documents()


class _Loader(yaml.CSafeLoader):
    """libyaml's nodes, without PyYAML's resolver and constructors."""

    def resolve(self, kind: type, value: str | None, implicit: Any) -> str:  # noqa: ARG002  libyaml's side calls it so
        return "" if kind is yaml.ScalarNode and implicit[0] else _STR

    def descend_resolver(self, *_: Any) -> None: ...

    def ascend_resolver(self) -> None: ...


class _Builder:
    def __init__(self, text: bytes) -> None:
        self._text = text
        self._left = MAX_VALUES

    def documents(self) -> Iterator[Any]:
        number = 1
        try:
            loader = _Loader(self._text)
            while loader.check_node():
                yield self._value(loader.get_node())
                number += 1
        except yaml.MarkedYAMLError as e:
            raise _at(e.problem_mark or e.context_mark, str(e.problem or e.context)) from e
        except (yaml.YAMLError, UnicodeError) as e:
            raise InvalidRequest(
                f"document {number}: {' '.join(str(e).split())}", hint="the file has to be YAML or JSON"
            ) from e
        except RecursionError as e:
            raise InvalidRequest(f"document {number}: nested too deep", hint="no Kubernetes object is") from e

    def _value(self, node: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise InvalidRequest(f"more than {MAX_VALUES} values, aliases followed", hint="write them out, or fewer of them")
        if isinstance(node, yaml.ScalarNode):
            return node.value if node.tag else scalar(node.value)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(one) for one in node.value]
        return self._mapping(node)

    def _mapping(self, node: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _at(key.start_mark, "a key has to be a word")
            if key.value == _MERGE and not key.tag:
                for one in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if not isinstance(one, yaml.MappingNode):
                        raise _at(one.start_mark, "only keys and values can be merged")
                    merged = {**self._mapping(one), **merged}
            elif key.value in found:
                raise _at(key.start_mark, f"the key {key.value!r} stands there twice")
            else:
                found[key.value] = self._value(value)
        return {**merged, **found} if merged else found


def _at(mark: Any, what: str) -> InvalidRequest:
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return InvalidRequest(f"{place}{what}", hint="the file has to be YAML or JSON")


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
