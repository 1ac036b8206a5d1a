"""Between the turns of one task of scheduler-core other tasks call the core, each with a guard of its own."""

import asyncio
import signal
from contextlib import suppress
from itertools import pairwise
from typing import cast

import pytest

from hbox_common.bus import Bus
from hbox_common.runtime import Health
from hbox_scheduler import app
from hbox_scheduler.api import DefragmentationAnswer
from hbox_scheduler.app import SchedulerService
from hbox_scheduler.core.reports import MovesPreview
from hbox_scheduler.settings import SchedulerSettings


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> SchedulerService:
    monkeypatch.setattr(app, "calm_collector", lambda: None)
    one = SchedulerService(SchedulerSettings(instance="one"), Health("scheduler-core"), cast("Bus", None))
    one._feeds.state_read = one._feeds.jobs_read = one._feeds.claims_read = True
    return one


async def turns(count: int = 50) -> list[float]:
    """Seconds that the guard of another task leaves to this one; 0 = there is no guard."""
    found = []
    for _ in range(count):
        await asyncio.sleep(0)
        found.append(signal.getitimer(signal.ITIMER_VIRTUAL)[0])
    return found


async def test_no_guard_is_held_between_slices_of_counted_claims(
    service: SchedulerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded: list[float] = []

    def advance() -> bool:
        guarded.append(signal.getitimer(signal.ITIMER_VIRTUAL)[0])
        return True

    monkeypatch.setattr(service.scheduler, "advance", advance)
    service._wake.set()
    planning = asyncio.create_task(service._plan())
    left = await turns()
    planning.cancel()
    with suppress(asyncio.CancelledError):
        await planning
    assert len(guarded) > 10
    assert all(guarded), "each slice has a guard"
    assert not any(left)


async def test_preview_of_moves_leaves_turns_to_other_tasks(service: SchedulerService, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def advance(_: MovesPreview, __: float) -> bool:
        calls.append("search")
        return calls.count("search") < 5

    async def other() -> None:
        while True:
            calls.append("other")
            await asyncio.sleep(0)

    monkeypatch.setattr(MovesPreview, "advance", advance)
    others = asyncio.create_task(other())
    await service._defragmentation()
    others.cancel()
    searches = [place for place, call in enumerate(calls) if call == "search"]
    assert all("other" in calls[a:b] for a, b in pairwise(searches))


async def test_two_requests_at_once_share_one_preview(service: SchedulerService, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[MovesPreview] = []
    preview_moves = service.scheduler.reports.preview_moves

    def preview() -> MovesPreview:
        begun.append(preview_moves())
        return begun[-1]

    monkeypatch.setattr(service.scheduler.reports, "preview_moves", preview)
    answers: list[DefragmentationAnswer] = await asyncio.gather(*(service._defragmentation() for _ in range(3)))
    assert len(begun) == 1
    assert answers[0] is answers[1] is answers[2]
