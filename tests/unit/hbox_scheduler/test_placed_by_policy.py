"""A scheduler with a policy of the user's places every job as a session of that policy does."""

from dataclasses import replace
from random import Random

import pytest

from hbox_common.model import CardRequest, Job, JobId, Neighbour, NodeState, PodUid, Queue, QueueName
from hbox_common.model.annotations import HIERARCHY, HIERARCHY_WEIGHTS, OVER_QUOTA_WEIGHT, WALLTIME
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.entities import Gang, Member, QueueInfo, Status
from hbox_scheduler.core.cluster.snapshot import Cluster
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.framework import GroupPhase, Session
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.framework.turns import ServiceOrder
from hbox_scheduler.core.placement.running import vector_of
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import DEFAULT_CONF
from hbox_scheduler.core.policy.ledgerrules import as_the_ledger_judges
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of
from hbox_scheduler.core.protocol.limits import Limits
from hbox_scheduler.core.simulate.cycles import CycleOptions, simulate
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from ...policies import VOLCANO

SPREAD = """
actions: "allocate, backfill"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
  - {name: drf}
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder, arguments: {leastrequested.weight: 10, balancedresource.weight: 0}}
"""

BY_MODEL = SPREAD.replace(
    "  - {name: nodeorder",
    "  - {name: card-models, arguments: {reserve.percent: 50, reserve.for: 1000000h}}\n  - {name: nodeorder",
)

#: HBox's own, of which nobody has to leave here.
OURS = DEFAULT_CONF.replace(", reclaim, preempt, gangreclaim, gangpreempt", "")

RESERVING = """
actions: "allocate, backfill"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
  - {name: predicates}
  - {name: reservation, arguments: {after: 10m, hold: 30m}}
"""


def world(conf: str, nodes: list[NodeState], queues: list[Queue]) -> Simulation:
    made = Simulation(policy_of(PolicyName.BINPACK), queues=queues, conf=parse_conf(conf, plugins=list(PLUGINS)))
    made.put_nodes(nodes)
    return made


def places(simulation: Simulation) -> dict[str, str]:
    return {str(uid): str(claim.node) for uid, claim in simulation.claims.items()}


def test_bare_pods_go_where_the_policy_says_and_not_where_the_setting_does() -> None:
    nodes = [node(f"n{i}", cards=8, cpu=64) for i in range(4)]
    simulation = world(SPREAD, nodes, [Queue(QueueName("default"))])
    simulation.submit(job(f"p{i}", cards=1, created_at=float(i)) for i in range(4))
    simulation.run()
    assert sorted(places(simulation).values()) == ["n0", "n1", "n2", "n3"]


def test_queues_take_turns_by_their_weights_in_the_hierarchy_that_they_are_annotated_with() -> None:
    paths = {"a": ("root/a", "1/1"), "b": ("root/b", "1/3")}
    queues = [
        Queue(QueueName(name), annotations={HIERARCHY: path, HIERARCHY_WEIGHTS: weights})
        for name, (path, weights) in paths.items()
    ]
    conf = SPREAD.replace("{name: drf}", "{name: drf, enableHierarchy: true}").replace("  - {name: proportion}\n", "")
    simulation = world(conf, [node("n0", cards=8)], queues)
    simulation.submit(job(f"{queue}{i}", cards=1, queue=queue, created_at=float(i)) for i in range(8) for queue in "ab")
    simulation.run()
    assert sorted(uid[0] for uid in places(simulation)) == ["a"] * 2 + ["b"] * 6


def test_what_nobody_deserves_is_shared_in_turns_by_over_quota_weights() -> None:
    """8 cards, nobody deserves any, weights 3 and 1; the ledger gives no right beyond what is deserved, so that nobody is evicted."""
    queues = [Queue(QueueName(name), annotations={OVER_QUOTA_WEIGHT: weight}) for name, weight in (("a", "1"), ("b", "3"))]
    conf = SPREAD.replace("{name: proportion}", "{name: capacity}").replace('"allocate', '"allocate, reclaim')
    simulation = world(conf, [node("n0", cards=8)], queues)
    simulation.submit(job(f"{queue}{i}", cards=1, queue=queue, created_at=float(i)) for i in range(8) for queue in "ab")
    simulation.run()
    assert sorted(uid[0] for uid in places(simulation)) == ["a"] * 2 + ["b"] * 6
    assert not simulation.evicted


