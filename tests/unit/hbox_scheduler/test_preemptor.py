"""Room that others hold: taken back for queues that deserve it, and for work of higher priority in the same queue."""

from collections import Counter
from dataclasses import replace

import pytest

from hbox_common.events import PlanAnswer
from hbox_common.model import CardRequest, Epoch, Index, Job, Queue, QueueName, QueuePhase, SchedulerId
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core import Scheduler
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import DEFAULT_CONF
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.protocol.limits import Limits
from hbox_scheduler.core.queueing.jobs import JobState
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

CONF = parse_conf(DEFAULT_CONF, plugins=list(PLUGINS))


def world(nodes: int, queues: list[Queue]) -> Simulation:
    simulation = Simulation(policy_of(PolicyName.BINPACK), queues=queues, conf=CONF)
    simulation.put_nodes(node(f"n{i}", cards=8, cpu=128) for i in range(nodes))
    return simulation


def share(name: str, deserved: int) -> Queue:
    return Queue(QueueName(name), deserved={GPU: deserved})


def held(simulation: Simulation, queue: str) -> int:
    return sum(claim.requests.get(GPU, 0) for claim in simulation.claims.values() if claim.queue == queue)


def settle(simulation: Simulation, rounds: int = 20) -> None:
    """Run, let those evicted go, and so on until nothing moves."""
    for _ in range(rounds):
        simulation.now += 1.0
        plans = simulation.run()
        if not plans and not simulation.evicted:
            return
        simulation.leave()
    raise AssertionError("it never settles")


def test_a_queue_gets_back_exactly_what_it_deserves_and_the_borrower_keeps_its_own_share() -> None:
    """10 nodes of 8: b has borrowed all 80, a and b deserve 40 each, a submits 48."""
    simulation = world(10, [share("a", 40), share("b", 40)])
    simulation.submit(job(f"b{i}", cards=1, queue="b", created_at=float(i)) for i in range(80))
    simulation.run()
    assert held(simulation, "b") == 80
    simulation.submit(job(f"a{i}", cards=1, queue="a", created_at=100.0 + i) for i in range(48))
    settle(simulation)
    assert (held(simulation, "a"), held(simulation, "b")) == (40, 40)
    assert simulation.scheduler.reports.jobs_by_state[JobState.PROPOSED] == 0, "who was given room is as settled as anybody"


def test_nobody_is_evicted_while_there_is_room() -> None:
    simulation = world(10, [share("a", 40), share("b", 40)])
    simulation.submit(job(f"b{i}", cards=1, queue="b") for i in range(60))
    simulation.run()
    simulation.submit(job(f"a{i}", cards=1, queue="a", created_at=9.0) for i in range(20))
    plans = simulation.run()
    assert not any(plan.victims for plan in plans)
    assert (held(simulation, "a"), held(simulation, "b")) == (20, 60)


def test_a_gang_takes_all_that_it_needs_or_nothing() -> None:
    """a deserves 16: a gang of 2 x 8 takes two nodes, one of 3 x 8 takes none."""
    simulation = world(4, [share("a", 16), share("b", 16)])
    simulation.submit(job(f"b{i}", cards=8, queue="b", created_at=float(i)) for i in range(4))
    simulation.run()
    simulation.submit([job("big", pods=3, cards=8, queue="a", created_at=50.0)])
    settle(simulation)
    assert (held(simulation, "a"), held(simulation, "b")) == (0, 32)
    simulation.submit([job("right", pods=2, cards=8, queue="a", created_at=60.0)])
    settle(simulation)
    assert (held(simulation, "a"), held(simulation, "b")) == (16, 16)


