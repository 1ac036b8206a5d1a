"""A record under another policy: what is said of it is what that policy does when the same work comes to it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hbox_common.model import (
    CardSlice,
    Claim,
    ClaimId,
    ClaimState,
    GroupState,
    Job,
    JobId,
    NodeName,
    NodeZones,
    PlanId,
    PodUid,
    QueueName,
    SchedulerId,
)
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.nodezones import PodZones, ZoneAmounts
from hbox_common.model.numa import NumaPolicy
from hbox_common.model.resources import CPU, PODS
from hbox_scheduler.adapters.recorder import Recorder
from hbox_scheduler.core import Limits, Scheduler
from hbox_scheduler.core.record.record import INPUTS, Head, Reader
from hbox_scheduler.core.record.replay import begins
from hbox_scheduler.core.simulate import job
from hbox_scheduler.core.simulate.comparison import Comparison, compared
from hbox_scheduler.core.simulate.whatif import CHANGED, OUTSIDE, OWN, WhatIf
from hbox_scheduler.core.simulate.workload import End, Workload, timed
from hbox_scheduler.core.steps import reservations

from .whatif_world import POLICIES, Arrival, World, arrivals, six_nodes


@pytest.fixture(autouse=True)
def reserving_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large jobs wait for most of the minutes that pass here: every second would be thousands of makings, nearly all of them alike."""
    monkeypatch.setattr(reservations, "EVERY_S", 6.0)


def head_of(policy: str) -> Head:
    return Head("0.1.0", SchedulerId("simulation"), Limits(), POLICIES[policy], 0.0)


def recorded(folder: Path, policy: str, work: Callable[[Callable[[Scheduler], None]], object]) -> Path:
    """A file in which a scheduler under `policy` was recorded while `work` ran; it is handed what to call with that scheduler."""
    recorder = Recorder(folder, most_mib=64)
    work(lambda scheduler: recorder.attach(scheduler, head_of(policy)))
    recorder.close()
    assert recorder.path is not None
    return recorder.path


def under(record: Path, policy: str) -> tuple[Workload, WhatIf, Comparison]:
    workload = Workload()
    with record.open("rb") as file:
        reader = Reader(file, "the record")
        head = reader.head
        for at, call in timed(begins(reader.calls())):
            workload.take(at, call)
    workload.close()
    other = head_of(policy)
    run = WhatIf(replace(head, conf=other.conf), workload)
    with record.open("rb") as file:
        run.run(Reader(file, "the record").calls())
    return workload, run, compared(workload, run)


def world(policy: str, seed: int, attach: Callable[[Scheduler], None] = lambda _: None) -> World:
    made = World(policy, attach)
    made.run(six_nodes(), arrivals(seed))
    return made


@pytest.mark.parametrize(("policy", "seed"), [("binpack", 2), ("binpack", 3), ("least-waste", 3), ("spreading", 2)])
def test_under_the_same_policy_every_decision_is_alike(tmp_path: Path, policy: str, seed: int) -> None:
    record = recorded(tmp_path, policy, lambda attach: world(policy, seed, attach))
    _, run, found = under(record, policy)
    assert found.same_node == len(run.places)
    assert (found.elsewhere, found.by_record_alone, found.by_other_alone, found.neither, found.first) == (0, 0, 0, 0, None)
    assert found.evictions[0] == found.evictions[1] > 0
    assert found.cards is not None
    assert found.cards[0] == pytest.approx(found.cards[1], abs=1e-3)


@pytest.mark.parametrize(
    ("one", "other", "seed"),
    [("binpack", "least-waste", 2), ("binpack", "least-waste", 1), ("binpack", "spreading", 1), ("spreading", "binpack", 2)],
)
def test_what_another_policy_would_have_done_is_what_it_does(tmp_path: Path, one: str, other: str, seed: int) -> None:
    record = recorded(tmp_path, one, lambda attach: world(one, seed, attach))
    truth = world(other, seed)
    workload, run, found = under(record, other)
    until = workload.until
    expected = {pod: (round(at, 6), on) for pod, (at, on) in truth.places.items() if at <= until}
    assert {pod: (round(at, 6), on) for pod, (at, on) in run.places.items()} == expected
    assert run.evictions == sum(at <= until for at in truth.evicted_at)
    assert found.elsewhere > 0
    assert found.first is not None