@pytest.mark.parametrize("conf", [SPREAD, BY_MODEL, OURS, VOLCANO], ids=["spread", "by model", "hbox", "volcano"])
@pytest.mark.parametrize("seed", range(6))
def test_jobs_that_come_together_are_placed_as_one_session_places_them(seed: int, conf: str) -> None:
    """One after the other into the running scheduler's view or all into one session of their own: the same pods on the same nodes."""
    rng = Random(seed)
    models = ("A100", "T4") if conf == BY_MODEL else ("A100",)
    nodes = [node(f"n{i}", cards=8, cpu=rng.choice((32, 64, 128)), model=rng.choice(models)) for i in range(6)]
    queues = [Queue(QueueName(name), weight=weight) for name, weight in (("a", 1), ("b", 3))]
    jobs = [
        job(
            f"j{i}",
            pods=(pods := rng.choice((1, 1, 2, 4))),
            min_member=rng.randint(1, pods),
            cards=CardRequest(cards, models=rng.choice(((), (models[-1],)))) if (cards := rng.choice((0, 1, 2, 4, 8))) else 0,
            cpu_milli=rng.choice((500, 2000, 4000)),
            queue=rng.choice("ab"),
            priority=rng.choice((0, 10)),
            created_at=float(i),
        )
        for i in range(24)
    ]
    simulation = world(conf, nodes, queues)
    simulation.submit(jobs)
    simulation.run()
    assert places(simulation) == in_one_session(conf, nodes, queues, jobs)


def in_one_session(conf: str, nodes: list[NodeState], queues: list[Queue], jobs: list[Job]) -> dict[str, str]:
    """By `hbox simulate cycle`'s own code, cycle after cycle until nothing is placed any more."""
    columns = Columns()
    for state in nodes:
        columns.put_node(state)
    tasks = Tasks(columns)
    interned = {one.id: [tasks.of(spec) for spec in one.tasks] for one in jobs}
    gangs: list[Gang] = []
    for one in jobs:
        gang = Gang(
            one.id, one.namespace, one.name, one.queue, one.priority, one.min_member, one.created_at, GroupPhase.INQUEUE
        )
        for spec, task in zip(one.tasks, interned[one.id], strict=True):
            vector = vector_of(task, columns)
            gang.members += [
                Member(pod.uid, one.namespace, pod.name, gang, "", task, vector, one.created_at, one.priority)
                for pod in spec.pods
            ]
        gangs.append(gang)
    cluster = Cluster(gangs, [QueueInfo(queue.name, weight=queue.weight) for queue in queues])
    judged = as_the_ledger_judges(parse_conf(conf, plugins=list(PLUGINS)))  # as `--as-services` has it
    report = simulate(columns, cluster, judged, CycleOptions(cycles=3))
    return {str(bound.member.uid): bound.node for bound in report.bindings}


def test_a_large_gang_that_waits_has_its_nodes_kept_by_notes_of_those_who_run() -> None:
    """Two nodes of four cards; `big` needs both whole and has waited for an hour. Who ends before its start may go in, nobody else."""
    simulation = world(RESERVING, [node("n0", cards=4), node("n1", cards=4)], [Queue(QueueName("default"))])
    simulation.now = 10_000.0
    simulation.submit([job("running", pods=2, cards=3, created_at=9_900.0)])
    simulation.run()
    simulation.scheduler.on_neighbours(
        Neighbour(PodUid(f"running-{i}"), "default", annotations={WALLTIME: "1100s"}, started_at=9_900.0) for i in range(2)
    )
    simulation.submit([job("big", pods=2, cards=4, created_at=6_400.0)])
    simulation.run()
    simulation.submit(
        [job("long", created_at=9_950.0, cards=1), with_walltime(job("short", created_at=9_960.0, cards=1), "900s")]
    )
    simulation.run()
    assert {uid.partition("-")[0] for uid in places(simulation)} == {"running", "short"}
    assert "ReservedForLargeJob" in simulation.verdicts[JobId("long")]
    simulation.finish([PodUid("running-0"), PodUid("running-1"), PodUid("short-0")])
    simulation.now = 11_000.0
    simulation.run()
    assert {uid.partition("-")[0] for uid in places(simulation)} == {"big"}
    assert sum(claim.requests[GPU] for claim in simulation.claims.values()) == 8


def with_walltime(one: Job, walltime: str) -> Job:
    return replace(one, tasks=tuple(replace(spec, annotations={WALLTIME: walltime}) for spec in one.tasks))


