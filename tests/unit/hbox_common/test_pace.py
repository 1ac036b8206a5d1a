"""How much of a long work is done in one turn."""

import asyncio
from itertools import pairwise

import pytest

from hbox_common import pace
from hbox_common.pace import DECIDE_S, HOLD_S, LEAST, MOST, Pace, in_slices


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(pace, "monotonic_s", made)
    return made


def run(clock: Clock, items: range, *, each_s: float, commit_s: float = 0.0) -> list[int]:
    """How many items each turn took, all of them together being `items` in order."""
    paced, first, sizes = Pace(), 0, []
    done: list[int] = []
    while first < len(items):
        with paced.slice(items, first) as some:
            for item in some:
                done.append(item)
                clock.now += each_s
            clock.now += commit_s
        assert list(some.taken) == done[first:]
        first += len(some.taken)
        sizes.append(len(some.taken))
    assert done == list(items)
    return sizes


def test_a_quick_machine_takes_more_at_a_time_up_to_a_count(clock: Clock) -> None:
    sizes = run(clock, range(10 * MOST), each_s=0.0)
    assert sizes[:4] == [LEAST, 2 * LEAST, 4 * LEAST, MOST]
    assert max(sizes) == MOST


def test_deciding_stops_when_its_time_is_over(clock: Clock) -> None:
    each_s = DECIDE_S / 100
    sizes = run(clock, range(5000), each_s=each_s)
    assert max(sizes) <= 101


def test_a_slow_commit_makes_slices_small_but_not_smaller_than_what_it_costs_anyway(clock: Clock) -> None:
    assert set(run(clock, range(1000), each_s=0.0, commit_s=2 * HOLD_S)[:-1]) == {LEAST}


def test_items_that_take_long_each_are_taken_nevertheless(clock: Clock) -> None:
    assert run(clock, range(2 * LEAST), each_s=DECIDE_S) == [LEAST, LEAST]


async def test_work_in_slices_lets_other_tasks_run_in_between() -> None:
    done: list[int] = []
    seen: list[int] = []

    async def watch() -> None:
        while len(done) < 10 * MOST:
            seen.append(len(done))
            await asyncio.sleep(0)

    watching = asyncio.ensure_future(watch())
    await asyncio.sleep(0)
    await in_slices(range(10 * MOST), done.extend)
    await watching
    assert done == [*range(10 * MOST)]
    assert len(set(seen)) >= 10
    assert max(later - earlier for earlier, later in pairwise(seen)) <= MOST


async def test_work_that_takes_no_item_ends() -> None:
    calls: list[object] = []
    async with asyncio.timeout(5.0):
        await in_slices([1, 2, 3], calls.append)
    assert len(calls) == 1
