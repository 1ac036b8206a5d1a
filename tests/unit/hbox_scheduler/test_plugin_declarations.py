"""The engine knows a plugin by its declarations: a plugin under a new name has the effect that it declares, and none of what it does not declare.

Each test runs the scheduler with a plugin of its own, once as it is and once without the declaration.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hbox_common.errors import Bug
from hbox_common.model import (
    OFFLINE_CLASS,
    HeldImage,
    HyperNode,
    NodeName,
    NodeUsage,
    PodUid,
    Queue,
    QueueName,
)
from hbox_common.model.annotations import NETWORK_TOPOLOGY
from hbox_common.model.pools import POOL
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.arrays import Floats
from hbox_scheduler.core.cluster.entities import Member
from hbox_scheduler.core.framework.conf import PluginConf, parse_conf
from hbox_scheduler.core.framework.hooks import Hook, PodScore, Preemptable, Reclaimable, ShuffleVictims, check
from hbox_scheduler.core.framework.session import Session
from hbox_scheduler.core.plugins.arguments import Arguments
from hbox_scheduler.core.plugins.gang import GangPlugin
from hbox_scheduler.core.plugins.networktopology import NetworkTopology
from hbox_scheduler.core.plugins.proportion import Proportion
from hbox_scheduler.core.plugins.reservations import ReservationPlugin
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import DEFAULT_CONF
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate import Simulation, job, node

from ...plugin_names import names_in
from ...property.both import Both

NEW = "new-plugin"
PREEMPT = "priority}, {name: gang}, {name: conformance}, {name: predicates"


def with_plugin(monkeypatch: pytest.MonkeyPatch, plugin: Hook, declared: str, value: object = False) -> None:
    """Register the plugin as `new-plugin`; `declared`: the declaration that it loses, "" = none."""
    monkeypatch.setitem(PLUGINS, NEW, type(plugin.__name__, (plugin,), {"name": NEW} | ({declared: value} if declared else {})))


def world(
    actions: str, plugins: str, *, queues: Sequence[Queue] = (Queue(QueueName("default")),), nodes: int = 1
) -> Simulation:
    """`nodes` nodes of 8 cards under a policy of these plugins."""
    conf = parse_conf(f'actions: "{actions}"\ntiers:\n- plugins: [{plugins}]\n', plugins=list(PLUGINS))
    made = Simulation(policy_of(PolicyName.BINPACK), queues=queues, conf=conf)
    made.put_nodes(node(f"n{i}", cards=8, cpu=64) for i in range(nodes))
    return made


def victims(simulation: Simulation) -> list[str]:
    return sorted(str(victim.pod_uid) for plan in simulation.run() for victim in plan.victims)


def placed(simulation: Simulation) -> dict[str, str]:
    return {str(uid): str(claim.node) for uid, claim in simulation.claims.items()}


class _Plain:
    """A plugin without arguments."""

    def __init__(self, conf: PluginConf) -> None:
        self.conf = conf


class Tenure(_Plain, Preemptable, Reclaimable):
    """Protects a pod for a minute from its start."""

    name = NEW
    guards = True
    time_dependent = True

    def open(self, session: Session) -> None:
        self._session = session

    def preemptable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        return [member for member in candidates if member is not preemptor and self._served(member)]

    reclaimable = preemptable

    def _served(self, member: Member) -> bool:
        return member.started_at is not None and self._session.now - member.started_at > 60.0


def test_time_dependent_guard_under_a_new_name_lets_evict_once_its_time_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    with_plugin(monkeypatch, Tenure, "")
    simulation = world("allocate, preempt", f"{{name: {NEW}}}, {{name: priority}}, {{name: gang}}, {{name: predicates}}")
    simulation.now = 1_000.0
    simulation.submit([job("low", cards=8)])
    simulation.run()
    simulation.submit([job("high", cards=8, priority=9)])
    for _ in range(20):
        simulation.now += 3.0
        assert victims(simulation) == []
    simulation.now += 3.0
    assert victims(simulation) == ["low-0"], "nothing changed but the time"


def test_guard_that_reads_the_clock_and_does_not_declare_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with_plugin(monkeypatch, Tenure, "time_dependent")
    with pytest.raises(Bug) as caught:
        check(PLUGINS[NEW])
    assert caught.value.message == (
        f"plugin {NEW}: preemptable (Preemptable) reads session.now through _served, so its answers change with time alone;"
        " declare time_dependent = True"
    )


class ByWeight(Proportion):
    """Shares by weight of what all queues ask for."""


@pytest.mark.parametrize("declared", [True, False])
def test_job_is_retried_after_any_change_if_its_limit_depends_on_demand(
    monkeypatch: pytest.MonkeyPatch, declared: bool
) -> None:
    """b asks for 4 cards that no node has; a's share grows to the whole node once b asks for nothing."""
    with_plugin(monkeypatch, ByWeight, "" if declared else "demand_dependent")
    queues = [Queue(QueueName("a")), Queue(QueueName("b"))]
    simulation = world("allocate", f"{{name: priority}}, {{name: gang}}, {{name: predicates}}, {{name: {NEW}}}", queues=queues)
    elsewhere = job("b", cards=4, queue="b", node_selector={"zone": "none"})
    simulation.submit([elsewhere, *(job(f"a{i}", cards=1, queue="a", created_at=float(i)) for i in range(8))])
    simulation.run()
    assert len(simulation.claims) == 4
    simulation.scheduler.on_withdrawn([elsewhere.id], [2])
    simulation.put_nodes([node("without-cards", cards=0)])
    simulation.now += 10.0  # less than after which headlines are reviewed
    simulation.run()
    assert len(simulation.claims) == (8 if declared else 4)


