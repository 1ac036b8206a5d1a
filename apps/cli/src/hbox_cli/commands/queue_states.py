"""`hbox queue open`, `close` and `drain`: whether a queue takes work, and emptying one."""

import asyncio
import sys
from collections.abc import Sequence

import click

from hbox_common.errors import InvalidRequest
from hbox_common.model import Claim, QueueName, QueuePhase
from hbox_common.model.devices import VENDORS

from ..access import running_of
from ..aio import run
from ..context import Context, platform_options
from ..exits import Faulty
from ..output import notify, put
from ..queues import read
from .queue_writes import write_state

EVICTIONS = 16  #: at a time
SHOWN = 10  #: pods of a dry run


@click.command("open")
@click.argument("name")
@platform_options
def open_(ctx: Context, name: str) -> None:
    """Open the queue NAME for new jobs."""
    found = run(lambda: read(running_of(ctx)))
    found.named(name)
    run(lambda: write_state(ctx, name, "Open"))
    notify(f"queue {name} is open")
    closed = [
        one
        for one in found.tree.path(QueueName(name))[1:]
        if one in found.tree and found.tree[one].phase is not QueuePhase.OPEN
    ]
    if closed:
        notify(f"it takes nothing all the same: queue {closed[0]} above it is closed; hbox queue open {closed[0]}")


@click.command("close")
@click.argument("name")
@platform_options
def close(ctx: Context, name: str) -> None:
    """Close the queue NAME and its descendants for new jobs; running jobs continue."""
    found = run(lambda: read(running_of(ctx)))
    held = found.holding(found.named(name).name)
    run(lambda: write_state(ctx, name, "Closing"))
    notify(f"queue {name} takes nothing new; {_extent(held)} go on")


@click.command("drain")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Print the pods to evict without evicting them.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0),
    default=120.0,
    show_default=True,
    help="Seconds to wait until the queue is empty.",
)
@platform_options
def drain(ctx: Context, name: str, *, yes: bool, dry_run: bool, timeout_s: float) -> None:
    """Close the queue NAME and its descendants and evict their pods. Disruption budgets apply; pods that controllers re-create wait."""
    found = run(lambda: read(running_of(ctx)))
    held = found.holding(found.named(name).name)
    for claim in held[: SHOWN if dry_run else 0]:
        put(f"{claim.namespace}/{claim.pod}  queue {claim.queue}  priority {claim.priority}  on {claim.node}")
    if dry_run:
        print(f"{_extent(held)} would be evicted")
        return
    if held and not yes:
        if not sys.stdin.isatty():
            raise InvalidRequest(f"{_extent(held)} would be evicted", hint=f"hbox queue drain {name} --yes")
        click.confirm(f"Evict {_extent(held)}?", abort=True, err=True)
    run(lambda: _drain(ctx, QueueName(name), timeout_s))
    notify(f"queue {name} is closed and empty; {_extent(held)} were evicted")


def _extent(claims: Sequence[Claim]) -> str:
    cards = sum(VENDORS.asked(claim.requests) for claim in claims)
    return f"{len(claims)} pods of {len({claim.job for claim in claims})} jobs with {cards} cards"


async def _drain(ctx: Context, name: QueueName, timeout_s: float) -> None:
    """Raises TimeoutError where pods are left, with the last refusal."""
    from hbox_common.kube import EvictOutcome, KubeClient, evict  # noqa: PLC0415

    running = running_of(ctx)
    await write_state(ctx, name, "Closing")
    refused = ""
    gate = asyncio.Semaphore(EVICTIONS)
    deadline = asyncio.get_running_loop().time() + timeout_s
    async with KubeClient.connect(running.kubeconfig or None, user_agent="hbox") as client:

        async def one(claim: Claim) -> None:
            nonlocal refused
            async with gate:
                result = await evict(client, namespace=claim.namespace, name=claim.pod, uid=claim.pod_uid)
            if result.outcome in (EvictOutcome.BLOCKED, EvictOutcome.REJECTED):
                refused = f"{claim.namespace}/{claim.pod}: {result.message}"

        while held := (await read(running)).holding(name):
            if asyncio.get_running_loop().time() > deadline:
                raise Faulty(
                    f"{_extent(held)} are left after {timeout_s:g} s{'; ' * bool(refused)}{refused}",
                    hint=f"hbox jobs -q {name}",
                )
            async with asyncio.TaskGroup() as tasks:
                for claim in held:
                    tasks.create_task(one(claim))
            await asyncio.sleep(0.5)
