"""Options of every command: where its data come from, and the form of the output."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import click

from .output import Colour, Form, Output

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_STATE = Path(".hbox")


class By(Enum):
    """Where the state folder's name comes from."""

    DEFAULT = 0
    ENVIRONMENT = 1
    FLAG = 2


@dataclass(frozen=True, slots=True)
class Flags:
    """None: the option was not given."""

    server: str | None = None  #: URL of the HTTP API
    ca: Path | None = None  #: authority of the server's certificate
    token_file: Path | None = None  #: bearer token for the server
    context: str | None = None
    nats_url: str | None = None
    nats_seed: Path | None = None
    nats_ca: Path | None = None

    def over(self, base: "Flags") -> "Flags":
        """These flags, and those of `base` where they were not given."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        return Flags(**{name: getattr(base, name) if value is None else value for name, value in given.items()})


#: Names of the access options, as parameters.
NAMES = tuple(one.name for one in fields(Flags))


@dataclass(frozen=True, slots=True)
class Context:
    state: Path = DEFAULT_STATE
    output: Output = Output()
    debug: bool = False
    access: Flags = field(default_factory=Flags)
    state_by: By = By.DEFAULT


class _Form(click.Choice[str]):
    """A form of output; `jsonpath=TEMPLATE` as it is."""

    def __init__(self) -> None:
        super().__init__([one.value for one in Form if one is not Form.JSONPATH] + ["jsonpath=..."])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if str(value).startswith(f"{Form.JSONPATH}=") and len(str(value)) > len(Form.JSONPATH) + 1:
            return str(value)
        if str(value).startswith(Form.JSONPATH):
            self.fail("jsonpath needs a template, such as -o jsonpath='{.items[*].name}'", param, ctx)
        return super().convert(value, param, ctx)


_FORM = _Form()


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
        click.option("--columns", metavar="A,B", help="Columns of a table or csv, by their titles.", hidden=not top),
        click.option(
            "--sort-by",
            metavar="COLUMN",
            help="Column or field to sort by, such as AGE or .ageSeconds; -AGE reverses.",
            hidden=not top,
        ),
        click.option("-o", "--output", "form", type=_FORM, help="Output format."),
        click.option(
            "--state",
            type=click.Path(path_type=Path, file_okay=False),
            envvar="HBOX_STATE" if top else None,
            help=f"The folder of the platform [{DEFAULT_STATE}].",
        ),
    ):
        command = option(command)
    return command


def _access(command: F, *, top: bool) -> F:
    """The options that select another source of data than a state folder."""
    file = click.Path(path_type=Path, dir_okay=False)
    for option in (
        click.option("--nats-ca", type=file, help="CA certificate file of the broker.", hidden=not top),
        click.option("--nats-seed", type=file, help="Seed file of the broker's user `hbox-cli`.", hidden=not top),
        click.option("--nats-url", metavar="URL", help="Address of the platform's broker, for operators.", hidden=not top),
        click.option("--token-file", type=file, help="File with the bearer token for the server.", hidden=not top),
        click.option("--ca", type=file, help="CA certificate file of the server.", hidden=not top),
        click.option("--server", metavar="URL", help="URL of HBox's server [as the context names it].", hidden=not top),
        click.option(
            "--context",
            metavar="NAME",
            envvar="HBOX_CONTEXT" if top else None,
            help="Context of `hbox ctx ls`, or of kubectl [the current one].",
        ),
    ):
        command = option(command)
    return command


def group_options(command: F) -> F:
    return _options(_access(command, top=True), top=True)


def command_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a command: global options may stand after its name too; it is handed a Context as its first argument."""

    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> Any:
        return command(_adopt({name: given.pop(name) for name in GLOBALS}), *args, **given)

    return _options(run, top=False)


def platform_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """As `command_options`, for commands that read a platform: access options may stand after their names too."""

    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> Any:
        return command(_adopt({name: given.pop(name) for name in (*GLOBALS, *NAMES)}), *args, **given)

    return _options(_access(run, top=False), top=False)


def watch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """As `platform_options`, for lists: `-w` prints them again and again."""

    @functools.wraps(command)
    def run(ctx: Context, *args: Any, watch: bool, **given: Any) -> Any:
        if not watch:
            return command(ctx, *args, **given)
        from .watching import repeat  # noqa: PLC0415  for those who ask for it

        return repeat(ctx.output, lambda output: command(replace(ctx, output=output), *args, **given))

    option = click.option(
        "-w", "--watch", is_flag=True, help="Print changes until Ctrl-C: drawn anew on a terminal, else as JSON lines."
    )
    return option(platform_options(run))


GLOBALS = ("state", "form", "no_headers", "color", "debug", "columns", "sort_by")


def _adopt(given: Mapping[str, Any]) -> Context:
    """Makes the options of a command those of the process."""
    ctx = click.get_current_context()
    ctx.obj = adopted = merged(ctx.find_object(Context) or Context(), **given)
    return adopted


def merged(
    base: Context,
    *,
    state: Path | None,
    form: str | None,
    no_headers: bool | None,
    color: str | None,
    debug: bool | None,
    columns: str | None,
    sort_by: str | None,
    **access: Any,
) -> Context:
    output = base.output
    if form is not None:
        name, _, template = form.partition("=")
        output = replace(output, form=Form(name), template=template)
    if columns is not None:
        output = replace(output, only=tuple(one.strip() for one in columns.split(",") if one.strip()))
    if sort_by is not None:
        output = replace(output, sort_by=sort_by)
    if no_headers:
        output = replace(output, headers=False)
    if color is not None:
        output = replace(output, colour=Colour(color))
    return Context(
        state=base.state if state is None else state,
        output=output,
        debug=bool(base.debug if debug is None else debug),
        access=Flags(**access).over(base.access),
        state_by=base.state_by if state is None else By.FLAG,
    )
