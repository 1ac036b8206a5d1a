"""Requests of health-monitor: which pods leave sick hardware, together with which others, and when. Two nodes with two cards each."""

from dataclasses import replace

import pytest

from hbox_common.events import BindOutcome, EvictionRule, EvictKind, HealthEvictionAsked
from hbox_common.kube import Queue as QueueObject
from hbox_common.kube.objects import Metadata
from hbox_common.kube.queues import queue_of
from hbox_common.model import CardId, Generation, JobId, NodeName, PodPhase, Queue, QueueName, QueuePhase, Verdict
from hbox_common.model.annotations import ON_SICK_HARDWARE
from hbox_common.model.devices import card_id
from hbox_common.model.sickhardware import SickPolicy
from hbox_ledger.core.evictions.sickhardware import KEPT_S
from hbox_ledger.core.step import Step

from .conftest import World

A = NodeName("a")
SICK = (card_id("a-0"),)


def asks(
    world: World, *, ended: bool = False, cards: tuple[CardId, ...] = SICK, policy: SickPolicy = SickPolicy.RESTART
) -> None:
    world.state.sick.put(HealthEvictionAsked(node=A, incident="i1", cards=cards, reason="XID 79", policy=policy, ended=ended))


def gang(world: World, *, min_member: int = 2) -> None:
    """Three pods of one job: on the sick card, next to it, and on node b. And a neighbour on node b."""
    places = [("g0", "a", [world.card(0)]), ("g1", "a", [world.card(1)]), ("g2", "b", [world.card(0)])]
    world.commits(world.plan("p", *places, job="gang", min_member=min_member))
    world.commits(world.plan("q", ("other", "b", [world.card(1)])))
    for pod in ("g0", "g1", "g2", "other"):
        world.outcome(pod, BindOutcome.BOUND, at=str(world.claim(pod).node))


def states(world: World, policy: str) -> None:
    """The job's annotation."""
    world.see(replace(world.fact("g0", "a", slices=[world.on("a", 0)], job="gang"), on_sick=policy))


def evicted(step: Step) -> set[str]:
    return {one.pod for one in step.evictions if one.kind is EvictKind.EVICT}


def test_a_gang_leaves_sick_hardware_whole_and_its_neighbours_stay(world: World) -> None:
    gang(world)
    asks(world)
    step = world.wait(1)
    assert evicted(step) == {"g0", "g1", "g2"}
    [receipt] = step.receipts
    assert (receipt.rule, {pod.pod for pod in receipt.pods}, receipt.pods_kept) == (EvictionRule.HEALTH, {"g0", "g1", "g2"}, 0)
    assert receipt.message == "a-0 of node a is sick: XID 79 (incident i1)"


def test_a_request_that_stands_evicts_once(world: World) -> None:
    gang(world)
    asks(world)
    world.wait(1)
    asks(world)
    for _ in range(3):
        step = world.wait(1)
        assert (step.evictions, step.receipts) == ([], [])


def test_no_plan_of_the_gang_is_accepted_before_its_last_pod_is_gone(world: World) -> None:
    gang(world)
    asks(world)
    world.wait(1)
    for pod in ("g0", "g1"):
        world.see(world.fact(pod, "a", PodPhase.GONE))
    successors = world.plan("r", ("n0", "a", [world.card(1)]), ("n1", "a", [world.card(1)]), job="gang", min_member=2)
    assert world.refuses(successors) == "GangIncomplete"
    world.see(world.fact("g2", "b", PodPhase.GONE))
    world.commits(world.plan("s", ("n0", "a", [world.card(1)]), ("n1", "b", [world.card(0)]), job="gang", min_member=2))


def test_a_pod_of_no_gang_leaves_alone(world: World) -> None:
    gang(world, min_member=1)
    asks(world)
    assert evicted(world.wait(1)) == {"g0"}


def test_a_member_that_is_still_being_bound_leaves_with_its_gang(world: World) -> None:
    places = [("g0", "a", [world.card(0)]), ("g1", "b", [world.card(1)])]
    world.commits(world.plan("p", *places, job="gang", min_member=2))
    world.outcome("g0", BindOutcome.BOUND, at="a")
    asks(world)
    assert {(one.pod, one.kind) for one in world.wait(1).evictions} == {("g0", EvictKind.EVICT), ("g1", EvictKind.REVOKE)}
    [late] = world.outcome("g1", BindOutcome.BOUND, at="b").evictions
    assert (late.kind, late.reason) == (EvictKind.EVICT, "a-0 of node a is sick: XID 79 (incident i1)")


