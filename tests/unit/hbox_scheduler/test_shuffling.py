"""Pods leave nodes that were lent by the hour, in the running scheduler as in `hbox simulate cycle`. Node `n0` is lent from 22:00 to 6:00."""

from dataclasses import replace

import pytest

from hbox_common.events import PlanAnswer
from hbox_common.model import Epoch, Index, Job, Neighbour, PodRef, PodUid, Queue, QueueName, RefusalReason
from hbox_common.model.annotations import JDB_MAX_UNAVAILABLE, JDB_MIN_AVAILABLE, PREEMPTABLE, REVOCABLE_ZONE
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from .small_world import SmallWorld, evicted

TDM = """
actions: "allocate, %s"
tiers:
- plugins:
  - {name: gang}
  - {name: predicates}
  - {name: tdm, arguments: {tdm.revocable-zone.night: "22:00-6:00"}}
"""
NIGHT, MORNING = 23 * 3600.0, 30 * 3600.0 + 60.0


def lent(*jobs: Job, actions: str = "shuffle", cards: int = 8) -> Simulation:
    """At night, with these jobs on `n0`."""
    simulation = Simulation(
        policy_of(PolicyName.BINPACK),
        queues=[Queue(QueueName("default"))],
        conf=parse_conf(TDM % actions, plugins=list(PLUGINS)),
    )
    simulation.put_nodes([node("n0", cards=cards, cpu=64, labels={REVOCABLE_ZONE: "night"})])
    simulation.now = NIGHT
    for one in jobs:
        introduce(simulation, one)
    simulation.submit(jobs)
    simulation.run()
    return simulation


def introduce(simulation: Simulation, one: Job) -> None:
    pods = [pod.uid for task in one.tasks for pod in task.pods]
    simulation.scheduler.on_neighbours(Neighbour(uid, "default", annotations=one.annotations) for uid in pods)


def willing(one: Job, **notes: str) -> Job:
    return replace(
        one, annotations={PREEMPTABLE: "true"} | {f"volcano.sh/{key.replace('_', '-')}": value for key, value in notes.items()}
    )


def sent_away(simulation: Simulation) -> list[str]:
    return sorted(str(victim.pod_uid) for plan in simulation.run() for victim in plan.victims)


def test_while_the_zone_is_lent_nobody_leaves_and_when_it_is_closed_they_do() -> None:
    simulation = lent(willing(job("a", cards=1)), willing(job("b", cards=1)))
    assert len(simulation.claims) == 2
    simulation.now += 3600.0
    assert sent_away(simulation) == []
    simulation.now = MORNING
    plans = simulation.run()
    assert sorted(plan.job for plan in plans) == ["a", "b"]
    assert not any(plan.placements for plan in plans)


def test_who_was_sent_away_is_not_sent_away_again_while_it_leaves() -> None:
    simulation = lent(willing(job("a", cards=1)))
    simulation.now = MORNING
    assert sent_away(simulation) == ["a-0"]
    for _ in range(5):
        simulation.now += 15.0
        assert sent_away(simulation) == []
    simulation.now += 120.0
    assert sent_away(simulation) == ["a-0"], "it did not leave in two minutes: the ledger is asked once more"


def test_without_the_action_everybody_stays() -> None:
    simulation = lent(willing(job("a", cards=1)), actions="backfill")
    simulation.now = MORNING
    assert sent_away(simulation) == []


