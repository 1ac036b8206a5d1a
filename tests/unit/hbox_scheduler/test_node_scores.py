"""Scores of nodes, against figures worked out by hand from kube-scheduler's and Volcano's formulas. Nodes have 128 cores, 256 GiB and 8 cards."""

from dataclasses import replace

import numpy as np
import pytest

from hbox_common.model import JobId, NodeName, PodGroupTask, PreferredTerm, QueueName
from hbox_common.model.annotations import NODE_GROUP_LIMITS
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.job import Match, MatchOperator, NodeTerm
from hbox_common.model.resources import CPU, MEMORY, MIB
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.entities import Gang, Member, QueueInfo
from hbox_scheduler.core.cluster.snapshot import Cluster
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.framework import Placing, Session
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.plugins.nodegroup import GROUP_LABEL
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of
from hbox_scheduler.core.simulate.simulation import node

GIB = 1024 * MIB


class Scored:
    """Three nodes a, b, c; `used` of (cores, GiB, cards) on each; one member asks for `ask`."""

    def __init__(self, used: dict[str, tuple[int, int, int]], ask: tuple[int, int, int], **more: object) -> None:
        self.columns = Columns()
        labels = more.pop("labels", {})
        assert isinstance(labels, dict)
        for name in "abc":
            self.columns.put_node(node(name, cards=8, cpu=128, memory_mib=256 * 1024, labels=labels.get(name, {})))
        for name, (cores, gib, cards) in used.items():
            self.columns.book(self.columns.row_of[NodeName(name)], {CPU: 1000 * cores, MEMORY: gib * GIB, GPU: cards}, ())
        cores, gib, cards = ask
        queue = more.pop("queue", QueueInfo(QueueName("q")))
        assert isinstance(queue, QueueInfo)
        self.queue = queue
        gang = Gang(JobId("j"), "d", "j", queue.name, 0, 1, 0.0)
        task = Tasks(self.columns).of(PodGroupTask("w", {CPU: 1000 * cores, MEMORY: gib * GIB, GPU: cards}, (), **more))  # type: ignore[arg-type]
        request = np.zeros(len(self.columns.allocatable), dtype=np.int64)
        for column, units in task.amount:
            request[column] = units
        self.member = Member(JobId("p"), "d", "p", gang, "", task, request, 0.0)  # type: ignore[arg-type]
        gang.members.append(self.member)
        self.gang = gang

    def by(self, plugin: str) -> dict[str, float]:
        """The total of one plugin, written as in a policy."""
        conf = parse_conf(f'actions: "allocate"\ntiers:\n- plugins: [{plugin}]', plugins=list(PLUGINS))
        session = Session(columns=self.columns, cluster=Cluster([self.gang], [self.queue]), conf=conf, tiers=plugins_of(conf))
        placing = Placing(session)
        allowed = placing.allowed(self.member, self.columns)
        scores = placing.scores(self.member, self.columns, allowed)
        return {name: round(float(scores[row]), 2) for name, row in self.columns.row_of.items() if allowed[row]}


def test_binpack_weighs_what_is_asked_for_and_skips_what_a_node_does_not_have() -> None:
    scored = Scored({"a": (64, 0, 4), "b": (0, 0, 8)}, (32, 0, 2))
    assert scored.by("{name: binpack}") == {"a": 75.0, "b": 25.0, "c": 25.0}, "cards have no weight unless it is written"
    weighted = "{name: binpack, arguments: {binpack.weight: 2, binpack.cpu: 1, binpack.resources: nvidia.com/gpu, binpack.resources.nvidia.com/gpu: 3}}"
    assert scored.by(weighted) == {"a": 150.0, "b": 0.0, "c": 50.0}, "b has not enough cards, as in Volcano"


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("leastrequested", {"a": 37.5, "b": 75.0, "c": 87.5}),  # mean of the free shares of cpu and memory, the pod in place
        ("mostrequested", {"a": 62.5, "b": 25.0, "c": 12.5}),
        ("balancedresource", {"a": 87.5, "b": 100.0, "c": 87.5}),  # a: 0.75 and 0.5; b: 0.25 and 0.25; c: 0.25 and 0
    ],
)
def test_nodeorder_by_resources(only: str, expected: dict[str, float]) -> None:
    scored = Scored({"a": (64, 128, 0), "b": (0, 64, 0)}, (32, 0, 0))
    scored.member.task.requests[MEMORY] = 0
    got = scored.by(_only(only))
    assert got == pytest.approx(expected, abs=0.1), "200 MB count for a pod that asks for no memory"


def test_cards_count_for_balance_where_they_are_asked_for() -> None:
    """a: 1/4, 1/4 and 3/4: the deviation is sqrt(((1/6)**2 * 2 + (1/3)**2) / 3) = 0.2357. b and c: 1/4, 1/4, 1/4."""
    scored = Scored({"a": (0, 0, 4)}, (32, 64, 2))
    assert scored.by(_only("balancedresource")) == {"a": 76.43, "b": 100.0, "c": 100.0}
    assert set(Scored({"a": (0, 0, 4)}, (32, 64, 0)).by(_only("balancedresource")).values()) == {100.0}


