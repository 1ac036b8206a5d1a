"""The code of a pending job and what ends its wait, for situations on 16 nodes with 8 cards."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from hbox_common.events import JobVerdict
from hbox_common.events.explain import ExplainAnswer, ExplainRequest
from hbox_common.model import (
    CardRequest,
    Generation,
    HyperNode,
    Job,
    JobId,
    NodeName,
    Queue,
    QueueName,
    Taint,
    TaintEffect,
    TopologyMode,
    TopologyWish,
    Verdict,
)
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.explanation import Fact, Outcome
from hbox_common.reasons import CODES
from hbox_common.reasons.facts import placeholders
from hbox_scheduler.core.explain.outcomes import EMITTED
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import DEFAULT_CONF
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate.simulation import Simulation, job, node
from hbox_scheduler.explainanswer import explain_answer

NODES = [f"node-{number:04}" for number in range(1, 17)]
MODEL, MIB = "H100", 81_559


class Cluster(Simulation):
    """16 nodes of 8 cards, with the last verdict of each job."""

    def __init__(self) -> None:
        self.found: dict[JobId, JobVerdict] = {}
        super().__init__(
            policy_of(PolicyName.LEAST_WASTE),
            queues=[Queue(QueueName("default")), Queue(QueueName("small"), capability={GPU: 4})],
        )
        self.put_nodes(node(name, cards=8, model=MODEL, card_mib=MIB, shares=10) for name in NODES)

    def describe(self, name: str, *, ready: bool = True, unschedulable: bool = False) -> None:
        """A node in another condition."""
        self.put_nodes(
            [node(name, cards=8, model=MODEL, card_mib=MIB, shares=10, generation=2, ready=ready, unschedulable=unschedulable)]
        )

    def pending(self, waits: Job) -> JobVerdict:
        """The verdict of the job, after the first cycle that tries it."""
        self.submit([waits])
        out = self.step()
        assert not out.plans
        return next(verdict for verdict in out.verdicts if verdict.job == waits.id)


def full(cluster: Cluster) -> None:
    cluster.submit([job(f"runs-{number}", cards=8) for number in range(16)])
    assert len(cluster.run()) == 16


def out_of_service(cluster: Cluster) -> None:
    cluster.describe(NODES[0], unschedulable=True)
    cluster.put_verdict(Verdict(node=NodeName(NODES[1]), generation=Generation(1), healthy=False, reason="XidError"))
    cluster.describe(NODES[2], ready=False)


def leaves(cluster: Cluster) -> None:
    hypernodes = [HyperNode(f"leaf-{leaf}", 1, nodes=tuple(map(NodeName, NODES[4 * leaf : 4 * leaf + 4]))) for leaf in range(4)]
    cluster.scheduler.on_fabric([*hypernodes, HyperNode("spine", 2, children=tuple(one.name for one in hypernodes))])


def scattered(cluster: Cluster) -> None:
    cluster.submit([job(f"runs-{number}", cards=7) for number in range(16)])
    assert len(cluster.run()) == 16


def zones(cluster: Cluster) -> None:
    """A node of zone a with cards, and one of zone b without."""
    cluster.put_nodes([node(NODES[0], cards=8, model=MODEL, card_mib=MIB, shares=10, generation=2, labels={"zone": "a"})])
    cluster.put_nodes([node("plain", cards=0, labels={"zone": "b"})])


def elsewhere(cluster: Cluster) -> None:
    """One node of zone a, and one of zone b with another model, larger cards, more cores and a label and taints that the first has not."""
    cluster.put_nodes([node(NODES[0], cards=4, model=MODEL, card_mib=MIB, shares=10, labels={"zone": "a"}, generation=2)])
    large = node(NODES[1], cards=8, model="H200", card_mib=2 * MIB, cpu=256, labels={"zone": "b", "disk": "ssd"}, generation=2)
    taints = (Taint("team", "x", TaintEffect.NO_SCHEDULE), Taint("slow", "", TaintEffect.PREFER_NO_SCHEDULE))
    cluster.put_nodes([replace(large, taints=taints)])


def two_shapes() -> Job:
    """A gang of a pod that fits anywhere, and, behind it by name, one that fits nowhere."""
    small, large = job("waits", cards=1), job("xl", cpu_milli=500_000)
    return replace(small, tasks=(*small.tasks, *(replace(task, name="xl") for task in large.tasks)), min_member=2)


def other_resource(name: str) -> Job:
    made = job("waits")
    return replace(made, tasks=tuple(replace(task, requests={**task.requests, name: 1}) for task in made.tasks))


def nothing(_: Cluster) -> None:
    pass


def one_leaf(pods: int) -> Job:
    return replace(job("waits", pods=pods, cards=8), topology=TopologyWish(TopologyMode.HARD, 1))


SITUATIONS: list[tuple[Callable[[Cluster], None], Job, str, str]] = [
    (full, job("waits", cards=1), "wait", "CardsInUse"),
    (full, job("waits", pods=4, cards=8), "wait", "CardsInUse"),
    (full, job("waits", cards=CardRequest(1, cores=0, memory_mib=4000)), "wait", "CardInsufficientMemory"),
    (scattered, job("waits", cards=2), "wait", "CardsSpread"),
    (scattered, job("waits", pods=17, cards=1), "wait", "GangPartlyFits"),
    (nothing, job("waits", pods=20, cards=8), "change", "GangTooLarge"),
    (full, job("waits", pods=20, cards=8), "change", "GangTooLarge"),
    (nothing, job("waits", cards=9), "change", "NodeInsufficientDevice"),
    (full, job("waits", cards=9), "change", "NodeInsufficientDevice"),
    (nothing, job("waits", cards=CardRequest(1, models=("H1OO",))), "change", "CardTypeMismatch"),
    (out_of_service, job("waits", pods=14, cards=8), "escalate", "NodesOutOfService"),
    (out_of_service, job("waits", pods=17, cards=8), "change", "GangTooLarge"),
    (leaves, one_leaf(8), "change", "TopologyTooSmall"),
    (nothing, job("waits", cpu_milli=500_000), "change", "ResourceTooLarge"),
    (nothing, job("waits", cards=CardRequest(1, cores=0, memory_mib=200_000)), "change", "CardMemoryTooLarge"),
    (nothing, job("waits", cards=1, node_selector={"zone": "moon"}), "change", "NodeSelectorMismatch"),
    (zones, job("waits", cpu_milli=500_000, node_selector={"zone": "a"}), "change", "ResourceTooLarge"),
    (zones, job("waits", cards=9, node_selector={"zone": "a"}), "change", "NodeInsufficientDevice"),
    (zones, job("waits", cards=1, node_selector={"zone": "b"}), "change", "NodeInsufficientDevice"),
    (nothing, job("waits", cards=1, queue="reserch"), "change", "QueueNotFound"),
    (nothing, job("waits", cards=8, queue="small"), "change", "QueueLimitTooSmall"),
]


@pytest.mark.parametrize(
    ("prepare", "waits", "outcome", "code"), SITUATIONS, ids=lambda value: getattr(value, "__name__", None)
)
def test_verdict_has_the_outcome_and_the_code_of_the_situation_within_one_cycle(
    prepare: Callable[[Cluster], None], waits: Job, outcome: str, code: str
) -> None:
    cluster = Cluster()
    prepare(cluster)
    verdict = cluster.pending(waits)
    assert (verdict.outcome, verdict.code) == (outcome, code), verdict.message
    assert sum(verdict.reasons.values()) == verdict.nodes
    slices = any(task.cards is not None and not task.cards.whole for task in waits.tasks)
    assert slices or "CardInsufficientMemory" not in verdict.message


def in_zone_a(*, cards: CardRequest | int = 0, cpu_milli: int = 1000) -> Job:
    return job("waits", cards=cards, cpu_milli=cpu_milli, node_selector={"zone": "a"})


FACTS: list[tuple[Callable[[Cluster], None], Job, dict[str, Fact]]] = [
    (full, job("waits", cards=1), {"total": 128, "queues": ["default (128)"], "cards": 1, "free": 0}),
    (scattered, job("waits", cards=2), {"cards": 2, "free": 16, "largest": 1}),
    (scattered, job("waits", pods=17, cards=1), {"pods": 17, "fit": 16, "most": 17}),
    (nothing, job("waits", pods=20, cards=8), {"pods": 20, "most": 16}),
    (nothing, job("waits", cards=9), {"cards": 9, "largest": 8}),
    (nothing, job("waits", cards=CardRequest(1, models=("H1OO",))), {"model": "H1OO", "nearest": "H100", "models": ["H100"]}),
    (
        out_of_service,
        job("waits", pods=14, cards=8),
        {"short": 1, "nodes": ["node-0001 (cordoned)", "node-0002 (XidError)", "node-0003 (not ready)"]},
    ),
    (leaves, one_leaf(8), {"tier": 1, "pods": 8, "room": 4}),
    (nothing, job("waits", cpu_milli=500_000), {"resource": "cpu", "need": 500, "largest": 64}),
    (
        nothing,
        job("waits", cards=CardRequest(1, cores=0, memory_mib=200_000)),
        {"need_mib": 200_000, "largest_mib": MIB},
    ),
    (nothing, job("waits", cards=1, node_selector={"zone": "moon"}), {"key": "zone", "value": "moon", "known": []}),
    (zones, job("waits", cards=1, node_selector={"zone": "b"}), {"cards": 1, "largest": 0, "among": 1}),
    (elsewhere, in_zone_a(cards=8), {"cards": 8, "largest": 4, "among": 1}),
    (elsewhere, in_zone_a(cards=CardRequest(1, models=("H200",))), {"model": "H200", "models": ["H100"], "among": 1}),
    (
        elsewhere,
        in_zone_a(cards=CardRequest(1, cores=0, memory_mib=100_000)),
        {"need_mib": 100_000, "largest_mib": MIB, "among": 1},
    ),
    (elsewhere, in_zone_a(cpu_milli=200_000), {"resource": "cpu", "need": 200, "largest": 64, "among": 1}),
    (elsewhere, job("waits", node_selector={"zone": "a", "disk": "ssd"}), {"key": "disk", "value": "ssd", "among": 1}),
    (elsewhere, job("waits", node_selector={"zone": "b"}), {"count": 1, "nodes": [NODES[1]], "detail": "team=x:NoSchedule"}),
    (nothing, job("waits", cpu_milli=500_000), {"largest": 64, "lent": 16}),
    (nothing, other_resource("nvidia.com/gpux"), {"resource": "nvidia.com/gpux", "nearest": GPU, "known": [GPU]}),
    (nothing, two_shapes(), {"resource": "cpu", "need": 500, "largest": 64}),
    (nothing, job("waits", cards=1, queue="defualt"), {"queue": "defualt", "nearest": "default"}),
    (
        nothing,
        job("waits", cards=8, queue="small"),
        {"queue": "small", "need": "8 nvidia.com/gpu", "largest": "4 nvidia.com/gpu"},
    ),
]


@pytest.mark.parametrize(("prepare", "waits", "facts"), FACTS)
def test_explanation_has_the_facts_of_its_code_and_counts_each_node_once(
    prepare: Callable[[Cluster], None], waits: Job, facts: dict[str, Fact]
) -> None:
    cluster = Cluster()
    prepare(cluster)
    verdict = cluster.pending(waits)
    before = cluster.scheduler.columns.used.copy()
    answer = explain_answer(
        cluster.scheduler.reports,
        cluster.scheduler.start_times,
        ExplainRequest(job=waits.id, node=NodeName(NODES[3])),
        wall=5.0,
        clock=lambda: 0.0,
    )
    assert (cluster.scheduler.columns.used == before).all()
    answer = ExplainAnswer.model_validate_json(answer.model_dump_json())
    found = answer.explanation
    assert found is not None
    assert (found.code, found.outcome, found.owner) == (verdict.code, verdict.outcome, verdict.owner)
    assert {name: found.facts.get(name) for name in facts} == facts
    assert placeholders(CODES[found.code].text.en) - set(found.facts) <= OPTIONAL
    assert sum(found.nodes.first.values()) + found.nodes.fitting == found.nodes.total
    assert found.stages[-1].code == found.code
    assert (found.position, found.queued, found.at) == (1, 1, 5.0)
    assert all(need > found.have[unit] for unit, need in found.need.items())


def test_gang_that_lacks_a_tainted_node_that_is_not_ready_is_escalated() -> None:
    cluster = Cluster()
    silent = node(NODES[0], cards=8, model=MODEL, card_mib=MIB, shares=10, generation=2, ready=False)
    cluster.put_nodes([replace(silent, taints=(Taint("node.kubernetes.io/not-ready", "", TaintEffect.NO_SCHEDULE),))])
    verdict = cluster.pending(job("waits", pods=16, cards=8))
    assert (verdict.outcome, verdict.code) == ("escalate", "NodesOutOfService")


def test_job_for_which_pods_are_evicted_waits_for_its_cards() -> None:
    conf = parse_conf(DEFAULT_CONF, plugins=list(PLUGINS))
    queues = [Queue(QueueName(name), deserved={GPU: 8}) for name in ("owner", "borrower")]
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=conf, queues=queues)
    simulation.put_nodes([node(name, cards=8) for name in NODES[:2]])
    simulation.submit([job(f"runs-{number}", cards=8, queue="borrower") for number in range(2)])
    assert len(simulation.run()) == 2
    waits = job("waits", cards=8, queue="owner")
    simulation.submit([waits])
    simulation.now += 5.0
    out = simulation.step()
    assert [len(plan.victims) for plan in out.plans] == [1]
    (verdict,) = out.verdicts
    assert (verdict.outcome, verdict.code) == ("wait", "CardsBeingReclaimed")
    assert verdict.message == "CardsBeingReclaimed: 8 cards are being reclaimed for it, from 1 pods"
    found = simulation.scheduler.reports.explanation(waits.id, 5.0)
    assert found is not None
    assert (found.code, found.facts["cards"], found.facts["by"]) == ("CardsBeingReclaimed", 8, "borrower")


def test_explanation_of_a_job_that_would_start_changes_nothing() -> None:
    cluster = Cluster()
    waits = job("waits", pods=4, cards=8)
    cluster.submit([waits])
    before = cluster.scheduler.columns.used.copy()
    found = cluster.scheduler.reports.explanation(waits.id, 0.0)
    assert found is not None
    assert (found.outcome, found.code, found.nodes.fitting) == (Outcome.WAIT, "NotTriedYet", 16)
    assert (cluster.scheduler.columns.used == before).all()
    assert len(cluster.run()) == 1
    assert cluster.scheduler.reports.explanation(waits.id, 0.0) is None


def test_node_of_a_job_is_answered_with_all_rules_that_it_fails() -> None:
    cluster = Cluster()
    full(cluster)
    cluster.describe(NODES[0], unschedulable=True)
    waits = job("waits", cards=1, node_selector={"zone": "moon"})
    cluster.pending(waits)
    assert cluster.scheduler.reports.failed_rules(waits.id, NodeName(NODES[0])) == [
        "NodeUnschedulable",
        "NodeSelectorMismatch",
        "CardsInUse",
        "AllocatedCardsInsufficientRequest",
    ]


#: Placeholders of optional parts of texts.
OPTIONAL = {"among", "lent", "labels", "spare", "until_at", "by", "nearest", "known", "domain", "room"}


def test_every_code_of_the_engine_is_in_the_catalogue() -> None:
    assert set(EMITTED) <= set(CODES)
    assert {outcome for _, _, outcome, _ in SITUATIONS} == set(Outcome)
