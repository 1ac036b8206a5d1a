"""Jobs that no end of pods and no repair of nodes starts, although each of their shapes would fit alone: the outcome is `change` within one cycle, whatever
runs, with the amount that they need and the largest that is available.

Four nodes of 8 cards and 64 cores: n0, n1 in zone a with H100, n2, n3 in zone b with A100.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from hbox_common.events import JobVerdict
from hbox_common.model import (
    POOL,
    CardQuota,
    CardRequest,
    ClassQuota,
    Index,
    Job,
    JobId,
    Match,
    MatchOperator,
    Neighbour,
    PodConstraints,
    PodTerm,
    PodUid,
    Queue,
    QueueName,
    Selector,
)
from hbox_common.model.devices.nvidia import GPU, GPU_MEMORY
from hbox_common.model.explanation import Explanation
from hbox_common.model.hostports import HostPort, port_amounts
from hbox_scheduler.core.explain.changes import ChangeLimits
from hbox_scheduler.core.placement.emptycluster import MOST_TRIALS
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

ZONES = "aabb"
APP = Selector((Match("app", MatchOperator.IN, ("x",)),))
HOST, ZONE = PodTerm("kubernetes.io/hostname", APP), PodTerm("zone", APP)


class Cluster(Simulation):
    def __init__(self) -> None:
        queues = [
            Queue(QueueName("default")),
            Queue(QueueName("top"), capability={f"{GPU}.H100": 4}),
            Queue(QueueName("low"), parent="top"),
            Queue(QueueName("owner"), guarantee={GPU: 28}, deserved={GPU: 28}),
            Queue(QueueName("keeps"), reclaimable=False),
        ]
        super().__init__(policy_of(PolicyName.LEAST_WASTE), queues=queues)
        for number in range(len(ZONES)):
            self.describe(number)

    def describe(self, number: int, generation: int = 1, *, unschedulable: bool = False) -> None:
        labels = {"zone": ZONES[number], "kubernetes.io/hostname": f"n{number}"}
        model = "H100" if ZONES[number] == "a" else "A100"
        made = node(
            f"n{number}", cards=8, model=model, labels=labels, generation=generation, shares=10, unschedulable=unschedulable
        )
        self.put_nodes([made])

    def neighbours(self, waits: Job, constraints: PodConstraints) -> None:
        pods = [pod for task in waits.tasks for pod in task.pods]
        self.scheduler.on_neighbours(Neighbour(pod.uid, "default", {"app": "x"}, constraints) for pod in pods)

    def pending(self, waits: Job) -> JobVerdict:
        """The verdict of the job, after the first cycle that tries it."""
        self.submit([waits])
        out = self.step()
        assert not out.plans
        return next(verdict for verdict in out.verdicts if verdict.job == waits.id)

    def explained(self, waits: Job) -> Explanation:
        found = self.scheduler.reports.explanation(waits.id, 0.0)
        assert found is not None
        return found


def apart(term: PodTerm) -> PodConstraints:
    return PodConstraints(anti_affinity=(term,))


def shapes(*parts: Job) -> Job:
    """A gang of the pods of all of these."""
    tasks = tuple(replace(task, name=part.name) for part in parts for task in part.tasks)
    return replace(parts[0], id=JobId("waits"), name="waits", tasks=tasks, min_member=sum(len(task.pods) for task in tasks))


def large_and_small(pods: int) -> Job:
    """Pods each of which takes most of a node, and one that finds no room on their nodes."""
    return shapes(job("a", pods=pods, cards=1, cpu_milli=60_000), job("b", cards=1, cpu_milli=30_000))


def with_port(pods: int) -> Job:
    made = job("waits", pods=pods)
    (task,) = made.tasks
    return replace(made, tasks=(replace(task, requests={**task.requests, **port_amounts([HostPort(8080)])}),))


def nothing(_: Cluster, __: Job) -> None:
    pass


def hosts(cluster: Cluster, waits: Job) -> None:
    cluster.neighbours(waits, apart(HOST))


def zones(cluster: Cluster, waits: Job) -> None:
    cluster.neighbours(waits, apart(ZONE))


def together(cluster: Cluster, waits: Job) -> None:
    cluster.neighbours(waits, PodConstraints(affinity=(ZONE,)))


def cards_of_namespace(cluster: Cluster, _: Job) -> None:
    cluster.scheduler.on_card_quotas([CardQuota("default", "cards", {GPU: 4})])


def memory_of_namespace(cluster: Cluster, _: Job) -> None:
    cluster.scheduler.on_card_quotas([CardQuota("default", "cards", {GPU_MEMORY: 8000})])


def pods_of_class(cluster: Cluster, _: Job) -> None:
    urgent = (Match("PriorityClass", MatchOperator.IN, ("urgent",)),)
    cluster.scheduler.on_class_quotas([ClassQuota("default", "urgent", urgent, {"pods": 1})], Index(cluster.scheduler.index))


def of_model(name: str, *, pods: int = 1, cards: int = 1, queue: str = "low") -> Job:
    return job("waits", pods=pods, cards=CardRequest(cards, models=(name,)), queue=queue)


SITUATIONS: list[tuple[Callable[[Cluster, Job], None], Job, str, dict[str, float], dict[str, float]]] = [
    (hosts, job("waits", pods=5, cards=1), "GangKeepsApart", {"pods": 5}, {"pods": 4}),
    (zones, job("waits", pods=3, cards=1), "GangKeepsApart", {"pods": 3}, {"pods": 2}),
    (together, job("waits", pods=3, cards=8), "GangKeepsApart", {"pods": 3}, {"pods": 2}),
    (nothing, with_port(5), "GangTooLarge", {"pods": 5}, {"pods": 4}),
    (
        nothing,
        large_and_small(4),
        "GangTooLarge",
        {"pods": 5},
        {"pods": 4},
    ),
    (nothing, of_model("H100", cards=8), "QueueLimitTooSmall", {"cards": 8}, {"cards": 4}),
    (nothing, of_model("H100", pods=3, cards=2), "QueueLimitTooSmall", {"cards": 6}, {"cards": 4}),
    (cards_of_namespace, job("waits", cards=8), "ResourceQuotaTooSmall", {"cards": 8}, {"cards": 4}),
    (cards_of_namespace, job("waits", pods=5, cards=1), "ResourceQuotaTooSmall", {"cards": 5}, {"cards": 4}),
    (
        memory_of_namespace,
        job("waits", pods=3, cards=CardRequest(1, cores=0, memory_mib=4000)),
        "ResourceQuotaTooSmall",
        {GPU_MEMORY: 12_000},
        {GPU_MEMORY: 8000},
    ),
    (
        pods_of_class,
        replace(job("waits", pods=2), priority_class="urgent"),
        "ResourceQuotaTooSmall",
        {"pods": 2},
        {"pods": 1},
    ),
    (nothing, job("waits", cards=8, queue="keeps"), "QueueGuaranteedToOthers", {}, {}),
    (nothing, job("waits", cpu_milli=60_000), "ResourcesKeptForIdleCards", {"cpu": 60}, {"cpu": 16}),
    (nothing, job("waits", pods=5, cpu_milli=16_000), "GangTooLarge", {"pods": 5}, {"pods": 4}),
]


@pytest.mark.parametrize("full", [False, True], ids=["empty", "full"])
@pytest.mark.parametrize(("prepare", "waits", "code", "need", "have"), SITUATIONS)
def test_job_that_no_wait_starts_gets_the_verdict_change_within_one_cycle(
    prepare: Callable[[Cluster, Job], None],
    waits: Job,
    code: str,
    need: dict[str, float],
    have: dict[str, float],
    full: bool,
) -> None:
    cluster = Cluster()
    if full:
        runs = job("runs", pods=4, cards=8, cpu_milli=60_000)
        cluster.submit([replace(runs, namespace="other")])
        assert len(cluster.run()) == 1
    prepare(cluster, waits)
    verdict = cluster.pending(waits)
    assert (verdict.outcome, verdict.code) == ("change", code), verdict.message
    found = cluster.explained(waits)
    assert (found.outcome, found.code, found.owner) == ("change", code, verdict.owner)
    assert (found.need, found.have) == (need, have), found.facts


def test_gang_whose_pods_fit_together_on_empty_nodes_waits() -> None:
    cluster = Cluster()
    cluster.submit([job("runs", cards=1)])
    assert len(cluster.run()) == 1
    waits = job("waits", pods=4, cards=8)
    cluster.neighbours(waits, apart(HOST))
    assert cluster.pending(waits).outcome == "wait"


def test_pod_that_waits_for_pods_of_others_waits() -> None:
    """No empty node has pods to be near; they may start yet."""
    cluster = Cluster()
    waits = job("waits", cards=1)
    term = PodTerm("zone", Selector((Match("app", MatchOperator.IN, ("other",)),)))
    cluster.neighbours(waits, PodConstraints(affinity=(term,)))
    assert cluster.pending(waits).outcome == "wait"


def test_gang_of_two_shapes_that_lacks_a_node_out_of_service_is_escalated() -> None:
    cluster = Cluster()
    cluster.describe(3, 2, unschedulable=True)
    waits = large_and_small(3)
    verdict = cluster.pending(waits)
    assert (verdict.outcome, verdict.code) == ("escalate", "NodesOutOfService")


def test_trial_on_an_empty_cluster_changes_nothing() -> None:
    cluster = Cluster()
    waits = large_and_small(4)
    columns = cluster.scheduler.columns
    used, risen = columns.used.copy(), columns.risen.end
    cluster.pending(waits)
    assert (columns.used == used).all()
    assert columns.risen.end == risen
    assert not columns.card_pods.any()


def test_verdict_of_a_trial_follows_the_rules_of_the_queue_and_the_nodes() -> None:
    cluster = Cluster()
    full = [job(f"runs{number}", cards=8, queue="default") for number in range(4)]
    cluster.submit(full)
    assert len(cluster.run()) == 4
    waits = of_model("H100", cards=8)
    assert cluster.pending(waits).outcome == "change"
    cluster.scheduler.on_queue(Queue(QueueName("top"), capability={f"{GPU}.H100": 8}))
    assert cluster.explained(waits).outcome == "wait"
    for number in range(2):
        cluster.describe(number, 2, unschedulable=True)
    assert cluster.explained(waits).outcome == "escalate"


def test_session_makes_a_bounded_number_of_trials() -> None:
    """Jobs beyond it keep the outcome `wait` until another session."""
    cluster = Cluster()
    jobs = [large_and_small(4) for _ in range(MOST_TRIALS + 2)]
    names = [f"waits{number:02}" for number in range(len(jobs))]
    for one, name in zip(jobs, names, strict=True):
        tasks = tuple(
            replace(task, pods=tuple(replace(pod, uid=PodUid(f"{name}-{pod.uid}")) for pod in task.pods)) for task in one.tasks
        )
        cluster.submit([replace(one, id=JobId(name), name=name, tasks=tasks, annotations={"differs": name})])
    outcomes = [verdict.outcome for verdict in cluster.step().verdicts]
    assert outcomes.count("change") == MOST_TRIALS
    assert outcomes.count("wait") == 2


def test_job_waits_while_others_use_the_quota_of_its_namespace() -> None:
    cluster = Cluster()
    cluster.submit([job("runs", cards=4)])
    assert len(cluster.run()) == 1
    waits = job("waits", cards=4)
    cards_of_namespace(cluster, waits)
    assert cluster.pending(waits).outcome == "wait"


def test_gang_that_can_start_with_pods_of_another_shape_does_not_need_a_change() -> None:
    """It needs one pod, and its first pods fit no node."""
    cluster = Cluster()
    cluster.submit([job("runs", pods=4, cards=8)])
    assert len(cluster.run()) == 1
    waits = replace(shapes(job("a", cards=9), job("b", cards=1)), min_member=1)
    verdict = cluster.pending(waits)
    assert (verdict.outcome, verdict.code) == ("wait", "CardsInUse")
    assert cluster.explained(waits).facts["cards"] == 1


def test_trials_with_repaired_nodes_leave_what_is_lent_of_guarantees() -> None:
    """A change of a queue's rules, which is tried too, has what nodes have for guarantees counted anew."""
    cluster = Cluster()
    cluster.describe(3, 2, unschedulable=True)
    waits = job("waits", pods=2, cards=8, queue="keeps")
    assert cluster.pending(waits).code == "QueueGuaranteedToOthers"
    queue = Queue(QueueName("keeps"), reclaimable=False, capability={GPU: 1})
    cluster.scheduler.on_queue(queue)
    cluster.step()
    lending = cluster.scheduler.bookings.lending
    before = lending.headroom(queue.name, {GPU: 1})
    cluster.scheduler.reports.changes(waits.id, ChangeLimits(probes=1000, seconds=60.0), lambda: 0.0)
    assert lending.headroom(queue.name, {GPU: 1}) == before


