"""`hbox health`: judgements of node health."""

import json
from pathlib import Path

import click

from hbox_common.errors import HBoxError, InvalidRequest

from ..health.cases import PLAIN_KINDS, read_case
from ..health.judging import judged


@click.group("health")
def command() -> None:
    """Judge what nodes show of their hardware."""


@command.command("judge")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--kind", type=click.Choice([kind.replace("_", "-") for kind in PLAIN_KINDS]), help="What a plain file holds  [by content]"
)
@click.option("--box", default="", help="Kind of the node that a plain file is of: H100, A800, L20, ...  [by content]")
@click.option("--driver", default="", help="Version of the NVIDIA driver that wrote a plain file.")
def judge(files: tuple[Path, ...], kind: str | None, box: str, driver: str) -> None:
    """Judge FILEs offline: what would health-monitor decide? Prints one JSON object for each.

    A FILE is a case (YAML with kind, context and input) or plain: a kernel log (dmesg, /dev/kmsg, syslog, journal), the fabric manager's log, the text of
    DCGM's exporter, the output of nccl-tests, a table of pair tests, or the NVML document of a node.

    \b
    dmesg > node.log; hbox health judge node.log --box H100
    """
    context = {key: value for key, value in (("box", box), ("driver", driver)) if value}
    failed: list[HBoxError] = []
    for path in files:
        try:
            answer = judged(read_case(path, kind=kind.replace("-", "_") if kind else None, context=context))
        except HBoxError as e:
            failed.append(e)
            continue
        click.echo(json.dumps(answer, ensure_ascii=False))
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise InvalidRequest("; ".join(e.message for e in failed))
