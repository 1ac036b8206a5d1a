"""Orders of operators, through the running service, its database and a broker."""

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hbox_common.bus import Bus, Delivery, Start
from hbox_common.clock import wall_s
from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.events import (
    Event,
    HealthOrderAsked,
    HealthOrdered,
    HealthOrdersAsked,
    HealthOrdersPage,
    HealthOrderTaken,
    HealthPolicyAsked,
    HealthPolicyPage,
    HealthRulesChanged,
)
from hbox_common.health.report import Check
from hbox_common.model import NodeName
from hbox_common.model.healthorder import HealthOrder, OrderVerb
from hbox_health import app, metrics

from ...waiting import until
from .conftest import HealthWorld
from .test_judging import NODE, OTHER, SICK, Agent, card, listening


def order(verb: OrderVerb, id_: str = "o1", **more: object) -> HealthOrder:
    return HealthOrder(id_, verb, "ann@host", "spares are ordered", **more)  # type: ignore[arg-type]


def exempt(id_: str = "o1", *, for_s: float = 3600, **more: object) -> HealthOrder:
    return order(OrderVerb.EXEMPT, id_, owner="ann", until=wall_s() + for_s, **({"node": NODE} | more))


async def give(world: HealthWorld, asked: HealthOrder) -> HealthOrder:
    [taken] = await world.bus.ask(HealthOrderAsked(asker="test", order=asked), HealthOrderTaken)
    return taken.order


async def policy(world: HealthWorld) -> HealthPolicyPage:
    [page] = await world.bus.ask(HealthPolicyAsked(asker="test"), HealthPolicyPage)
    return page


@asynccontextmanager
async def events(bus: Bus, type_: type[Event]) -> AsyncIterator[list[Event]]:
    seen: list[Event] = []

    async def take(deliveries: Sequence[Delivery]) -> None:
        seen.extend(one.event for one in deliveries)

    task = asyncio.create_task(bus.follow([type_], take, start=Start.ALL))
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_exemption_is_stored_published_and_listed_and_outlives_a_restart(world: HealthWorld) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    async with listening(world.bus) as seen, events(world.bus, HealthOrdered) as ordered:
        async with world.monitor():
            taken = await give(world, exempt())
            assert (taken.node, taken.effect.partition(":")[2].split(": ")[-1], taken.at > 0) == (NODE, f"node {NODE}", True)
        async with world.monitor():
            await agent.report((SICK, 1))
            await until(lambda: bool(seen.incidents))
            [incident] = [one[-1] for one in seen.incidents.values()]
            assert incident.held_by == ("exemption",)
            assert not [one for one in seen.verdicts if one.cards]
            assert [(one.id, one.owner) for one in (await policy(world)).exemptions] == [("o1", "ann")]
            ended = await give(world, order(OrderVerb.END_EXEMPTION, "o2", target="o1"))
            assert ended.effect == "exemption o1 ended"
            await until(lambda: bool(seen.verdicts) and seen.verdicts[-1].cards == (SICK,))
            [page] = await world.bus.ask(HealthOrdersAsked(asker="test"), HealthOrdersPage)
            assert [(one.id, one.operator, one.reason) for one in page.orders] == [
                ("o1", "ann@host", "spares are ordered"),
                ("o2", "ann@host", "spares are ordered"),
            ]
            assert (await policy(world)).exemptions == ()
        assert [one.order.id for one in ordered if isinstance(one, HealthOrdered)] == ["o1", "o2"]


async def test_an_order_that_arrives_twice_has_effect_once(world: HealthWorld) -> None:
    await world.show(cards=(card(0),))
    async with world.monitor():
        asked = exempt()
        first, second = await asyncio.gather(give(world, asked), give(world, asked))
        assert first == second
        assert len((await policy(world)).exemptions) == 1
    async with world.monitor():
        assert await give(world, asked) == first
        assert len((await policy(world)).exemptions) == 1


