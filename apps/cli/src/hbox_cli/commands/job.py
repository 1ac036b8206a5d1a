"""`hbox job lint`: which gangs the workloads of a file make, and what is wrong with them. It needs no cluster."""

from pathlib import Path
from typing import Any

import click

from hbox_common.errors import InvalidRequest

from ..context import Context, command_options
from ..exits import Faulty
from ..output import put
from .kinds import further_kinds


@click.group("job")
def command() -> None:
    """Check manifests of jobs before they are submitted."""


@command.command("lint")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@further_kinds
@command_options
def lint(ctx: Context, paths: tuple[Path, ...], more: tuple[Path, ...]) -> None:
    """Print the gangs that the workloads in PATH make: minimum, sub-groups, queue, class, and the field that decides each. PATH is a file of
    manifests, or a folder of such files. Exit status 1 if a field is wrong.

    \b
    hbox job lint train.yaml
    kubectl get pytorchjob train -o yaml > train.yaml && hbox job lint train.yaml
    """
    from ..lint import Linted, kinds_with, linted  # noqa: PLC0415  pydantic, which --help does not need
    from ..simulate.documents import documents_of, files_of  # noqa: PLC0415

    kinds = kinds_with(more)
    items: list[dict[str, Any]] = []
    found: list[Linted] = []
    for path in files_of(paths):
        try:
            mine = [one for document in documents_of(path) if (one := linted(document, kinds)) is not None]
        except InvalidRequest as e:
            raise InvalidRequest(f"{path}: {e.message}", hint=e.hint) from e
        found += mine
        items += [{"file": str(path), **one.item} for one in mine]
    if not found:
        raise InvalidRequest(
            "the files have no workload that makes pods", hint="`hbox kinds ls` lists the kinds that HBox reads"
        )
    if ctx.output.people:
        for one in found:
            put(*one.lines)
    else:
        ctx.output.document("JobLint", {"items": items})
    if wrong := [one.title for one in found if one.problems]:
        raise Faulty(f"fields are wrong: {', '.join(wrong)}", hint="correct what is listed above as wrong")
