"""A real broker and simple messages for the tests of the bus."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from hbox_common.bus import Bus, Delivery, Start
from hbox_common.events import DeadLetter, Event, JobsWithdrawn, NodeStateChanged, QueueRefused
from hbox_common.model import Generation, JobId, NodeName, NodeState, QueueName


def job(name: str) -> JobsWithdrawn:
    """A small message of a history; `name` tells it from others."""
    return JobsWithdrawn(jobs=(JobId(name),), revisions=(1,))


def lasting(name: str) -> QueueRefused:
    """As `job`, in a stream that outlives the broker."""
    return QueueRefused(queue=QueueName("q"), job=JobId(name), reason="r", message="m", at=0.0)


def node(name: str, generation: int) -> NodeStateChanged:
    """A small message of state."""
    return NodeStateChanged(node=NodeState(NodeName(name), "uid", Generation(generation), ready=True))


class Reader:
    """A handler that keeps what it is handed. `before` runs first and may raise."""

    def __init__(self, before: Callable[[Sequence[Delivery]], Awaitable[None]] | None = None) -> None:
        self.deliveries: list[Delivery] = []
        self.batches: list[int] = []
        self._before = before

    async def __call__(self, deliveries: Sequence[Delivery]) -> None:
        if self._before is not None:
            await self._before(deliveries)
        self.deliveries += deliveries
        self.batches.append(len(deliveries))

    @property
    def names(self) -> list[str]:
        """What `job` and `node` were given, in order of arrival; a node with its generation."""
        return [name_of(delivery.event) for delivery in self.deliveries]


def name_of(event: Event) -> str:
    if isinstance(event, JobsWithdrawn):
        return event.jobs[0]
    if isinstance(event, QueueRefused):
        return event.job
    assert isinstance(event, NodeStateChanged)
    return f"{event.node.name}@{event.node.generation}"


@asynccontextmanager
async def running(*work: Coroutine[Any, Any, Any]) -> AsyncIterator[list["asyncio.Task[Any]"]]:
    """The tasks of `work`, cancelled at the end of the block; what one raises ends it."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in work]
        yield tasks
        for task in tasks:
            task.cancel()


@asynccontextmanager
async def dead_letters(bus: Bus) -> AsyncIterator[list[DeadLetter]]:
    """All dead letters, those before included."""
    letters: list[DeadLetter] = []

    async def take(deliveries: Sequence[Delivery]) -> None:
        letters.extend(delivery.event for delivery in deliveries if isinstance(delivery.event, DeadLetter))

    async with running(bus.follow([DeadLetter], take, start=Start.ALL)):
        yield letters
