r"""Templates of kubectl's `-o jsonpath=`: text and `{...}` with paths, strings, and `range ... end`. Pure.

A path has names, `['names']`, `[indices]`, `[*]`, `.*`, `[from:to]`, `..name` and filters such as `[?(@.state=="WAITING")]`. A field that is absent gives
nothing, as with kubectl. Values of one path are separated by a space.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hbox_common.errors import InvalidRequest

_STEP = re.compile(
    r"""(?P<deep>\.\.(?P<below>[\w/-]+))
      | \.(?P<star>\*)
      | \.(?P<name>(?:[\w/-]|\\\.)+)
      | \[\s*'(?P<single>[^']*)'\s*\] | \[\s*"(?P<double>[^"]*)"\s*\]
      | \[(?P<every>\*)\]
      | \[(?P<index>-?\d+)\]
      | \[(?P<start>-?\d*):(?P<stop>-?\d*)\]
      | \[\?\(@(?P<path>[^=!<>)]*?)\s*(?:(?P<sign>==|!=|>=|<=|>|<)\s*(?P<value>"[^"]*"|'[^']*'|[^)\s]+)\s*)?\)\]
    """,
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def rendered(template: str, document: Any) -> str:
    """Raises InvalidRequest that names the part which cannot be read."""
    text = (
        template if "{" in template else "{" + (template if template.startswith(("$", ".", "@", "[")) else f".{template}") + "}"
    )
    parts = _parts(text)
    found, end = _block(parts, 0, document, document)
    if end != len(parts):
        raise InvalidRequest(f"jsonpath {template!r}: an {{end}} without {{range}}")
    return found


def values(path: str, document: Any) -> list[Any]:
    """What a path such as `.items[*].name` selects; also without the leading dot."""
    bare = path.strip().strip("{}").strip()
    return _select(bare if bare.startswith((".", "[", "$", "@")) else f".{bare}", document, document)


def _parts(template: str) -> list[tuple[bool, str]]:
    """Texts (False) and expressions (True)."""
    parts, at = [], 0
    while at < len(template):
        start = template.find("{", at)
        if start < 0:
            parts.append((False, template[at:]))
            break
        if start > at:
            parts.append((False, template[at:start]))
        stop = _closing(template, start)
        parts.append((True, template[start + 1 : stop].strip()))
        at = stop + 1
    return parts


def _closing(template: str, start: int) -> int:
    quote = ""
    for at in range(start + 1, len(template)):
        letter = template[at]
        if quote:
            quote = "" if letter == quote and template[at - 1] != "\\" else quote
        elif letter in "\"'":
            quote = letter
        elif letter == "}":
            return at
    raise InvalidRequest(f"jsonpath {template!r}: a {{ is not closed")


def _block(parts: list[tuple[bool, str]], at: int, root: Any, here: Any) -> tuple[str, int]:
    """The text from `at` up to an `end`, and where that is."""
    found: list[str] = []
    while at < len(parts):
        is_expression, text = parts[at]
        if not is_expression:
            found.append(text)
        elif text == "end":
            return "".join(found), at
        elif text.startswith("range"):
            chosen = _select(text.removeprefix("range").strip(), root, here)
            inner, end = _block(parts, at + 1, root, chosen[0] if chosen else None)
            if end == len(parts):
                raise InvalidRequest(f"jsonpath: {{{text}}} has no {{end}}")
            found += [inner, *(_block(parts, at + 1, root, one)[0] for one in chosen[1:])] if chosen else []
            at = end
        elif text[:1] in "\"'":
            found.append(_string(text))
        else:
            found.append(" ".join(map(_shown, _select(text, root, here))))
        at += 1
    return "".join(found), at


def _string(text: str) -> str:
    if len(text) < 2 or text[-1] != text[0]:
        raise InvalidRequest(f"jsonpath: {{{text}}} is no string")
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text[1:-1])


def _select(path: str, root: Any, here: Any) -> list[Any]:
    if path.startswith("$"):
        here, path = root, path[1:]
    elif path.startswith("@"):
        path = path[1:]
    found, at = [here], 0
    if path == ".":
        return found
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise InvalidRequest(f"jsonpath: {path[at:]!r} is no path", hint="write it like {.items[*].name}")
        found = [one for value in found for one in _taken(value, step)]
        at = step.end()
    return found


def _taken(value: Any, step: re.Match[str]) -> Iterator[Any]:
    name = step["name"].replace("\\.", ".") if step["name"] else step["single"] or step["double"]
    if name is not None:
        if isinstance(value, Mapping) and name in value:
            yield value[name]
    elif step["below"]:
        yield from _deep(value, step["below"])
    elif step["star"] or step["every"]:
        yield from value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    elif step["index"] is not None:
        if isinstance(value, list) and -len(value) <= int(step["index"]) < len(value):
            yield value[int(step["index"])]
    elif step["start"] is not None:
        if isinstance(value, list):
            start, stop = (int(step[part]) if step[part] else None for part in ("start", "stop"))
            yield from value[start:stop]
    elif isinstance(value, list):
        yield from (one for one in value if _passes(one, step))


def _deep(value: Any, name: str) -> Iterator[Any]:
    if isinstance(value, Mapping):
        if name in value:
            yield value[name]
        for one in value.values():
            yield from _deep(one, name)
    elif isinstance(value, list):
        for one in value:
            yield from _deep(one, name)


def _passes(value: Any, step: re.Match[str]) -> bool:
    found = _select(step["path"].strip() or ".", value, value)
    if step["sign"] is None:
        return bool(found)
    if not found:
        return False
    text = step["value"]
    wanted: Any = text[1:-1] if text[:1] in "\"'" else _number(text)
    have = found[0]
    if step["sign"] in ("==", "!="):
        return bool(have == wanted) is (step["sign"] == "==")
    if not isinstance(have, int | float) or not isinstance(wanted, int | float):
        return False
    return {">": have > wanted, "<": have < wanted, ">=": have >= wanted, "<=": have <= wanted}[step["sign"]]


def _number(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