@pytest.mark.parametrize("declared", [True, False])
def test_victim_search_is_repeated_when_demand_changed_if_shares_depend_on_it(
    monkeypatch: pytest.MonkeyPatch, declared: bool
) -> None:
    """Queue a may take from c once b asks for less. b asks for cards that no node has."""
    with_plugin(monkeypatch, ByWeight, "" if declared else "demand_dependent")
    queues = [Queue(QueueName("a")), Queue(QueueName("b"), weight=2), Queue(QueueName("c"))]
    simulation = world(
        "allocate, reclaim", f"{{name: priority}}, {{name: gang}}, {{name: predicates}}, {{name: {NEW}}}", queues=queues
    )
    simulation.submit(job(f"c{i}", cards=1, queue="c", created_at=float(i)) for i in range(6))
    simulation.submit(job(f"a{i}", cards=1, queue="a", created_at=10.0 + i) for i in range(2))
    simulation.run()
    assert len(simulation.claims) == 8
    elsewhere = job("b", cards=8, queue="b", node_selector={"zone": "none"})
    simulation.submit([elsewhere, *(job(f"a{i}", cards=1, queue="a", created_at=10.0 + i) for i in range(2, 4))])
    assert victims(simulation) == []
    simulation.now += 60.0
    assert victims(simulation) == []
    simulation.submit([replace(job("b", cards=1, queue="b", node_selector={"zone": "none"}), revision=2)])
    simulation.now += 60.0
    assert bool(victims(simulation)) == declared


class Kept(_Plain, Preemptable, Reclaimable):
    """Protects the jobs named kept."""

    name = NEW
    guards = True
    guards_owners = True
    guards_offline = True

    def preemptable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        return [member for member in candidates if member is not preemptor and not member.name.startswith("kept")]

    reclaimable = preemptable


def own_policy(plugin: str) -> str:
    """HBox's own policy with the new plugin in place of this one."""
    return DEFAULT_CONF.replace(f"  - name: {plugin}\n", f"  - name: {NEW}\n")


def lending(conf: str) -> Both:
    """Node `lab` is owned by queue vision, which lends it; `n0` is pooled; 4 cards each."""
    nodes = [replace(node("lab", cards=4, cpu=64), labels={POOL: "lab"}), node("n0", cards=4, cpu=64)]
    vision = Queue(QueueName("vision"), pools=("lab", "pooled"), lent_pools=("lab",))
    return Both([vision, Queue(QueueName("other"))], cluster=nodes, policy=parse_conf(conf, plugins=list(PLUGINS)))


def cards_on(both: Both, node_name: str, queue: str) -> int:
    return sum(len(r.claim.slices) for r in both.books.live.values() if r.claim.node == node_name and r.claim.queue == queue)


@pytest.mark.parametrize("declared", [True, False])
def test_guard_holds_against_the_owner_of_a_node_if_it_guards_owners(monkeypatch: pytest.MonkeyPatch, declared: bool) -> None:
    with_plugin(monkeypatch, Kept, "" if declared else "guards_owners")
    both = lending(own_policy("levels"))
    both.submit(*(job(f"kept{i}", queue="other", cards=1) for i in range(8)))
    both.submit(job("owners", queue="vision", cards=1))
    assert cards_on(both, "lab", "vision") == (0 if declared else 1)


@pytest.mark.parametrize("declared", [True, False])
def test_guard_holds_for_offline_work_if_it_guards_offline(monkeypatch: pytest.MonkeyPatch, declared: bool) -> None:
    with_plugin(monkeypatch, Kept, "" if declared else "guards_offline")
    simulation = world("allocate", f"{{name: priority}}, {{name: gang}}, {{name: predicates}}, {{name: {NEW}}}")
    simulation.submit([replace(job("kept", cards=8), priority_class=OFFLINE_CLASS, priority=-200)])
    simulation.run()
    simulation.submit([job("other", cards=1)])
    assert victims(simulation) == ([] if declared else ["kept-0"])


