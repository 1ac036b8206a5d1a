"""What commands print: data on standard output in the form asked for, messages on standard error."""

import csv
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.visible import padded, visible, visible_lines, width

from .stdio import ReaderGone, flush_data

API_VERSION = "hbox.io/v1"


class Form(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NDJSON = "ndjson"  #: one object a line
    NAME = "name"
    CSV = "csv"
    JSONPATH = "jsonpath"  #: `jsonpath=TEMPLATE`


class Colour(StrEnum):
    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Column:
    """`cell` reads one item; `wide` columns are shown by -o wide and csv alone, `drawn` ones are pictures for people."""

    title: str
    cell: Callable[[Mapping[str, Any]], object]
    wide: bool = False
    drawn: bool = False


#: Fields that change with time alone.
_AGES = ("ageSeconds", "waitSeconds", "oldestPendingSeconds")


@dataclass(slots=True)
class Changes:
    """What was printed of each item, by its name."""

    seen: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def take(self, items: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Items that differ from the last time, and `{"name": ..., "gone": true}` for those that are no longer listed."""
        now: dict[str, Mapping[str, Any]] = {
            str(item["name"]): {key: value for key, value in item.items() if key not in _AGES} for item in items
        }
        changed = [item for item in items if self.seen.get(str(item["name"])) != now[str(item["name"])]]
        gone: list[Mapping[str, Any]] = [{"name": name, "gone": True} for name in self.seen if name not in now]
        self.seen = now
        return changed + gone


@dataclass(frozen=True, slots=True)
class Output:
    form: Form = Form.TABLE
    headers: bool = True
    colour: Colour = Colour.AUTO
    template: str = ""  #: of jsonpath
    sort_by: str = ""  #: a column's title, or a path of the item; "-" before it reverses
    only: tuple[str, ...] = ()  #: titles of the columns to print, in this order
    changes: Changes | None = None  #: with `-w`: what was printed before

    def rows(self, kind: str, items: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> None:
        """A list of objects of one kind, each with a `name`."""
        columns = self._chosen(columns)
        items = self._sorted(items, columns)
        match self.form:
            case Form.JSON | Form.YAML | Form.JSONPATH:
                self.document(f"{kind}List", {"items": list(items)})
            case Form.NDJSON:
                for item in items if self.changes is None else self.changes.take(list(items)):
                    print(json.dumps(item, ensure_ascii=False))
            case Form.NAME:
                for item in items:
                    put(f"{kind.lower()}/{item['name']}")
            case Form.CSV:
                writer = csv.writer(sys.stdout, lineterminator="\n")
                listed = [c for c in columns if not c.drawn]
                if self.headers:
                    writer.writerow(c.title for c in listed)
                writer.writerows([c.cell(item) for c in listed] for item in items)
            case _:
                shown = [c for c in columns if self.form is Form.WIDE or self.only or not c.wide]
                lines = [[c.title for c in shown]] if self.headers else []
                lines += [[_text(c.cell(item)) for c in shown] for item in items]
                widths = [max(map(width, column)) for column in zip(*lines, strict=True)] if lines else []
                for line in lines:
                    print("  ".join(padded(cell, columns) for cell, columns in zip(line, widths, strict=True)).rstrip())

    def document(self, kind: str, content: Mapping[str, Any]) -> None:
        """One object: as JSON, as JSON on one line, as YAML; by its name; or as a row of its plain fields, of a list's items a row each."""
        if self.form in (Form.NAME, Form.CSV):
            items = content["items"] if set(content) == {"items"} else [content]
            singular = kind.removesuffix("List") if set(content) == {"items"} else kind
            self.rows(singular, [{**item, "name": _name(item, singular)} for item in items], _fields(items))
            return
        body = {"apiVersion": API_VERSION, "kind": kind, **content}
        if self.form is Form.JSONPATH:
            from .jsonpath import rendered  # noqa: PLC0415  for those who ask for it

            print(rendered(self.template, json.loads(json.dumps(body))))
        elif self.form is Form.YAML:
            print(yaml_text(body), end="")
        elif self.form is Form.NDJSON:
            print(json.dumps(body, ensure_ascii=False))
        else:
            print(json.dumps(body, indent=2, ensure_ascii=False))

    def _chosen(self, columns: Sequence[Column]) -> Sequence[Column]:
        """Raises InvalidRequest for a title that no column has."""
        if not self.only:
            return columns
        titles = {column.title.upper(): column for column in columns}
        unknown = [title for title in self.only if title.upper() not in titles]
        if unknown:
            raise InvalidRequest(f"--columns {unknown[0]}: there is no such column", hint=f"columns: {', '.join(titles)}")
        return [titles[title.upper()] for title in self.only]

    def _sorted(self, items: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> Sequence[Mapping[str, Any]]:
        """Numbers by size, before texts; items without the value come last."""
        if not self.sort_by:
            return items
        from .jsonpath import values  # noqa: PLC0415  for those who ask for it

        backwards, name = self.sort_by.startswith("-"), self.sort_by.removeprefix("-")
        column = next((one for one in columns if one.title.upper() == name.upper()), None)

        def value(item: Mapping[str, Any]) -> object:
            found = values(name, item) if name.startswith((".", "{")) or column is None else [column.cell(item)]
            return found[0] if found else None

        keyed = [(value(item), item) for item in items]
        if items and all(one in (None, "") for one, _ in keyed) and column is None:
            titles = ", ".join(one.title for one in columns)
            raise InvalidRequest(
                f"--sort-by {name}: there is neither a column nor a field of this name", hint=f"columns: {titles}"
            )
        there = [(_order(one), item) for one, item in keyed if one not in (None, "")]
        there.sort(key=lambda pair: pair[0], reverse=backwards)
        return [item for _, item in there] + [item for one, item in keyed if one in (None, "")]

    @property
    def machine(self) -> bool:
        return self.form in (Form.JSON, Form.YAML, Form.NDJSON, Form.JSONPATH)

    @property
    def people(self) -> bool:
        """Whether people read it: pictures, headings and remarks belong in no other form."""
        return self.form in (Form.TABLE, Form.WIDE)

    def coloured(self, text: str, code: str) -> str:
        """`text` in an ANSI colour, where standard output is a terminal that wants it. A word or glyph has to say the same."""
        wanted = self.colour is Colour.ALWAYS or (
            self.colour is Colour.AUTO
            and sys.stdout.isatty()
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )
        return f"\x1b[{code}m{text}\x1b[0m" if wanted else text


def _order(value: object) -> tuple[int, float, str]:
    if isinstance(value, int | float):
        return (0, float(value), "")
    text = str(value)
    try:
        return (0, float(text), "")
    except ValueError:
        return (1, 0.0, text)


def yaml_text(content: Mapping[str, Any]) -> str:
    """A YAML document that ends with a line break."""
    import yaml  # noqa: PLC0415  a third of a cold start, for those who ask for it

    plain = json.loads(json.dumps(content))
    text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    # Control characters that YAML leaves as they are get YAML's escapes: the value stays the same.
    return text if text == visible_lines(text) else str(yaml.safe_dump(plain, sort_keys=False))


def _name(item: Mapping[str, Any], kind: str) -> str:
    """Its name, or that in a Kubernetes object's metadata; an object without a name is the only one of its kind."""
    return str(item.get("name") or item.get("metadata", {}).get("name") or kind.lower())


def _fields(items: Sequence[Mapping[str, Any]]) -> list[Column]:
    """A column for each plain field and each list of plain values."""

    def plain(value: object) -> bool:
        return not isinstance(value, Mapping) and not (isinstance(value, list | tuple) and any(map(_nested, value)))

    def cell(value: object) -> object:
        return "; ".join(map(str, value)) if isinstance(value, list | tuple) else value

    names = dict.fromkeys(name for item in items for name, value in item.items() if plain(value))
    return [Column(name.upper(), lambda item, name=name: cell(item.get(name))) for name in names]  # type: ignore[misc]


def _nested(value: object) -> bool:
    return isinstance(value, Mapping | list | tuple)


def notify(message: str) -> None:
    """Print a message, never data, on standard error, after the data so far. If that fails (full disk, closed terminal or pipe), the command continues."""
    flush_data()
    with suppress(OSError, ReaderGone):
        print(message, file=sys.stderr, flush=True)


def _text(value: object) -> str:
    if value is None or value == "":
        return "-"
    return visible(str(value))


def put(*lines: str) -> None:
    """Lines of data for people, each of which stays one."""
    for line in lines:
        print(visible(line))


def duration(seconds: float) -> str:
    """`42s`, `7m`, `3h12m`, `5d`."""
    s = max(0, int(seconds))
    if s < 120:
        return f"{s}s"
    if s < 7200:
        return f"{s // 60}m"
    if s < 172_800:
        return f"{s // 3600}h{s % 3600 // 60:02d}m"
    return f"{s // 86_400}d"