def test_what_is_more_than_full_by_the_least_that_counts_is_full() -> None:
    """cpu of a is used up, and 100 m count for a pod that asks for none: 100 and (64 + 0)/256 of 100, the mean."""
    scored = Scored({"a": (128, 0, 0)}, (0, 64, 0))
    assert scored.by(_only("mostrequested"))["a"] == 62.5


def test_nodeorder_by_preferred_affinity_is_relative_to_the_best() -> None:
    fast = NodeTerm((Match("disk", MatchOperator.IN, ("ssd",)),))
    near = NodeTerm((Match("zone", MatchOperator.EXISTS),))
    scored = Scored(
        {},
        (1, 1, 0),
        preferred=(PreferredTerm(30, fast), PreferredTerm(10, near)),
        labels={"a": {"disk": "ssd"}, "b": {"disk": "ssd", "zone": "z"}},
    )
    assert scored.by(_only("nodeaffinity")) == {"a": 75.0, "b": 100.0, "c": 0.0}


def test_each_resource_is_packed_or_spread_by_its_own_strategy() -> None:
    scored = Scored({"a": (0, 0, 4), "b": (64, 0, 0)}, (32, 0, 2))
    both = "resources: {nvidia.com/gpu: {type: MostAllocated, weight: 3}, cpu: {type: LeastAllocated, weight: 1}}"
    got = scored.by(f"{{name: resource-strategy-fit, arguments: {{resourceStrategyFitWeight: 1, {both}}}}}")
    assert got == {"a": 75.0, "b": 25.0, "c": 37.5}


def test_nodes_with_scarce_cards_are_spared_from_pods_that_need_none() -> None:
    scored = Scored({}, (1, 1, 0))
    scored.columns.allocatable[scored.columns.resource(GPU), scored.columns.row_of[NodeName("c")]] = 0
    spare = "sra: {enable: true, resources: nvidia.com/gpu, weight: 5}"
    assert scored.by(f"{{name: resource-strategy-fit, arguments: {{resourceStrategyFitWeight: 0, {spare}}}}}") == {
        "a": 0,
        "b": 0,
        "c": 500.0,
    }


_T4, _A10 = "nvidia.com/t4", "nvidia.com/a10"


@pytest.mark.parametrize(
    ("asked", "spared", "packed", "both"),
    [
        ((1, 1, 0, 0), (500, 300, 200, 0), (775, 700, 700, 700), (1275, 700, 1200, 700)),
        ((1.5, 0, 2, 0), (0, 300, 0, 0), (190.625, 237.5, 162.5, 312.5), (190.625, 237.5, 162.5, 312.5)),
        ((2, 4, 0, 2), (0, 0, 200, 0), (750, 600, 600, 600), (750, 600, 1100, 600)),
        ((3, 4, 1, 3), (0, 0, 0, 0), (181.25, 162.5, 125, 200), (181.25, 162.5, 125, 200)),
    ],
)
def test_scarce_cards_of_two_kinds(
    asked: tuple[float, int, int, int], spared: tuple[float, ...], packed: tuple[float, ...], both: tuple[float, ...]
) -> None:
    """Nodes: n1 32 cores; n2 8 and 16 T4; n3 8 and 16 A10; n4 8, 8 T4 and 16 A10. Asked: cores, GiB, T4, A10.

    spared: 5 * 100 * (2 for no T4 + 3 for no A10) / 5, 0 where something that is asked for is not there.
    packed: 8 * 100 * (3 * used share of T4 + 1 * free share of cores) / 4, of what is asked for: (1.5, 0, 2, 0) on n2 is 200 * (3 * 2/16 + 6.5/8).
    both: with 5 * 100 for no T4. Volcano v1.13 has the same figures in its sra_test.
    """
    columns = Columns()
    for name, cpu, small, large in (("n1", 32, 0, 0), ("n2", 8, 16, 0), ("n3", 8, 0, 16), ("n4", 8, 8, 16)):
        state = node(name, cpu=cpu, memory_mib=64 * 1024)
        columns.put_node(replace(state, allocatable={**state.allocatable, _T4: small, _A10: large}))
    cores, gib, t4, a10 = asked
    requests = {CPU: int(1000 * cores), MEMORY: gib * GIB, _T4: t4, _A10: a10}
    scored = Scored({}, (1, 1, 0))
    scored.columns = columns
    scored.member.task = Tasks(columns).of(PodGroupTask("w", requests, ()))
    scored.member.request = np.zeros(len(columns.allocatable), dtype=np.int64)
    strategies = f"resourceStrategyFitWeight: 8, resources: {{{_T4}: {{type: MostAllocated, weight: 3}}, cpu: {{type: LeastAllocated, weight: 1}}}}"
    two = f'sra: {{enable: true, resources: "{_T4}, {_A10}", weight: 5, resourceWeight: {{{_T4}: 2, {_A10}: 3}}}}'
    one = f"sra: {{enable: true, resources: {_T4}, weight: 5, resourceWeight: {{{_T4}: 2}}}}"
    for arguments, expected in (
        (f"resourceStrategyFitWeight: 0, {two}", spared),
        (strategies, packed),
        (f"{strategies}, {one}", both),
    ):
        got = scored.by(f"{{name: resource-strategy-fit, arguments: {{{arguments}}}}}")
        assert got == {f"n{i + 1}": pytest.approx(score, abs=0.006) for i, score in enumerate(expected)}


