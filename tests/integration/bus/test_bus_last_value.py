"""node-remedy's user of a closed broker: it reads the decisions about its node, without a consumer, and publishes their results; nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hbox_common.brokerkeys import keep
from hbox_common.bus import Access, Bus, Delivery, EmbeddedServer
from hbox_common.bus.errors import NotPermitted
from hbox_common.bus.users import ADMIN, REMEDY, remedy_of, remedy_user, users
from hbox_common.errors import Unavailable
from hbox_common.events import RemediesDecided, RemedyObserved, Stream
from hbox_common.model import NodeName
from hbox_common.model.remedy import Decision, Outcome, Verb

from ...waiting import until

USER = remedy_user("n1")
DECISION = Decision("i1", "node", Verb.REBOOT, 1, 2e9)


def decided(node: str, *decisions: Decision, boot_id: str = "b1") -> RemediesDecided:
    return RemediesDecided(node=NodeName(node), boot_id=boot_id, decisions=decisions)


def observed(node: str) -> RemedyObserved:
    return RemedyObserved(node=NodeName(node), boot_id="b1", decision=DECISION, outcome=Outcome.DONE)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    others = {USER: remedy_of("n1")}
    async with EmbeddedServer(tmp_path / "nats", keys=keep(tmp_path / "users", (*users(), *others)), readers=others) as running:
        yield running


@pytest.fixture
async def monitor(server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Bus]:
    async with connected(server, tmp_path, ADMIN) as bus:
        yield bus


@asynccontextmanager
async def connected(server: EmbeddedServer, folder: Path, user: str) -> AsyncIterator[Bus]:
    access = Access(seed=folder / "users" / f"{user}.nk")
    name = REMEDY if user == USER else user
    async with Bus.connect(server.url, name=name, instance="1", access=access, user=user, ensure=user == ADMIN) as bus:
        yield bus


async def test_node_remedy_reads_its_nodes_decisions_and_publishes_its_nodes_results_only(
    server: EmbeddedServer, monitor: Bus, tmp_path: Path
) -> None:
    found: list[Delivery | None] = []

    async def handle(delivery: Delivery | None) -> None:
        found.append(delivery)

    async with connected(server, tmp_path, USER) as bus, asyncio.TaskGroup() as tasks:
        following = tasks.create_task(bus.follow_last(RemediesDecided, "n1", handle=handle, every_s=60))
        await until(lambda: found == [None])
        await monitor.publish(decided("n2", DECISION), "n2")
        await monitor.publish(decided("n1", DECISION), "n1")
        await until(lambda: len(found) > 1)
        assert [one and one.event for one in found] == [None, decided("n1", DECISION)]
        await bus.publish(observed("n1"), "n1")
        [stored] = await monitor.last(RemedyObserved, [(None,)])
        assert (stored.event, stored.source) == (observed("n1"), f"/hbox/{REMEDY}/1")
        for foreign, key in ((observed("n2"), "n2"), (decided("n1"), "n1")):
            with pytest.raises(NotPermitted):
                await bus.publish(foreign, key, timeout_s=2)
        with pytest.raises((NotPermitted, Unavailable)):
            await bus.last(RemediesDecided, [("n2",)], timeout_s=1)
        with pytest.raises(NotPermitted):
            await bus._connection.request(f"$JS.API.DIRECT.GET.{Stream.STATE}.{RemediesDecided.subject('n2')}", timeout_s=2)
        following.cancel()


async def test_an_unchanged_last_message_is_handled_once(server: EmbeddedServer, monitor: Bus, tmp_path: Path) -> None:
    found: list[Delivery | None] = []

    async def handle(delivery: Delivery | None) -> None:
        found.append(delivery)

    await monitor.publish(decided("n1", DECISION), "n1")
    async with connected(server, tmp_path, USER) as bus, asyncio.TaskGroup() as tasks:
        following = tasks.create_task(bus.follow_last(RemediesDecided, "n1", handle=handle, every_s=0.3))
        await until(lambda: len(found) == 1)
        await asyncio.sleep(1.0)  # three readings
        assert [one and one.event for one in found] == [decided("n1", DECISION)], "an unchanged message is handled once"
        following.cancel()


async def test_an_unreadable_last_message_is_skipped(
    server: EmbeddedServer, monitor: Bus, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found: list[Delivery | None] = []

    async def handle(delivery: Delivery | None) -> None:
        found.append(delivery)

    await monitor.publish_raw(RemediesDecided, b"\xc1", "n1", message_id="m")
    async with connected(server, tmp_path, USER) as bus, asyncio.TaskGroup() as tasks:
        following = tasks.create_task(bus.follow_last(RemediesDecided, "n1", handle=handle, every_s=60))
        await until(lambda: "is not readable" in caplog.text)
        await monitor.publish(decided("n1"), "n1")
        await until(lambda: len(found) == 1)
        assert found[0] is not None
        assert found[0].event == decided("n1")
        following.cancel()
