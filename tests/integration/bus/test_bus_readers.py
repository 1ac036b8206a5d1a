"""Readers of single queues ask micro services on a closed broker, by nats-server itself: each about its own queues, into its own inbox, and nothing else."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from pydantic import BaseModel

from hbox_common.brokerkeys import keep
from hbox_common.bus import Access, Bus, EmbeddedServer, Endpoint
from hbox_common.bus.micro import PREFIX, inbox_of, reader_subject
from hbox_common.bus.users import AGENT, ANSWERS_READERS, OPERATOR, read_only, users
from hbox_common.bus.users import SERVICES as ALL_SERVICES
from hbox_common.events import token_of

#: Programs on nodes answer no requests.
SERVICES = tuple(user for user in ALL_SERVICES if user != AGENT)
READERS = {"grafana": ["ml", "Vision"], "slurm": ["batch"]}
QUEUES = ["ml", "Vision", "batch", "secret"]


class Question(BaseModel):
    words: str = ""


class Answer(BaseModel):
    about: str


async def all_of_it(_: Question) -> Answer:
    return Answer(about="everybody")


async def of_one(_: Question, token: str) -> Answer:
    return Answer(about=token)


ENDPOINTS = (
    Endpoint("queues", "Told to readers too", Question, Answer, all_of_it, of_one),
    Endpoint("dry-run", "Not told to readers", Question, Answer, all_of_it),
)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    others = {name: read_only(name, queues) for name, queues in READERS.items()}
    keys = keep(tmp_path / "users", (*users(), *others))
    async with EmbeddedServer(tmp_path / "nats", keys=keys, readers=others) as running:
        yield running


@pytest.fixture
async def services(server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[None]:
    """All services, as if each had both endpoints."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_serve(server, tmp_path, name)) for name in SERVICES]
        async with Bus.connect(
            server.url, name=OPERATOR, instance="1", access=_access(tmp_path, OPERATOR), ensure=False
        ) as bus:
            for name in SERVICES:
                await _answering(bus, name)
            yield
        for task in tasks:
            task.cancel()


async def _serve(server: EmbeddedServer, folder: Path, name: str) -> None:
    async with Bus.connect(server.url, name=name, instance="1", access=_access(folder, name), ensure=False) as bus:
        await bus.offer(ENDPOINTS, version="1", about="test")


async def _answering(bus: Bus, name: str) -> None:
    async with asyncio.timeout(10):
        while True:
            with suppress(Exception):
                assert (await bus.call(name, "dry-run", Question(), Answer)).about == "everybody"
                return
            await asyncio.sleep(0.05)


def _access(folder: Path, user: str) -> Access:
    return Access(seed=folder / "users" / f"{user}.nk")


class Reader:
    def __init__(self, client: Client, refused: list[str]) -> None:
        self.client, self.refused = client, refused

    async def ask(self, subject: str) -> str:
        """What the answer is about; "refused" by the broker, "nobody" listens, "silence"."""
        before = len(self.refused)
        try:
            answer = await self.client.request(subject, b"{}", timeout=0.3)
        except NoRespondersError:
            return "nobody"
        except (TimeoutError, nats.errors.TimeoutError):
            return "refused" if any(subject.lower() in said for said in self.refused[before:]) else "silence"
        return str(json.loads(answer.data)["about"])


async def reader(server: EmbeddedServer, folder: Path, name: str, *, inbox: str = "") -> Reader:
    refused: list[str] = []

    async def on_error(error: Exception) -> None:
        refused.append(str(error).lower())

    prefix = (inbox or inbox_of(name)).encode()
    client = await nats.connect(
        server.url, nkeys_seed=str(folder / "users" / f"{name}.nk"), inbox_prefix=prefix, error_cb=on_error
    )
    return Reader(client, refused)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.usefixtures("services")
async def test_a_reader_asks_about_its_own_queues_and_in_its_own_name(
    server: EmbeddedServer, tmp_path: Path, name: str, service: str
) -> None:
    one = await reader(server, tmp_path, name)
    for endpoint in ("queues", "dry-run"):
        assert await one.ask(f"{PREFIX}.{service}.{endpoint}") == "refused"
        for other in READERS:
            for queue in QUEUES:
                said = await one.ask(reader_subject(service, endpoint, queue, other))
                if other != name or queue not in READERS[name]:
                    assert said == "refused"
                elif endpoint == "dry-run":
                    assert said == "nobody"
                else:
                    assert said == (token_of(queue) if service in ANSWERS_READERS else "silence")
    for wild in ("of.*.*", f"of.>.{name}", f"of.ml.{name}.more", "of"):
        assert await one.ask(f"{PREFIX}.{service}.queues.{wild}") in ("refused", "silence", "nobody")
    await one.client.close()


@pytest.mark.usefixtures("services")
async def test_an_answer_goes_to_the_readers_own_inbox_or_nowhere(server: EmbeddedServer, tmp_path: Path) -> None:
    """Else a service would say in its own name, where the reader may not speak, what the reader makes it say."""
    one, other = await reader(server, tmp_path, "grafana"), await reader(server, tmp_path, "slurm")
    heard: list[str] = []

    async def hear(message: object) -> None:
        heard.append(getattr(message, "subject", ""))

    await other.client.subscribe(f"{inbox_of('slurm')}.>", cb=hear)
    await other.client.flush()
    subject = reader_subject("quota-ledger", "queues", "ml", "grafana")
    async with Bus.connect(server.url, name="admin", instance="1", access=_access(tmp_path, "admin"), ensure=False) as admin:
        await admin._connection.subscribe("hbox.v1.plan.>", hear)
        await admin._connection.flush()
        for reply in (
            f"{inbox_of('slurm')}.x",
            "hbox.v1.plan.result.s1",
            f"{inbox_of('scheduler-core')}.x",
            f"{inbox_of('grafana')}x.y",
        ):
            await one.client.publish(subject, b"{}", reply=reply)
        assert await one.ask(subject) == "ml"  # behind them, and the service answers in order of their coming
        await admin._connection.flush()
    await other.client.flush()
    assert heard == []
    await one.client.close()
    await other.client.close()
