"""`hbox evictions`: the ledger's rate limit of evictions. An annotation of a Queue resumes them, so that Kubernetes authorizes and audits the request."""

import asyncio
from datetime import UTC, datetime

import click

from hbox_common.errors import NotFound, Unavailable
from hbox_common.model import DEFAULT_QUEUE
from hbox_common.model.annotations import EVICTIONS_RELEASED

from ..access import running_of, source_of
from ..aio import run
from ..context import Context, platform_options
from ..output import notify, put
from .queue_writes import write

OBSERVED_S = 15.0
LOOK_S = 0.2


@click.group("evictions")
def command() -> None:
    """Show or resume evictions. They pause when their number within five minutes exceeds the limit, and resume by themselves."""


@command.command("show")
@platform_options
def show(ctx: Context) -> None:
    """Show whether evictions are paused, and why."""
    found = source_of(ctx).evictions()
    if not ctx.output.people:
        ctx.output.document("Evictions", found)
    else:
        put(f"evictions pause: {found['message']}" if found["paused"] else "evictions go on")


@command.command("release")
@platform_options
def release(ctx: Context) -> None:
    """Resume paused evictions: earlier evictions no longer count. Repeat the command when needed.

    Requires write access to the Queue `default`.
    """
    found = source_of(ctx).evictions()
    if not found["paused"]:
        notify("evictions do not pause: there is nothing to release")
        return
    run(lambda: _release(ctx))
    notify(f"evictions go on ({found['message']})")


async def _release(ctx: Context) -> None:
    """Write the annotation, and wait until the ledger has observed it."""
    from ..session import bus_of, ledger_of  # noqa: PLC0415

    word = datetime.now(UTC).isoformat(timespec="milliseconds")
    try:
        await write(ctx, "PATCH", DEFAULT_QUEUE, {"metadata": {"annotations": {EVICTIONS_RELEASED: word}}})
    except NotFound as e:
        raise NotFound(
            f"the cluster has no Queue {DEFAULT_QUEUE}, on which this is written", hint=f"hbox queue create {DEFAULT_QUEUE}"
        ) from e
    async with bus_of(running_of(ctx)) as bus:
        try:
            async with asyncio.timeout(OBSERVED_S):
                while True:
                    if (await ledger_of(bus)).released == word:
                        return
                    await asyncio.sleep(LOOK_S)
        except TimeoutError as e:
            raise Unavailable(
                f"quota-ledger did not acknowledge it within {OBSERVED_S:g} s",
                hint="it is written, and counts as soon as queues are read",
            ) from e