@pytest.mark.parametrize(
    ("word", "leave"),
    [("restart", {"g0", "g1", "g2"}), ("checkpoint", {"g0", "g1", "g2"}), ("shrink", {"g0"}), ("ignore", set()), ("x", set())],
)
def test_the_jobs_annotation_decides_and_an_unknown_word_counts_for_nothing(world: World, word: str, leave: set[str]) -> None:
    gang(world)
    states(world, word)
    asks(world, policy=SickPolicy.IGNORE)
    assert evicted(world.wait(1)) == leave


def test_a_gang_that_is_created_anew_keeps_its_policy(world: World) -> None:
    gang(world)
    states(world, "ignore")
    for pod, node in (("g0", "a"), ("g1", "a"), ("g2", "b")):
        world.see(world.fact(pod, node, PodPhase.GONE))
    world.wait(60)
    asks(world)
    world.commits(world.plan("r", ("h0", "a", [world.card(0)]), job="gang", min_member=1))
    assert world.wait(1).evictions == [], "before any pod of the new ones is observed"


def test_a_gang_at_its_minimum_does_not_shrink_but_restarts(world: World) -> None:
    gang(world, min_member=3)
    states(world, "shrink")
    asks(world)
    assert evicted(world.wait(1)) == {"g0", "g1", "g2"}


def test_the_queues_annotation_counts_for_jobs_without_one_and_below_that_queue(world: World) -> None:
    gang(world)
    world.state.queues[QueueName("above")] = Queue(QueueName("above"), annotations={ON_SICK_HARDWARE: "ignore"})
    world.state.queues[QueueName("default")] = Queue(QueueName("default"), parent="above")
    asks(world)
    assert evicted(world.wait(1)) == set()
    states(world, "shrink")
    assert evicted(world.wait(1)) == {"g0"}


def test_a_queue_with_an_unknown_policy_stays_open_and_reports_it() -> None:
    notes = {ON_SICK_HARDWARE: "restrat"}
    queue = queue_of(QueueObject(metadata=Metadata(name="q", uid="u", annotations=notes)))
    assert queue.phase is QueuePhase.OPEN
    assert queue.unknown_fields == (
        "annotation hbox.io/on-sick-hardware is 'restrat', ignored; it may be restart, checkpoint, shrink, ignore",
    )


def test_only_a_checkpoint_has_a_notice(world: World) -> None:
    gang(world)
    states(world, "checkpoint")
    asks(world)
    step = world.wait(1)
    assert {one.notice_s for one in step.evictions} == {600}
    assert [receipt.notice_s for receipt in step.receipts] == [600]


def test_a_request_that_has_ended_evicts_nothing(world: World) -> None:
    gang(world)
    asks(world)
    asks(world, ended=True)
    assert evicted(world.wait(1)) == set()


def test_a_request_without_cards_concerns_all_cards_of_the_node(world: World) -> None:
    world.commits(world.plan("p", ("one", "a", [world.card(0)])), world.plan("q", ("two", "b", [world.card(0)])))
    world.commits(world.plan("r", ("plain", "a", [])))
    for pod in ("one", "two", "plain"):
        world.outcome(pod, BindOutcome.BOUND, at=str(world.claim(pod).node))
    asks(world, cards=())
    assert evicted(world.wait(1)) == {"one"}


def test_pods_of_a_mig_instance_leave_with_its_card(world: World) -> None:
    node = world.state.nodes[A]
    instance = replace(node.cards[0], uuid="MIG-1", parent="a-0")
    world.state.know(A, state=replace(node, cards=(instance, node.cards[1])))
    world.commits(world.plan("p", ("one", "a", [replace(world.card(0), card=instance.id)])))
    world.outcome("one", BindOutcome.BOUND, at="a")
    asks(world)
    assert evicted(world.wait(1)) == {"one"}


def test_pods_of_other_schedulers_stay(world: World) -> None:
    world.see(world.fact("foreign", "a", slices=[world.on("a", 0)], ours=False))
    asks(world)
    assert evicted(world.wait(1)) == set()


def test_an_eviction_that_a_budget_refuses_is_tried_again_after_a_minute(world: World) -> None:
    gang(world, min_member=1)
    asks(world)
    assert evicted(world.wait(1)) == {"g0"}
    world.blocked("g0", generation=2)
    world.outcome("g0", BindOutcome.BOUND, at="a")
    assert evicted(world.wait(30)) == set()
    assert evicted(world.wait(31)) == {"g0"}


def test_evictions_wait_while_evictions_are_paused(world: World) -> None:
    gang(world)
    world.state.brake.most = 1
    world.state.brake.refusal(1, live=4, now=world.now)
    asks(world)
    assert evicted(world.wait(1)) == set()
    assert world.state.brake.paused
    assert evicted(world.wait(300)) == {"g0", "g1", "g2"}


