"""The longest turn of an event loop is measured, logged with what ran, and costs less than a hundredth of a core."""

import asyncio
import logging
import threading
import time

import pytest

from hbox_common.clock import processor_s, thread_s
from hbox_common.loops import new_event_loop
from hbox_common.runtime import Health, LoopTurns
from hbox_common.runtime import turns as module
from hbox_common.runtime.turns import BEAT_S, LONGEST, Window, functions_of


def compute(seconds: float) -> None:
    until = thread_s() + seconds
    while thread_s() < until:
        pass


def longest(clock: str) -> float:
    [metric] = LONGEST.collect()
    return next(sample.value for sample in metric.samples if sample.labels == {"clock": clock})


@pytest.fixture(params=[new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def runner(request: pytest.FixtureRequest) -> asyncio.Runner:
    return asyncio.Runner(loop_factory=request.param)


def test_a_turn_is_measured_by_both_clocks_and_never_too_short(runner: asyncio.Runner) -> None:
    async def work() -> tuple[LoopTurns, float, float]:
        async with LoopTurns("binder", limit_s=10.0) as turns:
            await asyncio.sleep(2 * BEAT_S)
            compute(0.15)
            await asyncio.sleep(2 * BEAT_S)
            return turns, longest("wall"), longest("processor")

    with runner:
        turns, wall, processor = runner.run(work())
    assert turns.longest_processor_s == processor
    assert 0.15 <= processor < 0.15 + 2 * BEAT_S
    assert wall == turns.longest_s >= 0.15


def test_a_turn_that_waits_uses_no_processor(runner: asyncio.Runner) -> None:
    async def work() -> LoopTurns:
        async with LoopTurns("binder", limit_s=10.0) as turns:
            await asyncio.sleep(2 * BEAT_S)
            time.sleep(0.15)  # noqa: ASYNC251  a disk that does not answer
            await asyncio.sleep(2 * BEAT_S)
            return turns

    with runner:
        turns = runner.run(work())
    assert turns.longest_s >= 0.15
    assert turns.longest_processor_s < 0.1


def test_work_in_slices_is_no_long_turn(runner: asyncio.Runner) -> None:
    async def work() -> LoopTurns:
        async with LoopTurns("binder", limit_s=10.0) as turns:
            for _ in range(20):
                compute(0.01)
                await asyncio.sleep(0)
            return turns

    with runner:
        assert runner.run(work()).longest_processor_s < 0.01 + 3 * BEAT_S


def test_a_long_turn_is_logged_with_service_stage_and_functions(
    runner: asyncio.Runner, caplog: pytest.LogCaptureFixture
) -> None:
    health = Health("binder")
    health.condition("bus").ok()
    health.condition("synced")

    async def work() -> None:
        async with LoopTurns("binder", limit_s=0.1, stage=lambda: health.stage):
            await asyncio.sleep(2 * BEAT_S)
            Health.report(_Slow("binder"))
            await asyncio.sleep(2 * BEAT_S)

    with runner, caplog.at_level(logging.INFO):
        runner.run(work())
    [record] = [record for record in caplog.records if "a turn of" in record.message]
    assert "a turn of binder took" in record.message
    assert "hbox_common.runtime.health.Health.report" in record.message
    assert record.stage == "not ready: synced"  # type: ignore[attr-defined]


class _Slow(Health):
    """Its report takes long."""

    @property
    def ready(self) -> bool:
        compute(0.2)
        return True


def test_a_turn_below_the_limit_is_not_logged(runner: asyncio.Runner, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with LoopTurns("binder", limit_s=5.0):
            compute(0.1)
            await asyncio.sleep(2 * BEAT_S)

    with runner, caplog.at_level(logging.INFO):
        runner.run(work())
    assert not [record for record in caplog.records if "a turn of" in record.message]


def test_repeated_long_turns_are_one_log_line(runner: asyncio.Runner, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with LoopTurns("binder", limit_s=0.02):
            for _ in range(4):
                compute(0.06)
                await asyncio.sleep(2 * BEAT_S)

    with runner, caplog.at_level(logging.INFO):
        runner.run(work())
    assert len([record for record in caplog.records if "a turn of" in record.message]) == 1


def test_the_longest_turn_is_forgotten_after_two_windows() -> None:
    window = Window(60.0)
    window.put(3.0, 10.0)
    window.put(1.0, 70.0)
    assert window.value(71.0) == 3.0  # clients that scrape once a minute see it
    assert window.value(121.0) == 1.0
    assert window.value(181.0) == 0.0
    window.put(2.0, 190.0)
    assert window.value(400.0) == 0.0


def test_the_thread_ends_with_the_context(runner: asyncio.Runner) -> None:
    async def work() -> None:
        async with LoopTurns("binder", limit_s=0.1):
            await asyncio.sleep(BEAT_S)

    with runner:
        runner.run(work())
    for thread in threading.enumerate():
        if thread.name == "turns":
            thread.join(1.0)
            assert not thread.is_alive()


def test_functions_of_other_libraries_are_left_out() -> None:
    assert functions_of(None) == ""


def test_the_measurement_costs_less_than_a_hundredth_of_a_busy_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared in processor time with the same loop without it; beats come a hundred times as often, so that the difference exceeds the noise."""
    beats = 0

    class Counted(LoopTurns):
        def _beat(self) -> None:
            nonlocal beats
            beats += 1
            super()._beat()

    async def idle(turns: LoopTurns | None) -> float:
        began = processor_s()
        if turns is None:
            await asyncio.sleep(1.0)
        else:
            async with turns:
                await asyncio.sleep(1.0)
        return processor_s() - began

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        without = runner.run(idle(None))
        monkeypatch.setattr(module, "BEAT_S", 0.002)
        used = runner.run(idle(Counted("binder", limit_s=0.1)))
    assert beats > 50
    beat_s = (used - without) / beats
    assert beat_s / BEAT_S < 0.01


def test_a_turn_that_waits_for_a_processor_is_not_logged(runner: asyncio.Runner, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with LoopTurns("binder", limit_s=0.1):
            time.sleep(0.3)  # noqa: ASYNC251  the turn is what is tested
            await asyncio.sleep(2 * BEAT_S)

    with runner, caplog.at_level(logging.INFO):
        runner.run(work())
    assert not [record for record in caplog.records if "a turn of" in record.message]