def test_where_no_resource_is_named_cpu_and_memory_are_spread() -> None:
    """10 * 100 * the mean of the free shares: a (64 of 128, 192 of 256), b (96, 64)."""
    scored = Scored({"a": (32, 0, 0), "b": (0, 128, 0)}, (32, 64, 0))
    assert scored.by("{name: resource-strategy-fit}") == {"a": 625.0, "b": 500.0, "c": 750.0}


def test_cpu_is_kept_for_idle_cards() -> None:
    """10 cores for each idle card: 8 idle cards of a keep 80 of its 128, so that 64 do not fit; b has no idle card."""
    scored = Scored({"b": (0, 0, 8), "c": (0, 0, 2)}, (64, 1, 0))
    kept = "proportional: {enable: true, resources: nvidia.com/gpu, resourceProportion: {nvidia.com/gpu.cpu: 10, nvidia.com/gpu.memory: 1}}"
    assert set(scored.by(f"{{name: resource-strategy-fit, arguments: {{{kept}}}}}")) == {"b", "c"}
    two = kept.replace("resources: nvidia.com/gpu,", "resources: 'nvidia.com/gpu, pods',")
    asks_for_one_of_them = Scored({}, (64, 1, 1))
    assert set(asks_for_one_of_them.by(f"{{name: resource-strategy-fit, arguments: {{{two}}}}}")) == {"a", "b", "c"}


def test_queues_use_their_node_groups_and_their_limits_in_them() -> None:
    groups = {"requiredAffinity": ("g1", "g2"), "preferredAffinity": ("g2",), "preferredAntiAffinity": ("g3",)}
    labels = {"a": {GROUP_LABEL: "g1"}, "b": {GROUP_LABEL: "g2"}, "c": {GROUP_LABEL: "g3"}}
    queue = QueueInfo(QueueName("q"), node_groups=groups)
    assert Scored({}, (4, 1, 0), labels=labels, queue=queue).by("{name: nodegroup}") == {"a": 100.0, "b": 150.0, "c": -1.0}
    limited = QueueInfo(QueueName("q"), node_groups=groups, annotations={NODE_GROUP_LIMITS: '{"g2": {"cpu": "3"}}'})
    assert set(Scored({}, (4, 1, 0), labels=labels, queue=limited).by("{name: nodegroup}")) == {"a", "c"}
    named = QueueInfo(QueueName("q"), node_groups={"requiredAffinity": ("g1",)})
    assert set(Scored({}, (4, 1, 0), labels=labels, queue=named).by("{name: nodegroup}")) == {"a"}
    silent = QueueInfo(QueueName("q"))
    assert not Scored({}, (4, 1, 0), labels={"a": {GROUP_LABEL: "g1"}}, queue=silent).by("{name: nodegroup}")
    loose = Scored({}, (4, 1, 0), labels={"a": {GROUP_LABEL: "g1"}}, queue=silent).by(
        "{name: nodegroup, arguments: {strict: false}}"
    )
    assert set(loose) == {"b", "c"}


def test_preferred_node_groups_in_their_order_score_less_by_equal_steps() -> None:
    labels = {"a": {GROUP_LABEL: "g1"}, "b": {GROUP_LABEL: "g2"}, "c": {GROUP_LABEL: "g3"}}
    queue = QueueInfo(QueueName("q"), node_groups={"preferredAffinity": ("g2", "g3", "g1")})
    scored = Scored({}, (4, 1, 0), labels=labels, queue=queue)
    assert scored.by("{name: nodegroup}") == {"a": 50.0, "b": 50.0, "c": 50.0}
    ordered = "{name: nodegroup, arguments: {enablePreferredOrder: true}}"
    assert scored.by(ordered) == {"a": 16.67, "b": 50.0, "c": 33.33}


def _only(score: str) -> str:
    names = (
        "leastrequested",
        "mostrequested",
        "nodeaffinity",
        "podaffinity",
        "balancedresource",
        "tainttoleration",
        "imagelocality",
        "podtopologyspread",
    )
    weights = ", ".join(f"{name}.weight: {int(name == score)}" for name in names)
    return f"{{name: nodeorder, arguments: {{{weights}}}}}"
