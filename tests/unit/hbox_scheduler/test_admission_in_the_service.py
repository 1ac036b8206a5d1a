"""The running scheduler lets PodGroups in as one session of its policy does, says so until it is heard, and places nobody before that is told."""

from dataclasses import replace
from random import Random

import pytest

from hbox_common.model import GroupPhase, GroupState, Job, JobId, PodUid, Queue, QueueName, QueuePhase, ResourceQuota
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.entities import Gang, Member, QueueInfo
from hbox_scheduler.core.cluster.snapshot import Cluster
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.framework.conf import Conf, parse_conf
from hbox_scheduler.core.placement.running import vector_of
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.protocol.limits import Limits, Proposals
from hbox_scheduler.core.simulate.cycles import CycleOptions, simulate
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

POLICY = """
actions: "enqueue, allocate"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
  - {name: sla}
- plugins:
  - {name: overcommit, arguments: {overcommit-factor: 1.0}}
  - {name: predicates}
  - {name: proportion}
"""
OPEN = POLICY.replace("enqueue, ", "")


def conf(text: str) -> Conf:
    return parse_conf(text, plugins=list(PLUGINS))


def world(policy: str = POLICY, *, cards: int = 8, queues: list[Queue] | None = None) -> Simulation:
    made = Simulation(policy_of(PolicyName.BINPACK), queues=queues or [Queue(QueueName("default"))], conf=conf(policy))
    made.put_nodes([node("n0", cards=cards)])
    made.now = 1000.0
    return made


def group(name: str, cards: int, *, age_s: float = 0.0, **more: object) -> GroupState:
    fields = {"phase": GroupPhase.PENDING, "revision": 1, "queue": QueueName("default")} | more
    return GroupState(
        id=JobId(name),
        namespace="default",
        name=name,
        priority=0,
        min_member=1,
        created_at=1000.0 - age_s,
        min_resources={GPU: cards},
        **fields,  # type: ignore[arg-type]
    )


def cycle(simulation: Simulation, *, later_s: float = 1.0) -> Proposals:
    """One look, with nothing accepted and nobody told."""
    simulation.now += later_s
    out = simulation.scheduler.cycle(simulation.now, simulation.now)
    simulation.verdicts.update((verdict.job, verdict.message) for verdict in out.verdicts)
    return out


def tell(simulation: Simulation, *groups: GroupState) -> None:
    simulation.scheduler.on_groups(groups)


# Who is let in.


@pytest.mark.parametrize("seed", range(12))
def test_those_are_let_in_that_one_session_lets_in(seed: int) -> None:
    rng = Random(seed)
    queues = [Queue(QueueName("a"), weight=1, capability={GPU: 12}), Queue(QueueName("b"), weight=3)]
    simulation = world(cards=24, queues=queues)
    groups, jobs = list[GroupState](), list[Job]()
    for i in range(14):
        name, queue, cards = f"g{i}", QueueName(rng.choice("ab")), rng.randint(1, 6)
        phase = rng.choice((GroupPhase.PENDING, GroupPhase.PENDING, GroupPhase.INQUEUE))
        groups.append(group(name, cards, age_s=float(i), queue=queue, phase=phase))
        if rng.random() < 0.6:
            jobs.append(job(name, pods=2, cards=1, queue=queue, created_at=1000.0 - i))
    tell(simulation, *groups)
    simulation.submit(jobs)
    assert sorted(cycle(simulation).admitted) == in_one_session(groups, jobs, queues)