class WholeGangs(GangPlugin):
    """A gang loses its surplus, or all of its members."""


@pytest.mark.parametrize("declared", [True, False])
def test_gang_is_evicted_whole_from_a_lent_node_if_the_guard_guards_gangs(
    monkeypatch: pytest.MonkeyPatch, declared: bool
) -> None:
    """The gang has 4 members in pooled and 2 on the lent node, of which the owner needs one card more than is free."""
    with_plugin(monkeypatch, WholeGangs, "" if declared else "guards_gangs")
    both = lending(own_policy("gang"))
    both.submit(job("gang", queue="other", cards=1, pods=6))
    both.submit(*(job(f"v{i}", queue="vision", cards=1, created_at=10.0 + i) for i in range(3)))
    assert (cards_on(both, "lab", "other"), cards_on(both, "n0", "other")) == ((0, 0) if declared else (1, 4))


class ByRank(_Plain, Preemptable):
    """Pods preempt pods of lower priority. It orders nothing, so that the pods are served by age."""

    name = NEW
    ranks_priorities = True

    def preemptable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        return [member for member in candidates if member.priority < preemptor.priority]


@pytest.mark.parametrize("declared", [True, False])
def test_lowest_priority_is_evicted_first_if_the_plugin_ranks_priorities(
    monkeypatch: pytest.MonkeyPatch, declared: bool
) -> None:
    with_plugin(monkeypatch, ByRank, "" if declared else "ranks_priorities")
    simulation = world("allocate, preempt", f"{{name: {NEW}}}, {{name: gang}}, {{name: predicates}}")
    simulation.submit([job("lowest", cards=4, priority=1, created_at=1.0), job("newest", cards=4, priority=5, created_at=2.0)])
    simulation.run()
    simulation.now += 10.0
    simulation.submit([job("high", cards=4, priority=9, created_at=5.0)])
    assert victims(simulation) == (["lowest-0"] if declared else ["newest-0"])


class NearImages(_Plain, PodScore):
    """Prefers node n2 for pods of which it knows an image."""

    name = NEW
    reads_images = True
    sees_plain_pods = False

    def concerns(self, member: Member) -> bool:
        return bool(member.images)

    def score(self, member: Member, columns: Columns) -> Floats | None:
        return np.array([100.0 * (name == "n2") for name in columns.names], dtype=np.float64) if member.images else None


@pytest.mark.parametrize("declared", [True, False])
def test_members_have_their_images_if_a_plugin_reads_images(monkeypatch: pytest.MonkeyPatch, declared: bool) -> None:
    with_plugin(monkeypatch, NearImages, "" if declared else "reads_images")
    simulation = world("allocate", f"{{name: gang}}, {{name: predicates}}, {{name: {NEW}}}", nodes=3)
    simulation.scheduler.on_images("a", [HeldImage(("app:1",), 1 << 30, (NodeName("n2"),))])
    one = job("one", cards=1)
    simulation.submit([replace(one, tasks=tuple(replace(task, images=("app:1",)) for task in one.tasks))])
    simulation.run()
    assert placed(simulation) == {"one-0": "n2" if declared else "n0"}


class Busy(_Plain, Preemptable):
    """Protects pods on nodes that use more than half of their cpu."""

    name = NEW
    guards = True
    reads_usage = True

    def open(self, session: Session) -> None:
        self._busy = {session.row(usage.node) for usage in session.cluster.facts.usage if usage.cpu_percent > 50.0}

    def preemptable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        return [member for member in candidates if member is not preemptor and member.row not in self._busy]


@pytest.mark.parametrize("declared", [True, False])
def test_victim_search_is_repeated_after_a_measurement_if_a_plugin_reads_usage(
    monkeypatch: pytest.MonkeyPatch, declared: bool
) -> None:
    with_plugin(monkeypatch, Busy, "" if declared else "reads_usage")
    simulation = world("allocate, preempt", f"{{name: priority}}, {{name: gang}}, {{name: predicates}}, {{name: {NEW}}}")
    simulation.scheduler.on_usage([NodeUsage(NodeName("n0"), 90.0, 10.0, 0.0)])
    simulation.submit([job("low", cards=8)])
    simulation.run()
    simulation.submit([job("high", cards=8, priority=9)])
    for _ in range(5):
        simulation.now += 10.0
        assert victims(simulation) == []
    simulation.scheduler.on_usage([NodeUsage(NodeName("n0"), 10.0, 10.0, simulation.now)])
    simulation.now += 10.0
    assert victims(simulation) == (["low-0"] if declared else [])