def test_higher_priority_takes_from_lower_in_its_own_queue_and_equal_priority_never_does() -> None:
    simulation = world(1, [Queue(QueueName("q"))])
    simulation.submit(job(f"low{i}", cards=1, queue="q", priority=1, created_at=float(i)) for i in range(8))
    simulation.run()
    simulation.submit([job("equal", cards=2, queue="q", priority=1, created_at=20.0)])
    settle(simulation)
    assert held(simulation, "q") == 8
    assert not any(claim.job == "equal" for claim in simulation.claims.values())
    simulation.submit([job("high", cards=2, queue="q", priority=9, created_at=30.0)])
    settle(simulation)
    assert sum(claim.job == "high" for claim in simulation.claims.values()) == 1
    assert sum(claim.job.startswith("low") for claim in simulation.claims.values()) == 6


def test_what_may_not_be_preempted_stays() -> None:
    simulation = world(1, [share("a", 4), share("b", 4)])
    simulation.submit(replace(job(f"b{i}", cards=1, queue="b"), preemptable=False) for i in range(8))
    simulation.run()
    simulation.submit([job("a0", cards=1, queue="a", created_at=9.0)])
    settle(simulation)
    assert (held(simulation, "a"), held(simulation, "b")) == (0, 8)


@pytest.mark.parametrize(
    ("pods", "least", "asks", "left"),
    [
        (8, 8, 4, 0),  # it has to break: all of it goes, though its queue deserves 4
        (8, 4, 4, 4),  # it gives what it can spare
        (8, 6, 2, 6),
        (8, 6, 4, 0),  # what it can spare, and then the rest together
        (8, 8, 1, 0),
    ],
)
def test_a_gang_across_the_line_gives_what_it_can_spare_and_then_goes_whole(
    pods: int, least: int, asks: int, left: int
) -> None:
    simulation = world(1, [share("a", 4), share("b", 4)])
    simulation.submit([job("b", pods=pods, cards=1, queue="b", min_member=least)])
    simulation.run()
    assert held(simulation, "b") == pods
    simulation.submit([job("a", pods=asks, cards=1, queue="a", created_at=9.0)])
    settle(simulation)
    assert (held(simulation, "a"), held(simulation, "b")) == (asks, left)


def test_no_gang_goes_below_what_its_queue_is_guaranteed() -> None:
    simulation = world(1, [share("a", 4), replace(share("b", 4), guarantee={GPU: 1})])
    simulation.submit([job("b", pods=8, cards=1, queue="b")])
    simulation.run()
    simulation.submit([job("a", pods=4, cards=1, queue="a", created_at=9.0)])
    settle(simulation)
    assert (held(simulation, "a"), held(simulation, "b")) == (0, 8)


@pytest.mark.parametrize("late", ["small", "large"])
def test_what_victims_leave_is_kept_for_whom_they_left(late: str) -> None:
    """A job that comes while victims are leaving does not get their room, whatever its size."""
    simulation = world(1, [share("a", 4), share("b", 4)])
    simulation.submit(job(f"b{i}", cards=1, queue="b", created_at=float(i)) for i in range(8))
    simulation.run()
    simulation.submit([job("gang", pods=4, cards=1, queue="a", created_at=50.0)])
    simulation.now = 1.0
    plans = simulation.run()
    assert [len(plan.victims) for plan in plans] == [4]
    victims = simulation.evicted
    simulation.evicted = victims[2:]
    simulation.finish([claim.pod_uid for claim in victims[:2]])
    simulation.submit([job("late", cards=1 if late == "small" else 2, queue="b", created_at=0.0)])
    assert not simulation.run()
    simulation.leave()
    assert [plan.job for plan in simulation.run()] == ["gang"]
    assert (held(simulation, "a"), held(simulation, "b")) == (4, 4)


def test_job_takes_a_new_node_while_its_victims_leave() -> None:
    simulation = world(1, [share("a", 4), share("b", 4)])
    simulation.submit(job(f"b{i}", cards=1, queue="b", created_at=float(i)) for i in range(8))
    simulation.run()
    simulation.submit([job("a0", cards=1, queue="a", created_at=50.0)])
    (plan,) = simulation.run()
    assert len(plan.victims) == 1
    simulation.put_nodes([node("n1", cards=8, cpu=128)])
    simulation.now += 1.0
    assert [plan.victims for plan in simulation.run()] == [()]
    assert [claim.node for claim in simulation.claims.values() if claim.queue == "a"] == ["n1"]


