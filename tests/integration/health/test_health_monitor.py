"""health-monitor on a real broker, with the topology-collector and the binder played by the test."""

from dataclasses import replace
from pathlib import Path

from hbox_common.events import NodeAction
from hbox_common.model import Card
from hbox_health.core import OWNER

from ...waiting import until
from .conftest import HealthWorld

SICK = {"XidError": "True"}


async def test_a_sick_node_is_called_so_closed_and_opened_when_it_is_well(world: HealthWorld) -> None:
    async with world.monitor():
        await world.show(conditions=SICK)
        assert (await world.called(healthy=False)).reason == "XidError"
        await until(
            lambda: [(d.action, d.owner, d.reason) for d in world.decisions] == [(NodeAction.CORDON, OWNER, "XidError")]
        )
        await world.show(conditions=SICK, unschedulable=True, cordoned_by=OWNER)
        await world.show(unschedulable=True, cordoned_by=OWNER)
        await world.called(healthy=True)
        await until(lambda: [d.action for d in world.decisions] == [NodeAction.CORDON, NodeAction.UNCORDON])
    await until(lambda: [(e.node, e.healthy) for e in world.events] == [("n1", False), ("n1", True)])


async def test_bad_cards_alone_leave_the_node_open(world: HealthWorld) -> None:
    good = Card(index=0, uuid="a", model="A100", memory_mib=40_000)
    async with world.monitor():
        await world.show(cards=(good, replace(good, index=1, uuid="b", healthy=False)))
        assert (await world.called(healthy=True)).bad_cards == (1,)
    assert world.decisions == []


async def test_a_restart_says_only_what_is_different(world: HealthWorld) -> None:
    async with world.monitor(recover_after_s=300.0):
        await world.show("sick", ready=False)
        await world.show("well", ready=False)
        await world.called(healthy=False, name="sick")
        before = await world.called(healthy=False, name="well")
    await world.show("well")
    async with world.monitor():
        after = await world.called(healthy=True, name="well")
    assert after.generation > before.generation
    assert [v.node for v in world.verdicts] == ["sick", "well", "well"]


async def test_verdicts_survive_a_broker_that_lost_its_streams(world: HealthWorld, tmp_path: Path) -> None:
    async with world.monitor():
        await world.show(ready=False)
        await world.called(healthy=False)
        await world.nats.kill()
        (tmp_path / "nats" / "store").rename(tmp_path / "lost")
        world.verdicts.clear()
        await world.nats.start()
        await world.called(healthy=False)


async def test_what_is_found_while_the_broker_is_away_is_said_when_it_is_back(world: HealthWorld) -> None:
    async with world.monitor(recover_after_s=1.0):
        await world.show(ready=False)
        await world.called(healthy=False)
        await world.show()
        await world.nats.kill()
        await world.nats.start()
        await world.called(healthy=True)