class Fabric(NetworkTopology):
    """Keeps gangs in their domains."""


@pytest.mark.parametrize("declared", [True, False])
def test_plan_states_its_domain_if_a_plugin_heeds_domains(monkeypatch: pytest.MonkeyPatch, declared: bool) -> None:
    with_plugin(monkeypatch, Fabric, "" if declared else "heeds_domains")
    simulation = world("allocate", f"{{name: gang}}, {{name: predicates}}, {{name: {NEW}}}", nodes=2)
    leaf = HyperNode("leaf", 1, "leafgroup", nodes=(NodeName("n0"), NodeName("n1")))
    simulation.scheduler.on_fabric((leaf, HyperNode("top", 2, "fabric", children=("leaf",))), "ib", 7)
    simulation.submit([replace(job("g", pods=2, cards=8), annotations={NETWORK_TOPOLOGY: "singleSwitch"})])
    [plan] = simulation.run()
    assert [one.domain for one in plan.domains] == (["leaf"] if declared else [])


class Rarely(_Plain, ShuffleVictims):
    """Moves all pods once they ran for ten seconds."""

    name = NEW
    time_dependent = True
    shuffle_every_s = 300.0

    def open(self, session: Session) -> None:
        self._now = session.now

    def victims(self, members: Sequence[Member]) -> list[Member]:
        return [member for member in members if member.started_at is not None and self._now > member.started_at + 10.0]


@pytest.mark.parametrize("declared", [True, False])
def test_plugin_is_called_for_shuffle_once_in_its_interval(monkeypatch: pytest.MonkeyPatch, declared: bool) -> None:
    with_plugin(monkeypatch, Rarely, "" if declared else "shuffle_every_s", 0.0)
    simulation = world("allocate, shuffle", f"{{name: gang}}, {{name: predicates}}, {{name: {NEW}}}")
    simulation.now = 1_000.0
    simulation.submit([job("one", cards=1)])
    assert victims(simulation) == []
    simulation.now += 120.0
    assert victims(simulation) == ([] if declared else ["one-0"])
    simulation.now += 200.0
    assert victims(simulation) == ["one-0"]


class SetAside(ReservationPlugin):
    """Reserves nodes for large gangs."""


@pytest.mark.parametrize("reserves", [True, False])
def test_plugin_that_reserves_nodes_is_found_by_its_hook(monkeypatch: pytest.MonkeyPatch, reserves: bool) -> None:
    with_plugin(monkeypatch, SetAside, "")
    plugin = f", {{name: {NEW}, arguments: {{after: 10s, members: 2, nodes: 2}}}}" if reserves else ""
    simulation = world("allocate", f"{{name: gang}}, {{name: predicates}}{plugin}", nodes=4)
    simulation.submit([job(f"running{i}", cards=8) for i in range(4)])
    simulation.run()
    simulation.submit([job("large", pods=2, cards=8, created_at=1.0)])
    for _ in range(3):
        simulation.now += 20.0
        simulation.run()
    simulation.submit([job("small", cards=1, created_at=62.0)])
    simulation.finish([PodUid("running0-0")])
    simulation.now += 5.0
    simulation.run()
    assert ("small-0" in placed(simulation)) != reserves


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('timed = frozenset({"minruntime", "tdm"})', ["'minruntime'", "'tdm'"]),
        ('x = plugin.name == "gang"', ["'gang'"]),
        ("from ..plugins.nodeorder import NodeOrder", ["NodeOrder"]),
        ('key = attrgetter("gang")', []),
        ('"""gang: a docstring"""', []),
    ],
)
def test_names_of_plugins_are_found(source: str, found: list[str]) -> None:
    assert [text for _, text in names_in(source)] == found


def test_guard_of_a_kind_declares_that_it_guards() -> None:
    class Half(Kept):
        guards = False

    with pytest.raises(Bug, match="declares guards_owners and does not declare guards = True"):
        check(Half)


def test_example_of_the_documentation_is_refused_without_its_declaration() -> None:
    text = (Path(__file__).parents[3] / "docs/developer/add-a-plugin.md").read_text()
    _, _, after = text.partition("class FirstMinute")
    source = "class FirstMinute" + after.partition("```")[0]
    made: dict[str, Any] = {
        "Preemptable": Preemptable,
        "Reclaimable": Reclaimable,
        "Arguments": Arguments,
        "Sequence": Sequence,
    }
    made |= {"Member": Member, "__name__": __name__}
    exec(source, made)
    check(made["FirstMinute"])
    exec(source.replace("    time_dependent = True\n", ""), made)
    with pytest.raises(Bug) as caught:
        check(made["FirstMinute"])
    assert f"\n    {caught.value.message}\n" in text