@pytest.mark.parametrize(
    "revised",
    [job("a0", pods=3, cards=8, queue="a", priority=5), job("a0", cards=2, queue="a", priority=5)],
    ids=["a gang of three", "another amount"],
)
def test_room_that_was_made_for_a_job_is_not_taken_for_what_the_job_has_become(revised: Job) -> None:
    """a's pod of 8 cards has others leave for it, and is revised before they are gone."""
    simulation = world(1, [share("a", 8)])
    simulation.submit(job(f"low{i}", cards=1, queue="a") for i in range(8))
    simulation.run()
    simulation.submit([job("a0", cards=8, queue="a", priority=5, created_at=9.0)])
    simulation.run()
    assert len(simulation.evicted) == 8
    simulation.submit([replace(revised, revision=2, created_at=9.0)])
    simulation.leave()
    simulation.now += 1.0
    plans = [plan for plan in simulation.run() if plan.name == "a0"]
    assert [request[GPU] for plan in plans for request in plan.requests] == ([2] if revised.min_member == 1 else [])


def test_a_queue_that_falls_below_its_share_takes_back_for_work_that_waited_before() -> None:
    """a has its 4 and one waits; two of a's end and b's are first on the cards: the one that waited has a right to one now."""
    simulation = world(1, [share("a", 4), share("b", 4)])
    simulation.submit(job(f"a{i}", cards=1, queue="a", created_at=float(i)) for i in range(4))
    simulation.submit(job(f"b{i}", cards=1, queue="b", created_at=float(i)) for i in range(6))
    simulation.run()
    simulation.submit([job("late", cards=1, queue="a", created_at=99.0)])
    settle(simulation)
    assert (held(simulation, "a"), held(simulation, "b")) == (4, 4)
    simulation.finish([claim.pod_uid for claim in list(simulation.claims.values()) if claim.job in ("a0", "a1")])
    settle(simulation)
    assert any(claim.job == "late" for claim in simulation.claims.values())


def test_work_that_waited_in_a_closed_queue_takes_what_is_its_own_when_it_opens() -> None:
    a = share("a", 4)
    simulation = world(1, [replace(a, phase=QueuePhase.CLOSED), share("b", 4)])
    simulation.submit(job(f"b{i}", cards=1, queue="b", created_at=float(i)) for i in range(8))
    simulation.submit(job(f"a{i}", cards=1, queue="a", created_at=float(i)) for i in range(6))
    settle(simulation)
    assert (held(simulation, "a"), held(simulation, "b")) == (0, 8)
    simulation.scheduler.on_queue(a)
    simulation.now += 5.0  # looks that found nothing are had more rarely
    settle(simulation)
    assert (held(simulation, "a"), held(simulation, "b")) == (4, 4)


def test_a_policy_that_comes_later_is_followed_for_jobs_that_wait_already() -> None:
    """Nobody is evicted under a policy without reclaim; with the next one the queue gets what it deserves, though nothing else has changed."""
    simulation = world(1, [share("a", 4), share("b", 4)])
    simulation.scheduler.follow(replace(CONF, actions=("allocate", "preempt")))
    simulation.submit(job(f"b{i}", cards=1, queue="b", created_at=float(i)) for i in range(8))
    simulation.run()
    simulation.submit([job("a0", pods=4, cards=1, queue="a", created_at=9.0)])
    settle(simulation)
    assert (held(simulation, "a"), held(simulation, "b")) == (0, 8)
    simulation.scheduler.follow(CONF)
    settle(simulation)
    assert (held(simulation, "a"), held(simulation, "b")) == (4, 4)


