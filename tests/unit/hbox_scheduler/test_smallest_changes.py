"""The smallest change that helps a pending job: each one alone starts it, and one unit less does not."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from hbox_common.model import (
    CardRequest,
    Generation,
    HyperNode,
    Job,
    JobId,
    NodeName,
    Queue,
    QueueName,
    TopologyMode,
    TopologyWish,
    Verdict,
)
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.explanation import Change, ChangeKind, Fact, Owner
from hbox_common.model.queue import NO_CLASS
from hbox_scheduler.core.explain.changes import Attempt, ChangeLimits, FoundChanges, Trial
from hbox_scheduler.core.placement.trials import Trials
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from .test_defragmentation import spread
from .test_large_jobs import CARDS, Days

PATIENT = ChangeLimits(seconds=60.0)


def world(*nodes: str, cards: int = 8, model: str = "H100") -> Simulation:
    simulation = Simulation(policy_of(PolicyName.BINPACK), queues=[Queue(QueueName("default"))])
    simulation.put_nodes([node(name, cards=cards, model=model) for name in nodes])
    return simulation


def names(count: int) -> list[str]:
    return [f"n{number:02}" for number in range(count)]


def changes(simulation: Simulation, waits: Job, limits: ChangeLimits = PATIENT) -> FoundChanges:
    """After the job was tried and found no place."""
    simulation.submit([waits])
    assert simulation.run() == []
    return simulation.scheduler.reports.changes(waits.id, limits, lambda: 0.0)


def of_kind(found: Iterable[Change], kind: ChangeKind) -> list[dict[str, Fact]]:
    return [dict(one.facts) for one in found if one.kind is kind]


def test_gang_that_is_too_large_starts_with_as_many_pods_as_fit() -> None:
    found = changes(world(*names(16)), job("large", pods=20, cards=8))
    assert of_kind(found.changes, ChangeKind.PODS) == [{"pods": 16, "of": 20}]
    assert found.complete
    (change,) = (one for one in found.changes if one.kind is ChangeKind.PODS)
    assert change.owner is Owner.USER
    assert change.command == """kubectl -n default patch podgroup large --type merge -p '{"spec":{"minMember":16}}'"""


def test_pod_with_more_cards_than_a_node_has_starts_with_as_many_as_a_node_has() -> None:
    found = changes(world(*names(4)), job("wide", cards=9))
    assert of_kind(found.changes, ChangeKind.CARDS) == [{"cards": 8, "of": 9}]


def test_misspelled_model_is_replaced_by_the_most_similar_one() -> None:
    simulation = world(*names(3))
    simulation.put_nodes([node(f"a{number}", cards=8, model="A100") for number in range(5)])
    found = changes(simulation, job("typo", cards=CardRequest(1, models=("H1OO",))))
    assert of_kind(found.changes, ChangeKind.MODEL) == [{"model": "H100", "of": "H1OO", "nodes": 3}]
    assert found.changes[0].command == "metadata.annotations[nvidia.com/use-gputype]: H100"


def test_nodes_out_of_service_are_named_with_their_states() -> None:
    simulation = world(*names(12))
    simulation.put_nodes([node("cordoned", cards=8, model="H100", unschedulable=True)])
    simulation.put_nodes([node("silent", cards=8, model="H100", ready=False)])
    found = changes(simulation, job("fits", pods=13, cards=8))
    assert of_kind(found.changes, ChangeKind.NODES) == [
        {"count": 1, "among": 2, "nodes": ("cordoned", "silent"), "states": ("cordoned", "notReady")}
    ], "one of both suffices"
    assert [one.command for one in found.changes if one.kind is ChangeKind.NODES] == ["kubectl uncordon cordoned"]
    assert [one.owner for one in found.changes] == [Owner.USER, Owner.USER, Owner.OPERATOR]


def test_faulty_nodes_are_shown_and_not_uncordoned() -> None:
    simulation = world(*names(2))
    simulation.put_nodes([node("cordoned", cards=8, unschedulable=True), node("faulty", cards=8, unschedulable=True)])
    simulation.scheduler.on_verdict(Verdict(NodeName("faulty"), Generation(1), healthy=False))
    found = changes(simulation, job("all", pods=4, cards=8))
    (change,) = (one for one in found.changes if one.kind is ChangeKind.NODES)
    assert change.facts["states"] == ("cordoned", "unhealthy")
    assert change.command == "kubectl uncordon cordoned; hbox node show faulty"


def test_gang_in_a_leaf_that_is_too_small_starts_in_a_wider_domain_or_a_preferred_one() -> None:
    simulation = world(*names(8))
    leaves = [HyperNode(f"leaf-{leaf}", 1, nodes=tuple(map(NodeName, names(8)[4 * leaf : 4 * leaf + 4]))) for leaf in range(2)]
    simulation.scheduler.on_fabric([*leaves, HyperNode("spine", 2, children=("leaf-0", "leaf-1"))])
    waits = replace(job("near", pods=6, cards=8), topology=TopologyWish(TopologyMode.HARD, 1))
    found = changes(simulation, waits)
    assert of_kind(found.changes, ChangeKind.TIER) == [
        {"mode": "hard", "tier": 2, "of": 1},
        {"mode": "soft", "tier": 0, "of": 0},
    ]
    assert of_kind(found.changes, ChangeKind.PODS) == [{"pods": 4, "of": 6}]


def test_label_that_no_node_has_is_replaced_or_removed() -> None:
    simulation = world()
    simulation.put_nodes([node("n", cards=8, labels={"zone": "mars"})])
    found = changes(simulation, job("far", cards=1, node_selector={"zone": "moon"}))
    assert of_kind(found.changes, ChangeKind.SELECTOR) == [
        {"key": "zone", "value": "mars", "of": "moon"},
        {"key": "zone", "value": "", "of": "moon"},
    ]


@pytest.mark.parametrize(("cpu", "fits"), [(500_000, "64"), (65_000, "64"), (64_100, "64")])
def test_request_of_cpu_is_lowered_to_the_largest_free_amount(cpu: int, fits: str) -> None:
    found = changes(world("n"), job("big", cards=1, cpu_milli=cpu))
    (facts,) = of_kind(found.changes, ChangeKind.RESOURCES)
    assert (facts["resource"], facts["amount"]) == ("cpu", fits)


def test_memory_of_cards_is_lowered_to_what_a_card_has_free() -> None:
    found = changes(world("n"), job("big", cards=CardRequest(1, cores=0, memory_mib=200_000)))
    assert of_kind(found.changes, ChangeKind.RESOURCES) == [
        {"resource": "nvidia.com/gpumem", "amount": "40960", "of": "200000"}
    ]
    assert found.changes[0].command == "resources.limits[nvidia.com/gpumem]: 40960"


def full(queues: list[Queue], *, classes: dict[str, int] | None = None) -> Simulation:
    """Two nodes, whose 16 cards a job of queue `other` holds."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), queues=queues, conf=default_conf())
    simulation.put_nodes([node(name, cards=8) for name in names(2)])
    simulation.scheduler.on_priority_classes(classes or {})
    simulation.submit([job("runs", pods=2, cards=8, queue="other", min_member=1)])
    assert simulation.run()
    return simulation