async def test_maintenance_drains_the_node_and_returns_it_after_the_check(world: HealthWorld) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    await world.run_pod("p0", SICK)
    await world.run_pod("p1", OTHER)
    async with listening(world.bus) as seen, world.monitor(validated_s=0.5):
        await give(world, order(OrderVerb.MAINTENANCE, node=NODE, until=wall_s() + 3600))
        await until(lambda: bool(seen.standing) and any(not one.healthy for one in seen.verdicts))
        [asked] = seen.standing.values()
        assert set(asked.cards) == {SICK, OTHER}
        assert "maintenance by ann@host: spares are ordered" in asked.reason
        await until(lambda: any(one.node == NODE for one in world.decisions))
        await agent.report((SICK, 1))
        for name in ("p0", "p1"):
            await world.run_pod(name, ends=True)
        await give(world, order(OrderVerb.END_MAINTENANCE, "o2", node=NODE))
        await until(lambda: not seen.standing and seen.verdicts[-1].healthy)
        await until(lambda: seen.verdicts[-1].cards == (SICK,))  # it is still sick: its own incident follows


async def test_a_closed_incident_returns_its_card_and_states_the_order(world: HealthWorld) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    async with listening(world.bus) as seen, world.monitor():
        await agent.report((SICK, 1))
        await until(lambda: bool(seen.verdicts) and seen.verdicts[-1].cards == (SICK,))
        [id_] = seen.incidents
        closed = await give(world, order(OrderVerb.CLOSE, target=id_))
        assert (closed.node, closed.effect) == (NODE, f"incident {id_} of {NODE} closed")
        await until(lambda: not seen.verdicts[-1].cards)
        assert seen.incidents[id_][-1].why == "closed by an operator"
        [page] = await world.bus.ask(HealthOrdersAsked(asker="test", node=NODE), HealthOrdersPage)
        assert [one.id for one in page.orders] == ["o1"]


