"""Scores of nodes, against figures worked out by hand from kube-scheduler's and Volcano's formulas. Nodes have 128 cores, 256 GiB and 8 cards."""

import numpy as np
import pytest

from hbox_common.model import JobId, NodeName, PreferredTerm, QueueName, TaskSpec
from hbox_common.model.devices import GPU
from hbox_common.model.job import Match, MatchOperator, NodeTerm
from hbox_common.model.resources import CPU, MEMORY, MIB
from hbox_scheduler.core.plugins.nodegroup import GROUP_LABEL, LIMITS
from hbox_scheduler.core.policy.conf import parse_conf
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of
from hbox_scheduler.core.session import Cluster, Gang, Member, Placing, QueueInfo, Session
from hbox_scheduler.core.simulate.simulation import node
from hbox_scheduler.core.state import Columns
from hbox_scheduler.core.task import Tasks

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
        task = Tasks(self.columns).of(TaskSpec("w", {CPU: 1000 * cores, MEMORY: gib * GIB, GPU: cards}, (), **more))  # type: ignore[arg-type]
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


def test_binpack_weighs_what_is_asked_for_and_gives_nothing_where_it_does_not_fit() -> None:
    scored = Scored({"a": (64, 0, 4), "b": (0, 0, 8)}, (32, 0, 2))
    assert scored.by("{name: binpack}") == {"a": 75.0, "b": 25.0, "c": 25.0}, "cards have no weight unless it is written"
    weighted = "{name: binpack, arguments: {binpack.weight: 2, binpack.cpu: 1, binpack.resources: nvidia.com/gpu, binpack.resources.nvidia.com/gpu: 3}}"
    assert scored.by(weighted) == {"a": 150.0, "b": 0.0, "c": 50.0}


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


def test_cpu_is_kept_for_idle_cards() -> None:
    """10 cores for each idle card: 8 idle cards of a keep 80 of its 128, so that 64 do not fit; b has no idle card."""
    scored = Scored({"b": (0, 0, 8), "c": (0, 0, 2)}, (64, 1, 0))
    kept = "proportional: {enable: true, resources: nvidia.com/gpu, resourceProportion: {nvidia.com/gpu.cpu: 10, nvidia.com/gpu.memory: 1}}"
    assert set(scored.by(f"{{name: resource-strategy-fit, arguments: {{{kept}}}}}")) == {"b", "c"}


def test_queues_use_their_node_groups_and_their_limits_in_them() -> None:
    groups = {"requiredAffinity": ("g1", "g2"), "preferredAffinity": ("g2",), "preferredAntiAffinity": ("g3",)}
    labels = {"a": {GROUP_LABEL: "g1"}, "b": {GROUP_LABEL: "g2"}, "c": {GROUP_LABEL: "g3"}}
    queue = QueueInfo(QueueName("q"), node_groups=groups)
    assert Scored({}, (4, 1, 0), labels=labels, queue=queue).by("{name: nodegroup}") == {"a": 100.0, "b": 150.0, "c": -1.0}
    limited = QueueInfo(QueueName("q"), node_groups=groups, annotations={LIMITS: '{"g2": {"cpu": "3"}}'})
    assert set(Scored({}, (4, 1, 0), labels=labels, queue=limited).by("{name: nodegroup}")) == {"a", "c"}
    silent = QueueInfo(QueueName("q"))
    assert not Scored({}, (4, 1, 0), labels={"a": {GROUP_LABEL: "g1"}}, queue=silent).by("{name: nodegroup}")
    loose = Scored({}, (4, 1, 0), labels={"a": {GROUP_LABEL: "g1"}}, queue=silent).by(
        "{name: nodegroup, arguments: {strict: false}}"
    )
    assert set(loose) == {"b", "c"}


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
