"""Reports of agents become incidents, verdicts and requests of evictions, on a real broker and database."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from hbox_common.bus import Bus, Delivery, EmbeddedServer, Start
from hbox_common.clock import wall_s
from hbox_common.errors import Unavailable
from hbox_common.events import Event, FabricChanged, HealthEvictionAsked, HealthReport, HealthVerdict, IncidentChanged
from hbox_common.health.report import Check, Fact
from hbox_common.model import Card, HyperNode, Incident, IncidentState, NodeName, Verdict
from hbox_common.model.devices import card_id
from hbox_common.model.sickhardware import SickPolicy
from hbox_health import judging, metrics
from hbox_health.adapters.incidentstore import IncidentStore
from hbox_health.core.judge import courses, facts
from hbox_health.core.judge.memory import Memory
from hbox_health.judging import Judging

from ...waiting import until
from .conftest import HealthWorld

NODE = NodeName("n1")
SICK, OTHER = card_id("GPU-0"), card_id("GPU-1")


def card(index: int) -> Card:
    return Card(index, f"GPU-{index}", "H100", 81_920)


@dataclass
class Published:
    incidents: dict[str, list[Incident]] = field(default_factory=dict)
    asked: list[HealthEvictionAsked] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    async def take(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            match delivery.event:
                case IncidentChanged(incident=incident):
                    self.incidents.setdefault(incident.id, []).append(incident)
                case HealthEvictionAsked():
                    self.asked.append(delivery.event)
                case HealthVerdict(verdict=verdict):
                    self.verdicts.append(verdict)

    @property
    def standing(self) -> dict[str, HealthEvictionAsked]:
        return {one.incident: one for one in {one.incident: one for one in self.asked}.values() if not one.ended}


@asynccontextmanager
async def listening(bus: Bus) -> AsyncIterator[Published]:
    seen = Published()
    kinds: tuple[list[type[Event]], ...] = ([IncidentChanged], [HealthEvictionAsked, HealthVerdict])
    tasks = [asyncio.create_task(bus.follow(types, seen.take, start=Start.ALL)) for types in kinds]
    try:
        yield seen
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Agent:
    """What node-agent publishes, of a node's agent on the test's connection."""

    def __init__(self, broker: EmbeddedServer) -> None:
        self.broker, self.seq = broker, 0

    async def report(self, *values: tuple[str, int], node: NodeName = NODE, on: str = "", boot: str = "b1") -> None:
        await self.send(*(self.fact(entity, recovery_action=action) for entity, action in values), node=node, on=on, boot=boot)

    def fact(self, entity: str, check: Check = Check.NVML, name: str = "card", /, **value: Any) -> Fact:
        self.seq += 1
        return Fact(self.seq, 5.0, check, entity, name, value)

    async def send(self, *facts: Fact, node: NodeName = NODE, on: str = "", boot: str = "b1") -> None:
        async with Bus.connect(self.broker.url, name="node-agent", instance="a") as bus:
            await bus.publish(HealthReport(node=node, boot_id=boot, agent="a", facts=facts), on or node)


async def test_a_sick_card_is_judged_stored_and_excluded_and_its_jobs_are_asked_to_leave(world: HealthWorld) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    await world.run_pod("wide", SICK, OTHER)
    async with listening(world.bus) as seen, world.monitor(on_sick_hardware="shrink", validated_s=0.5):
        await agent.report((SICK, 1), (OTHER, 0))
        await until(lambda: bool(seen.standing) and bool(seen.incidents))
        [asked] = seen.standing.values()
        assert (asked.node, asked.cards, asked.policy, asked.boot_id) == (NODE, (SICK,), SickPolicy.SHRINK, "b1")
        verdict = seen.verdicts[-1]
        assert (verdict.healthy, verdict.cards, verdict.incidents, verdict.boot_id) == (True, (SICK,), (asked.incident,), "b1")
        assert "asks for a reset" in verdict.reason
        await world.run_pod("wide", ends=True)
        await agent.report((SICK, 0))
        await until(lambda: not seen.standing)
        await until(lambda: not seen.verdicts[-1].cards)
        states = [one.state for one in seen.incidents[asked.incident]]
        assert states[-2:] == [IncidentState.VALIDATING, IncidentState.CLOSED]


async def test_a_killed_monitor_neither_loses_nor_doubles_an_incident(world: HealthWorld) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    for name, of in (("p0", SICK), ("p1", OTHER)):
        await world.run_pod(name, of)
    async with listening(world.bus) as seen:
        async with world.monitor():
            await agent.report((SICK, 1))
            await until(lambda: bool(seen.standing))
        await agent.report((OTHER, 4))
        async with world.monitor():
            await until(lambda: len(seen.standing) == 2)
            assert len(seen.incidents) == 2
            await until(lambda: set(seen.verdicts[-1].cards) == {SICK, OTHER})
        async with world.monitor(recover_after_s=0, validated_s=0):
            await asyncio.sleep(1.5)  # faults of the last verdict that nothing shows have ended by then
            assert set(seen.verdicts[-1].cards) == {SICK, OTHER}
            await agent.report((SICK, 0), (OTHER, 0))
            await until(lambda: not seen.standing)
            await until(lambda: {one[-1].state for one in seen.incidents.values()} == {IncidentState.CLOSED})
        assert len(seen.incidents) == 2


async def test_pods_that_come_and_go_on_a_sick_card_are_not_logged(
    world: HealthWorld, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0),))
    await world.run_pod("p0", SICK)
    async with listening(world.bus) as seen, world.monitor():
        await agent.report((SICK, 1))
        await until(lambda: bool(seen.incidents))
        [changes] = seen.incidents.values()
        for _ in range(3):
            await world.run_pod("p0", SICK, ends=True)
            await until(lambda: changes[-1].state is IncidentState.CONFIRMED)
            await world.run_pod("p0", SICK)
            await until(lambda: changes[-1].state is IncidentState.DRAINING)
    states = [one.state for one in changes]
    assert states.count(IncidentState.DRAINING) >= 4, "all are published"
    lines = [one.getMessage() for one in caplog.records if one.getMessage().startswith("incident ")]
    assert len(lines) == len(set(lines)) == 2, lines


async def test_a_contained_error_isolates_its_card_and_no_pod_leaves(world: HealthWorld) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    for name, of in (("p0", SICK), ("p1", OTHER)):
        await world.run_pod(name, of)
    async with listening(world.bus) as seen, world.monitor():
        await agent.send(agent.fact(SICK, Check.KERNEL_LOG, "94", kind="xid", code=94, pci="0000:18:00", pid=7, name="python"))
        await until(lambda: bool(seen.verdicts) and seen.verdicts[-1].cards == (SICK,))
        [incident] = [one[-1] for one in seen.incidents.values()]
        assert (incident.entity, incident.code, incident.action) == (SICK, "94", "reset-when-idle")
        assert seen.asked == []


async def test_a_sick_card_of_a_node_without_pods_waits_for_its_reset_only(world: HealthWorld) -> None:
    """Also of a node that joins after all claims were read. A node with pods is drained first."""
    agent = Agent(world.nats)
    await world.show(cards=(card(0),))
    await world.show("busy", cards=(card(1),))
    await world.run_pod("p1", OTHER, node="busy")
    async with listening(world.bus) as seen, world.monitor():
        await agent.report((SICK, 1))
        await until(lambda: any(one[-1].held_by == ("remedy",) for one in seen.incidents.values()))
        await world.show("late", cards=(card(2),))
        busy, late = NodeName("busy"), NodeName("late")
        await agent.report((OTHER, 1), node=busy)
        await agent.report((card_id("GPU-2"), 1), node=late)

        def held() -> dict[NodeName, tuple[str, ...]]:
            return {one[-1].node: one[-1].held_by for one in seen.incidents.values()}

        await until(lambda: len(held()) == 3 and held()[late] == ("remedy",))
        assert held()[busy] == ()


async def test_pods_that_end_while_no_monitor_runs_do_not_delay_a_repair(world: HealthWorld) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0),))
    await world.run_pod("p0", SICK)
    async with listening(world.bus) as seen:
        async with world.monitor():
            await agent.report((SICK, 1))
            await until(lambda: bool(seen.standing))
        await world.run_pod("p0", SICK, ends=True)
        async with world.monitor():
            await until(lambda: [one[-1].held_by for one in seen.incidents.values()] == [("remedy",)])


async def test_cards_that_fall_off_the_bus_are_one_incident_of_their_node(world: HealthWorld) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1), card(2)))
    await world.run_pod("p0", SICK)
    async with listening(world.bus) as seen, world.monitor(validated_s=0.5):
        lost = [
            agent.fact(of, Check.KERNEL_LOG, "79", kind="xid", code=79, pci=f"0000:{place}:00", seq=place)
            for of, place in ((SICK, 18), (OTHER, 19))
        ]
        await agent.send(*lost)
        await until(lambda: bool(seen.standing) and any(one.node == NODE for one in world.decisions))
        [open_] = [one[-1] for one in seen.incidents.values() if one[-1].state is not IncidentState.CLOSED]
        assert (open_.entity, open_.kind, open_.action) == ("node", "node-fault", "reboot")
        assert set(seen.verdicts[-1].cards) == {SICK, OTHER}
        assert not seen.verdicts[-1].healthy
        await agent.send(*lost)  # delivered again: nothing new
        await agent.send(agent.fact("node", Check.AGENT, "started"), boot="b2")
        await until(lambda: not seen.standing and seen.verdicts[-1].healthy)
        await agent.send(*lost)  # of the boot before
        await agent.report((card_id("GPU-2"), 1), boot="b2")
        await until(lambda: seen.verdicts[-1].cards == (card_id("GPU-2"),))


async def test_an_error_of_a_program_is_its_jobs_and_isolates_nothing(world: HealthWorld) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    await world.run_pod("p0", SICK)
    async with listening(world.bus) as seen, world.monitor():
        await agent.send(agent.fact(SICK, Check.KERNEL_LOG, "13", kind="xid", code=13, pci="0000:18:00", pid=7, name="python"))
        await until(lambda: bool(seen.incidents))
        [incident] = [one[-1] for one in seen.incidents.values()]
        assert (incident.entity, incident.node, incident.blame, incident.action) == ("job:lab/p0", "", "user", "tell-owner")
        assert seen.verdicts == []


async def test_a_gang_over_several_nodes_leaves_a_node_with_a_port_down(
    world: HealthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(courses.WAITS, "port", 0.2)
    agent = Agent(world.nats)
    for name in ("n1", "n2"):
        await world.show(name, cards=(card(0), card(1)))
    await world.run_pod("whole", SICK, OTHER, job="train", members=2)
    await world.run_pod("alone", OTHER, node="n2")
    async with listening(world.bus) as seen, world.monitor():
        await agent.send(agent.fact("rail:mlx5_0", Check.PORTS, "port", state="1: DOWN"))
        await until(lambda: bool(seen.verdicts) and bool(seen.verdicts[-1].rails_off))
        assert all(not rail.startswith("rail:") for rail in seen.verdicts[-1].rails_off)
        await asyncio.sleep(0.3)
        assert seen.asked == [], "the gang is on one node as yet"
        await world.run_pod("other", SICK, node="n2", job="train", members=2)
        await until(lambda: bool(seen.standing))
        [asked] = seen.standing.values()
        assert (asked.node, asked.jobs, set(asked.cards)) == (NODE, ("lab/train",), {SICK, OTHER})


async def test_an_agent_is_silent_if_its_heartbeats_end_and_heartbeats_write_nothing(
    world: HealthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[set[str]] = []
    save = IncidentStore.save

    async def recorded(self: IncidentStore, memory: Memory, nodes: set[str], *rest: Any) -> None:
        saved.append(set(nodes))
        await save(self, memory, nodes, *rest)

    monkeypatch.setattr(IncidentStore, "save", recorded)
    (world.folder / "policies.yaml").write_text("silent_s: 2\nwaits: {agent-silent: 2}\n")
    agent = Agent(world.nats)
    for name in ("n1", "n2", "n3"):
        await world.show(name, cards=(card(0), card(1)))
    async with listening(world.bus) as seen, world.monitor(rules_folder=world.folder):
        await agent.report((SICK, 0), node=NodeName("n3"))  # an older agent, which sends no heartbeats
        for _ in range(2):
            for name in ("n1", "n2"):
                await agent.send(node=NodeName(name))
            await asyncio.sleep(0.3)
        saved.clear()
        for _ in range(12):
            await agent.send(node=NodeName("n2"))
            await asyncio.sleep(0.3)
        await until(lambda: bool(seen.incidents))
        [silent] = [one[-1] for one in seen.incidents.values()]
        assert (silent.node, silent.kind, silent.action) == ("n1", "agent-silent", "report")
        assert set().union(*saved) <= {"n1", ""}
        assert seen.verdicts == []
        await agent.send()
        await until(lambda: seen.incidents[silent.id][-1].state is IncidentState.CLOSED)


async def test_no_agent_is_silent_because_of_the_time_in_which_no_monitor_ran(world: HealthWorld) -> None:
    (world.folder / "policies.yaml").write_text("silent_s: 1\nwaits: {agent-silent: 1}\n")
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    async with listening(world.bus) as seen:
        async with world.monitor(rules_folder=world.folder):
            await agent.send()
            await asyncio.sleep(0.3)
        await asyncio.sleep(1.5)
        async with world.monitor(rules_folder=world.folder):
            await asyncio.sleep(0.5)
            assert seen.incidents == {}
            await until(lambda: bool(seen.incidents))


async def test_a_port_of_more_than_three_nodes_of_a_leaf_group_is_one_incident(world: HealthWorld) -> None:
    agent = Agent(world.nats)
    names = [NodeName(f"n{index}") for index in range(5)]
    for name in names:
        await world.show(name, cards=(card(0), card(1)))
    async with listening(world.bus) as seen, world.monitor():
        await world.bus.publish(FabricChanged(fabric="ib", hypernodes=(HyperNode("lg1", 1, nodes=tuple(names)),)), "ib")
        await asyncio.sleep(0.5)
        for name in names:
            await agent.send(agent.fact("rail:mlx5_0", Check.PORTS, "port", state="1: DOWN"), node=name)
        await until(lambda: any(one[-1].entity == "switch:lg1" for one in seen.incidents.values()))
        await until(lambda: all(one[-1].state is IncidentState.CLOSED for one in seen.incidents.values() if one[-1].node))
        assert not world.decisions


async def test_a_node_whose_nvml_does_not_start_takes_no_work_until_it_does(
    world: HealthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "INIT_S", 0.5)
    agent, both = Agent(world.nats), ("GPU-0", "GPU-1")
    await world.show(cards=(card(0), card(1)))
    async with listening(world.bus) as seen, world.monitor(recover_after_s=0):
        problem = {"init": 9, "problem": "driver not loaded", "inventory": both}
        await agent.send(agent.fact("node", Check.NVML, "cards", **problem))
        await until(lambda: bool(seen.verdicts) and not seen.verdicts[-1].healthy)
        [incident] = [one[-1] for one in seen.incidents.values()]
        assert (incident.entity, incident.code, incident.action, incident.blame) == ("node", "init-9", "cordon", "software")
        await agent.send(agent.fact("node", Check.NVML, "cards", problem="it ended", inventory=both))
        await until(lambda: seen.verdicts[-1].healthy)
        assert seen.incidents[incident.id][-1].state is IncidentState.CLOSED


async def test_only_what_changed_is_written(world: HealthWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[set[str]] = []
    save = IncidentStore.save

    async def recorded(self: IncidentStore, memory: Memory, nodes: set[str], *rest: Any) -> None:
        saved.append(set(nodes))
        await save(self, memory, nodes, *rest)

    monkeypatch.setattr(IncidentStore, "save", recorded)
    agent = Agent(world.nats)
    for name in ("n1", "n2", "n3"):
        await world.show(name, cards=(card(0), card(1)))
    async with listening(world.bus) as seen, world.monitor():
        for name in ("n1", "n2", "n3"):
            await agent.report((SICK, 0), (OTHER, 0), node=NodeName(name))
        await until(lambda: {"n1", "n2", "n3"} <= set().union(*saved))
        await asyncio.sleep(0.2)  # the boots are stored
        saved.clear()
        await world.show("n3", cards=(card(0), card(1)), generation=2)
        await world.run_pod("p0", OTHER, node="n2")
        await agent.report((OTHER, 0), node=NodeName("n2"))
        await agent.report((SICK, 1))
        await until(lambda: bool(seen.verdicts))
        assert set().union(*saved) <= {"n1", ""}


async def test_a_database_that_does_not_answer_delays_and_loses_nothing(
    world: HealthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = 3
    save = IncidentStore.save

    async def failing(self: IncidentStore, memory: Memory, nodes: set[str], *rest: Any) -> None:
        nonlocal failures
        if failures and "n1" in nodes and memory.nodes["n1"].open:
            failures -= 1
            raise Unavailable("no database")
        await save(self, memory, nodes, *rest)

    monkeypatch.setattr(IncidentStore, "save", failing)
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    await world.run_pod("p0", SICK)
    async with listening(world.bus) as seen:
        async with world.monitor():
            await agent.report((SICK, 1))
            await until(lambda: bool(seen.standing))
            assert failures == 0
        async with world.monitor():
            await until(lambda: seen.verdicts[-1].cards == (SICK,))
        assert len(seen.incidents) == 1


async def test_an_incident_that_was_stored_and_not_published_is_published_after_a_restart(
    world: HealthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    await world.run_pod("p0", SICK)
    stored = asyncio.Event()
    async with listening(world.bus) as seen:
        with monkeypatch.context() as killed:

            def die(_judging: Judging, effects: Sequence[object], _wanted: object) -> None:
                if effects:
                    stored.set()

            killed.setattr(Judging, "_publish", die)
            async with world.monitor():
                await agent.report((SICK, 1))
                await stored.wait()
        assert (seen.incidents, seen.asked, seen.verdicts) == ({}, [], [])
        async with world.monitor():
            await until(lambda: bool(seen.standing) and bool(seen.incidents))
            await until(lambda: bool(seen.verdicts) and seen.verdicts[-1].cards == (SICK,))
        assert len(seen.incidents) == 1


async def test_a_clock_that_was_set_back_delays_no_return(world: HealthWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    async with listening(world.bus) as seen:
        async with world.monitor():
            await agent.report((SICK, 1))
            await until(lambda: bool(seen.verdicts) and seen.verdicts[-1].cards == (SICK,))
            await agent.report((SICK, 0))
            await until(lambda: [one[-1].state for one in seen.incidents.values()] == [IncidentState.VALIDATING])
        monkeypatch.setattr(judging, "wall_s", lambda: wall_s() - 1800.0)
        async with world.monitor(validated_s=0.5, recover_after_s=0):
            await until(lambda: not seen.verdicts[-1].cards)
        assert [one[-1].state for one in seen.incidents.values()] == [IncidentState.CLOSED]


async def test_a_request_without_an_incident_is_withdrawn_at_the_start(world: HealthWorld) -> None:
    async with Bus.connect(world.nats.url, name="health-monitor", instance="gone") as bus:
        await bus.publish(HealthEvictionAsked(node=NODE, incident="i9", cards=(SICK,)), NODE, "i9")
    async with listening(world.bus) as seen, world.monitor():
        await until(lambda: any(one.incident == "i9" and one.ended for one in seen.asked))


async def test_a_report_under_another_nodes_name_is_refused_and_counted(world: HealthWorld) -> None:
    agent, before = Agent(world.nats), metrics.REFUSED.labels("foreign-node")._value.get()
    await world.show(cards=(card(0), card(1)))
    async with listening(world.bus) as seen, world.monitor() as health:
        await agent.report((SICK, 1), node=NodeName("n2"), on="n1")
        await agent.report((OTHER, 1))
        await until(lambda: bool(seen.verdicts))
        assert seen.verdicts[-1].cards == (OTHER,)
        assert metrics.REFUSED.labels("foreign-node")._value.get() == before + 1
        assert health.ready


@pytest.mark.parametrize("cards", [(0,), (0, 1)])
async def test_a_node_whose_cards_are_all_sick_is_unhealthy(world: HealthWorld, cards: tuple[int, ...]) -> None:
    agent = Agent(world.nats)
    await world.show(cards=(card(0), card(1)))
    async with listening(world.bus) as seen, world.monitor():
        await agent.report(*((card_id(f"GPU-{index}"), 1) for index in cards))
        await until(lambda: bool(seen.verdicts) and len(seen.verdicts[-1].cards) == len(cards))
        assert seen.verdicts[-1].healthy is (len(cards) == 1)
