"""What a service answers to anybody: found, described and counted as NATS' own tools ask for it. The asking side is nats-py's own."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import nats
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.micro.service import ServiceInfo, ServicePing, ServiceStats
from pydantic import BaseModel, ConfigDict

from hbox_common.bus import Bus, EmbeddedServer, Endpoint
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import Event, JobsAsked, JobsPage

from ...waiting import until
from .bus_world import running

SUBJECT = "hbox.v1.api.test.double"


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")
    n: int = 21


class Said(BaseModel):
    n: int
    words: str = ""


class Other(BaseModel):
    m: int


async def double(asked: Asked) -> Said:
    if asked.n < 0:
        raise InvalidRequest("n: -1 is below zero", hint="say a number")
    if asked.n == 500:
        raise Unavailable("not now")
    if asked.n == 13:
        raise RuntimeError("a password")
    return Said(n=2 * asked.n, words="x" * (2**24 if asked.n == 2**24 else 0))


OFFERED = [Endpoint("double", "Twice a number", Asked, Said, double)]


@pytest.fixture
async def client(server: EmbeddedServer) -> AsyncIterator[Client]:
    client = await nats.connect(server.url)
    yield client
    await client.close()


async def found(client: Client, subject: str) -> Msg:
    """The answer of the service, once it listens."""
    async with asyncio.timeout(5):
        while True:
            try:
                return await client.request(subject, timeout=1)
            except nats.errors.NoRespondersError:
                await asyncio.sleep(0.01)


async def gone(client: Client, subject: str) -> None:
    """Once nobody listens there: the broker hears of that on another connection than ours, maybe a moment after it heard us."""
    async with asyncio.timeout(5):
        while True:
            try:
                await client.request(subject, timeout=0.2)
            except nats.errors.NoRespondersError:
                return
            except nats.errors.TimeoutError:  # it came to one who had just gone
                continue


async def test_a_service_is_found_described_and_counted_as_nats_asks_for_it(bus: Bus, client: Client) -> None:
    async def answer(_: JobsAsked) -> AsyncIterator[Event]:
        yield JobsPage(complete=True)

    async with running(bus.serve(JobsAsked, answer)), running(bus.offer(OFFERED, version="1.2.3", about="A test")):
        ping = ServicePing.from_dict(json.loads((await found(client, "$SRV.PING")).data))
        assert (ping.name, ping.version, ping.type) == ("hbox-test", "1.2.3", "io.nats.micro.v1.ping_response")
        for suffix in ("", ".hbox-test", f".hbox-test.{ping.id}"):
            info = ServiceInfo.from_dict(json.loads((await found(client, f"$SRV.INFO{suffix}")).data))
            assert info.id == ping.id
        assert info.description == "A test"
        [rpc, ours] = info.endpoints
        assert (ours.name, ours.subject, ours.queue_group) == ("double", SUBJECT, "")
        assert (rpc.name, rpc.subject) == ("list", "hbox.v1.rpc.jobs.list")
        assert "msgpack" in rpc.metadata["format"]

        for body in (b"", b'{"n": 4}', b'{"n": -1}'):
            await client.request(SUBJECT, body)
        await bus.ask(JobsAsked(asker="me"), JobsPage)
        stats = ServiceStats.from_dict(json.loads((await found(client, "$SRV.STATS.hbox-test")).data))
        [rpc_counts, counts] = stats.endpoints
        assert (counts.num_requests, counts.num_errors) == (3, 1)
        assert counts.processing_time >= 3 * counts.average_processing_time > 0
        assert counts.last_error == "400:double: n: -1 is below zero (say a number)"
        assert (rpc_counts.num_requests, rpc_counts.num_errors) == (1, 0)
    await gone(client, "$SRV.PING")


async def test_what_comes_in_and_goes_out_is_as_the_published_schemas_say(bus: Bus, client: Client) -> None:
    async with running(bus.offer(OFFERED, version="1.0.0", about="")):
        info = json.loads((await found(client, "$SRV.INFO")).data)
        schemas = {name: json.loads(info["endpoints"][0]["metadata"][name]) for name in ("request", "response")}
        for schema in schemas.values():
            Draft202012Validator.check_schema(schema)
        asked: dict[str, Any] = {"n": 3}
        Draft202012Validator(schemas["request"]).validate(asked)
        said = json.loads((await client.request(SUBJECT, json.dumps(asked).encode())).data)
        Draft202012Validator(schemas["response"]).validate(said)
        assert said["n"] == 6


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"{", "400", "double: Invalid JSON"),
        (b"[]", "400", "double: Input should be an object"),
        (b'{"n": "many"}', "400", "double: n: Input should be a valid integer"),
        (b'{"m": 1}', "400", "double: m: Extra inputs are not permitted"),
        (b'{"n": -1}', "400", "double: n: -1 is below zero (say a number)"),
        (b'{"n": 500}', "503", "double: not now"),
        (b'{"n": 13}', "500", "double: RuntimeError; see the log of test"),
        (b'{"n": 16777216}', "413", "bytes, the broker takes 8454144; ask for less"),
    ],
)
async def test_what_cannot_be_answered_says_why_in_the_headers_of_nats(
    bus: Bus, client: Client, body: bytes, code: str, words: str
) -> None:
    async with running(bus.offer(OFFERED, version="1.0.0", about="")):
        await found(client, "$SRV.PING")
        answer = await client.request(SUBJECT, body)
        assert answer.data == b""
        assert answer.headers is not None
        assert answer.headers["Nats-Service-Error-Code"] == code
        assert words in answer.headers["Nats-Service-Error"]
        assert "password" not in answer.headers["Nats-Service-Error"]
        again = await client.request(SUBJECT, b'{"n": 1}')
        assert json.loads(again.data) == {"n": 2, "words": ""}


async def test_more_than_can_wait_are_told_to_come_again_and_the_service_is_found_meanwhile(bus: Bus, client: Client) -> None:
    held = asyncio.Event()

    async def slowly(asked: Asked) -> Said:
        await held.wait()
        return Said(n=asked.n)

    async with running(bus.offer([Endpoint("double", "", Asked, Said, slowly)], version="1.0.0", about="")):
        await found(client, "$SRV.PING")
        asking = [asyncio.create_task(client.request(SUBJECT, timeout=10)) for _ in range(80)]
        await asyncio.sleep(0.2)
        await found(client, "$SRV.PING")
        held.set()
        answers = await asyncio.gather(*asking)
    refused = [answer for answer in answers if answer.headers]
    assert {answer.headers["Nats-Service-Error-Code"] for answer in refused if answer.headers} == {"503"}
    assert 0 < len(refused) <= 80 - 64


async def test_a_service_is_found_again_when_the_broker_comes_back(server: EmbeddedServer, bus: Bus) -> None:
    async with running(bus.offer(OFFERED, version="1.0.0", about="")):
        for _ in range(2):
            client = await nats.connect(server.url)
            assert json.loads((await found(client, SUBJECT)).data)["n"] == 42
            await client.close()
            await server.kill()
            await server.start()


async def test_services_and_commands_ask_as_everybody_does(bus: Bus) -> None:
    with pytest.raises(Unavailable, match="test does not answer: no process serves double"):
        await bus.call("test", "double", Asked(n=1), Said)
    async with running(bus.offer(OFFERED, version="1.0.0", about="")):
        async with asyncio.timeout(5):
            while True:
                try:
                    assert (await bus.call("test", "double", Asked(n=4), Said)).n == 8
                    break
                except Unavailable:  # it does not listen yet
                    await asyncio.sleep(0.01)
        with pytest.raises(InvalidRequest, match="-1 is below zero"):
            await bus.call("test", "double", Asked(n=-1), Said)
        with pytest.raises(Unavailable, match="test: double: RuntimeError"):
            await bus.call("test", "double", Asked(n=13), Said)
        with pytest.raises(Unavailable, match="something else than was asked for"):
            await bus.call("test", "double", Asked(n=4), Other)


async def test_who_is_not_answered_in_time_is_told_so(bus: Bus, server: EmbeddedServer) -> None:
    """In the errors of the house: a TimeoutError says neither who nor what."""
    asked = asyncio.Event()

    async def never(_: Asked) -> Said:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with running(bus.offer([Endpoint("double", "", Asked, Said, never)], version="1.0.0", about="")):
        await asyncio.sleep(0.2)
        with pytest.raises(Unavailable, match="no answer on"):
            await bus.call("test", "double", Asked(n=1), Said, timeout_s=0.3)
        assert asked.is_set()
    await server.kill()
    await until(lambda: not bus.connected)
    with pytest.raises(Unavailable, match="broker"):
        await bus.call("test", "double", Asked(n=1), Said, timeout_s=0.3)
