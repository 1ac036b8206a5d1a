"""Connecting: waiting for a broker, refusing bad addresses, ending where nothing helps; the streams and the embedded broker."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
import uvloop

from hbox_common.bus import Bus, EmbeddedServer, find_binary, write_config
from hbox_common.bus.connection import PING_S, PINGS
from hbox_common.bus.streams import LIMITS, config_of
from hbox_common.clock import monotonic_s
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import JobsWithdrawn, Stream
from hbox_common.ports import free_port

from ...waiting import until
from .bus_world import Reader, job, running


async def test_connecting_waits_for_a_broker_that_starts_later(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path / "nats", port=free_port())

    async def connect() -> bool:
        async with Bus.connect(server.url, name="early", instance="1") as bus:
            return bus.connected

    early = asyncio.ensure_future(connect())
    await asyncio.sleep(0.3)
    assert not early.done()
    async with server:
        assert await asyncio.wait_for(early, 5.0)


@pytest.mark.parametrize(
    "url", ["nats://127.0.0.1:port", "nats://127.0.0.1:99999999", "http://127.0.0.1:4222", "127.0.0.1", ""]
)
async def test_a_bad_address_is_said_to_be_one(url: str) -> None:
    with pytest.raises(InvalidRequest, match="no address"):
        async with asyncio.timeout(3), Bus.connect(url, name="x", instance="1"):
            pass


async def test_of_several_servers_one_that_is_there_is_used(server: EmbeddedServer) -> None:
    url = f"nats://127.0.0.1:{free_port()}, {server.url}"
    async with asyncio.timeout(5), Bus.connect(url, name="x", instance="1") as bus:
        assert bus.connected


async def test_a_broker_that_is_gone_without_a_word_is_noticed_and_found_again(server: EmbeddedServer) -> None:
    """As where packets are dropped: nothing comes, and nothing ends, also where the broker has given us up."""
    passing = asyncio.Event()
    passing.set()
    ways: set[asyncio.Task[None]] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if passing.is_set():
                writer.write(data)
        await passing.wait()

    async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ways.add(asyncio.current_task())  # type: ignore[arg-type]
        there, back = await asyncio.open_connection("127.0.0.1", server.port)
        sides = [asyncio.ensure_future(carry(reader, back)), asyncio.ensure_future(carry(there, writer))]
        await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
        for one in (writer, back):
            one.transport.abort()
        await asyncio.gather(*sides, return_exceptions=True)

    async with await asyncio.start_server(between, "127.0.0.1", 0) as way:
        url = f"nats://127.0.0.1:{way.sockets[0].getsockname()[1]}"
        async with asyncio.timeout(30), Bus.connect(url, name="x", instance="1") as bus:
            passing.clear()
            began = monotonic_s()
            await until(lambda: not bus.connected, "the loss")
            assert monotonic_s() - began < (PINGS + 1) * PING_S + 5.0
            passing.set()
            await until(lambda: bus.connected, "the broker again")
            await bus.publish(job("a"), "0")
        await asyncio.wait(ways)


async def test_a_wrong_password_is_said_at_once_and_not_tried_for_ever(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / "nats") as server:
        await restart_with_password(server, "right")
        url = server.url.replace("nats://", "nats://hbox:wrong@")
        with pytest.raises(InvalidRequest, match="refuses us") as raised:
            async with asyncio.timeout(5), Bus.connect(url, name="x", instance="1"):
                pass
        assert "wrong@" not in str(raised.value)
        async with asyncio.timeout(5), Bus.connect(url.replace("wrong", "right"), name="x", instance="1") as bus:
            await bus.publish(job("a"), "0")


async def test_a_connection_ended_for_good_ends_the_block(server: EmbeddedServer) -> None:
    async def talk_nonsense() -> None:
        async with asyncio.timeout(5), Bus.connect(server.url, name="x", instance="1") as bus:
            transport = bus._connection._client._transport
            assert transport is not None
            transport.write(b"NONSENSE\r\n")
            await asyncio.Event().wait()

    with pytest.raises(Unavailable, match="for good"):
        await talk_nonsense()


async def test_an_error_of_the_block_itself_leaves_it_as_it_is(server: EmbeddedServer) -> None:
    with pytest.raises(TimeoutError, match="mine"):
        async with Bus.connect(server.url, name="x", instance="1"):
            raise TimeoutError("mine")


async def test_a_read_loop_that_died_is_noticed_and_replaced_before_long(bus: Bus) -> None:
    assert bus._connection._client.options["ping_interval"] <= 10
    assert bus._connection._client.options["max_reconnect_attempts"] == -1


async def test_all_streams_are_made_as_the_table_says(bus: Bus) -> None:
    for stream in Stream:
        config = (await bus._connection.api(f"STREAM.INFO.{stream.value}"))["config"]
        wanted = config_of(stream)
        assert {key: config[key] for key in wanted} == wanted
        assert config["max_age"] == LIMITS[stream].max_age_s * 10**9


async def test_what_an_operator_tuned_stays_and_what_we_need_is_put_right(bus: Bus) -> None:
    config = (await bus._connection.api("STREAM.INFO.HBOX_JOBS"))["config"]
    tuned = config | {"max_age": 7 * 10**9, "subjects": [JobsWithdrawn.filter(), "hbox.v2.job.>"], "max_msg_size": 1000}
    await bus._connection.api("STREAM.UPDATE.HBOX_JOBS", tuned | {"duplicate_window": 5 * 10**9})
    await bus.ensure_streams()
    config = (await bus._connection.api("STREAM.INFO.HBOX_JOBS"))["config"]
    assert config["max_age"] == 7 * 10**9
    assert set(config["subjects"]) == {*config_of(Stream.JOBS)["subjects"], "hbox.v2.job.>"}
    assert config["max_msg_size"] == config_of(Stream.JOBS)["max_msg_size"]


async def test_many_processes_may_make_the_streams_at_once(server: EmbeddedServer) -> None:
    async def connect(i: int) -> None:
        async with Bus.connect(server.url, name=f"s{i}", instance="1") as bus:
            await bus.publish(job(str(i)), "0")

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        for i in range(8):
            tasks.create_task(connect(i))


async def test_a_stream_of_somebody_else_in_the_way_is_named(tmp_path: Path, server: EmbeddedServer) -> None:
    async with Bus.connect(server.url, name="x", instance="1", ensure=False) as bus:
        await bus._connection.api("STREAM.CREATE.OTHERS", {"name": "OTHERS", "subjects": ["hbox.v1.>"]})
    with pytest.raises(InvalidRequest, match="HBOX_STATE cannot be made"):
        async with asyncio.timeout(5), Bus.connect(server.url, name="x", instance="1"):
            pass


async def test_the_embedded_broker_writes_through_and_pins_what_would_break_us(tmp_path: Path) -> None:
    text = write_config(tmp_path / "with space", port=4222).read_text()
    assert "sync_interval: always" in text
    assert "js_ack_fc_v2: false" in text
    assert find_binary().name == "nats-server"


async def test_a_port_in_use_is_said_in_one_line(server: EmbeddedServer, tmp_path: Path) -> None:
    other = EmbeddedServer(tmp_path / "other", port=server.port)
    with pytest.raises(Unavailable, match="address already in use"):
        await other.start()


async def test_the_embedded_broker_ends_with_its_block(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / "nats") as server:
        pid = server.pid
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(Unavailable, match="not running"):
        _ = server.pid


async def test_readiness_follows_the_connection(bus: Bus, server: EmbeddedServer) -> None:
    assert bus.connected
    await server.kill()
    await until(lambda: not bus.connected)
    await server.start()
    await until(lambda: bus.connected)


async def test_closing_while_the_broker_is_away_takes_no_time(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / "nats") as server, asyncio.timeout(5):
        connect = Bus.connect(server.url, name="x", instance="1")
        async with connect as bus, running(bus.consume("reader", [JobsWithdrawn], Reader())):
            await server.kill()
            await until(lambda: not bus.connected)


async def restart_with_password(server: EmbeddedServer, password: str) -> None:
    """The same broker, now asking for a user."""
    await server.stop()
    config = server.folder / "nats.conf"
    config.write_text(config.read_text() + f"authorization {{ user: hbox, password: {json.dumps(password)} }}\n")
    await server._run(config)


def test_what_is_written_to_a_socket_that_is_closed_says_that_the_connection_is_lost(tmp_path: Path) -> None:
    """Between the end of the library's writer and its own notice that the broker is gone. uvloop raises a RuntimeError then."""

    async def write() -> None:
        async with EmbeddedServer(tmp_path / "nats") as server, Bus.connect(server.url, name="x", instance="1") as bus:
            client = bus._connection._client
            assert client._flusher_task is not None
            client._flusher_task.cancel()
            await asyncio.sleep(0)
            client._transport._io_writer.transport.abort()  # type: ignore[union-attr]
            with pytest.raises(Unavailable, match="no connection to the broker"):
                await bus._connection.send("inbox.nobody", b"lost")

    uvloop.run(write())