async def test_a_node_that_joins_with_fewer_cards_takes_work_once_it_is_accepted(world: HealthWorld) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)), labels={"hbox.io/profile": "H100"})
    async with listening(world.bus) as seen:
        async with world.monitor():
            two = ("GPU-0", "GPU-1")
            await agent.send(agent.fact("node", Check.NVML, "cards", init=0, count=2, listed=two, inventory=two))
            await until(lambda: bool(seen.verdicts) and not seen.verdicts[-1].healthy)
            assert "2 of 8 cards, profile H100" in seen.verdicts[-1].reason
            await until(lambda: any(one.node == NODE for one in world.decisions))
        async with world.monitor():
            assert (await give(world, order(OrderVerb.ACCEPT, node=NODE))).effect == f"node {NODE} accepted with 2 cards"
            await until(lambda: seen.verdicts[-1].healthy)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (exempt(for_s=-1), "not in the future"),
        (exempt(node=NodeName("")), "names a node, a label, a check or a code"),
        (exempt("a b"), "no usable id"),
        (HealthOrder("o1", OrderVerb.EXEMPT, "ann", "", node=NODE, owner="ann", until=9e12), "states its reason"),
        (HealthOrder("o1", OrderVerb.EXEMPT, "ann", "x", node=NODE, until=9e9), "states its owner"),
        (order(OrderVerb.MAINTENANCE, node=NodeName("n9"), until=9e9), "no node n9"),
        (order(OrderVerb.END_MAINTENANCE, node=NODE), "not in maintenance"),
        (order(OrderVerb.END_EXEMPTION, target="e9"), "no exemption e9"),
        (order(OrderVerb.CLOSE, target="i9"), "no open incident i9"),
        (order(OrderVerb.ACCEPT, node=NODE), "has listed no cards"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
async def test_an_order_that_cannot_be_followed_is_refused_and_not_stored(
    world: HealthWorld, asked: HealthOrder, why: str
) -> None:
    await world.show(cards=(card(0),))
    async with world.monitor():
        with pytest.raises(InvalidRequest, match=why):
            await give(world, asked)
        [page] = await world.bus.ask(HealthOrdersAsked(asker="test"), HealthOrdersPage)
        assert page.orders == ()


async def test_changed_files_of_rules_take_effect_without_a_restart_and_a_bad_one_is_reported(
    world: HealthWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "RULES_S", 0.05)
    folder = tmp_path / "rules"
    folder.mkdir()
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    async with (
        listening(world.bus) as seen,
        events(world.bus, HealthRulesChanged) as changed,
        world.monitor(rules_folder=folder) as health,
    ):
        port = agent.fact("rail:mlx5_0", Check.PORTS, "port", state="1: DOWN")
        await agent.send(port)
        await until(lambda: bool(seen.incidents))
        assert not seen.verdicts, "a port is down for 4 minutes before it counts"
        (folder / "policies.yaml").write_text("waits: {port: 0.1}\n")
        await until(lambda: len(changed) == 1)
        await agent.send(agent.fact("rail:mlx5_1", Check.PORTS, "port", state="1: DOWN"))
        await until(lambda: bool(seen.verdicts) and seen.verdicts[-1].rails_off == ("mlx5_1",))
        version = (await policy(world)).version
        assert {one[-1].rule_version for one in seen.incidents.values()} == {version} != {"1"}
        (folder / "policies.yaml").write_text("waits: {prot: 0.1}\n")
        await until(lambda: len(changed) == 2)
        page = await policy(world)
        assert (page.version, page.fault.startswith("waits: prot"), health.ready) == (version, True, True)
        assert metrics.RULES_VALID._value.get() == 0
        (folder / "policies.yaml").unlink()
        await until(lambda: len(changed) == 3)
        page = await policy(world)
        assert (page.version, page.fault, metrics.RULES_VALID._value.get()) == ("1", "", 1)


@pytest.mark.parametrize("moment", ["before", "after"], ids=["before-storing", "after-storing"])
async def test_a_monitor_killed_around_storing_an_order_follows_it_once(
    world: HealthWorld, tmp_path: Path, moment: str
) -> None:
    await world.show(cards=(card(0),))
    async with events(world.bus, HealthOrdered) as ordered:
        async with killed_at(world, moment) as process:
            await until_answered(world)
            asking = asyncio.create_task(give(world, exempt()))
            assert await asyncio.wait_for(process.wait(), 30) == -signal.SIGKILL
            assert not asking.done()
        database = sqlite3.connect(world.folder / "health.db")
        assert database.execute("select count(*) from orders").fetchone() == (int(moment == "after"),)
        assert ordered == []
        async with world.monitor():
            taken = await asyncio.wait_for(asking, 30)
            assert [one.id for one in (await policy(world)).exemptions] == [taken.id]
            await until(lambda: len(ordered) == 1)
        async with world.monitor():
            assert len((await policy(world)).exemptions) == 1
        assert len(ordered) == 1


async def until_answered(world: HealthWorld) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await policy(world)
                return
            except Unavailable:
                await asyncio.sleep(0.1)


@asynccontextmanager
async def killed_at(world: HealthWorld, moment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A monitor in a process of its own, which is killed before or after it stores the first order."""
    program = f"""
import os, signal
from hbox_health.adapters.incidentstore import IncidentStore
from hbox_common.runtime import main
from hbox_health.app import run
from hbox_health.settings import HealthSettings
save = IncidentStore.save

async def killed(self, memory, nodes, incidents, orders, *more):
    if orders and {moment!r} == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    await save(self, memory, nodes, incidents, orders, *more)
    if orders:
        os.kill(os.getpid(), signal.SIGKILL)

IncidentStore.save = killed
main("health-monitor", HealthSettings, run)
"""
    settings = {"HBOX_NATS_URL": world.nats.url, "HBOX_HEALTH_DATABASE_URL": f"sqlite:///{world.folder}/health.db"}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, env=os.environ | settings)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
