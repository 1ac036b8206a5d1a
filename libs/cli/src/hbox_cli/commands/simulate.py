"""`hbox simulate`: the engine without the platform. A subcommand's module is imported when it is run."""

import importlib

import click

#: name -> (module below hbox_cli.commands, what it does)
SUBCOMMANDS = {
    "cycle": ("simulate_cycle", "What the scheduler would do with a saved cluster."),
    "trace": ("simulate_trace", "A trace of jobs in time, under policies: waiting, use of cards, preemptions."),
    "fgd": ("simulate_fgd", "How many cards a policy allocates, by the protocol of FGD's authors."),
    "replay": ("simulate_replay", "Replay a scheduler's recorded inputs; compare the decisions."),
    "sweep": ("simulate_sweep", "The same for many policies: traces and seeds over all processors, one table."),
}


class Subcommands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in SUBCOMMANDS:
            return None
        found: click.Command = importlib.import_module(f".{SUBCOMMANDS[name][0]}", __package__).command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in SUBCOMMANDS.items()])


@click.group("simulate", cls=Subcommands)
def command() -> None:
    """What the scheduler would do, without a cluster and without services."""