def test_who_has_not_run_for_its_least_time_is_not_taken_from_though_nothing_is_written_on_it() -> None:
    """When a claim was made is known of every pod: half of b's have run for an hour, half for a minute."""
    conf = """
actions: "allocate, reclaim"
tiers:
- plugins:
  - {name: gang}
  - {name: predicates}
  - {name: capacity}
  - {name: minruntime, arguments: {reclaim: 10m}}
"""
    queues = [Queue(QueueName(name), deserved={GPU: 4}) for name in ("a", "b")]
    simulation = world(conf, [node("n0", cards=8, cpu=64)], queues)
    for start, now in ((0, 1_000.0), (4, 4_540.0)):
        simulation.now = now
        simulation.submit(job(f"b{start + i}", cards=1, queue="b", created_at=now + i) for i in range(4))
        simulation.run()
    simulation.now = 4_600.0
    simulation.submit(job(f"a{i}", cards=1, queue="a", created_at=4_600.0 + i) for i in range(4))
    plans = simulation.run()
    victims = {str(victim.pod_uid) for plan in plans for victim in plan.victims}
    assert victims == {f"b{i}-0" for i in range(4)}, "the newest would leave first, else"


@pytest.mark.parametrize(
    "gang", ["", "  - {name: gang, enableJobReady: false, enableJobPipelined: false}\n"], ids=["without", "switched off"]
)
def test_a_gang_starts_whole_whatever_the_policy_says_for_the_ledger_lets_in_no_part_of_it(gang: str) -> None:
    simulation = world(SPREAD.replace("  - {name: gang}\n", gang), [node("n0", cards=2)], [Queue(QueueName("default"))])
    simulation.submit([job("gang", pods=3, cards=1, created_at=0.0), job("single", cards=2, created_at=1.0)])
    simulation.run()
    assert set(places(simulation)) == {"single-0"}


def test_more_jobs_wait_than_one_session_looks_at() -> None:
    """Each is tried once a cycle, and whoever comes next gets what becomes free."""
    simulation = Simulation(
        policy_of(PolicyName.BINPACK),
        limits=Limits(session_jobs=4),
        queues=[Queue(QueueName("default"))],
        conf=parse_conf(SPREAD, plugins=list(PLUGINS)),
    )
    simulation.put_nodes([node("n0", cards=8)])
    simulation.submit(job(f"first-{i}", cards=1, created_at=float(i)) for i in range(8))
    simulation.run()
    simulation.submit(job(f"waits-{i:02}", cards=1 + i % 2, created_at=float(10 + i)) for i in range(20))
    assert simulation.run() == []
    assert {name for name in simulation.verdicts if name.startswith("waits")} == {f"waits-{i:02}" for i in range(20)}
    simulation.finish([PodUid("first-3-0")])
    simulation.run()
    assert set(places(simulation)) == {f"first-{i}-0" for i in range(8) if i != 3} | {"waits-00-0"}


@pytest.mark.parametrize("seed", range(4))
def test_gangs_come_to_their_turns_in_the_order_that_their_keys_have_then(seed: int) -> None:
    """The order of a heap against asking all that wait for the smallest key, at every turn; shares change as gangs get and lose members."""
    rng = Random(seed)
    columns = Columns()
    for i in range(4):
        columns.put_node(node(f"n{i}", cards=8))
    tasks = Tasks(columns)
    task = tasks.of(job("some", cards=1).tasks[0])
    vector = vector_of(task, columns)
    gangs = []
    for i in range(12):
        gang = Gang(JobId(f"d/g{i:02}"), "d", f"g{i:02}", QueueName("q"), rng.randint(0, 1), 1, 0.0, GroupPhase.INQUEUE)
        gang.members = [
            Member(PodUid(f"g{i}-{k}"), "d", f"g{i}-{k}", gang, "", task, vector, 0.0, gang.priority) for k in range(4)
        ]
        gangs.append(gang)
    conf = parse_conf(SPREAD, plugins=list(PLUGINS))
    session = Session(columns=columns, cluster=Cluster(gangs, [QueueInfo(QueueName("q"))]), conf=conf, tiers=plugins_of(conf))
    turns, waiting = ServiceOrder(session, gangs), list(gangs)
    queue = session.queues[QueueName("q")]
    statement = session.statement()
    for row in range(24):
        for gang in rng.sample(gangs, 3):  # those that wait get members and lose them
            pending, placed = list(gang.of(Status.PENDING)), list(gang.of(Status.ALLOCATED))
            if pending and rng.random() < 0.5 and gang not in waiting:
                statement.allocate(pending[0], row % 4)
            elif placed:
                statement.evict(placed[0], preemptor=None, reason="")
        chosen = turns.of(queue)
        assert chosen is min(waiting, key=session.gang_key, default=None)
        if chosen is None:
            break
        waiting.remove(chosen)
        if rng.random() < 0.6:
            statement.allocate(next(chosen.of(Status.PENDING), chosen.members[0]), row % 4)
            turns.put_back(chosen)
            waiting.append(chosen)