def test_policies_are_kept_only_for_jobs_with_claims(world: World) -> None:
    gang(world)
    states(world, "ignore")
    for pod, where in (("g0", "a"), ("g1", "a"), ("g2", "b")):
        world.see(world.fact(pod, where, PodPhase.GONE))
    world.wait(1)
    world.wait(KEPT_S)
    assert world.state.sick.policy(JobId("gang")) is None
    assert not world.state.sick._without


def test_a_gang_on_two_sick_cards_does_not_shrink_below_its_minimum(world: World) -> None:
    gang(world)
    states(world, "shrink")
    asks(world)
    assert evicted(world.wait(1)) == {"g0"}
    world.state.sick.put(HealthEvictionAsked(node=A, incident="i2", cards=(card_id("a-1"),), reason="XID 48"))
    assert evicted(world.wait(1)) == {"g1", "g2"}


def test_a_gang_that_cannot_leave_sick_hardware_is_not_completed_there(world: World) -> None:
    gang(world, min_member=3)
    asks(world)
    world.wait(1)
    for pod, node in (("g1", "a"), ("g2", "b")):
        world.see(world.fact(pod, node, PodPhase.GONE))
    world.blocked("g0")
    rest = world.plan("r", ("n0", "a", [world.card(1)]), ("n1", "b", [world.card(0)]), job="gang", min_member=3)
    assert "a-0 of node a is sick: XID 79" in world.refusal(rest)
    world.see(world.fact("g0", "a", PodPhase.GONE))
    assert not world.state.gangs


def test_a_gang_with_a_protected_member_on_sound_hardware_is_completed(world: World) -> None:
    gang(world, min_member=3)
    asks(world)
    world.wait(1)
    for pod, node in (("g0", "a"), ("g1", "a"), ("other", "b")):
        world.see(world.fact(pod, node, PodPhase.GONE))
    world.blocked("g2")
    world.commits(world.plan("r", ("n0", "a", [world.card(1)]), ("n1", "b", [world.card(1)]), job="gang", min_member=3))


def test_a_restarted_ledger_states_the_same_reason_for_late_evictions(world: World) -> None:
    places = [("g0", "a", [world.card(0)]), ("g1", "b", [world.card(1)])]
    world.commits(world.plan("p", *places, job="gang", min_member=2))
    world.outcome("g0", BindOutcome.BOUND, at="a")
    asks(world)
    world.wait(1)
    world.state.gangs[JobId("gang")].why = ""  # it is not stored
    world.wait(1)
    [late] = world.outcome("g1", BindOutcome.BOUND, at="b").evictions
    assert late.reason == "a-0 of node a is sick: XID 79 (incident i1)"


def wide(world: World, job: str = "gang", *, on_a: tuple[int, ...] = (0, 1), min_member: int = 2) -> None:
    """A gang with a pod on node a and one on node b."""
    places = [(f"{job}-0", "a", [world.card(index) for index in on_a]), (f"{job}-1", "b", [world.card(0)])]
    world.commits(world.plan(job, *places, job=job, min_member=min_member))
    for pod, where in ((f"{job}-0", "a"), (f"{job}-1", "b")):
        world.outcome(pod, BindOutcome.BOUND, at=where)


def asks_jobs(world: World, *jobs: str, cards: tuple[str, ...] = ("a-0", "a-1")) -> None:
    world.state.sick.put(
        HealthEvictionAsked(node=A, incident="i1", cards=tuple(map(card_id, cards)), jobs=jobs, reason="XID 154")
    )


def multi_gpu_off(world: World) -> None:
    world.state.know(A, verdict=Verdict(A, Generation(1), healthy=True, multi_gpu=False, reason="XID 154"))


def test_a_named_job_leaves_a_node_whose_verdict_refuses_its_pod(world: World) -> None:
    wide(world)
    multi_gpu_off(world)
    asks_jobs(world, "gang")
    step = world.wait(1)
    assert evicted(step) == {"gang-0", "gang-1"}
    [receipt] = step.receipts
    assert receipt.message == "node a is sick: XID 154 (incident i1)", "its cards are not"


def test_a_named_job_stays_if_the_verdict_admits_its_pods(world: World) -> None:
    """Else its successors would be placed there and evicted, again and again."""
    wide(world, on_a=(0,))
    multi_gpu_off(world)
    asks_jobs(world, "gang", cards=("a-0",))
    assert evicted(world.wait(1)) == set()
    assert not world.state.gangs


def test_jobs_that_are_not_named_stay(world: World) -> None:
    wide(world, min_member=1)
    multi_gpu_off(world)
    asks_jobs(world, "another")
    assert evicted(world.wait(1)) == set()
