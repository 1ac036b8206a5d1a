"""`hbox completion`, `compat`, `help` and `man`: the command in shells, and its documentation."""

import click
from click.shell_completion import get_completion_class

from hbox_common.errors import InvalidRequest, NotFound

from ..context import Context, command_options
from ..output import put

VARIABLE = "_HBOX_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


def plain_only(ctx: Context, what: str) -> None:
    """Raises InvalidRequest for a form of output other than the text."""
    if not ctx.output.people:
        raise InvalidRequest(f"{what} has no form {ctx.output.form.value}", hint="leave -o out")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@command_options
def completion(ctx: Context, shell: str) -> None:
    """Print the script that completes commands, options and names of jobs, queues and nodes in a shell.

    \b
    hbox completion bash > ~/.local/share/bash-completion/completions/hbox
    hbox completion zsh > "${fpath[1]}/_hbox"
    hbox completion fish > ~/.config/fish/completions/hbox.fish
    """
    from ..__main__ import cli  # noqa: PLC0415  it imports this module

    plain_only(ctx, "a script")
    found = get_completion_class(shell)
    assert found is not None
    # The source alone: `source()` of bash runs bash to find its version, of which every one since 2016 will do.
    template = found(cli, {}, "hbox", VARIABLE)
    put(*(template.source_template % template.source_vars()).strip().splitlines())


#: By the command that people know: the function's body. Slurm's and Volcano's own options are not read but for those here.
SLURM = {
    "squeue": ("hbox jobs", 'hbox jobs "$@"'),
    "sinfo": ("hbox nodes", 'hbox nodes "$@"'),
    "scancel": ("hbox cancel --yes", 'hbox cancel --yes "$@"'),
    "sbatch": ("hbox submit", 'hbox submit "$@"'),
    "srun": ("hbox run --follow", 'hbox run --follow "$@"'),
    "sacct": ("hbox history", 'hbox history "$@"'),
    "sprio": ("hbox prio", 'hbox prio "$@"'),
    "sshare": ("hbox queue tree", 'hbox queue tree "$@"'),
    "sreport": ("hbox usage", 'hbox usage "$@"'),
    "scontrol": (
        "hold, release, requeue, suspend, resume JOB; show job JOB; show node NODE",
        'case "$1 $2" in "show job "*|"show job") hbox show "${@:3}" ;; "show node"*) hbox node show "${@:3}" ;; '
        '"hold "*|"release "*|"requeue "*|"suspend "*|"resume "*) hbox "$@" ;; '
        '*) echo "scontrol: hbox has hold, release, requeue, suspend, resume, show job, show node" >&2; return 2 ;; esac',
    ),
}
VOLCANO = {
    "vsub": ("hbox submit", 'hbox submit "$@"'),
    "vjobs": ("hbox jobs", 'hbox jobs "$@"'),
    "vqueues": ("hbox queue ls", 'hbox queue ls "$@"'),
    "vcancel": ("hbox cancel --yes", 'hbox cancel --yes "$@"'),
    "vsuspend": ("hbox suspend --yes", 'hbox suspend --yes "$@"'),
    "vresume": ("hbox resume", 'hbox resume "$@"'),
}
SETS = {"slurm": SLURM, "volcano": VOLCANO}


@click.command("compat")
@click.argument("names", nargs=-1, type=click.Choice(tuple(SETS)), metavar="[slurm] [volcano]")
@click.option("--list", "listed", is_flag=True, help="List the commands and what they run, instead of the functions.")
@command_options
def compat(ctx: Context, names: tuple[str, ...], *, listed: bool) -> None:
    """Print shell functions (bash, zsh) for people who know Slurm's or Volcano's commands; with options of hbox.

    \b
    eval "$(hbox compat)"
    eval "$(hbox compat slurm)"; squeue -q research; scancel train-7
    hbox compat --list

    A command of this name that is installed is not replaced.
    """
    from ..output import Column  # noqa: PLC0415

    chosen = {name: SETS[name] for name in names or SETS}
    if listed:
        rows = [{"name": name, "runs": runs, "of": of} for of, found in chosen.items() for name, (runs, _) in found.items()]
        columns = (Column("COMMAND", lambda r: r["name"]), Column("OF", lambda r: r["of"]), Column("RUNS", lambda r: r["runs"]))
        ctx.output.rows("Alias", rows, columns)
        return
    plain_only(ctx, "a script")
    for of, found in chosen.items():
        put(f"# For people from {of.capitalize()}: {', '.join(found)}")
        put(*(f"command -v {name} >/dev/null 2>&1 || {name}() {{ {body}; }}" for name, (_, body) in found.items()))


@click.command("help")
@click.argument("arguments", nargs=-1, metavar="[COMMAND...]")
@command_options
def help_(ctx: Context, arguments: tuple[str, ...]) -> None:
    """Print the help of a command, as its --help.

    \b
    hbox help
    hbox help queue set
    """
    plain_only(ctx, "help")
    print(_help(arguments))


def _help(arguments: tuple[str, ...]) -> str:
    from ..__main__ import cli  # noqa: PLC0415

    found: click.Command = cli
    context = click.Context(cli, info_name="hbox", **cli.context_settings)
    for word in arguments:
        below = found.get_command(context, word) if isinstance(found, click.Group) else None
        if below is None:
            raise NotFound(f"no such command: {context.command_path} {word}", hint=f"{context.command_path} --help")
        context = click.Context(below, info_name=word, parent=context)
        found = below
    return found.get_help(context)


@click.command("man")
@click.argument("arguments", nargs=-1, metavar="[COMMAND...]")
@command_options
def man(ctx: Context, arguments: tuple[str, ...]) -> None:
    """Print all help as one page: of hbox and every command, or of one command and those below it.

    \b
    hbox man | less
    hbox man queue
    """
    from ..__main__ import cli  # noqa: PLC0415

    plain_only(ctx, "a manual")
    print(_help(arguments))
    group: click.Command = cli
    context = click.Context(cli, info_name="hbox", **cli.context_settings)
    for word in arguments:
        assert isinstance(group, click.Group)
        below = group.get_command(context, word)
        assert below is not None
        group = below
    for path in _below(group, arguments):
        print(f"\n{'-' * 80}\n\n{_help(path)}")


def _below(command: click.Command, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Paths of all commands below, in order."""
    found: list[tuple[str, ...]] = []
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found += [(*path, name), *_below(below, (*path, name))]
    return found
