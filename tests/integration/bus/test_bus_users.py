"""A closed broker, by nats-server itself: who may say, hear and change what. What is granted is held against the message registry, pair by pair."""

import asyncio
import json
import logging
import os
import secrets
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import nkeys
import pytest
from nats.aio.client import Client

from hbox_common.brokerkeys import keep, new_seed, public_key, read_seed, signature
from hbox_common.bus import Access, Bus, EmbeddedServer, connection
from hbox_common.bus.errors import NotPermitted
from hbox_common.bus.micro import inbox_of
from hbox_common.bus.server import write_config
from hbox_common.bus.users import (
    ADMIN,
    AGENT,
    DURABLES,
    OPERATOR,
    ORDERS,
    SERVICES,
    authorization,
    read_only,
    users,
)
from hbox_common.errors import InvalidRequest
from hbox_common.events import REGISTRY, ClaimsAsked, Event, HealthOrderAsked, HealthVerdict, JobsAsked, PlansProposed, Stream
from hbox_common.model import Epoch, Index, SchedulerId

from ...waiting import until
from .bus_world import job

EVERYBODY = (*SERVICES, OPERATOR)
STORED = [type_ for type_ in REGISTRY.values() if type_.about.stream is not None]
QUESTIONS = [type_ for type_ in REGISTRY.values() if "asker" in type_.model_fields]


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    return tmp_path / "users"


@pytest.fixture
async def closed(tmp_path: Path, seeds: Path) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(tmp_path / "nats", keys=keep(seeds, users())) as server:
        async with bus_as(server, seeds, ADMIN):
            pass  # who makes the streams
        yield server


def bus_as(server: EmbeddedServer, seeds: Path, user: str, *, ensure: bool = True) -> Any:
    return Bus.connect(server.url, name=user, instance="1", access=Access(seed=seeds / f"{user}.nk"), ensure=ensure)


@asynccontextmanager
async def client_as(server: EmbeddedServer, seed: Path) -> AsyncIterator[tuple[Client, list[str]]]:
    """A client of the library's own, and what the broker refused it."""
    refused: list[str] = []

    async def on_error(error: Exception) -> None:
        refused.append(str(error).lower())

    client = await nats.connect(server.url, nkeys_seed=str(seed), error_cb=on_error)
    try:
        yield client, refused
    finally:
        await client.close()


async def not_said(server: EmbeddedServer, seed: Path, subjects: Iterable[str]) -> set[str]:
    """Of these subjects those that the user may not publish on."""
    asked = list(subjects)
    async with client_as(server, seed) as (client, refused):
        for subject in asked:
            await client.publish(subject, b"{}")
        await client.flush()
        await asyncio.sleep(0.05)
    return {subject for subject in asked if any(f'for publish to "{subject.lower()}"' in said for said in refused)}


async def not_heard(server: EmbeddedServer, seed: Path, subjects: Iterable[str]) -> set[str]:
    """Of these subjects those that the user may not subscribe to."""
    asked = list(subjects)
    async with client_as(server, seed) as (client, refused):
        for subject in asked:
            await client.subscribe(subject)
        await client.flush()
        await asyncio.sleep(0.05)
    return {subject for subject in asked if any(f'for subscription to "{subject.lower()}"' in said for said in refused)}


def subject(type_: type[Event]) -> str:
    return type_.subject(*["0"] * type_.about.subject.count("{"))


@pytest.mark.parametrize("user", EVERYBODY)
async def test_a_message_is_said_by_its_writers_and_a_question_by_its_askers_alone(
    closed: EmbeddedServer, seeds: Path, user: str
) -> None:
    name = "cli" if user == OPERATOR else user
    every_service = set() if user == AGENT else {"all"}  # programs on nodes write no dead letters
    mine = {subject(t) for t in STORED if ({name} | every_service) & {*t.about.writers}}
    mine |= {subject(t) for t in QUESTIONS if name in t.about.writers}
    every = {subject(t) for t in (*STORED, *REGISTRY.values())}
    assert len(every) > 30
    assert await not_said(closed, seeds / f"{user}.nk", every) == every - mine


