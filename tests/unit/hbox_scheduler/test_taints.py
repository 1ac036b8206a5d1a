"""Nodes that are closed to whoever does not tolerate their taints."""

from dataclasses import replace

import pytest

from hbox_common.model import DEFAULT_QUEUE, POOL, Queue, Taint, TaintEffect, Toleration, TolerationOperator
from hbox_scheduler.core.plugins.taints import tolerates
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.simulate.simulation import Simulation, job, node


@pytest.mark.parametrize(
    ("effect", "placed"),
    [(TaintEffect.NO_SCHEDULE, False), (TaintEffect.NO_EXECUTE, False), (TaintEffect.PREFER_NO_SCHEDULE, True)],
)
def test_a_pod_without_a_toleration_goes_where_a_taint_is_only_a_wish(effect: TaintEffect, *, placed: bool) -> None:
    simulation = Simulation(policy_of(PolicyName.BINPACK), queues=[Queue(DEFAULT_QUEUE)])
    simulation.put_nodes([replace(node("n0"), taints=(Taint("team", "a", effect),))])
    simulation.submit([job("j")])
    simulation.run()
    assert bool(simulation.claims) is placed


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration("team", value="a"), True),
        (Toleration("team", value="b"), False),
        (Toleration("other", value="a"), False),
        (Toleration("team", TolerationOperator.EXISTS), True),
        (Toleration("", TolerationOperator.EXISTS), True),
        (Toleration("", value="a"), False),
        (Toleration("team", value="a", effect="NoSchedule"), True),
        (Toleration("team", value="a", effect="NoExecute"), False),
        (Toleration("team", value="a", effect="PreferNoSchedule"), False),
    ],
)
def test_what_tolerates_a_taint_of_team_a(toleration: Toleration, *, expected: bool) -> None:
    assert tolerates(toleration, Taint("team", "a", TaintEffect.NO_SCHEDULE)) is expected


@pytest.mark.parametrize(("effect", "placed"), [(TaintEffect.NO_SCHEDULE, True), (TaintEffect.NO_EXECUTE, False)])
def test_the_taint_of_a_pool_keeps_nobody_off_whose_queue_may_use_it(effect: TaintEffect, *, placed: bool) -> None:
    simulation = Simulation(policy_of(PolicyName.BINPACK), queues=[Queue(DEFAULT_QUEUE, pools=("lab",))])
    simulation.put_nodes([replace(node("n0"), labels={POOL: "lab"}, taints=(Taint(POOL, "lab", effect),))])
    simulation.submit([job("j")])
    simulation.run()
    assert bool(simulation.claims) is placed


@pytest.mark.parametrize(
    ("operator", "line", "value", "expected"),
    [
        ("Gt", "750", "900", True),
        ("Gt", "750", "750", False),
        ("Gt", "750", "80", False),
        ("Lt", "750", "80", True),
        ("Lt", "750", "750", False),
        ("Lt", "0", "-5", True),
        ("Gt", "750", "high", False),
        ("Lt", "9" * 30, "1", False),
        ("Gt", "7.5", "8", False),
    ],
)
def test_tolerations_compare_integers(operator: str, line: str, value: str, *, expected: bool) -> None:
    toleration = Toleration("sla", TolerationOperator(operator), line)
    assert tolerates(toleration, Taint("sla", value, TaintEffect.NO_SCHEDULE)) is expected
    assert not tolerates(toleration, Taint("other", value, TaintEffect.NO_SCHEDULE))
