"""Connections of a command to the platform that runs in its state folder."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from hbox_common.bus import Access, Bus, Delivery, Start
from hbox_common.bus.users import OPERATOR
from hbox_common.clock import run_faster
from hbox_common.errors import Unavailable
from hbox_common.events import (
    Budget,
    ClaimsAsked,
    ClaimsPage,
    Event,
    EvictionReceipt,
    JobsAsked,
    JobsPage,
    Usage,
    UsageAsked,
    UsageKey,
    UsagePage,
)
from hbox_common.model import Job, JobId, PodFact

from .platform.layout import Running

CONNECT_S = 5.0
ASK_S = 10.0


@asynccontextmanager
async def bus_of(running: Running, user: str = OPERATOR) -> AsyncIterator[Bus]:
    """A connection to the platform's broker, with the key of this user. From then on this process uses the platform's clock. Raises Unavailable after 5 s."""
    if running.time_scale_since:
        run_faster(running.time_scale, running.time_scale_since)
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(CONNECT_S):
                connecting = Bus.connect(
                    running.nats_url,
                    name=OPERATOR,
                    instance=f"cli-{os.getpid()}",
                    access=Access(seed=running.nats_seed(user), ca=Path(running.nats_ca) if running.nats_ca else None),
                    ensure=False,
                )
                bus = await stack.enter_async_context(connecting)
        except TimeoutError as e:
            raise Unavailable(
                f"the broker at {running.nats_url} does not answer",
                hint="run `hbox check`; the broker's log is nats-server.log",
            ) from e
        yield bus


async def last_values(bus: Bus, types: Sequence[type[Event]]) -> list[Event]:
    """The last message of every subject of these types."""
    found: dict[str, Event] = {}
    ready = asyncio.Event()

    async def take(deliveries: Sequence[Delivery]) -> None:
        found.update((delivery.subject, delivery.event) for delivery in deliveries)

    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(bus.follow(types, take, start=Start.LAST_PER_SUBJECT, on_ready=ready.set))
        try:
            await asyncio.wait_for(ready.wait(), ASK_S)
        except TimeoutError as e:
            raise Unavailable(f"the broker did not hand out the state within {ASK_S:g} s", hint="hbox check") from e
        reading.cancel()
    return list(found.values())


async def jobs_of(bus: Bus) -> tuple[list[Job], list[PodFact], dict[JobId, str]]:
    """Jobs, pods with nodes, and why jobs wait, from job-controller."""
    pages = await job_pages(bus)
    return (
        [job for page in pages for job in page.jobs],
        [pod for page in pages for pod in page.pods],
        {verdict.job: verdict.message for page in pages for verdict in page.verdicts},
    )


async def job_pages(bus: Bus) -> list[JobsPage]:
    """All pages of job-controller's answer about jobs."""
    return await bus.ask(
        JobsAsked(asker="cli", jobs=True, pods=True, verdicts=True, held=True, waits=True), JobsPage, timeout_s=ASK_S
    )


async def usage_of(bus: Bus, by: Sequence[UsageKey], *, since: int, until: int) -> tuple[list[Usage], list[Budget]]:
    """The ledger's usage accounts of the hours that begin in [since, until), and the budgets of this month."""
    pages = await bus.ask(UsageAsked(asker="cli", by=tuple(by), since=since, until=until), UsagePage, timeout_s=ASK_S)
    return [row for page in pages for row in page.usage], [budget for page in pages for budget in page.budgets]


async def ledger_of(bus: Bus) -> ClaimsPage:
    """The ledger's epoch and index, and whether it takes plans and evictions."""
    [head] = await bus.ask(ClaimsAsked(asker="cli", head=True), ClaimsPage, timeout_s=ASK_S)
    return head


async def claims_of(bus: Bus) -> list[ClaimsPage]:
    """The ledger's live claims, in pages; the first has the queues."""
    return await bus.ask(ClaimsAsked(asker="cli"), ClaimsPage, timeout_s=ASK_S)


async def receipts_of(bus: Bus) -> list[EvictionReceipt]:
    """Receipts of evictions that the broker keeps, oldest first. Raises Unavailable."""
    found: list[EvictionReceipt] = []
    read = asyncio.Event()

    async def take(deliveries: Sequence[Delivery]) -> None:
        found.extend(d.event for d in deliveries if isinstance(d.event, EvictionReceipt))

    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(bus.follow([EvictionReceipt], take, start=Start.ALL, on_ready=read.set, writers_only=True))
        try:
            await asyncio.wait_for(read.wait(), ASK_S)
        except TimeoutError as e:
            raise Unavailable(f"the broker did not hand out the receipts within {ASK_S:g} s", hint="hbox check") from e
        reading.cancel()
    return found
