"""The last values of chosen subjects, and what was said of one since some time."""

import asyncio

import pytest

from hbox_common.bus import Bus
from hbox_common.errors import Unavailable
from hbox_common.events import JobPhase, JobPhaseChanged
from hbox_common.model import JobId, QueueName


def phase(job: str, phase: JobPhase) -> JobPhaseChanged:
    return JobPhaseChanged(
        job=JobId(job), namespace="ns", name=job, queue=QueueName("q.1"), phase=phase, members=1, bound=0, at=1.0
    )


async def said(bus: Bus, *phases: JobPhaseChanged) -> None:
    for one in phases:
        await bus.publish(one, one.phase.value, one.queue, one.job)


async def test_the_last_message_of_every_subject_that_matches_comes_in_the_order_of_the_stream(bus: Bus) -> None:
    await said(
        bus,
        phase("a", JobPhase.PENDING),
        phase("b", JobPhase.PENDING),
        phase("a", JobPhase.WAITING),
        phase("a", JobPhase.PENDING),
        phase("c", JobPhase.PENDING),
    )
    found = await bus.last(JobPhaseChanged, [(None, "q.1", "a"), (None, "q.1", "b"), (None, "q.1", "never")])
    assert [(d.event.job, d.event.phase) for d in found if isinstance(d.event, JobPhaseChanged)] == [
        ("b", "pending"),
        ("a", "waiting"),
        ("a", "pending"),
    ]


async def test_of_what_was_never_said_there_is_nothing(bus: Bus) -> None:
    assert await bus.last(JobPhaseChanged, [(None, "q.1", "never")]) == []


async def test_more_than_the_broker_tells_at_once_is_refused(bus: Bus) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(1100):
            tasks.create_task(said(bus, phase(f"j{number}", JobPhase.PENDING)))
    with pytest.raises(Unavailable, match="Too Many Results"):
        await bus.last(JobPhaseChanged, [(None, "q.1", None)])


async def test_keys_that_do_not_fit_the_subject_are_refused(bus: Bus) -> None:
    with pytest.raises(ValueError, match="takes"):
        await bus.last(JobPhaseChanged, [("q.1", None)])


async def test_what_was_said_since_then_comes_in_order_however_much_it_is(bus: Bus) -> None:
    await said(bus, phase("a", JobPhase.PENDING), phase("b", JobPhase.PENDING))
    [before] = await bus.last(JobPhaseChanged, [("pending", "q.1", "a")])
    for _ in range(1100):
        await said(bus, phase("a", JobPhase.PENDING))
    found = await bus.since(JobPhaseChanged, ("pending", "q.1", "a"), before.stored_at + 1e-6)
    assert len(found) == 1100
    assert [d.sequence for d in found] == sorted(d.sequence for d in found)
    assert found[0].sequence > before.sequence
    assert await bus.since(JobPhaseChanged, ("pending", "q.1", "never"), 0.0) == []