def in_one_session(groups: list[GroupState], jobs: list[Job], queues: list[Queue]) -> list[JobId]:
    """By `hbox simulate cycle`'s own code."""
    columns = Columns()
    columns.put_node(node("n0", cards=24))
    tasks = Tasks(columns)
    gangs = {
        one.id: Gang(one.id, "default", one.name, one.queue, 0, 1, one.created_at, one.phase, min_resources=one.min_resources)
        for one in groups
    }
    for one in jobs:
        for spec in one.tasks:
            task = tasks.of(spec)
            vector = vector_of(task, columns)
            gang = gangs[one.id]
            gang.members += [
                Member(pod.uid, "default", pod.name, gang, "", task, vector, one.created_at, 0) for pod in spec.pods
            ]
    infos = [QueueInfo(queue.name, weight=queue.weight, capability=queue.capability) for queue in queues]
    before = {name for name, gang in gangs.items() if gang.phase is GroupPhase.PENDING}
    cluster = Cluster(list(gangs.values()), infos)
    simulate(columns, cluster, conf(POLICY.replace(", allocate", "")), CycleOptions(now=1001.0))
    return sorted(name for name in before if gangs[name].phase is GroupPhase.INQUEUE)


def test_what_was_let_in_counts_until_it_is_gone() -> None:
    simulation = world()
    tell(simulation, group("a", 5, age_s=9), group("b", 5))
    assert cycle(simulation).admitted == ["a"]
    assert cycle(simulation).admitted == []
    assert simulation.verdicts[JobId("b")] == (
        "NotEnqueued: overcommit: 5 nvidia.com/gpu asked for, 5 promised to others that wait, of 8 left (1 times what there is)"
    )
    tell(simulation, group("a", 5, age_s=9, revision=2, gone=True))
    assert cycle(simulation).admitted == ["b"]


def test_what_runs_counts_with_its_minimum_also_once_nothing_of_it_waits() -> None:
    simulation = world()
    simulation.put_groups([group("a", 6, phase=GroupPhase.INQUEUE)])
    simulation.submit([job("a", pods=2, cards=2)])
    simulation.run()
    simulation.scheduler.on_withdrawn([JobId("a")], [99])
    tell(simulation, group("a", 6, phase=GroupPhase.RUNNING, revision=2), group("b", 3), group("c", 2))
    assert cycle(simulation).admitted == ["c"]
    simulation.gone([PodUid("a-0"), PodUid("a-1")])
    tell(simulation, group("a", 6, revision=3, phase=GroupPhase.COMPLETED))
    assert cycle(simulation).admitted == ["b"]


def test_who_runs_already_is_enqueued_whatever_its_phase_says() -> None:
    simulation = world(OPEN)
    tell(simulation, group("a", 9))
    simulation.submit([job("a", pods=2, cards=1)])
    simulation.run()
    simulation.scheduler.follow(conf(POLICY))
    assert cycle(simulation).admitted == ["a"]


def test_whoever_waited_long_enough_is_let_in_when_the_time_has_come() -> None:
    simulation = world()
    tell(simulation, group("a", 20, annotations={"sla-waiting-time": "1m"}))
    out = cycle(simulation)
    assert out.admitted == []
    assert out.wake_at is not None
    assert cycle(simulation, later_s=58.0).admitted == []
    assert cycle(simulation, later_s=2.0).admitted == ["a"]


@pytest.mark.parametrize(
    ("queues", "why"),
    [
        ([], "NotEnqueued: QueueNotFound: "),
        ([Queue(QueueName("q"), phase=QueuePhase.CLOSED)], "NotEnqueued: QueueClosed: "),
        ([Queue(QueueName("q"), namespaces=("elsewhere",))], "NotEnqueued: QueueNotForNamespace: "),
        (
            [Queue(QueueName("q"), capability={GPU: 1})],
            "NotEnqueued: proportion: 2 nvidia.com/gpu asked for, and queue q has promised 0 nvidia.com/gpu of at most 1",
        ),
    ],
)
def test_who_stays_outside_is_told_why(queues: list[Queue], why: str) -> None:
    simulation = world(queues=queues)
    tell(simulation, group("a", 2, queue=QueueName("q")))
    assert cycle(simulation).admitted == []
    assert simulation.verdicts[JobId("a")].startswith(why)


# What is placed.