async def test_a_process_may_make_a_stream_just_after_another_one_made_all(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker checks the memory that it reserves for streams before it sees that the stream exists: there is none for the larger one twice."""
    async with (
        Bus.connect(server.url, name="early", instance="1") as early,
        Bus.connect(server.url, name="late", instance="1") as late,
    ):
        for stream in (Stream.JOBS, Stream.PLANS):
            await early._connection.api(f"STREAM.DELETE.{stream.value}")
        ask = late._connection.api

        async def slow(subject: str, *words: Any, **options: Any) -> Any:
            if subject == "STREAM.CREATE.HBOX_JOBS":
                await early.ensure_streams()
            return await ask(subject, *words, **options)

        monkeypatch.setattr(late._connection, "api", slow)
        await late.ensure_streams()
        assert (await early._connection.api("STREAM.INFO.HBOX_JOBS"))["config"]["name"] == "HBOX_JOBS"


async def test_a_broker_without_memory_for_a_stream_is_named(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path / "nats")
    async with server, Bus.connect(server.url, name="s", instance="1") as bus:
        for stream in (Stream.JOBS, Stream.PLANS):
            await bus._connection.api(f"STREAM.DELETE.{stream.value}")
        other = {"name": "OTHER", "subjects": ["other"], "storage": "memory", "max_bytes": 240 * 2**20}
        await bus._connection.api("STREAM.CREATE.OTHER", other)
        with pytest.raises(InvalidRequest, match="HBOX_JOBS cannot be made: JetStream: insufficient memory"):
            await bus.ensure_streams()