def test_queue_that_does_not_exist_is_replaced_by_the_most_similar_one_that_the_namespace_may_use() -> None:
    simulation = world("n")
    for queue in (Queue(QueueName("research")), Queue(QueueName("reserve"), namespaces=("others",))):
        simulation.scheduler.on_queue(queue)
    found = changes(simulation, job("lost", cards=1, queue="reserv"))
    assert of_kind(found.changes, ChangeKind.QUEUE) == [{"queue": "research", "of": "reserv"}]


def test_queues_of_other_namespaces_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = world("n")
    for name, namespaces in (("theirs", ("others",)), ("ours", ("default",)), ("open", ())):
        simulation.scheduler.on_queue(Queue(QueueName(name), namespaces=namespaces))
    tried: list[str] = []
    attempt = Trials.attempt

    def noted(trials: Trials, trial: Trial) -> Attempt:
        tried.append(trial.job.queue)
        return attempt(trials, trial)

    monkeypatch.setattr(Trials, "attempt", noted)
    changes(simulation, job("wide", cards=9))
    assert list(dict.fromkeys(tried)) == ["default", "ours", "open"], "those for the namespace come first"


def test_limits_of_a_queue_and_of_those_above_it_are_raised_as_far_as_needed() -> None:
    simulation = world(*names(4))
    simulation.scheduler.on_queue(Queue(QueueName("team"), capability={GPU: 10}))
    simulation.submit([job("runs", cards=8, queue="team")])
    simulation.run()
    found = changes(simulation, job("more", pods=2, cards=4, queue="team"))
    assert of_kind(found.changes, ChangeKind.LIMIT) == [
        {"queue": "team", "rule": "capability", "resource": GPU, "amount": "16", "of": "10", "more": "6"}
    ]
    (change,) = (one for one in found.changes if one.kind is ChangeKind.LIMIT)
    assert (change.owner, change.command) == (Owner.QUEUE_ADMIN, f"hbox queue set team --capability {GPU}=16")
    assert of_kind(found.changes, ChangeKind.CARDS) == [{"cards": 1, "of": 4}]


def test_deserved_amount_is_raised_as_far_as_the_cards_have_to_be_reclaimed() -> None:
    queues = [Queue(QueueName("other"), deserved={GPU: 8}), Queue(QueueName("mine"), deserved={GPU: 2})]
    found = changes(full(queues), job("owner", cards=4, queue="mine"))
    assert of_kind(found.changes, ChangeKind.LIMIT) == [
        {"queue": "mine", "rule": "deserved", "resource": GPU, "amount": "4", "of": "2", "more": "2"}
    ]


def test_lowest_sufficient_priority_class_is_proposed_among_those_that_the_queue_admits() -> None:
    queues = [Queue(QueueName("other"), priority_classes=("low", "high", "higher", NO_CLASS))]
    classes = {"low": 0, "forbidden": 5, "high": 10, "higher": 20, "system-node-critical": 2_000_001_000}
    waits = replace(job("urgent", cards=8, queue="other"), priority_class="low")
    found = changes(full(queues, classes=classes), waits)
    assert of_kind(found.changes, ChangeKind.PRIORITY) == [{"class": "high", "value": 10, "of": "low"}]


