"""Jobs of one namespace that each cost much and find no place hold up nobody else's, and are all tried again in turn."""

import gc
from collections.abc import Iterable
from dataclasses import replace

import pytest

from hbox_common.model import (
    DEFAULT_QUEUE,
    CardRequest,
    Job,
    Match,
    MatchOperator,
    Neighbour,
    PodConstraints,
    PodTerm,
    PodUid,
    Queue,
    Selector,
)
from hbox_common.model.devices import Ask, PodDevices
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.task import Task
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.devices.models import REQUESTS
from hbox_scheduler.core.placement.runner import SessionRunner
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.protocol.limits import Limits
from hbox_scheduler.core.queueing import unschedulable
from hbox_scheduler.core.queueing.shapes import Within
from hbox_scheduler.core.queueing.unschedulable import LOOKS, SPARE
from hbox_scheduler.core.simulate.simulation import Simulation, job, node
from hbox_scheduler.core.steps.placer import BY_OTHERS, RETRIED

HOST = "kubernetes.io/hostname"
MANY, FEW = 200, 16


def world() -> Simulation:
    made = Simulation(policy_of(PolicyName.BINPACK), queues=[Queue(DEFAULT_QUEUE)], conf=default_conf())
    made.put_nodes(node(f"n{i}", cpu=64, labels={HOST: f"n{i}"}) for i in range(4))
    return made


def near(simulation: Simulation, name: str, whom: str, *, namespace: str, created_at: float) -> Job:
    """A job whose pod goes only where a pod with the label `app: whom` is."""
    term = PodTerm(HOST, Selector((Match("app", MatchOperator.IN, (whom,)),)))
    simulation.scheduler.on_neighbours([Neighbour(PodUid(f"{name}-0"), namespace, {}, PodConstraints(affinity=(term,)))])
    return replace(job(name, created_at=created_at), namespace=namespace)


def flood(simulation: Simulation) -> list[Job]:
    return [near(simulation, f"flood-{i:03}", f"friend-{i}", namespace="flood", created_at=float(i)) for i in range(MANY)]


def plain(name: str) -> Job:
    return replace(job(name, created_at=10_000.0), namespace="other")


def cycles(simulation: Simulation, until: str, most: int) -> int:
    """How many cycles, all at this time, pass before this pod has its place."""
    for count in range(1, most + 1):
        simulation.step()
        if PodUid(until) in simulation.claims:
            return count
    return most + 1


def befriend(simulation: Simulation, whom: str, name: str, namespace: str) -> None:
    simulation.scheduler.on_neighbours([Neighbour(PodUid(f"{name}-0"), namespace, {"app": whom})])
    simulation.submit([replace(job(name, created_at=9_000.0), namespace=namespace)])
    simulation.run()