async def test_orders_to_health_monitor_need_a_key_of_their_own(closed: EmbeddedServer, seeds: Path) -> None:
    orders, read = HealthOrderAsked.subject(), ClaimsAsked.subject()
    assert await not_said(closed, seeds / f"{OPERATOR}.nk", {orders, read}) == {orders}
    assert await not_said(closed, seeds / f"{ORDERS}.nk", {orders, read}) == set()
    assert not await not_heard(closed, seeds / f"{ORDERS}.nk", [f"{inbox_of(OPERATOR)}.1.2"])
    forbidden = {subject(HealthVerdict), "$JS.API.STREAM.DELETE.HBOX_STATE"}
    assert await not_said(closed, seeds / f"{ORDERS}.nk", forbidden) == forbidden


@pytest.mark.parametrize("user", EVERYBODY)
async def test_questions_are_heard_by_who_answers_and_nothing_by_who_only_listens(
    closed: EmbeddedServer, seeds: Path, user: str
) -> None:
    asked = {t.subject() for t in QUESTIONS}
    mine = {t.subject() for t in QUESTIONS if user in t.about.readers}
    assert await not_heard(closed, seeds / f"{user}.nk", asked) == asked - mine
    all_of_it = {">", "hbox.>", "hbox.v1.>", "hbox.v1.job.>", "$JS.>", "$SYS.>", "_INBOX.>", "hbox.v1.api.>"}
    inboxes = {f"{inbox_of(other)}.>" for other in (*EVERYBODY, ADMIN) if other != user}
    assert await not_heard(closed, seeds / f"{user}.nk", all_of_it | inboxes) == all_of_it | inboxes
    assert not await not_heard(closed, seeds / f"{user}.nk", [f"{inbox_of(user)}.1.2"])


@pytest.mark.parametrize("user", EVERYBODY)
async def test_streams_and_the_consumers_of_others_are_nobodys_to_change(
    closed: EmbeddedServer, seeds: Path, user: str
) -> None:
    streams = {
        f"$JS.API.STREAM.{verb}.{stream}"
        for stream in Stream
        for verb in ("UPDATE", "DELETE", "PURGE", "MSG.DELETE", "MSG.GET", "SNAPSHOT", "RESTORE", "LEADER.STEPDOWN")
    }
    others = {
        f"$JS.API.CONSUMER.{verb}.{stream}.{durable}"
        for durable, (owner, stream) in DURABLES.items()
        for verb in ("CREATE", "DURABLE.CREATE", "INFO", "DELETE", "MSG.NEXT", "PAUSE")
        if owner != user
    }
    acknowledged = {f"$JS.ACK.{stream}.{durable}.1.2.3.4.5" for durable, (owner, stream) in DURABLES.items() if owner != user}
    names = {f"$JS.API.CONSUMER.{verb}.{stream}" for stream in Stream for verb in ("NAMES", "LIST")}
    made = {"$JS.API.STREAM.CREATE.MINE", "$JS.API.STREAM.NAMES", "$JS.API.ACCOUNT.PURGE.HBOX", "$SYS.REQ.SERVER.PING"}
    forbidden = streams | others | acknowledged | names | made
    assert await not_said(closed, seeds / f"{user}.nk", forbidden) == forbidden


async def test_what_a_service_may_read_is_not_pushed_to_where_it_may_not_speak(closed: EmbeddedServer, seeds: Path) -> None:
    """JetStream would publish to any subject that a consumer names for its deliveries."""
    config = {
        "name": "x",
        "deliver_subject": "hbox.v1.decision.evict.0",
        "ack_policy": "none",
        "filter_subject": "hbox.v1.queue.podgroups.*",
    }
    async with (
        client_as(closed, seeds / f"{ADMIN}.nk") as (admin, _),
        client_as(closed, seeds / "job-controller.nk") as (client, _),
    ):
        inbox = f"{inbox_of('job-controller')}.1"
        answer = await client.subscribe(inbox)
        body = json.dumps({"stream_name": Stream.STATE, "config": config}).encode()
        await client.publish(f"$JS.API.CONSUMER.CREATE.{Stream.STATE}.x", body, reply=inbox)
        assert b"error" not in (await answer.next_msg(5)).data
        await client.publish("hbox.v1.queue.podgroups.0", b"in another's name")
        await client.flush()
        await asyncio.sleep(1)
        stored = {
            stream: (await admin.jetstream().stream_info(stream)).state.messages for stream in (Stream.STATE, Stream.DECISIONS)
        }
        assert stored == {Stream.STATE: 1, Stream.DECISIONS: 0}


