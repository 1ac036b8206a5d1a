"""Whoever is cancelled ends: also in the turn of the loop in which comes what it waited for, which `asyncio.wait_for` takes for a result before Python 3.12."""

import asyncio
import gc
import logging
import os
import signal
import socket
import subprocess
import sys

import pytest

from hbox_cli.aio import Interrupted, run
from hbox_common.errors import Unavailable
from hbox_common.loops import new_event_loop

#: A command that waits as nats-py does, for something that comes about when Ctrl-C does: some turns of the loop sooner or later.
INTERRUPTED = """
import asyncio, os, signal
from hbox_cli.aio import Interrupted, run

def command(turns):
    async def work():
        loop = asyncio.get_running_loop()
        comes = loop.create_future()

        def turn(left):
            loop.call_soon(turn, left - 1) if left else comes.set_result(None)

        def interrupt():
            os.kill(os.getpid(), signal.SIGINT)
            turn(turns)

        loop.call_soon(interrupt)
        await asyncio.wait_for(comes, 10.0)
        await asyncio.sleep(2.0)
    return work

for turns in range(6):
    try:
        run(command(turns))
        print("it went on")
    except Interrupted:
        print("it ended")
"""


def test_a_command_that_is_interrupted_as_an_answer_comes_does_not_go_on() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["it ended"] * 6


@pytest.mark.parametrize("later", range(6))
async def test_who_is_cancelled_at_any_moment_around_an_answer_ends(later: int) -> None:
    comes: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    waits = asyncio.create_task(asyncio.wait_for(comes, 10.0))
    await asyncio.sleep(0)
    comes.set_result("answer")
    for _ in range(later):
        await asyncio.sleep(0)
    if waits.cancel():
        with pytest.raises(asyncio.CancelledError):
            await waits
    else:
        assert waits.result() == "answer", "it was over before"


async def test_what_comes_in_time_is_handed_out_errors_too() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise Unavailable("away")

    assert await asyncio.wait_for(asyncio.sleep(0, "answer"), 10.0) == "answer"
    assert await asyncio.wait_for(asyncio.sleep(0, "answer"), None) == "answer"
    with pytest.raises(Unavailable):
        await asyncio.wait_for(fails(), 10.0)


async def test_what_does_not_come_in_time_is_cancelled() -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(never, 0.01)
    assert never.cancelled()


@pytest.mark.parametrize("limited", ["timeout", "wait_for"])
async def test_a_time_limit_of_what_cleans_up_after_a_cancellation_is_one(limited: str) -> None:
    """Before Python 3.11.4 the task was cancelled anew, and what it would have cleaned up next stayed."""
    done: list[str] = []

    async def never() -> None:
        if limited == "wait_for":
            await asyncio.wait_for(asyncio.sleep(60), 0.01)
        else:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            try:
                await never()
            except TimeoutError:
                done.append("the rest")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["the rest"]


async def test_who_is_cancelled_once_more_while_it_cleans_up_in_a_time_limit_is() -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            async with asyncio.timeout(30):
                await asyncio.sleep(60)

    task = asyncio.create_task(work())
    for _ in range(2):
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_second_signal_does_not_wait_for_what_cleans_up() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.sleep(60)
        finally:
            loop.call_soon(os.kill, os.getpid(), signal.SIGTERM)
            await asyncio.sleep(60)

    began = os.times().elapsed
    with pytest.raises(Interrupted):
        run(work)
    assert os.times().elapsed - began < 30


def test_abandoned_name_resolution_logs_no_error_and_other_errors_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """uvloop continues the name resolution of an abandoned connection and sets its error on a future that no task awaits."""

    async def give_up(error: Exception) -> None:
        asyncio.get_running_loop().create_future().set_exception(error)
        gc.collect()

    with asyncio.Runner(loop_factory=new_event_loop) as runner, caplog.at_level(logging.ERROR):
        runner.run(give_up(socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")))
        assert not caplog.records
        runner.run(give_up(ValueError("another error")))
    assert "another error" in caplog.text