def test_pods_are_placed_once_the_phase_is_told_and_not_before() -> None:
    simulation = world()
    tell(simulation, group("a", 2))
    simulation.submit([job("a", pods=2, cards=1)])
    out = cycle(simulation)
    assert (out.admitted, out.plans, simulation.verdicts) == (["a"], [], {})
    tell(simulation, group("a", 2, revision=2, admitted=True))
    assert cycle(simulation).plans == []
    tell(simulation, group("a", 2, revision=3, phase=GroupPhase.INQUEUE))
    assert [len(plan.placements) for plan in cycle(simulation).plans] == [2]


def test_pods_of_who_stays_outside_wait_with_the_reason_of_enqueue() -> None:
    simulation = world()
    simulation.put_groups([group("a", 9)])
    simulation.submit([job("a", cards=1)])
    assert cycle(simulation).plans == []
    assert simulation.verdicts[JobId("a")].startswith("NotEnqueued: overcommit: 9 nvidia.com/gpu")
    simulation.put_nodes([node("n1", cards=8)])
    simulation.now += 1.0
    assert len(simulation.run()) == 1


@pytest.mark.parametrize("policy", [conf(OPEN), default_conf()], ids=["open", "own"])
def test_without_the_action_nobody_waits(policy: Conf) -> None:
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=policy)
    simulation.put_nodes([node("n0", cards=8)])
    tell(simulation, group("a", 99))
    simulation.submit([job("a", cards=1)])
    out = cycle(simulation)
    assert (out.admitted, len(out.plans)) == ([], 1)


def test_enqueue_comes_and_goes_with_the_policy() -> None:
    simulation = world()
    tell(simulation, group("a", 9))
    simulation.submit([job("a", cards=1)])
    assert cycle(simulation).plans == []
    simulation.scheduler.follow(conf(OPEN))
    out = cycle(simulation)
    assert (out.admitted, len(out.plans)) == ([], 1)
    simulation.scheduler.follow(conf(POLICY))
    tell(simulation, group("b", 9))
    simulation.submit([job("b", cards=1)])
    assert cycle(simulation).plans == []


# What is said, and heard.


def test_it_is_said_until_it_is_heard() -> None:
    simulation = world()
    again_s = Limits().resend_after_s
    tell(simulation, group("a", 2))
    assert cycle(simulation).admitted == ["a"]
    assert cycle(simulation).admitted == []
    out = cycle(simulation, later_s=again_s)
    assert (out.admitted, out.repeated) == (["a"], True)
    tell(simulation, group("a", 2, revision=2))  # by whoever did not hear it: it was killed, or listens to another
    out = cycle(simulation)
    assert (out.admitted, out.repeated) == (["a"], False)
    tell(simulation, group("a", 2, revision=3, admitted=True))
    assert cycle(simulation, later_s=again_s).admitted == []
    tell(simulation, group("a", 2, revision=4))  # by a successor, killed before the phase was written
    assert cycle(simulation).admitted == ["a"]


def test_a_snapshot_has_it_said_again_and_ends_what_is_not_in_it() -> None:
    simulation = world()
    a, b = group("a", 5), group("b", 5)
    tell(simulation, a, b)
    (first,) = cycle(simulation).admitted
    simulation.scheduler.on_jobs_snapshot([], since=simulation.scheduler.mark(), groups=[a, b])
    assert cycle(simulation).admitted == [first]
    mark = simulation.scheduler.mark()
    simulation.scheduler.on_jobs_snapshot([], since=mark, groups=[b if first == "a" else a])
    assert cycle(simulation).admitted == ["b" if first == "a" else "a"]


def test_late_and_repeated_news_changes_nothing() -> None:
    simulation = world()
    old = group("a", 5, revision=3)
    tell(simulation, replace(old, phase=GroupPhase.INQUEUE, revision=4), group("b", 5))
    assert cycle(simulation).admitted == []
    tell(simulation, old, replace(old, phase=GroupPhase.INQUEUE, revision=4), old)
    assert cycle(simulation).admitted == []
    tell(simulation, replace(old, revision=6, gone=True))
    assert cycle(simulation).admitted == ["b"]
    tell(simulation, replace(old, phase=GroupPhase.INQUEUE, revision=5))
    tell(simulation, group("c", 3))
    assert cycle(simulation).admitted == ["c"]


