"""What commands print: data on standard output in the form asked for, messages on standard error."""

import csv
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Output:
    form: Form = Form.TABLE
    headers: bool = True
    colour: Colour = Colour.AUTO

    def rows(self, kind: str, items: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> None:
        """A list of objects of one kind, each with a `name`."""
        match self.form:
            case Form.JSON | Form.YAML:
                self.document(f"{kind}List", {"items": list(items)})
            case Form.NDJSON:
                for item in items:
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
                shown = [c for c in columns if self.form is Form.WIDE or not c.wide]
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
        if self.form is Form.YAML:
            print(yaml_text(body), end="")
        elif self.form is Form.NDJSON:
            print(json.dumps(body, ensure_ascii=False))
        else:
            print(json.dumps(body, indent=2, ensure_ascii=False))

    @property
    def machine(self) -> bool:
        return self.form in (Form.JSON, Form.YAML, Form.NDJSON)

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
