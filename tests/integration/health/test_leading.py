"""Of several health-monitors one writes: what a leader decides that was paused for longer than its lease is neither stored nor published."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from hbox_common.bus import Delivery
from hbox_common.errors import Conflict, Unavailable
from hbox_common.events import DeviceErrorSeen, IncidentChanged
from hbox_common.model import Incident, IncidentState, JobId, NodeName
from hbox_common.runtime import Health
from hbox_common.store import Store
from hbox_health import metrics
from hbox_health.adapters import outbox as outboxes
from hbox_health.adapters import tables
from hbox_health.adapters.incidentstore import IncidentStore
from hbox_health.adapters.outbox import Outbox
from hbox_health.app import run
from hbox_health.core.judge.memory import Memory, NodeMemory
from hbox_health.settings import HealthSettings

from ...waiting import until
from .conftest import HealthWorld
from .test_judging import SICK, Agent, card, listening

NOTICE = DeviceErrorSeen(
    node=NodeName("n1"), incident="i1", pod="lab/p", job=JobId("lab/p"), card="gpu:G", code="79", message="lost", at=5.0
)  # fmt: skip


def incident(id_: str, changed: float = 1.0) -> Incident:
    return Incident(
        id_, NodeName("n1"), "gpu:G", "lost", "79", IncidentState.CLOSED, "fatal-gpu", "hardware", "gpu", "reboot", 1.0, changed
    )  # fmt: skip


def opened(folder: Path) -> AbstractAsyncContextManager[Store]:
    return Store.open(
        f"sqlite:///{folder}/health.db", metadata=tables.metadata, versions=tables.VERSIONS, exclusive=False
    )  # fmt: skip


async def test_a_leader_that_was_replaced_changes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as first, opened(tmp_path) as second:
        old, new = IncidentStore(first), IncidentStore(second)
        await old.begin()
        await old.save(Memory(nodes={"n1": NodeMemory(boot_id="b1")}), {"n1"}, [incident("i1")], notices=[NOTICE])
        await old.confirm()
        await new.begin()
        for late in (
            old.save(Memory(nodes={"n1": NodeMemory(boot_id="b2")}), {"n1"}, [incident("i2")], published=[NOTICE.own_id]),
            old.forget(before=10.0),
            old.confirm(),
        ):
            with pytest.raises(Conflict, match="taken over"):
                await late
        memory, found = await new.load(since=0.0)
        assert (memory.nodes["n1"].boot_id, [one.id for one in found]) == ("b1", ["i1"])
        assert await new.notices() == [NOTICE]
        await new.save(memory, (), (), published=[NOTICE.own_id])
        assert await new.notices() == []


async def test_a_process_that_began_again_leads(tmp_path: Path) -> None:
    async with opened(tmp_path) as first:
        for _ in range(2):
            store = IncidentStore(first)
            await store.begin()
            await store.save(Memory(), {""}, ())
            await store.confirm()


async def test_a_leader_that_was_replaced_publishes_nothing(world: HealthWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outbox has a message from before the pause."""
    monkeypatch.setattr(outboxes, "CONFIRM_S", 0.0)
    async with opened(world.folder) as first, opened(world.folder) as second, listening(world.bus) as seen:
        old, new = IncidentStore(first), IncidentStore(second)
        await old.begin()
        outbox = Outbox(world.bus, old.confirm)
        outbox.incident(incident("i1"))
        sending = asyncio.create_task(outbox.run())
        await until(lambda: "i1" in seen.incidents)
        await new.begin()
        outbox.incident(incident("i2"))
        with pytest.raises(Conflict, match="taken over"):
            await sending
        await world.bus.publish(IncidentChanged(incident=incident("i3")), "n1")
        await until(lambda: "i3" in seen.incidents)
        assert "i2" not in seen.incidents


async def test_a_service_that_was_replaced_ends(world: HealthWorld) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    url = f"sqlite:///{world.folder}/health.db"
    health = Health("health-monitor")
    config = HealthSettings(nats_url=world.nats.url, health_database_url=url, leader_election=True)
    service = asyncio.create_task(run(config, health))
    await until(lambda: health.ready)
    async with opened(world.folder) as other:
        await IncidentStore(other).begin()
    await agent.report((SICK, 1))
    with pytest.raises(BaseExceptionGroup) as ended:
        await asyncio.wait_for(service, 20)
    found: BaseException = ended.value
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, Conflict)


async def test_a_notice_is_published_after_a_kill_before_it_was(world: HealthWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker takes everything but the notice; then the monitor ends, and the next one publishes it, once."""
    heard: list[DeviceErrorSeen] = []
    publish, kept = Outbox._publish, True

    async def failing(self: Outbox, message: outboxes._Message) -> None:
        if kept and isinstance(message, DeviceErrorSeen):
            raise Unavailable("no broker")
        await publish(self, message)

    async def hear(deliveries: Sequence[Delivery]) -> None:
        heard.extend(one.event for one in deliveries if isinstance(one.event, DeviceErrorSeen))

    monkeypatch.setattr(Outbox, "_publish", failing)
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    await world.run_pod("p0", SICK)
    listens = asyncio.create_task(world.bus.follow([DeviceErrorSeen], hear))
    try:
        async with world.monitor():
            await agent.report((SICK, 1))
            async with opened(world.folder) as reader:
                await until_stored(IncidentStore(reader))
        assert not heard
        kept = False
        for _ in range(2):
            async with world.monitor():
                await until(lambda: len(heard) >= 1)
                await asyncio.sleep(0.5)
        assert [(one.pod, one.card) for one in heard] == [("lab/p0", SICK)]
        async with opened(world.folder) as reader:
            assert await IncidentStore(reader).notices() == []
    finally:
        listens.cancel()
        await asyncio.gather(listens, return_exceptions=True)


async def test_a_notice_that_the_bus_rejects_is_dropped_for_good(world: HealthWorld) -> None:
    large = NOTICE.model_copy(update=dict.fromkeys(("message", "card", "code", "incident"), "\N{SQUARED OK}" * 2**16))
    before = metrics.REJECTED.labels("DeviceErrorSeen")._value.get()
    async with opened(world.folder) as own:
        store = IncidentStore(own)
        await store.begin()
        await store.save(Memory(), (), (), notices=[large])
        assert await store.notices() == [large]
    async with world.monitor(), opened(world.folder) as reader:
        async with asyncio.timeout(20):
            while await IncidentStore(reader).notices():  # noqa: ASYNC110  another connection's database
                await asyncio.sleep(0.1)
    assert metrics.REJECTED.labels("DeviceErrorSeen")._value.get() == before + 1


async def until_stored(store: IncidentStore) -> None:
    async with asyncio.timeout(20):
        while not await store.notices():  # noqa: ASYNC110  another connection's database
            await asyncio.sleep(0.1)
