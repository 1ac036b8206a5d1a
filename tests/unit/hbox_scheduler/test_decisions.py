"""Why pods have the places that they have: told from the decision, whatever the cluster looks like when somebody asks."""

from dataclasses import replace

import pytest

from hbox_common.model import JobId
from hbox_common.model.decision import Decision
from hbox_scheduler.core.explain import decisions as module
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import policy_from
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate import Simulation, job, node

SPREADING = """\
actions: "allocate"
tiers:
- plugins:
  - {name: gang}
- plugins:
  - {name: predicates}
  - name: nodeorder
    arguments: {leastrequested.weight: 10}
  - name: binpack
    arguments: {binpack.weight: 1}
"""


def small(*, by_user: bool = False) -> Simulation:
    conf = parse_conf(SPREADING, plugins=list(PLUGINS)) if by_user else default_conf()
    return Simulation(policy_from(conf), conf=conf)


def only(simulation: Simulation, name: str) -> Decision:
    [found] = simulation.scheduler.decisions.of(JobId(name))
    return found


def test_the_scores_are_those_of_the_moment_and_not_of_today() -> None:
    """n1 is the fuller node when `a` comes; later it is full and n2 is gone."""
    simulation = small()
    simulation.put_nodes([node("n0", cards=8), node("n1", cards=8), node("n2", cards=8)])
    simulation.submit([job("first", cards=2)])
    simulation.run()
    simulation.now = 7.0
    simulation.submit([job("a", cards=1)])
    [plan] = simulation.run()
    before = only(simulation, "a")
    simulation.submit([job("later", pods=2, cards=8), job("rest", pods=5, cards=1)])
    simulation.run()
    simulation.put_nodes([node("n0", cards=8, generation=2, unschedulable=True)])

    decision = only(simulation, "a")
    assert decision == before
    assert (decision.plan, decision.at, decision.policy) == (plan.id, 7.0, default_conf().summary)
    [on] = decision.nodes
    assert (on.node, on.pods) == ("n0", ["a-0"])
    assert on.chosen is not None
    assert on.runner_up is not None
    assert on.runner_up.node == "n1"
    assert on.chosen.total > on.runner_up.total
    for scored in (on.chosen, on.runner_up):
        assert sum(scored.terms.values()) == pytest.approx(scored.total)
    assert on.why.startswith(f"it is {on.chosen.total - on.runner_up.total:g} behind: least-waste -")


def test_notes_name_the_score_and_the_runner_up() -> None:
    simulation = small()
    simulation.put_nodes([node("n0", cards=8), node("n1", cards=8)])
    simulation.submit([job("a", cards=1)])
    plans = simulation.run()
    [on] = only(simulation, "a").nodes
    assert on.chosen is not None
    assert on.runner_up is not None
    note = f"score {on.chosen.total:g}, runner-up n1 with {on.runner_up.total:g}"
    assert simulation.scheduler.decisions.notes(plans) == [("a-0", "n0", note)]


def test_note_of_the_only_node_names_no_runner_up() -> None:
    simulation = small()
    simulation.put_nodes([node("n0", cards=8)])
    simulation.submit([job("a", cards=1)])
    [(_, _, note)] = simulation.scheduler.decisions.notes(simulation.run())
    assert note.endswith(", no other node had room")


def test_notes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NOTED", 3)
    simulation = small()
    simulation.put_nodes([node("n0", cards=8)])
    simulation.submit([job("a", pods=5, cards=1)])
    assert len(simulation.scheduler.decisions.notes(simulation.run())) == 3


def test_a_gang_over_several_nodes_names_after_each_the_next_and_after_the_last_the_best_of_all_others() -> None:
    simulation = small()
    simulation.put_nodes([node(f"n{number}", cards=4) for number in range(4)])
    simulation.submit([job("gang", pods=6, cards=2)])
    simulation.run()
    nodes = only(simulation, "gang").nodes
    assert [(on.node, len(on.pods)) for on in nodes] == [("n0", 2), ("n1", 2), ("n2", 2)]
    assert [on.runner_up.node for on in nodes if on.runner_up is not None] == ["n1", "n2", "n3"]
    assert {on.why for on in nodes} == {"equal scores: the first in the order of nodes is taken"}