def test_of_every_input_it_is_known_how_it_is_told() -> None:
    """Who adds an input has to say whether it comes from outside, or follows from decisions."""
    assert set(INPUTS) == OUTSIDE | CHANGED | OWN
    assert len(OUTSIDE) + len(CHANGED) + len(OWN) == len(INPUTS)


def by_hand(policy: str, tell: Callable[[World], None], *, nodes: int = 1) -> Callable[[Callable[[Scheduler], None]], None]:
    """A world of 250 s in which `tell` arranges what happens."""

    def work(attach: Callable[[Scheduler], None]) -> None:
        made = World(policy, attach)
        tell(made)
        made.run(six_nodes()[:nodes], [Arrival(240.0, job("last", cpu_milli=1), 1.0)], until=250.0)

    return work


def test_who_is_withdrawn_before_the_record_places_it_is_withdrawn_from_its_place_too(tmp_path: Path) -> None:
    """The other policy evicts `low` for `top`, which its user deletes at 50 s: `low` starts over then."""

    def tell(world: World) -> None:
        world.at(0.0, lambda: world.arrives(Arrival(0.0, job("low", cards=8), 100.0)))
        world.at(10.0, lambda: world.arrives(Arrival(10.0, job("top", cards=8, priority=9), 100.0)))
        world.at(50.0, lambda: world.withdraw(JobId("top")))

    workload, run, found = under(recorded(tmp_path, "patient", by_hand("patient", tell)), "binpack")
    assert run.places[PodUid("top-0")] == (11.0, "n0")
    assert (found.by_other_alone, list(found.jobs_by_other_alone), found.evictions) == (1, ["default/top"], (0, 1))
    assert workload.withdrawn_at(PodUid("top-0")) == 50.0
    # 11 s of low, 39 s of top, 100 s of low; on record 100 s of low.
    assert (workload.held.card_s, run.held.card_s) == (8 * 100.0, 8 * 150.0)
    waits = found.queues[QueueName("default")]
    assert (waits.recorded.longest_s, waits.other.longest_s, waits.other.waiting) == (40.0, 1.0, 0)


def test_who_waits_as_the_record_ends_counts_with_its_wait(tmp_path: Path) -> None:
    def tell(world: World) -> None:
        world.at(0.0, lambda: world.arrives(Arrival(0.0, job("low", cards=8), 150.0)))
        world.at(100.0, lambda: world.arrives(Arrival(100.0, job("large", pods=2, cards=8), 10.0)))

    _, _, found = under(recorded(tmp_path, "patient", by_hand("patient", tell)), "binpack")
    waits = found.queues[QueueName("default")]
    assert (waits.jobs, waits.recorded.waiting, waits.other.waiting) == (3, 1, 1)
    assert waits.recorded.longest_s == waits.other.longest_s == found.seconds - 100.0
    assert found.neither == 2


def test_pods_of_others_hold_what_they_held(tmp_path: Path) -> None:
    def tell(world: World) -> None:
        foreign = Claim(
            id=ClaimId("c"),
            pod_uid=PodUid("foreign"),
            namespace="kube-system",
            pod="foreign",
            job=JobId("foreign"),
            plan=PlanId(""),
            queue=QueueName("default"),
            priority=0,
            node=NodeName("n0"),
            requests={GPU: 8, PODS: 1},
            slices=tuple(CardSlice(index, 100, 40_960) for index in range(8)),
            state=ClaimState.POSTED,
            preemptable=False,
        )
        world.at(0.0, lambda: world.simulation.hold([foreign]))
        world.at(5.0, lambda: world.arrives(Arrival(5.0, job("a", cards=8), 10.0)))
        world.at(30.0, lambda: world.simulation.gone([foreign.pod_uid]))

    _, run, found = under(recorded(tmp_path, "patient", by_hand("patient", tell)), "spreading")
    assert run.places[PodUid("a-0")] == (30.0, "n0")
    assert (found.outside, found.same_node, found.elsewhere) == (1, 2, 0)


