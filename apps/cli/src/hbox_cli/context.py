"""Options of every command: the folder of the platform's state, and the form of the output."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from .output import Colour, Form, Output

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_STATE = Path(".hbox")


@dataclass(frozen=True, slots=True)
class Context:
    state: Path = DEFAULT_STATE
    output: Output = Output()
    debug: bool = False


def _options(command: F, *, top: bool) -> F:
    """The global options; on the group they have their defaults, on a command they override the group's."""
    for option in (
        click.option("--debug", is_flag=True, default=None, help="Print tracebacks of errors."),
        click.option(
            "--color",
            type=click.Choice([c.value for c in Colour]),
            help="Colour output: auto (default), always or never.",
            hidden=not top,
        ),
        click.option("--no-headers", is_flag=True, default=None, help="Print tables without headers.", hidden=not top),
        click.option("-o", "--output", "form", type=click.Choice([f.value for f in Form]), help="Output format."),
        click.option(
            "--state",
            type=click.Path(path_type=Path, file_okay=False),
            envvar="HBOX_STATE" if top else None,
            help=f"The folder of the platform [{DEFAULT_STATE}].",
        ),
    ):
        command = option(command)
    return command


def group_options(command: F) -> F:
    return _options(command, top=True)


def command_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a command: global options may stand after its name too; it is handed a Context as its first argument."""

    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> Any:
        ctx = click.get_current_context()
        ctx.obj = merged(ctx.find_object(Context) or Context(), **{name: given.pop(name) for name in GLOBALS})
        return command(ctx.obj, *args, **given)

    return _options(run, top=False)


GLOBALS = ("state", "form", "no_headers", "color", "debug")


def merged(
    base: Context, *, state: Path | None, form: str | None, no_headers: bool | None, color: str | None, debug: bool | None
) -> Context:
    output = base.output
    if form is not None:
        output = replace(output, form=Form(form))
    if no_headers:
        output = replace(output, headers=False)
    if color is not None:
        output = replace(output, colour=Colour(color))
    return Context(base.state if state is None else state, output, bool(base.debug if debug is None else debug))
