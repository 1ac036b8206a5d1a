"""`hbox simulate`: the engine without the platform. A subcommand's module is imported when it is run."""

import importlib

import click

#: name -> (module below hbox_cli.commands, what it does)
SUBCOMMANDS = {
    "cycle": ("simulate_cycle", "Run scheduling cycles on a saved cluster."),
    "trace": ("simulate_trace", "Run a trace of jobs over time: waiting times, card use, preemptions."),
    "fgd": ("simulate_fgd", "Measure allocated cards by FGD's protocol."),
    "replay": ("simulate_replay", "Replay a scheduler's recorded inputs; compare the decisions."),
    "sweep": ("simulate_sweep", "Measure many policies, traces and seeds on all CPUs."),
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
    """Simulate the scheduler without a cluster and without services."""
