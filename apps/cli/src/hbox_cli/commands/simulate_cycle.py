"""`hbox simulate cycle`."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hbox_common.clock import wall_s
from hbox_common.errors import HBoxError, InvalidRequest
from hbox_common.yamltext import read_file

from ..context import Context, command_options
from ..options import queues_option
from ..output import Column, Form, put

if TYPE_CHECKING:
    from ..simulate.running import Answer

HBOX = "hbox"

#: Of `-o csv`: a row for each decision about a pod, and for each file that could not be simulated.
COLUMNS = tuple(
    Column(title, lambda row, key=key: row[key])  # type: ignore[misc]
    for title, key in (
        ("FILE", "file"),
        ("POD", "name"),
        ("OUTCOME", "outcome"),
        ("NODE", "node"),
        ("DEVICES", "devices"),
        ("FOR", "for"),
        ("REASON", "reason"),
    )
)


@click.command("cycle")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--explain", is_flag=True, help="Also print the filters and scores of every node before the first decision.")
@click.option(
    "--policy", type=click.Path(path_type=Path, dir_okay=False), help="volcano-scheduler.conf that replaces the files' own."
)
@click.option("--cycles", type=click.IntRange(1, 10_000), help="Number of scheduling cycles [the files' own].")
@click.option(
    "--scheduler",
    "schedulers",
    multiple=True,
    metavar="NAME",
    help=f"Pods with this spec.schedulerName are to be placed; may be repeated [{HBOX}].",
)
@click.option("--now", type=click.DateTime(["%Y-%m-%dT%H:%M:%SZ"]), help="Current time, for ages and time windows [now].")
@click.option(
    "--as-services/--as-written",
    default=None,
    help="Apply the policy as the running services do (the ledger's rights in queue trees, whole gangs, lent guarantees, no tenant's own exemption from "
    "eviction) or as Volcano does. HBox's own policy always applies as in the services [--policy: as services; a file's own policy: as written].",
)
@queues_option
@command_options
def command(
    ctx: Context,
    *,
    paths: tuple[Path, ...],
    explain: bool,
    policy: Path | None,
    cycles: int | None,
    schedulers: tuple[str, ...],
    now: datetime | None,
    as_services: bool | None,
    queues: str,
) -> None:
    """Run scheduling cycles on a saved cluster: bindings, evictions with their beneficiaries, waiting jobs with reasons.

    PATH is a file of Kubernetes objects, or a folder of such files; each file is one cluster.

    \b
    kubectl get nodes,pods,podgroups,queues,priorityclasses -A -o yaml > cluster.yaml
    hbox simulate cycle cluster.yaml
    hbox simulate cycle --explain --policy volcano-scheduler.conf --scheduler volcano cluster.yaml
    hbox simulate cycle -o ndjson clusters/ | jq .bindings
    """
    from ..simulate.documents import files_of  # noqa: PLC0415  half a second that --help does not need
    from ..simulate.running import Wish, answers  # noqa: PLC0415

    wish = Wish(
        explain=explain,
        cycles=cycles,
        policy=None if policy is None else _text(policy),
        policy_file=str(policy or ""),
        schedulers=schedulers or (HBOX,),
        now=wall_s() if now is None else now.replace(tzinfo=UTC).timestamp(),
        as_services=as_services,
        bound=queues == "bound",
        debug=ctx.debug,
    )
    files = files_of(paths)
    errors = _show(ctx, answers(files, wish), explain=explain)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise type(errors[0])(
            f"{len(errors)} of {len(files)} files could not be simulated; the first: {errors[0].message}", hint=errors[0].hint
        )


def _show(ctx: Context, answered: Iterable["Answer"], *, explain: bool) -> list[HBoxError]:
    """Print the answers as they come. Returns the errors among them."""
    from ..simulate.table import lines_of, pod_rows  # noqa: PLC0415

    errors: list[HBoxError] = []
    rows = []
    for answer in answered:
        if answer.error is not None:
            errors.append(answer.error)
        match ctx.output.form:
            case Form.JSON | Form.YAML:
                rows.append(answer.row)
            case Form.CSV:
                rows += pod_rows(answer.row)
            case Form.NDJSON:
                print(json.dumps(answer.row, ensure_ascii=False), flush=True)
            case Form.NAME:
                for binding in answer.row["bindings"]:
                    put(f"pod/{binding['pod']}")
            case _ if answer.error is None:
                put(*lines_of(answer.row, explain=explain))
    if ctx.output.form in (Form.JSON, Form.YAML):
        ctx.output.document("SimulationList", {"items": rows})
    elif ctx.output.form is Form.CSV:
        ctx.output.rows("Pod", rows, COLUMNS)
    return errors


def _text(policy: Path) -> str:
    hint = "name a volcano-scheduler.conf with --policy"
    try:
        return read_file(policy).decode()
    except UnicodeError as e:
        raise InvalidRequest(f"the policy {policy} cannot be read: it is not text", hint=hint) from e
    except InvalidRequest as e:
        raise InvalidRequest(f"the policy {e.message}", hint=hint) from e
