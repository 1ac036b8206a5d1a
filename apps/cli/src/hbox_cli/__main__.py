"""The `hbox` command: names and one-line helps of all commands are here; a command's module is imported when it is run.

`hbox --help` has to answer within 150 ms, so nothing here imports more than click.
"""

import difflib
import gc
import importlib
import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from hbox_common.deepjson import read_deep_json

from .context import By, Context, group_options, merged
from .exits import Exit, failure_text, leaf, status_of
from .stdio import ReaderGone, flush_data, take_over

#: name -> (module below hbox_cli.commands, and the command in it if it is not `command`; what it does)
COMMANDS = {
    "up": ("up", "Run the platform: broker, services, and an emulated cluster or yours."),
    "replay": ("replay", "Replay a trace through the platform; report and audit."),
    "check": ("check", "Check that everything is reachable, with a remedy for each fault."),
    "diag": ("diag", "Write an archive for fault analysis, without secrets."),
    "backup": ("backup", "Back up the ledger's database, also while it runs."),
    "restore": ("restore", "Restore a backup of the ledger."),
    "audit": ("audit", "Prove from outside that no card is over-booked and no gang partial."),
    "run": ("run", "Run a command as a job: one pod, or a gang of pods with cards."),
    "submit": ("run:submit", "Create the jobs of manifests, after checking them."),
    "jobs": ("jobs", "List jobs with their state and their pending reason."),
    "why": ("why", "Explain why a job waits, or why it runs where it does."),
    "reason": ("reason", "List the reasons for which jobs wait, and explain one."),
    "when": ("when", "Estimate when a waiting job starts."),
    "show": ("show", "Show all facts of a job: pods, nodes, Events, also after its end."),
    "set": ("set", "Change a pending job: queue, nodes, cards, topology."),
    "plan": ("plan", "Show whether a job would start now, wait, or never start."),
    "prio": ("prio", "Show the order of waiting jobs, term by term."),
    "wait": ("wait", "Wait until a job is bound, runs, or is done."),
    "logs": ("logs", "Print the logs of a job's pods."),
    "attach": ("logs:attach", "Attach the terminal to a job's pod."),
    "exec": ("logs:exec_", "Run a command in a job's pod."),
    "port-forward": ("logs:port_forward", "Forward local ports to a job's pod."),
    "cancel": ("states:cancel", "Delete jobs with their pods."),
    "hold": ("states:hold", "Keep pending jobs from starting."),
    "release": ("states:release", "Let held jobs start."),
    "suspend": ("states:suspend", "End the pods of jobs, to run again later."),
    "resume": ("states:resume", "Let suspended jobs run again."),
    "requeue": ("states:requeue", "End the pods of jobs and queue the jobs again."),
    "nodes": ("nodes", "List nodes with their free cards, health and reasons."),
    "node": ("node", "Show one node: its cards and their holders in the ledger and in the kubelet."),
    "health": ("health", "Nodes' health: incidents, exemptions, maintenance; judge files."),
    "sizes": ("sizes", "Show standard device sizes: their values on this cluster, and manifests."),
    "topo": ("topo", "Show the fabric: units, pods, switches and cabling faults."),
    "queue": ("queue", "Show queues: tree, limits and use; create, set, open, close, drain."),
    "quota": ("quota", "Show ResourceQuotas of cards by namespace: used and allowed."),
    "share": ("share", "Explain a queue's share, level by level."),
    "usage": ("usage", "Report card-hours by queue, user, model or hour."),
    "evictions": ("evictions", "Show whether evictions are paused by the rate limit; resume them."),
    "defrag": ("defrag", "Show fragmentation of idle cards and moves of pods with a net gain."),
    "history": ("history", "List the jobs of the last 7 days, also ended ones."),
    "events": ("events", "Print events of jobs, queues and nodes."),
    "bus": ("bus", "Manage the broker's users: keys and permissions."),
    "login": ("ctx:login", "Log in to a platform: the same as ctx login."),
    "top": ("top", "Show cluster, queues and jobs, live."),
    "ctx": ("ctx", "Show and choose the platform that commands read; log in to one."),
    "kinds": ("kinds", "Show the kinds whose pods start as gangs; check the file of one."),
    "job": ("job", "Show the gangs that manifests of jobs make, without a cluster."),
    "policy": ("policy", "Print HBox's own policies as files; check a policy file."),
    "definitions": ("definitions", "Print or apply the CRDs and objects that HBox needs in a cluster."),
    "trial": ("trial", "Submit a small gang to a cluster, wait until it runs, delete it."),
    "explain": ("explain", "Explain a field of jobs, queues or PodGroups."),
    "completion": ("shell:completion", "Print the completion script of a shell."),
    "compat": ("shell:compat", "Print shell functions for people from Slurm and Volcano."),
    "cheat": ("cheat", "Print commands of a working day."),
    "help": ("shell:help_", "Print the help of a command."),
    "man": ("shell:man", "Print all help as one page."),
    "version": ("version", "Print the versions of this command and of the services."),
    "simulate": ("simulate", "Simulate the scheduler on a saved cluster, a trace or a record."),
}

