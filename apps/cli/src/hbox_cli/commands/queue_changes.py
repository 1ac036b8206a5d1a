"""`hbox queue create` and `set`: change a queue's rules, after a preview of the effects."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from hbox_common.errors import Conflict, InvalidRequest
from hbox_common.model import named_models

from ..access import running_of
from ..aio import run
from ..context import Context, platform_options
from ..output import notify, put
from ..queues import Change, change_of, document, effect_lines, models_of, read, unknown_models
from ..queues import dry_run as ask
from .queue_writes import write

F = TypeVar("F", bound=Callable[..., Any])


def rules(command: F) -> F:
    """The options that name rules of a queue."""
    amount = "RESOURCE=AMOUNT, of one card model nvidia.com/gpu.MODEL=AMOUNT; may be repeated."
    for option in (
        click.option("--force", is_flag=True, help="Apply the change even if rules contradict each other."),
        click.option("--dry-run", is_flag=True, help="Print the effects of the change without applying it."),
        click.option("--reclaimable/--no-reclaimable", default=None, help="Whether other queues may reclaim what it borrows."),
        click.option("--priority", type=int),
        click.option("--weight", type=click.IntRange(1, 65535)),
        click.option("--capability", multiple=True, metavar="R=A", help=f"Never more than this: {amount}"),
        click.option("--deserved", multiple=True, metavar="R=A", help=f"Taken back from those who borrowed it: {amount}"),
        click.option("--guarantee", multiple=True, metavar="R=A", help=f"Never taken from it: {amount}"),
        click.option("--budget", metavar="CARD-HOURS", help="Maximum use in a calendar month; none = no limit."),
        click.option(
            "--namespaces", metavar="NAME,NAME", help="Namespaces whose pods may use it and its descendants; * = all."
        ),
        click.option(
            "--priority-classes", metavar="CLASS,CLASS", help="PriorityClasses that its jobs may have; empty = any, or none."
        ),
        click.option(
            "--non-preemptible-classes",
            metavar="CLASS,CLASS",
            help="PriorityClasses exempt from reclaim within the queue's deserved share; * = all, empty = as the parent.",
        ),
        click.option(
            "--pool-amounts",
            metavar="JSON",
            help='Its amounts in other pools: {"lab": {"deserved": {"nvidia.com/gpu": 8}}}; empty = no amounts.',
        ),
        click.option(
            "--lent-to", metavar="QUEUE,QUEUE", help="Queues (with their descendants) that may borrow from it; empty = all."
        ),
        click.option("--lent-pools", metavar="POOL,POOL", help="Its own pools that other queues may use while they are idle."),
        click.option(
            "--min-run-time",
            metavar="DURATION",
            help="Minimum run time of its pods before they can be evicted: 10m; empty = as the parent, or 0s.",
        ),
        click.option(
            "--cool-down",
            metavar="DURATION",
            help="Minimum run time of jobs evicted within the last hour; empty = as the parent, or 60s.",
        ),
        click.option("--pools", metavar="POOL,POOL", help="Pools that it and its descendants may use; empty = as the parent."),
        click.option("--parent", help="Parent queue; root = none."),
    ):
        command = option(command)
    return command


@click.command("create")
@click.argument("name")
@rules
@platform_options
def create(ctx: Context, name: str, *, dry_run: bool, force: bool, **given: Any) -> None:
    """Create the queue NAME.

    \b
    hbox queue create vision --deserved nvidia.com/gpu=40 --capability nvidia.com/gpu=64
    hbox queue create speech --capability nvidia.com/gpu.NVIDIA-H100-80GB-HBM3=16      a limit for one card model
    hbox queue create train --parent vision --deserved nvidia.com/gpu=30
    """
    change = change_of(name, given)
    found = run(lambda: read(running_of(ctx)))
    if name in found.tree:
        raise Conflict(f"there is a queue {name} already", hint=f"hbox queue set {name}")
    _judge(ctx, change, force=force, dry_run=dry_run)
    if not dry_run:
        run(lambda: write(ctx, "POST", name, _named({**change.body, "spec": {"weight": 1, **change.spec}})))
        notify(f"created queue {name}")


@click.command("set")
@click.argument("name")
@rules
@platform_options
def set_(ctx: Context, name: str, *, dry_run: bool, force: bool, **given: Any) -> None:
    """Change rules of the queue NAME; unnamed rules keep their values, and RESOURCE= removes a resource.

    \b
    hbox queue set train --deserved nvidia.com/gpu=20 --dry-run      shows which jobs would be evicted
    hbox queue set train --parent speech
    """
    change = change_of(name, given)
    if not change.spec and not change.annotations:
        raise InvalidRequest("no rule is named that should change", hint=f"hbox queue set {name} --deserved nvidia.com/gpu=8")
    found = run(lambda: read(running_of(ctx)))
    found.named(name)
    _judge(ctx, change, force=force, dry_run=dry_run)
    if not dry_run:
        run(lambda: write(ctx, "PATCH", name, change.body))
        notify(f"changed queue {name}")


def _judge(ctx: Context, change: Change, *, force: bool, dry_run: bool) -> None:
    """Say what the change would do, by the ledger's word. Raises InvalidRequest where it makes rules contradict each other, unless forced or tried dry."""
    answer = run(lambda: ask(running_of(ctx), change.asked()))
    named = named_models(*change.amounts.values())
    warnings = unknown_models(change, run(lambda: models_of(running_of(ctx)))) if named else []
    if answer.faults and not force and not dry_run:
        hint_text = "--force makes the change all the same; the ledger reads such rules strictly"
        raise InvalidRequest("; ".join(f"queue {one.queue}: {one.fault}" for one in answer.faults), hint=hint_text)
    if dry_run and not ctx.output.people:
        ctx.output.document("QueueChange", document(change.name, answer, warnings))
    elif dry_run:
        put(*(effect_lines(answer, warnings) or ["no queue would have to give anything back"]))
    else:
        for line in effect_lines(answer, warnings):
            notify(line)


def _named(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Without nulls, which mean something to a patch alone."""
    return {key: _named(value) if isinstance(value, dict) else value for key, value in spec.items() if value is not None}
