import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hbox_jobs.core.queues import Burst, DueQueue, Meter


def test_a_newer_value_replaces_an_older_one_and_keeps_its_turn() -> None:
    queue: DueQueue[Any, Any] = DueQueue()
    queue.put("a", "old", 1.0)
    queue.put("b", "b", 2.0)
    queue.put("a", "new", 5.0)
    assert queue.next_due() == 1.0
    assert queue.take(0.9, 10) == []
    assert queue.take(2.0, 1) == ["new"]
    assert queue.take(2.0, 1) == ["b"]
    assert len(queue) == 0


def test_a_value_put_again_for_an_earlier_time_is_taken_then_and_once() -> None:
    queue: DueQueue[Any, Any] = DueQueue()
    queue.put("a", 1, 3.0)
    queue.put("a", 2, 1.0)
    assert queue.next_due() == 1.0
    assert queue.take(1.0, 10) == [2]
    assert queue.take(9.0, 10) == []
    assert queue.next_due() is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.booleans())))
def test_every_key_is_taken_with_its_newest_value_when_it_is_due(steps: Any) -> None:
    queue: DueQueue[int, int] = DueQueue()
    model: dict[int, tuple[int, int]] = {}
    for n, (key, due, take) in enumerate(steps):
        if take:
            got = queue.take(due, 100)
            assert sorted(got) == sorted(v for d, v in model.values() if d <= due)
            model = {k: (d, v) for k, (d, v) in model.items() if d > due}
        else:
            queue.put(key, n, due, "ab"[key % 2])
            model[key] = (min(due, model[key][0]) if key in model else due, n)
        assert len(queue) == len(model)
        assert queue.next_due() == min((d for d, _ in model.values()), default=None)


def test_reasons_of_a_flood_that_fall_due_together_go_in_turns_and_cost_no_more_a_call() -> None:
    def first_s(count: int) -> float:
        queue: DueQueue[int, int] = DueQueue()
        for i in range(count):
            queue.put(i, i, 1.0, "flood")
        queue.put(-1, -1, 1.5, "other")
        began = time.process_time()
        taken = queue.take(2.0, 2)
        took_s = time.process_time() - began
        assert -1 in taken, "of two the second is the other namespace's"
        return took_s

    assert first_s(100_000) < 50 * min(first_s(100) for _ in range(5)), "by the logarithm of what waits, not by its number"


def test_a_meter_counts_what_came_of_late_and_forgets_it() -> None:
    meter = Meter()
    for tenth in range(100):
        meter.count(20, tenth / 10)
    assert 180 < meter.per_s(9.9) < 220
    assert meter.per_s(15.0) < 2


def test_a_burst_lasts_through_the_gaps_between_its_clumps_and_ends() -> None:
    burst = Burst(120.0, 3.0)
    burst.count(50, 0.0)
    assert not burst.lasts(0.0)
    for clump in range(5):
        burst.count(200, 2.0 * clump)
        assert burst.lasts(2.0 * clump + 1.9)
    assert not burst.lasts(11.0)