def sessions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each session has from now on."""
    looked: list[int] = []
    original = SessionRunner.place

    def place(self: SessionRunner, entries: list[object], *more: object, **limits: object) -> object:
        looked.append(len(entries))
        return original(self, entries, *more, **limits)  # type: ignore[arg-type]

    monkeypatch.setattr(SessionRunner, "place", place)
    return looked


def test_newcomers_of_others_come_after_a_few_though_they_are_younger() -> None:
    simulation = world()
    simulation.submit(flood(simulation))
    simulation.step()
    simulation.submit([plain("one")])
    assert cycles(simulation, "one-0", 5) == 1


def test_what_others_get_waits_for_no_try_of_a_namespace_of_which_many_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = world()
    simulation.submit(flood(simulation))
    simulation.step()
    simulation.submit([plain("one")])
    looked = sessions(monkeypatch)
    out = simulation.step()
    assert looked == [1]
    assert out.more, "the others have the next cycle"
    assert PodUid("one-0") in simulation.claims
    simulation.step()
    assert len(looked) > 1


def wishing(name: str, number: int, namespace: str) -> Job:
    """A job of its own kind, of those that wait for room on nodes."""
    made = replace(job(name, cpu_milli=60_000 - number, created_at=float(number)), namespace=namespace)
    return replace(made, tasks=(replace(made.tasks[0], node_selector={"there": "no"}),))


def test_a_class_of_another_namespace_is_examined_before_hundreds_of_one_and_all_of_these_in_turn() -> None:
    simulation = world()
    simulation.submit([wishing(f"flood-{i:03}", i, "flood") for i in range(MANY)])
    simulation.submit([job(f"full-{i}", cpu_milli=64_000, created_at=9_000.0) for i in range(4)])
    simulation.submit([replace(job("lone", cpu_milli=50_000, created_at=9_500.0), namespace="other")])
    simulation.submit([replace(job("last", cpu_milli=40_000, created_at=9_600.0), namespace="flood")])
    simulation.run()
    simulation.now += 10.0
    simulation.run()
    assert PodUid("lone-0") not in simulation.claims
    simulation.finish([PodUid("full-0-0"), PodUid("full-1-0")])
    simulation.step()
    simulation.step()
    assert PodUid("lone-0") in simulation.claims
    for _ in range(2 * MANY // LOOKS):
        simulation.scheduler.columns.risen.extend([0])  # something comes free all the time
        simulation.step()
    assert PodUid("last-0") in simulation.claims


def test_newcomers_of_both_take_turns_while_a_backlog_is_there() -> None:
    simulation = world()
    simulation.submit([*flood(simulation), plain("one")])
    assert cycles(simulation, "one-0", 5) <= 2


def test_a_change_has_a_few_of_those_who_wait_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = world()
    simulation.submit(flood(simulation))
    simulation.run()
    looked = sessions(monkeypatch)
    simulation.now += 10.0
    simulation.submit([plain("one")])
    simulation.run()
    assert 1 <= sum(looked) <= 20
    assert PodUid("one-0") in simulation.claims


def test_each_is_tried_again_after_a_change() -> None:
    simulation = world()
    simulation.submit(flood(simulation))
    simulation.run()
    befriend(simulation, f"friend-{MANY - 1}", "friend", "flood")
    for _ in range(20):
        simulation.now += 0.25
        simulation.run()
    assert PodUid(f"flood-{MANY - 1:03}-0") in simulation.claims


def test_another_namespace_has_a_turn_among_those_that_are_tried_again() -> None:
    simulation = world()
    simulation.submit([*flood(simulation), near(simulation, "lone", "server", namespace="other", created_at=8_000.0)])
    simulation.run()
    befriend(simulation, "server", "server", "other")
    simulation.now += 2.5
    simulation.run()
    simulation.now += 0.25
    simulation.run()
    assert PodUid("lone-0") in simulation.claims


def test_jobs_of_more_namespaces_than_are_tried_at_a_time_all_have_their_turn() -> None:
    simulation = world()
    lone = [
        near(simulation, f"lone-{i:02}", f"friend-{i}", namespace=f"space-{i % (2 * RETRIED)}", created_at=float(i))
        for i in range(4 * RETRIED)
    ]
    simulation.submit(lone)
    simulation.run()
    last = lone[2 * RETRIED - 1]
    befriend(simulation, f"friend-{2 * RETRIED - 1}", "friend", last.namespace)
    for _ in range(2):
        simulation.now += 0.25
        simulation.run()
    assert PodUid(f"{last.id}-0") in simulation.claims


def test_a_failure_costs_what_its_own_job_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that wishes for certain pods does not end the session of others before as many failed as may."""
    simulation = world()
    large = [
        replace(job(f"large-{i:02}", cpu_milli=64_001 + i, created_at=float(i)), namespace="other")
        for i in range(Limits().session_failures // BY_OTHERS + 1)
    ]
    simulation.submit([*large, near(simulation, "lone", "nobody", namespace="flood", created_at=100.0)])
    looked = sessions(monkeypatch)
    simulation.step()
    assert looked == [len(large) + 1]


def test_who_was_tried_since_the_last_change_waits_for_the_next() -> None:
    simulation = world()
    simulation.submit(flood(simulation))
    simulation.run()
    for _ in range(20):
        simulation.now += 0.25
        simulation.run()
    wake_at = simulation.step().wake_at
    assert wake_at is None or wake_at > simulation.now + 10.0


def test_jobs_that_come_and_go_without_a_place_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its own shape, and each with a wish for a card of its own. One of the namespace is tried in a cycle, so that few classes have to be too many."""
    monkeypatch.setattr("hbox_scheduler.core.queueing.unschedulable.SPARE", FEW)
    simulation = world()
    made = simulation.scheduler
    for start in range(0, 4 * SPARE, 256):
        jobs = [job(f"f{i}", cpu_milli=100_000 + i, cards=0) for i in range(start, start + 256)]
        jobs += [wishing_a_card(f"c{i}", f"none-{i}") for i in range(start, start + 256)]
        simulation.submit(jobs)
        for _ in range(5):
            simulation.step()
        made.on_withdrawn([one.id for one in jobs], [1_000] * len(jobs))
        simulation.step()
        assert len(made._unschedulable._classes) <= FEW
    assert len(made._demand.cards) <= 2 * REQUESTS


def test_what_pods_ask_for_is_known_once_and_for_as_long_as_somebody_has_it() -> None:
    tasks = Tasks(Columns())
    one = tasks.of(job("a", cpu_milli=1).tasks[0])
    assert tasks.of(job("b", cpu_milli=1).tasks[0]) is one
    for number in range(100):
        tasks.of(job("c", cpu_milli=2 + number).tasks[0])
    gc.collect()
    assert list(tasks._known.values()) == [one]


def wishing_a_card(name: str, card: str) -> Job:
    made = job(name, cards=1)
    devices = PodDevices((Ask("NVIDIA", 1),), wishes=(("nvidia.com/use-gpuuuid", card),))
    return replace(made, tasks=(replace(made.tasks[0], cards=CardRequest(1, devices=devices)),))


def test_of_a_namespace_with_thousands_of_classes_a_part_is_looked_at_in_a_cycle_and_each_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of the first, one in the middle and the last fit when a node comes free. A part is 128 here, and hundreds are as many as thousands."""
    part = 128
    monkeypatch.setattr(unschedulable, "SCANNED", part)
    simulation = world()
    count = 3 * part
    fits = {1, count // 2, count - 1}
    full = [job(f"full-{i}", cpu_milli=64_000, created_at=0.0) for i in range(4)]
    simulation.submit(full)
    simulation.run()
    flood = [
        replace(job(f"f{i}", cpu_milli=1_000 + i if i in fits else 100_000 + i, created_at=1.0 + i), namespace="flood")
        for i in range(count)
    ]
    simulation.submit(flood)
    simulation.run()
    simulation.now += 10.0
    simulation.run()
    asked: list[int] = []
    original = Within.any_of

    def any_of(self: Within, tasks: Iterable[Task]) -> bool:
        asked[-1] += 1
        return original(self, tasks)

    simulation.finish([PodUid("full-0-0")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Within, "any_of", any_of)
        for _ in range(6):
            asked.append(0)
            simulation.step()
    assert max(asked) <= part
    assert {f"f{i}-0" for i in fits} <= simulation.claims.keys()
    assert not simulation.step().more