def test_walltime_is_shortened_so_that_the_job_ends_before_a_gang_starts_on_reserved_nodes() -> None:
    days = Days(walltime="20m")
    days.fill(900)
    days.gang()
    reports = days.simulation.scheduler.reports
    while not (idle := CARDS - days.busy) or not reports.reservations:
        days.pass_time(10, stream=False)
    assert idle
    days.submit(late := job("late", cards=1, created_at=days.time_of_day), "10h")
    days.simulation.run()
    assert "late-0" not in days.simulation.claims
    found = reports.changes(late.id, PATIENT, lambda: 0.0)
    (facts,) = of_kind(found.changes, ChangeKind.WALLTIME)
    left_s = max(one.start for one in reports.reservations) - days.time_of_day
    assert facts == {"walltime": f"{int(left_s // 60)}m", "of": "10h"}


def test_moves_that_pay_are_counted_and_name_no_pod() -> None:
    simulation = spread("mode: preview")
    found = changes(simulation, job("wide", cards=8, pods=2, min_member=2, created_at=simulation.now))
    assert of_kind(found.changes, ChangeKind.MOVES) == [{"count": 4}]
    (change,) = (one for one in found.changes if one.kind is ChangeKind.MOVES)
    assert (change.owner, change.command) == (Owner.OPERATOR, "hbox defrag -o wide")


def test_two_changes_are_proposed_together_if_none_alone_helps() -> None:
    simulation = world()
    simulation.put_nodes([node("n", cards=8, labels={"zone": "mars"})])
    found = changes(simulation, job("both", cards=9, node_selector={"zone": "moon"}))
    (change,) = found.changes
    assert {change.kind, change.also[0].kind} == {ChangeKind.CARDS, ChangeKind.SELECTOR}
    assert change.facts == {"cards": 8, "of": 9}


def test_job_that_starts_as_it_is_needs_no_change() -> None:
    simulation = world("n")
    simulation.submit([fits := job("fits", cards=1)])
    found = simulation.scheduler.reports.changes(fits.id, ChangeLimits(), lambda: 0.0)
    assert found == FoundChanges((), 1, complete=True, starts=True)


def test_search_ends_at_its_limits_of_trials_and_of_time() -> None:
    simulation = world(*names(4))
    waits = job("large", pods=200, cards=8)
    few = changes(simulation, waits, ChangeLimits(probes=3))
    assert (few.changes, few.probes, few.complete) == ((), 3, False)
    ticks = iter(range(100))
    slow = simulation.scheduler.reports.changes(waits.id, ChangeLimits(seconds=2.0), lambda: float(next(ticks)))
    assert (slow.changes, slow.probes, slow.complete) == ((), 1, False)


def test_search_leaves_the_state_as_it_was() -> None:
    simulation = world(*names(6))
    simulation.put_nodes([node("cordoned", cards=8, model="H100", unschedulable=True)])
    simulation.submit([job("runs", pods=2, cards=8)])
    simulation.run()
    columns = simulation.scheduler.columns
    before = {
        name: getattr(columns, name).copy() for name in ("used", "card_pods", "card_cores_used", "schedulable", "card_ok")
    }
    risen, scheduler = columns.risen.end, simulation.scheduler
    simulation.submit([job("large", pods=5, cards=8)])
    simulation.run()
    waits = scheduler._placer.state(scheduler.index)
    assert changes(simulation, job("large", pods=5, cards=8)).changes
    for name, array in before.items():
        assert np.array_equal(getattr(columns, name), array), name
    assert columns.risen.end == risen, "no other pending job is retried"
    assert scheduler._placer.state(scheduler.index) == waits, "neither by turns"
    assert simulation.run() == []


def test_search_leaves_the_scores_of_nodes_as_they_were() -> None:
    """Prices of rooms follow the idle cards; cards that a trial takes do not count."""
    policy = policy_of(PolicyName.LEAST_WASTE)
    simulation = Simulation(policy, queues=[Queue(QueueName("default"))])
    simulation.put_nodes([node(name, cards=8, model="H100", shares=2) for name in names(6)])
    halves = CardRequest(2, cores=50, memory_percent=50)
    simulation.submit([job("large", pods=2, cards=8), job("small", pods=3, cards=2), job("waits", pods=40, cards=halves)])
    simulation.run()
    scheduler, (small,) = simulation.scheduler, simulation.scheduler._queue.add(job("next", cards=1)).tasks

    def scores() -> list[list[float]]:
        rows = slice(0, scheduler.columns.size)
        return [policy.score(scheduler.columns, rows, small).tolist(), scheduler.views.of(small).rank.tolist()]

    scores()  # with the prices of now
    before = scores()
    assert of_kind(scheduler.reports.changes(JobId("waits"), PATIENT, lambda: 0.0).changes, ChangeKind.PODS)
    assert scores() == before
