"""`hbox queue ls` and `hbox queue create`."""

import click

from hbox_common.errors import InvalidRequest
from hbox_common.model import request_units

from ..aio import run
from ..context import Context, command_options
from ..output import Column, say
from ..platform.layout import Layout
from ..session import bus_of, claims_of, jobs_of
from ..views import Item, cards_of, queue_items

COLUMNS = (
    Column("QUEUE", lambda q: q["name"]),
    Column("STATE", lambda q: q["state"]),
    Column("WEIGHT", lambda q: q["weight"]),
    Column("LIMIT", lambda q: cards_of(q["capability"])),
    Column("USED", lambda q: cards_of(q["used"]) or 0),
    Column("PENDING", lambda q: q["pendingJobs"]),
    Column("CPU", lambda q: f"{q['used'].get('cpu', 0) / 1000:g}", wide=True),
    Column("MEM-GIB", lambda q: q["used"].get("memory", 0) // 2**30, wide=True),
)


@click.group("queue")
def command() -> None:
    """Queues: what they may use, and what they use."""


@command.command("ls")
@command_options
def ls(ctx: Context) -> None:
    """Queues with their limit and use, in cards; -o wide adds cores and memory."""
    ctx.output.rows("Queue", run(lambda: _read(ctx)), COLUMNS)


async def _read(ctx: Context) -> list[Item]:
    async with bus_of(Layout(ctx.state).running()) as bus:
        pages = await claims_of(bus)
        jobs, _, _ = await jobs_of(bus)
    return queue_items(pages[0].queues, pages[0].used, jobs)


@command.command("create")
@click.argument("name")
@click.option("--weight", type=click.IntRange(1, 65535), default=1, show_default=True)
@click.option("--capability", metavar="RESOURCE=AMOUNT", multiple=True, help="Never more than this; may be repeated.")
@command_options
def create(ctx: Context, name: str, weight: int, capability: tuple[str, ...]) -> None:
    """Create or change the queue NAME.

    \b
    hbox queue create research --capability nvidia.com/gpu=8 --capability cpu=64
    """
    limits: dict[str, str] = {}
    for item in capability:
        resource, _, amount = item.partition("=")
        if not resource or not amount:
            raise InvalidRequest(f"--capability {item}: write it as RESOURCE=AMOUNT", hint="for example nvidia.com/gpu=8")
        request_units(resource, amount)
        limits[resource] = amount
    run(lambda: _apply(ctx, name, weight, limits))
    say(f"applied queue {name}")


async def _apply(ctx: Context, name: str, weight: int, limits: dict[str, str]) -> None:
    from hbox_common.kube import QUEUES, KubeClient, apply  # noqa: PLC0415  listing needs no Kubernetes

    manifest = {
        "apiVersion": f"{QUEUES.group}/{QUEUES.version}",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": weight, "capability": limits},
    }
    async with KubeClient.connect(Layout(ctx.state).running().kubeconfig, user_agent="hbox") as client:
        await apply(client, manifest, field_manager="hbox-cli")