EPILOG = """\b
exit statuses:
  0 done   1 failed, or a fault was found   2 usage   3 not found   4 not allowed
  5 invalid or conflicting   6 a service does not answer   124 timed out   130 interrupted
  of plan: 7 it would wait   8 it can never run here
"""


class Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in COMMANDS:
            return None
        _configure_devices()  # before what the command imports asks for names
        module, _, member = COMMANDS[name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(f".commands.{module}", __package__), member or "command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], list(COMMANDS), 1)
            raise click.UsageError(f"no such command: {args[0]}." + (f" Did you mean {near[0]}?" if near else ""), ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hbox-cli", prog_name="hbox")
@group_options
@click.pass_context
def cli(ctx: click.Context, /, **given: Any) -> None:
    """HBox: scheduling for large accelerator clusters.

    \b
    hbox replay                        replay a day of a real cluster on an emulated one, with report and audit
    hbox up                            run the platform, for kubectl --kubeconfig .hbox/kubeconfig
    hbox up --kubeconfig PATH          run the platform on your cluster
    """
    found = merged(Context(), **given)
    by_environment = ctx.get_parameter_source("state") is ParameterSource.ENVIRONMENT
    ctx.obj = replace(found, state_by=By.ENVIRONMENT) if by_environment else found


def _configure_devices() -> None:
    """Read the device settings of the services, so that commands count the same cards."""
    file, named = os.environ.get("HBOX_DEVICE_CONFIG", ""), os.environ.get("HBOX_CARD_RESOURCES", "")
    if file or named:
        from hbox_common.runtime.devices import configure_devices  # noqa: PLC0415  not for --help

        for warning in configure_devices(device_config=Path(file) if file else None, card_resources=named):
            print(f"hbox: {warning}", file=sys.stderr)


#: Spellings of kubectl's, whose option may have a value.
_SPELLINGS = {"--dry-run=client": "--dry-run", "--dry-run=server": "--server-dry-run"}


def _arguments(arguments: list[str]) -> list[str]:
    """As this parser takes them, up to a `--`."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [_SPELLINGS.get(word, word) for word in arguments[:end]] + arguments[end:]


def _program(path: str) -> str:
    """The name under which the user runs it: kubectl runs `kubectl-hbox` for `kubectl hbox`."""
    return "kubectl hbox" if Path(path).name.removesuffix(".exe") == "kubectl-hbox" else "hbox"


def _complain(text: str) -> None:
    """Print the error, after the data, if standard error accepts it; the exit status reports it in any case."""
    flush_data()
    with suppress(OSError, ReaderGone):
        print(text, file=sys.stderr)


def main() -> NoReturn:
    """Never ends with a traceback, but under --debug."""
    gc.set_threshold(50_000, 20, 50)  # as services have it: walks over what is imported are a fifth of a short command's time
    read_deep_json()
    take_over()
    arguments = [word for word in sys.argv[1:] if not word.startswith("-")]
    name = next((word for word in arguments if word in COMMANDS), "")
    program = _program(sys.argv[0])
    command = f"{program} {name}".rstrip()
    try:
        answer: Any = cli.main(args=_arguments(sys.argv[1:]), prog_name=program, standalone_mode=False)
        if sys.stdout is not None:  # closed by the caller: commands without output succeed
            sys.stdout.flush()
    except click.exceptions.Exit as e:
        sys.exit(e.exit_code)
    except click.exceptions.NoArgsIsHelpError as e:
        print(e.format_message())
        sys.exit(Exit.OK)
    except click.ClickException as e:
        usage = e.ctx.command_path if isinstance(e, click.UsageError) and e.ctx else command
        _complain(f"{usage} did not run (usage, exit status {int(Exit.USAGE)})")
        _complain(f"  why   {e.format_message()}\n  next  {usage} --help")
        sys.exit(Exit.USAGE)
    except (click.Abort, KeyboardInterrupt):
        _complain(f"{command}: interrupted")
        sys.exit(Exit.INTERRUPTED)
    except (Exception, BaseExceptionGroup) as e:  # the last handler of the process
        error = leaf(e)
        if isinstance(error, ReaderGone):
            # It has seen enough (`hbox jobs | head`); Python would complain again when it flushes.
            sys.stdout = None
            sys.exit(Exit.OK)
        if "--debug" in sys.argv:
            raise
        _complain(failure_text(command, error))
        sys.exit(status_of(error))
    sys.exit(answer if isinstance(answer, int) else Exit.OK)


if __name__ == "__main__":
    main()
