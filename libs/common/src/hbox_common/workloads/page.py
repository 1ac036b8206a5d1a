"""Reference page of the kinds whose pods start as gangs, generated from their files and the form of such a file: docs/reference/kinds.md."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .owner import Kinds
from .schema import DefaultsDocument, DefaultsForm, KindForm, RolesForm

_INTRO = """\
# Kinds of workloads

Generated from the code by `make docs`; do not edit. In a terminal: `hbox kinds ls`, `hbox kinds show KIND`.

A pod without a PodGroup belongs to the job of its owners: of the topmost owner whose kind forms a gang. [The guide](../guides/workloads.md) explains the rules.

## Built-in kinds

The pods of a kind without a gang are single pods, unless another owner above or below makes them a gang.
"""

_FORM = """\
## The file of a kind

A YAML file of one document a kind. `hbox kinds check FILE` checks it, and job-controller reads all files of `HBOX_KINDS_DIR`. A path is a chain of fields, such
as `spec.runPolicy.schedulingPolicy.minAvailable`; of several paths the first one counts at which a value is written. A kind of a file replaces a built-in one
of the same group and name.
"""


_DEFAULTS = """\
## Defaults

Values of the field `defaults`. They count after all that workloads, pods and namespaces set, and before the queue `default`. A file of `HBOX_KINDS_DIR` may
also hold documents that set them for other kinds, built-in ones among them; of several the last one counts. `hbox kinds show KIND --kinds PATH` prints them.
"""


def page() -> str:
    """The page."""
    lines = [*_INTRO.split("\n"), "| kind | group | gang | minimum | queue, class |", "|---|---|---|---|---|"]
    lines += [_row(kind.form) for kind in sorted(Kinds.builtin(), key=lambda kind: (kind.kind, kind.group))]
    lines += ["", *_FORM.split("\n"), *_fields(KindForm), "", "Fields of an entry of `roles`:", "", *_fields(RolesForm), ""]
    lines += [
        *_DEFAULTS.split("\n"),
        *_fields(DefaultsForm),
        "",
        "Fields of a document with defaults for other kinds:",
        "",
        *_fields(DefaultsDocument),
        "",
    ]
    return "\n".join(lines)


def _row(form: KindForm) -> str:
    gang = form.about or ("with `scheduling.volcano.sh/group-min-member`" if form.min_member_annotation else "none")
    if form.minimum:
        last = "all pods" if form.minimum_default is None else str(form.minimum_default)
        minimum = ", else ".join((*(f"`{path}`" for path in form.minimum), "single pods" if form.transparent else last))
    elif form.minimum_default is not None:
        minimum = str(form.minimum_default)
    else:
        minimum = "all pods of all roles" if form.roles else "-"
    named = [f"`{path}`" for path in (*form.queue, *form.priority_class)]
    named += [f"label `{key}`" for key in (*form.queue_labels, *form.priority_class_labels)]
    return f"| {form.kind} | {form.group or 'core'} | {gang} | {minimum} | {', '.join(named) or '-'} |"


def _fields(form: type[KindForm | RolesForm | DefaultsForm | DefaultsDocument]) -> Iterator[str]:
    yield "| field | default | meaning |"
    yield "|---|---|---|"
    for name, field in form.model_fields.items():
        written = field.alias or name
        yield f"| `{written}` | {_default(field)} | {field.description or ''} |"


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    default = field.default
    if default is None or default in ("", ()) or isinstance(default, DefaultsForm):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m hbox_common.workloads.page", description=__doc__)
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--write", action="store_true", help="write the page")
    todo.add_argument("--check", action="store_true", help="exit with 1 if the page is out of date")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="docs/reference")
    given = parser.parse_args(arguments)
    path = given.folder / "kinds.md"
    if given.write:
        path.write_text(page(), encoding="utf-8")
    elif not path.exists() or path.read_text(encoding="utf-8") != page():
        print(f"{path} is out of date; run `make docs`", file=sys.stderr)  # noqa: T201  this is a command
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
