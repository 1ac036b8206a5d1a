"""`hbox kinds`: the kinds of other controllers whose pods start as gangs, and what is wrong with the file of one. It needs no cluster."""

import difflib
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from hbox_common.errors import NotFound

from ..context import Context, command_options
from ..output import Column, put

COLUMNS = (
    Column("KIND", lambda item: item["name"]),
    Column("GROUP", lambda item: item["group"] or "(core)"),
    Column("VERSIONS", lambda item: " ".join(item["versions"]), wide=True),
    Column("ROLES", lambda item: item["roles"], wide=True),
    Column("GANG", lambda item: item["about"]),
    Column("SOURCE", lambda item: item["source"], wide=True),
)
PACKAGE = "hbox_common.workloads"

further_kinds = click.option(
    "--kinds",
    "more",
    multiple=True,
    type=click.Path(path_type=Path),
    help="File of HBOX_KINDS_DIR, or the folder: further kinds and defaults.",
)


@click.group("kinds")
def command() -> None:
    """List the kinds whose pods start as gangs, show one's file, or check a file of your own."""


@command.command("ls")
@command_options
def ls(ctx: Context) -> None:
    """List the built-in kinds, and the gang that the pods of each form.

    \b
    hbox kinds ls
    hbox kinds ls -o wide
    """
    ctx.output.rows("Kind", [_item(form) for _, form in _files()], COLUMNS)


@command.command("show")
@click.argument("kind")
@further_kinds
@command_options
def show(ctx: Context, kind: str, more: tuple[Path, ...]) -> None:
    """Print the file of the built-in KIND, as an example for a kind of your own. KIND may be its plural, with its group if several have the name.

    \b
    hbox kinds show PyTorchJob
    hbox kinds show podgroups.scheduling.k8s.io
    hbox kinds show PyTorchJob --kinds defaults.yaml
    """
    found = [(text, form) for text, form in _files() if kind.lower() in _names(form)]
    if not found:
        known = [form.kind for _, form in _files()]
        near = difflib.get_close_matches(kind, known, n=1)
        raise NotFound(f"there is no kind {kind}", hint=f"did you mean {near[0]}?" if near else "`hbox kinds ls` lists them")
    if len(found) > 1:
        names = ", ".join(f"{form.plural}.{form.group}" for _, form in found)
        raise NotFound(f"several groups have a kind {kind}", hint=f"name one of {names}")
    ((text, form),) = found
    if more:
        from ..lint import kinds_with  # noqa: PLC0415

        (form,) = (each.form for each in kinds_with(more) if (each.group, each.kind) == (form.group, form.kind))
    defaults = form.defaults.model_dump(by_alias=True, exclude_none=True)
    if not ctx.output.people:
        ctx.output.document("Kind", _item(form) | {"file": text, "defaults": defaults})
        return
    put(*text.splitlines())
    if defaults and "defaults:" not in text:
        put(
            "defaults:",
            *(f"  {name}: {str(value).lower() if isinstance(value, bool) else value}" for name, value in defaults.items()),
        )


@command.command("check")
@click.argument("path", type=click.Path(path_type=Path))
@command_options
def check(ctx: Context, path: Path) -> None:
    """Check that PATH describes kinds that job-controller can read (HBOX_KINDS_DIR): a YAML file of one kind or more.

    \b
    hbox kinds check trainingjob.yaml
    """
    from hbox_common.workloads.schema import DefaultsDocument, KindForm, parts_of  # noqa: PLC0415  pydantic, which --help does not need
    from hbox_common.yamltext import read_file  # noqa: PLC0415

    parts = parts_of(read_file(path), path.name)
    builtin = {(form.group, form.kind) for _, form in _files()}
    items = [
        _item(form) | {"replaces_builtin": (form.group, form.kind) in builtin} for form in parts if isinstance(form, KindForm)
    ]
    defaults = [part.model_dump(by_alias=True, exclude_none=True) for part in parts if isinstance(part, DefaultsDocument)]
    if not ctx.output.people:
        ctx.output.document("KindCheck", {"file": str(path), "items": items, "defaults": defaults})
        return
    for one in defaults:
        put(f"{path}: defaults for {', '.join(one['defaultsFor'])} are valid")
    for item in items:
        group = f".{item['group']}" if item["group"] else ""
        replaces = ", in place of the built-in one" if item["replaces_builtin"] else ""
        put(f"{path}: {item['name']}{group} is valid{replaces}")


def _files() -> list[tuple[str, Any]]:
    """Text and form of each built-in kind, by name of the kind."""
    from hbox_common.workloads.schema import forms_of  # noqa: PLC0415

    folder = files(PACKAGE) / "kinds"
    texts = [(each.name, each.read_text(encoding="utf-8")) for each in folder.iterdir() if each.name.endswith(".yaml")]
    return sorted(
        ((text, form) for name, text in texts for form in forms_of(text, name)), key=lambda one: (one[1].kind, one[1].group)
    )


def _names(form: Any) -> set[str]:
    plain = {form.kind.lower(), form.plural}
    return plain | {f"{name}.{form.group}".rstrip(".") for name in plain}


def _item(form: Any) -> dict[str, Any]:
    roles = ["each of " + role.each if role.each else role.name for role in form.roles]
    return {
        "name": form.kind,
        "group": form.group,
        "versions": list(form.versions),
        "plural": form.plural,
        "roles": "; ".join(roles),
        "transparent": form.transparent,
        "about": form.about,
        "source": form.source,
    }