def test_a_successor_counts_what_was_let_in_before_it() -> None:
    simulation = world()
    tell(simulation, group("a", 4, admitted=True), group("b", 4, phase=GroupPhase.INQUEUE), group("c", 1, age_s=99))
    out = cycle(simulation)
    assert (out.admitted, out.plans) == ([], [])


def test_many_who_wait_outside_are_looked_at_more_rarely() -> None:
    """Each costs a look something, and whoever is to be placed waits for the look."""
    limits = Limits(session_jobs=2)
    simulation = Simulation(policy_of(PolicyName.BINPACK), limits=limits, conf=conf(POLICY))
    simulation.put_nodes([node("n0", cards=1)])
    tell(simulation, *(group(f"g{i}", 9) for i in range(8)))
    cycle(simulation)
    simulation.scheduler.admission.invalidate()
    out = cycle(simulation, later_s=0.01)
    assert out.wake_at == pytest.approx(simulation.now - 0.01 + 4 * limits.session_every_s)


def test_quotas_of_namespaces_are_kept_as_they_are_told() -> None:
    simulation = world(POLICY.replace("- {name: sla}", "- {name: sla}\n  - {name: resourcequota}"))
    simulation.scheduler.on_namespace_quotas([ResourceQuota("default", "cards", {GPU: 4}, {GPU: 3})])
    tell(simulation, group("a", 2))
    assert cycle(simulation).admitted == []
    assert simulation.verdicts[JobId("a")] == (
        "NotEnqueued: resourcequota: 2 nvidia.com/gpu asked for, and ResourceQuota cards has 3 taken of 4"
    )
    simulation.scheduler.on_namespace_quotas([ResourceQuota("default", "cards", {GPU: 4}, {GPU: 2})])
    assert cycle(simulation).admitted == ["a"]
    tell(simulation, group("b", 1))
    assert cycle(simulation).admitted == [], "a's pods are not made yet"


def test_a_gang_all_of_whose_pods_have_gates_keeps_nobody_out() -> None:
    """It is let in with all there is, and keeps that once its pods may be placed."""
    simulation = world()
    whole = group("a", 8, age_s=9, gated={GPU: 8})
    tell(simulation, whole, group("b", 5))
    assert sorted(cycle(simulation).admitted) == ["a", "b"]
    tell(simulation, replace(whole, revision=2, phase=GroupPhase.INQUEUE, gated={}), group("c", 1))
    assert cycle(simulation).admitted == []


@pytest.mark.parametrize(
    "policy",
    [
        POLICY,
        POLICY.replace("proportion", "capacity").replace("  - {name: overcommit, arguments: {overcommit-factor: 1.0}}\n", ""),
    ],
)
def test_gang_that_no_set_of_nodes_holds_reserves_nothing(policy: str) -> None:
    """Two nodes with one card each; `imp` requests two cards on one node."""
    made = world(policy, cards=1)
    made.put_nodes([node("n1", cards=1)])
    made.put_groups([group("imp", 2, age_s=10.0)])
    made.submit([job("imp", cards=2)])
    made.run()
    made.put_groups([group("ok", 1)])
    made.submit([job("ok", cards=1, created_at=1.0)])
    made.now += 1.0
    made.run()
    assert {claim.job for claim in made.claims.values()} == {"ok"}


def test_gang_reserves_its_minimum_again_after_its_node_arrives() -> None:
    made = world(cards=1)
    made.put_nodes([node("n1", cards=1)])
    made.put_groups([group("imp", 2, age_s=10.0)])
    made.submit([job("imp", cards=2)])
    made.run()
    made.put_nodes([node("n2", cards=2)])
    made.submit([job("foreign", cards=2, created_at=0.0)])
    made.put_groups([group("late", 3)])
    made.now += 1.0
    made.run()
    assert made.groups[JobId("late")].phase is GroupPhase.PENDING
