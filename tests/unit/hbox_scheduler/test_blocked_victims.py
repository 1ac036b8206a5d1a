"""Victims that may not be evicted: others take their place at once, and they are asked for again when the refusal is old."""

from hbox_common.model import Epoch
from hbox_scheduler.core.simulate.simulation import Simulation, job

from .test_taking import share, world


def full() -> Simulation:
    """b has borrowed both nodes, and a, which deserves one of them, asks for a card."""
    simulation = world(2, [share("a", 8), share("b", 8)])
    simulation.submit(job(f"b{i}", cards=1, queue="b", created_at=float(i)) for i in range(16))
    simulation.run()
    simulation.submit([job("a0", cards=1, queue="a", created_at=100.0)])
    return simulation


def refuse(simulation: Simulation) -> set[str]:
    """The ledger says that nobody who was to leave may."""
    pods = [claim.pod_uid for claim in simulation.evicted]
    simulation.evicted.clear()
    simulation.scheduler.on_stayed(epoch=Epoch(1), pods=pods, now=simulation.now)
    return set(pods)


def test_a_victim_that_may_not_be_evicted_is_replaced_at_once_by_another() -> None:
    simulation = full()
    simulation.run()
    first = refuse(simulation)
    simulation.now += 0.2
    [plan] = simulation.run()
    assert first.isdisjoint(victim.pod_uid for victim in plan.victims)
    simulation.leave()
    simulation.run()
    assert "a0-0" in simulation.claims


def test_who_may_not_be_evicted_at_all_is_asked_for_every_half_minute_and_no_more_often() -> None:
    simulation = full()
    asked: list[str] = []
    while simulation.now < 59.0:
        simulation.now += 0.5
        simulation.run()
        asked += refuse(simulation)
    assert len(asked) == 2 * 16
    assert len(set(asked)) == 16


def test_news_of_an_older_epoch_is_no_news() -> None:
    simulation = full()
    simulation.run()
    [victim] = simulation.evicted
    simulation.scheduler.on_stayed(epoch=Epoch(0), pods=[victim.pod_uid], now=simulation.now)
    simulation.leave()
    simulation.run()
    assert "a0-0" in simulation.claims