@pytest.mark.parametrize(("pods", "cards", "reserved"), [(5, 2, False), (2, 8, True)])
def test_nodes_are_reserved_only_for_gangs_that_can_start(pods: int, cards: int, *, reserved: bool) -> None:
    """Pods that keep apart, on four nodes of which half of the cards are in use."""
    world = Simulation(policy_of(PolicyName.LEAST_WASTE), conf=default_conf(PolicyName.LEAST_WASTE))
    world.put_nodes(node(f"n{number}", cards=8, cpu=6, labels={"kubernetes.io/hostname": f"n{number}"}) for number in range(4))
    world.submit([job("runs", pods=4, cards=4, cpu_milli=4000)])
    assert len(world.run()) == 1
    waits = job("waits", pods=pods, cards=cards)
    world.scheduler.on_neighbours(Neighbour(pod.uid, "default", {"app": "x"}, apart(HOST)) for pod in waits.tasks[0].pods)
    world.submit([waits])
    for _ in range(40):
        world.run()
        world.now += 5.0
    assert bool(world.scheduler.reports.reservations) == reserved


def test_job_that_no_wait_starts_needs_a_change_while_its_quota_is_in_use_too() -> None:
    cluster = Cluster()
    urgent = (Match("PriorityClass", MatchOperator.IN, ("urgent",)),)
    quota = ClassQuota("default", "urgent", urgent, {"pods": 2}, {"pods": 2})
    cluster.scheduler.on_class_quotas([quota], Index(cluster.scheduler.index))
    fits, never = (replace(job(f"of-{cards}", cards=cards), priority_class="urgent") for cards in (8, 9))
    assert (cluster.pending(fits).outcome, cluster.explained(fits).code) == ("wait", "ResourceQuotaNotFit")
    assert (cluster.pending(never).outcome, cluster.explained(never).code) == ("change", "NodeInsufficientDevice")
    assert (cluster.explained(never).need, cluster.explained(never).have) == ({"cards": 9}, {"cards": 8})