def test_who_is_on_a_node_that_goes_comes_back_elsewhere(tmp_path: Path) -> None:
    """On record both jobs are on the node that goes, under the other policy one is."""

    def tell(world: World) -> None:
        for name in "ab":
            world.at(0.0, lambda name=name: world.arrives(Arrival(0.0, job(name, cards=2), 100.0)))  # type: ignore[misc]
        world.at(20.0, lambda: world.node_goes(six_nodes()[0]))

    workload, run, found = under(recorded(tmp_path, "binpack", by_hand("binpack", tell, nodes=2)), "spreading")
    assert sorted(node for _, node in (run.places[PodUid("a-0")], run.places[PodUid("b-0")])) == ["n0", "n1"]
    assert [workload.lives[PodUid(uid)].end for uid in ("a-0", "b-0")] == [End.LOST, End.LOST]
    assert found.lost == 1
    assert found.cut_short == 0, "those that came in their place tell how long the work takes"
    # Whoever lost 20 s of work starts over, once here and twice on record.
    assert (workload.held.card_s, run.held.card_s) == (2 * (20.0 + 100.0) * 2, 2 * (120.0 + 100.0))


def test_a_podgroup_waits_until_the_other_policy_admits_it(tmp_path: Path) -> None:
    group = GroupState(
        id=JobId("g"),
        namespace="default",
        name="g",
        queue=QueueName("default"),
        priority=0,
        min_member=1,
        created_at=0.0,
        min_resources={CPU: 10_000_000},
        revision=1,
    )

    def tell(world: World) -> None:
        world.at(0.0, lambda: world.simulation.put_groups([group]))
        world.at(0.0, lambda: world.arrives(Arrival(0.0, replace(job("g"), gang=True), 10.0)))

    record = recorded(tmp_path, "patient", by_hand("patient", tell))
    _, _, strict = under(record, "strict")
    assert list(strict.jobs_by_record_alone) == ["default/g"]
    _, _, patient = under(record, "patient")
    assert patient.same_node == 2


def zones_of_node(*, outside: tuple[dict[str, int], ...] = ({}, {}), uid: str = "outside") -> NodeZones:
    """A node whose kubelet takes pods within one NUMA node, eight CPUs each; somebody of outside has some."""
    most = {"cpu": 8}
    free = [{"cpu": 8 - own.get("cpu", 0)} for own in outside]
    amounts = tuple(ZoneAmounts(place, dict(most), dict(most), own) for place, own in enumerate(free))
    pods = (PodZones("kube-system", uid, uid, outside),) if any(outside) else ()
    return NodeZones(
        NodeName("n0"), 1.0, NumaPolicy.SINGLE, zones=amounts, aligned=("cpu",), pods=pods, by_pod=True, source="node-agent"
    )


def whole_cpus(name: str, cpu: int) -> Job:
    made = job(name, cpu_milli=1000 * cpu)
    return replace(made, tasks=tuple(replace(task, guaranteed=True) for task in made.tasks))


def test_what_kubelets_gave_to_others_stays_given_and_pods_placed_here_get_their_own(tmp_path: Path) -> None:
    """Zone 0 has two CPUs left and zone 1 eight: of two pods with six each, one waits under every policy, though sums would do for both."""

    def tell(world: World) -> None:
        told = zones_of_node(outside=({"cpu": 6}, {}))
        world.at(0.0, lambda: world.simulation.scheduler.on_zones(told))
        for name in "ab":
            world.at(5.0, lambda name=name: world.arrives(Arrival(5.0, whole_cpus(name, 6), 100.0)))  # type: ignore[misc]

    for policy in ("spreading", "patient"):
        _, run, _ = under(recorded(tmp_path / policy, "patient", by_hand("patient", tell)), policy)
        first, second = sorted(at for at, _ in (run.places[PodUid("a-0")], run.places[PodUid("b-0")]))
        assert (first, second) == (5.0, 105.0)


def test_what_the_kubelet_gave_to_pods_of_the_record_is_free_for_others(tmp_path: Path) -> None:
    """On record the pod is in zone 1, as its kubelet says; here it is in zone 0, and zone 1 is free for the next."""

    def tell(world: World) -> None:
        world.at(0.0, lambda: world.simulation.scheduler.on_zones(zones_of_node()))
        world.at(5.0, lambda: world.arrives(Arrival(5.0, whole_cpus("a", 6), 10.0)))
        given = zones_of_node(outside=({}, {"cpu": 6}), uid="a-0")
        world.at(7.0, lambda: world.simulation.scheduler.on_zones(given))
        world.at(8.0, lambda: world.arrives(Arrival(8.0, whole_cpus("b", 8), 10.0)))

    record = recorded(tmp_path, "patient", by_hand("patient", tell))
    _, run, found = under(record, "patient")
    assert [run.places[PodUid(uid)][0] for uid in ("a-0", "b-0")] == [5.0, 8.0]
    assert (found.elsewhere, found.by_record_alone) == (0, 0)