def test_where_nothing_else_fits_there_is_no_runner_up() -> None:
    simulation = small()
    simulation.put_nodes([node("n0", cards=8), node("n1", cards=2), node("n2", cards=8, labels={"pool": "x"})])
    simulation.submit([job("a", cards=8, node_selector={"pool": "x"})])
    simulation.run()
    [on] = only(simulation, "a").nodes
    assert on.chosen is not None
    assert (on.node, on.runner_up, on.why) == ("n2", None, "no other node was allowed and had room")


def test_a_users_policy_is_told_plugin_by_plugin() -> None:
    simulation = small(by_user=True)
    simulation.put_nodes([node("n0", cards=8), node("n1", cards=8)])
    simulation.submit([job("first", cards=4, cpu_milli=32_000)])
    simulation.run()
    simulation.submit([replace(job("a", cards=1), min_task_member={"worker": 1})])
    simulation.run()
    decision = only(simulation, "a")
    assert decision.policy == "allocate by gang, predicates, nodeorder, binpack"
    [on] = decision.nodes
    assert on.chosen is not None
    assert on.runner_up is not None
    assert (on.node, on.runner_up.node) == ("n1", "n0")
    assert on.chosen.terms["nodeorder"] > on.runner_up.terms["nodeorder"]
    assert on.chosen.terms["binpack"] < on.runner_up.terms["binpack"]
    assert sum(on.chosen.terms.values()) == pytest.approx(on.chosen.total)


def test_places_for_which_others_left_name_the_plan_that_made_room() -> None:
    simulation = small()
    simulation.put_nodes([node("n0", cards=8)])
    simulation.submit([job("low", cards=8)])
    simulation.run()
    simulation.submit([job("top", cards=8, priority=9)])
    [room] = simulation.run()
    assert simulation.scheduler.decisions.of(JobId("top")) == []
    simulation.leave()
    [plan] = simulation.run()
    decision = only(simulation, "top")
    assert (decision.plan, decision.made_room, decision.victims) == (plan.id, room.id, 1)
    [on] = decision.nodes
    assert (on.node, on.chosen) == ("n0", None)
    assert on.why == "no scores are kept: the node was chosen by its victims"


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PLANS", 3)
    simulation = small()
    simulation.put_nodes([node("n0", cpu=64)])
    for number in range(5):
        simulation.submit([job(f"j{number}")])
        simulation.run()
    kept = [number for number in range(5) if simulation.scheduler.decisions.of(JobId(f"j{number}"))]
    assert kept == [2, 3, 4]


def test_beyond_the_rate_decisions_are_kept_without_scores_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = small()
    simulation.put_nodes([node("n0", cpu=640), node("n1", cpu=640)])
    shapes = [job(f"j{number}", cpu_milli=100 + number) for number in range(150)]
    simulation.submit(shapes)
    simulation.run()
    decisions = [only(simulation, one.id) for one in shapes]
    without = [decision for decision in decisions if decision.nodes[0].chosen is None]
    assert without
    assert {decision.nodes[0].why for decision in without} == {
        "no scores are kept: more than 100 batches of equal pods a second found nodes"
    }
    simulation.now = 10.0
    simulation.submit([job("late")])
    simulation.run()
    assert only(simulation, "late").nodes[0].chosen is not None


def test_of_a_large_batch_the_first_nodes_have_scores() -> None:
    simulation = small()
    simulation.put_nodes([node(f"n{number:02}", cards=1) for number in range(40)])
    simulation.submit([job("gang", pods=40, cards=1)])
    simulation.run()
    nodes = only(simulation, "gang").nodes
    # the thirty-third stands there as the runner-up of the thirty-second
    assert [on.chosen is not None for on in nodes] == [True] * 33 + [False] * 7
    assert nodes[-1].why == "no scores are kept: only the first 32 nodes of a batch of equal pods have them"


def test_who_listens_changes_nothing() -> None:
    placed = []
    for listens in (True, False):
        simulation = small()
        if not listens:
            simulation.scheduler.columns.choices = None
        simulation.put_nodes([node(f"n{number}", cards=8) for number in range(5)])
        simulation.submit([job(f"j{number}", pods=1 + number % 3, cards=1 + number % 4) for number in range(12)])
        simulation.run()
        placed.append(simulation.scheduler.reports.placed_on())
    assert placed[0] == placed[1]
    assert len(placed[0]) > 10