def test_room_that_more_comes_of_than_one_needs_is_given_to_the_next_and_keeps_nobody_from_taking() -> None:
    """b's jobs have four cards each: of every one that leaves the next three of a's get a card too, and all are found in one look."""
    simulation = world(4, [share("a", 16), share("b", 16)])
    simulation.submit(job(f"b{i}", cards=4, queue="b", created_at=float(i)) for i in range(8))
    simulation.run()
    simulation.submit(job(f"a{i}", cards=1, queue="a", created_at=100.0 + i) for i in range(16))
    plans = simulation.run()
    assert sum(len(plan.victims) for plan in plans) == 4
    settle(simulation)
    assert (held(simulation, "a"), held(simulation, "b")) == (16, 16)


def test_whole_cards_are_taken_back_from_those_who_share_them() -> None:
    """Eight cards of two nodes, each shared by two of b's: who asks for a whole one has both of a card's leave, and nobody else."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), queues=[share("a", 3), share("b", 13)], conf=CONF)
    simulation.put_nodes(node(f"n{i}", cards=4, cpu=128, shares=10) for i in range(2))
    half = CardRequest(1, 50, 0, 50)
    simulation.submit(job(f"b{i}", cards=half, queue="b", created_at=float(i)) for i in range(16))
    simulation.run()
    assert len(simulation.claims) == 16
    simulation.submit(job(f"a{i}", cards=1, queue="a", created_at=100.0 + i) for i in range(3))
    plans = simulation.run()
    victims = [victim.pod_uid for plan in plans for victim in plan.victims]
    cards = Counter((simulation.claims[pod].node, simulation.claims[pod].slices[0].index) for pod in victims)
    assert [*cards.values()] == [2]
    settle(simulation)
    assert (held(simulation, "a"), held(simulation, "b")) == (1, 14)


def waiting_for_others(limits: Limits) -> Scheduler:
    """`high` waits: four cards of n0 are `low`'s, of which it may have all, and `small` has the one of n1, which the ledger has not answered yet."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=CONF)
    simulation.put_nodes([node("n0", cards=4)])
    simulation.submit([job("low", cards=4)])
    simulation.run()
    one = Scheduler(id=SchedulerId("s"), policy=policy_of(PolicyName.BINPACK), conf=CONF, limits=limits)
    for state in (node("n0", cards=4), node("n1", cards=1)):
        one.on_node(state)
    one.on_queue(Queue(QueueName("default")))
    claims = list(simulation.claims.values())
    one.on_claims_snapshot(epoch=Epoch(1), index=Index(5), frozen=False, claims=claims, now=0.0)
    one.on_jobs([job("small", cards=1, priority=10), job("high", cards=4, priority=9)])
    return one


def test_a_scheduler_that_may_propose_nothing_more_waits_for_answers_and_does_not_look_for_victims_meanwhile() -> None:
    """The broker is away, and as much is under way as may be."""
    one = waiting_for_others(Limits(outstanding=1))
    [small] = one.cycle(1.0).plans
    for now in (1.1, 3.0, 5.5):
        out = one.cycle(now)
        assert out.plans == []
        assert out.wake_at is not None
        assert out.wake_at > now, "it would spin"
    answer = PlanAnswer(plan=small.id, job=small.job, committed=True)
    one.on_answers(epoch=Epoch(1), index=Index(6), answers=[answer], now=6.0)
    [plan] = one.cycle(6.1).plans
    assert [victim.pod_uid for victim in plan.victims] == ["low-0"]


def test_a_policy_by_which_nobody_leaves_has_nobody_looked_for() -> None:
    one = waiting_for_others(Limits(outstanding=1))
    [small] = one.cycle(1.0).plans
    one.follow(parse_conf('actions: "allocate"\ntiers:\n- plugins: [{name: priority}]\n', plugins=list(PLUGINS)))
    answer = PlanAnswer(plan=small.id, job=small.job, committed=True)
    one.on_answers(epoch=Epoch(1), index=Index(9), answers=[answer], now=6.0)
    one.cycle(9.0)
    out = one.cycle(10.0)
    assert out.wake_at is None or out.wake_at > 10.0, "it would spin"