def test_quota_on_memory_of_cards_is_compared_with_the_cards_that_the_pod_may_use() -> None:
    """The smallest cards are in a zone that it does not select."""
    cluster = Cluster()
    cluster.put_nodes([node("small", cards=8, card_mib=10_000, labels={"zone": "c"})])
    cluster.scheduler.on_card_quotas([CardQuota("default", "cards", {GPU_MEMORY: 20_000})])
    waits = job("waits", cards=1, node_selector={"zone": "a"})
    assert (cluster.pending(waits).outcome, cluster.explained(waits).code) == ("change", "ResourceQuotaTooSmall")
    assert [*cluster.explained(waits).have.values()] == [20_000]


def test_limit_on_a_model_counts_in_the_pool_of_the_queue() -> None:
    """Its nodes have no other model."""
    cluster = Cluster()
    cluster.put_nodes([node("team", cards=8, model="H100", labels={POOL: "team"}, unschedulable=True)])
    cluster.scheduler.on_queue(Queue(QueueName("own"), pools=("team",), capability={f"{GPU}.H100": 1}))
    waits = job("waits", cards=4, queue="own")
    assert (cluster.pending(waits).outcome, cluster.explained(waits).code) == ("change", "QueueLimitTooSmall")
    assert (cluster.explained(waits).need, cluster.explained(waits).have) == ({"cards": 4}, {"cards": 1})
