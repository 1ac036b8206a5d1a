"""The sample subscribers of public events against a real broker that requires keys: killed and restarted, with repeated events, each keeps every event once."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hbox_common.brokerkeys import keep
from hbox_common.bus import Access, Bus, EmbeddedServer
from hbox_common.bus.users import ADMIN, consumer_of, events_of, read_only, users
from hbox_common.events import JobPlaced, JobPlacement, encode, headers
from hbox_common.model import JobId, QueueName

from ...waiting import until

SAMPLES = Path(__file__).parents[3] / "docs/samples/events"
READER, QUEUE = "sample", "ml"
BUILD_S = 300


def _run(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=BUILD_S, check=False)


def _fetch(*arguments: str, folder: Path) -> None:
    """Fetch a sample's libraries; without a package registry the test is skipped."""
    if shutil.which(arguments[0]) is None:
        pytest.skip(f"{arguments[0]} is not installed")
    done = _run(*arguments, folder=folder)
    if done.returncode:
        pytest.skip(f"{' '.join(arguments)}: {done.stderr.strip()[-300:]}")


def _build(*arguments: str, folder: Path) -> None:
    done = _run(*arguments, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr


def python(_: Path) -> list[str]:
    return [sys.executable, str(SAMPLES / "python/subscriber.py")]


def go(folder: Path) -> list[str]:
    _fetch("go", "mod", "download", folder=folder)
    _build("go", "build", "-o", "subscriber", ".", folder=folder)
    return [str(folder / "subscriber")]


def typescript(folder: Path) -> list[str]:
    _fetch("npm", "ci", "--no-audit", "--no-fund", folder=folder)
    _build("npm", "run", "build", folder=folder)
    return ["node", str(folder / "subscriber.js")]


@pytest.fixture(scope="module", params=[python, go, typescript], ids=lambda build: build.__name__)
def command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    build: Callable[[Path], list[str]] = request.param
    folder = tmp_path_factory.mktemp("sample") / build.__name__
    shutil.copytree(SAMPLES / build.__name__, folder)
    return build(folder)


def placed(number: int) -> JobPlaced:
    data = JobPlacement(job=JobId(f"j{number}"), namespace="n", name="train", queue=QueueName(QUEUE), attempt=1)
    return JobPlaced.of(data, at=float(number), id=f"j{number}.1.placed")


@dataclass
class World:
    server: EmbeddedServer
    bus: Bus
    env: dict[str, str]
    file: Path

    async def publish(self, numbers: range) -> None:
        for number in numbers:
            event = placed(number)
            await self.bus.publish(event, *event.keys)

    async def repeat(self, number: int) -> None:
        """The same event again, after the time in which the broker drops it."""
        event = placed(number)
        header = headers(event, source="", message_id=f"again-{number}", now=0.0)
        connection: Any = self.bus._connection
        await connection.request(event.subject(*event.keys), encode(event), headers=header, timeout_s=5.0)

    def kept(self) -> list[str]:
        return [json.loads(line)["id"] for line in self.file.read_text().splitlines()] if self.file.exists() else []


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    readers = {READER: read_only(READER, [QUEUE])}
    keys = keep(tmp_path / "users", (*users(), *readers))
    async with EmbeddedServer(tmp_path / "nats", keys=keys, readers=readers) as server:
        access = Access(seed=tmp_path / "users" / f"{ADMIN}.nk")
        async with Bus.connect(server.url, name=ADMIN, instance="1", access=access) as bus:
            env = {
                **os.environ,
                "NATS_URL": server.url,
                "NATS_NKEY": str(tmp_path / "users" / f"{READER}.nk"),
                "EVENTS_READER": READER,
                "EVENTS_CONSUMER": consumer_of(READER, QUEUE),
                "EVENTS_FILTER": events_of(QUEUE),
            }
            yield World(server, bus, env, tmp_path / "events.jsonl")


@asynccontextmanager
async def running(command: list[str], world: World) -> AsyncIterator[None]:
    """The subscriber as a process; killed (-9) in the end."""
    process = await asyncio.create_subprocess_exec(*command, str(world.file), env=world.env)
    try:
        yield
        assert process.returncode is None, f"it ended with {process.returncode}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_subscriber_that_is_killed_keeps_every_event_once(command: list[str], world: World) -> None:
    await world.publish(range(20))
    for first in (20, 60):  # killed while it receives
        async with running(command, world):
            before = len(world.kept())
            publishing = asyncio.create_task(world.publish(range(first, first + 40)))
            await until(lambda before=before: len(world.kept()) >= before + 15, timeout_s=60)  # type: ignore[misc]
        await publishing
    await world.repeat(3)
    await world.repeat(90)
    async with running(command, world):
        await world.publish(range(100, 105))
        await until(lambda: "j104.1.placed" in world.kept(), timeout_s=60)
    assert world.kept() == [f"j{number}.1.placed" for number in range(105)]


async def test_a_subscriber_continues_after_a_restart_of_the_broker(command: list[str], world: World) -> None:
    async with running(command, world):
        await world.publish(range(5))
        await until(lambda: len(world.kept()) == 5, timeout_s=60)
        await world.server.kill()
        await world.server.start()
        await world.publish(range(5, 10))
        await until(lambda: len(world.kept()) == 10, timeout_s=60)
    assert world.kept() == [f"j{number}.1.placed" for number in range(10)]


async def test_a_subscriber_receives_no_event_of_another_queue(command: list[str], world: World) -> None:
    data = JobPlacement(job=JobId("x"), namespace="n", name="secret", queue=QueueName("other"), attempt=1)
    foreign = JobPlaced.of(data, at=1.0, id="x.1.placed")
    await world.bus.publish(foreign, *foreign.keys)
    await world.publish(range(3))
    async with running(command, world):
        await until(lambda: len(world.kept()) >= 3, timeout_s=60)
    assert world.kept() == [f"j{number}.1.placed" for number in range(3)]