def test_no_more_of_a_gang_are_away_at_once_than_it_allows() -> None:
    assert JDB_MAX_UNAVAILABLE == "volcano.sh/jdb-max-unavailable"
    gang = willing(job("g", pods=4, min_member=1, cards=1), jdb_max_unavailable="50%")
    simulation = lent(gang)
    simulation.now = MORNING
    first = sent_away(simulation)
    assert len(first) == 2
    simulation.now += 5.0
    assert sent_away(simulation) == [], "two are on their way"
    simulation.evicted.clear()
    simulation.gone([PodUid(uid) for uid in first])
    left = [pod for task in gang.tasks for pod in task.pods if str(pod.uid) not in first]
    simulation.submit([replace(gang, tasks=(replace(gang.tasks[0], pods=tuple(left)),), revision=2)])
    simulation.now += 10.0
    assert sent_away(simulation) == [], "nobody has come for them yet"
    # Their controller has made two others, which find no place: n0 is closed.
    again = [PodRef(PodUid(f"new-{i}"), f"new-{i}", "1") for i in range(2)]
    task = replace(gang.tasks[0], pods=(*left, *again))
    simulation.submit([replace(gang, tasks=(task,), revision=3)])
    simulation.now += 10.0
    assert sent_away(simulation) == [], "two wait for a place: they are away"
    simulation.put_nodes([node("n1", cards=8, cpu=64)])
    simulation.run()
    simulation.now += 20.0
    assert len(sent_away(simulation)) == 2, "they have places: it is the turn of the others"


def test_a_job_that_is_smaller_now_is_waited_for_no_longer_than_a_minute() -> None:
    gang = willing(job("g", pods=4, min_member=1, cards=1), jdb_max_unavailable="2")
    simulation = lent(gang)
    simulation.now = MORNING
    first = sent_away(simulation)
    simulation.gone([PodUid(uid) for uid in first])
    left = tuple(pod for task in gang.tasks for pod in task.pods if str(pod.uid) not in first)
    simulation.submit([replace(gang, tasks=(replace(gang.tasks[0], pods=left),), revision=2)])
    simulation.now += 30.0
    assert sent_away(simulation) == []
    simulation.now += 31.0
    assert len(sent_away(simulation)) == 2


def test_who_waits_for_a_place_counts_as_away_and_the_others_may_still_leave() -> None:
    """Three of four have places."""
    simulation = lent(willing(job("g", pods=4, min_member=1, cards=2), jdb_max_unavailable="2"), cards=6)
    assert len(simulation.claims) == 3
    simulation.now = MORNING
    assert len(sent_away(simulation)) == 1


def test_a_gang_keeps_the_least_that_it_asked_for() -> None:
    assert JDB_MIN_AVAILABLE == "volcano.sh/jdb-min-available"
    simulation = lent(willing(job("g", pods=4, min_member=1, cards=1), jdb_min_available="3"))
    simulation.now = MORNING
    assert len(sent_away(simulation)) == 1


def test_who_may_not_be_taken_away_is_not_asked_for() -> None:
    simulation = lent(replace(willing(job("a", cards=1)), preemptable=False))
    assert simulation.claims
    simulation.now = MORNING
    assert sent_away(simulation) == []


def test_whom_the_ledger_does_not_let_go_is_asked_for_two_minutes_later() -> None:
    simulation = lent(willing(job("a", cards=1)))
    simulation.now = MORNING
    (plan,) = simulation.scheduler.cycle(simulation.now, simulation.now).plans
    answer = PlanAnswer(plan=plan.id, job=plan.job, committed=False, reason=RefusalReason.VICTIM_PROTECTED)
    simulation.scheduler.on_answers(epoch=Epoch(1), index=Index(1), answers=[answer], now=simulation.now)
    simulation.now += 60.0
    assert sent_away(simulation) == []
    simulation.now += 75.0
    (again,) = simulation.run()
    assert again.id != plan.id, "the ledger has answered that one for good"


@pytest.mark.parametrize("notes", [{}, {"jdb_max_unavailable": "3"}, {"jdb_min_available": "25%"}])
def test_the_same_leave_as_in_a_simulated_cycle(notes: dict[str, str]) -> None:
    simulation = lent(*(willing(job(f"g{i}", pods=4, min_member=1, cards=1, created_at=float(i)), **notes) for i in range(2)))
    simulation.now = MORNING
    world = SmallWorld(1)
    world.columns.put_node(node("n0", cards=8, cpu=128, labels={REVOCABLE_ZONE: "night"}))
    for name in ("g0", "g1"):
        annotations = dict(willing(job("x"), **notes).annotations)
        world.gang(name, pods=4, min_member=1, on=[0] * 4, annotations=annotations)
    assert sent_away(simulation) == evicted(world.decide(TDM % "shuffle", now=MORNING))