async def test_who_has_no_key_or_another_does_not_get_in(closed: EmbeddedServer, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.nk"
    stranger.write_text(new_seed())
    for access in (Access(), Access(seed=stranger)):
        with pytest.raises(InvalidRequest, match="refuses us"):
            async with asyncio.timeout(10), Bus.connect(closed.url, name="binder", instance="1", access=access):
                pass


async def test_a_renewed_key_lets_in_without_a_restart_whichever_side_has_it_first(
    closed: EmbeddedServer, seeds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "REFUSED_AGAIN_S", 0.1)
    seed = seeds / "binder.nk"
    async with bus_as(closed, seeds, "binder", ensure=False) as bus:
        for file_first in (True, False):
            before, renewed = bus.connections, new_seed()
            if file_first:
                seed.write_text(renewed)
            _reload(closed, keep(seeds, users()) | {"binder": public_key(renewed)})
            if not file_first:
                await until(lambda: not bus.connected, "the broker's refusal", timeout_s=10)
                seed.write_text("half a se")
                await asyncio.sleep(0.3)
                assert not bus.connected
                seed.write_text(renewed)
            await until(lambda: bus.connected and bus.connections > before, "a connection with the renewed key", timeout_s=10)  # noqa: B023


async def test_who_stays_refused_ends(closed: EmbeddedServer, seeds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REFUSED_AGAIN_S", 0.1)
    monkeypatch.setattr(connection, "REFUSED_S", 0.5)

    async def stay() -> None:
        async with asyncio.timeout(10), bus_as(closed, seeds, "binder", ensure=False):
            _reload(closed, keep(seeds, users()) | {"binder": public_key(new_seed())})
            await asyncio.Event().wait()

    with pytest.raises(InvalidRequest, match="refuses us"):
        await stay()


def _reload(server: EmbeddedServer, keys: dict[str, str]) -> None:
    """The running broker's users, as its administrator changes them."""
    write_config(server.folder, port=server.port, name=server._name, keys=keys)
    os.kill(server.pid, signal.SIGHUP)


@pytest.mark.parametrize(("content", "said"), [(None, "cannot be read"), ("SUABC", "not the seed"), ("", "not the seed")])
async def test_a_seed_that_is_none_is_said_to_be_so(
    closed: EmbeddedServer, tmp_path: Path, content: str | None, said: str
) -> None:
    path = tmp_path / "bad.nk"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidRequest, match=said):
        async with Bus.connect(closed.url, name="binder", instance="1", access=Access(seed=path)):
            pass


async def test_what_a_service_says_comes_to_whom_it_is_for(closed: EmbeddedServer, seeds: Path) -> None:
    came: asyncio.Queue[Event] = asyncio.Queue()

    async def take(deliveries: Any) -> None:
        for delivery in deliveries:
            came.put_nowait(delivery.event)

    async def answer(asked: JobsAsked) -> AsyncIterator[Event]:
        yield job("a")

    plans = PlansProposed(scheduler=SchedulerId("hbox"), epoch=Epoch(1), seen=Index(0), plans=())
    async with (
        bus_as(closed, seeds, "scheduler-core") as scheduler,
        bus_as(closed, seeds, "quota-ledger") as ledger,
        bus_as(closed, seeds, "job-controller") as jobs,
        asyncio.TaskGroup() as tasks,
    ):
        reading = [
            tasks.create_task(ledger.consume("quota-ledger-plans", [PlansProposed], take, writers_only=True)),
            tasks.create_task(jobs.serve(JobsAsked, answer)),
        ]
        await scheduler.publish(plans, "hbox")
        assert await asyncio.wait_for(came.get(), 10) == plans
        for asker in (scheduler, ledger):
            assert await asker.ask(JobsAsked(asker="test"), type(job("a")), timeout_s=10) == [job("a")]
        for task in reading:
            task.cancel()


async def test_what_may_not_be_said_is_told_at_once_and_not_tried_for_ever(closed: EmbeddedServer, seeds: Path) -> None:
    plans = PlansProposed(scheduler=SchedulerId("hbox"), epoch=Epoch(1), seen=Index(0), plans=())
    async with bus_as(closed, seeds, "binder") as bus:
        with pytest.raises(NotPermitted, match="does not let binder publish"):
            async with asyncio.timeout(5):
                await bus.publish(plans, "hbox", timeout_s=30)


async def test_a_stream_in_memory_is_made_again_by_services_and_one_that_differs_is_left_to_the_admin(
    closed: EmbeddedServer, seeds: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with bus_as(closed, seeds, "job-controller") as bus:
        await closed.kill()
        await closed.start()
        await bus.publish(job("a"), "0", timeout_s=20)
    async with client_as(closed, seeds / f"{ADMIN}.nk") as (client, _):
        info = await client.jetstream().stream_info(Stream.STATE)
        info.config.max_msgs_per_subject = 5
        await client.jetstream().update_stream(info.config)
    with caplog.at_level(logging.WARNING):
        async with asyncio.timeout(10), bus_as(closed, seeds, "binder"):
            assert "HBOX_STATE is not as it should be" in caplog.text
    async with bus_as(closed, seeds, ADMIN), client_as(closed, seeds / f"{ADMIN}.nk") as (client, _):
        assert (await client.jetstream().stream_info(Stream.STATE)).config.max_msgs_per_subject == 1


async def test_a_reader_of_one_queue_hears_of_that_queue_alone(tmp_path: Path) -> None:
    seeds = tmp_path / "users"
    keys = keep(seeds, (*users(), "dashboard"))
    async with EmbeddedServer(
        tmp_path / "nats", keys=keys, readers={"dashboard": read_only("dashboard", ["ml", "Vision"])}
    ) as server:
        heard = ["hbox.v1.job.phase.*.ml.*", "hbox.v1.quota.budget._56_ision", "_INBOX_dashboard.1"]
        others = ["hbox.v1.job.phase.*.*.*", "hbox.v1.quota.budget.other", "hbox.v1.node.state.*", ">", "_INBOX_binder.>"]
        assert await not_heard(server, seeds / "dashboard.nk", heard + others) == set(others)
        said = [subject(t) for t in STORED] + ["hbox.v1.api.quota-ledger.queues", "$JS.API.STREAM.INFO.HBOX_EVENTS", "anything"]
        assert await not_said(server, seeds / "dashboard.nk", said) == set(said)


def test_seeds_are_kept_are_nobody_elses_to_read_and_their_public_halves_alone_are_in_the_configuration(tmp_path: Path) -> None:
    first = keep(tmp_path / "users", users())
    again = keep(tmp_path / "users", users())
    assert first == again
    assert len(set(first.values())) == len(users())
    for user in users():
        path = tmp_path / "users" / f"{user}.nk"
        assert path.stat().st_mode & 0o077 == 0
        assert public_key(read_seed(path)) == first[user]
        assert read_seed(path) not in authorization(first)


def test_seeds_and_public_keys_are_written_as_nats_writes_them() -> None:
    for _ in range(50):
        seed = new_seed()
        theirs = nkeys.from_seed(bytearray(seed.encode()))
        assert theirs.public_key.decode() == public_key(seed)
        assert theirs.sign(b"nonce") == signature(seed, b"nonce")
    with pytest.raises(InvalidRequest, match="not the seed"):
        public_key(nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_ACCOUNT).decode())
    with pytest.raises(InvalidRequest, match="not the seed"):
        public_key(seed[:20] + ("A" if seed[20] != "A" else "B") + seed[21:])
