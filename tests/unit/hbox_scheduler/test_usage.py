"""Nodes by what they really use. 3 nodes of 8 cards, one pod that asks for a card; figures worked out from Volcano's formula."""

from collections.abc import Mapping

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import NodeName, NodeUsage

from .small_world import NOW, SmallWorld, bound


def policy(arguments: str = "", flags: str = "") -> str:
    return f"""
actions: "allocate"
tiers:
- plugins:
  - {{name: usage, arguments: {{{arguments}}}{flags}}}
"""


def world(load: Mapping[str, tuple[float, float]], *, age_s: float = 0.0) -> SmallWorld:
    """`load`: percent of cpu and memory in use by node, measured so long ago."""
    made = SmallWorld(3)
    made.usage = [NodeUsage(NodeName(name), cpu, memory, at=NOW - age_s) for name, (cpu, memory) in load.items()]
    made.gang("job")
    return made


def test_nodes_over_a_threshold_take_nobody_and_say_of_what() -> None:
    report = world({"n0": (80.1, 0), "n1": (0, 80.1), "n2": (99, 99)}).decide(policy())
    assert not report.bindings
    assert report.pending["d/job-0"].reasons == {"NodeCpuLoadHigh": 2, "NodeMemoryLoadHigh": 1}


def test_at_the_threshold_a_node_is_not_over_it() -> None:
    assert bound(world({"n0": (81, 0), "n1": (60, 70), "n2": (81, 0)}).decide(policy("thresholds: {cpu: 60, mem: 70}")))


def test_the_filter_can_be_switched_off() -> None:
    assert bound(world(dict.fromkeys(("n0", "n1", "n2"), (99.0, 99.0))).decide(policy(flags=", enablePredicate: false")))


def test_who_uses_less_scores_higher_and_who_is_not_known_nothing() -> None:
    loaded = world({"n0": (20, 60), "n1": (50, 10)})
    report = loaded.decide(policy("usage.weight: 2, cpu.weight: 3, memory.weight: 1"), explain=True)
    assert report.scores["d/job-0"]["usage"] == {"n0": 2 * (3 * 80 + 40) / 4, "n1": 2 * (3 * 50 + 90) / 4, "n2": 0.0}
    assert bound(report) == {"job-0": "n0"}


def test_a_measurement_of_more_than_five_minutes_ago_says_nothing() -> None:
    load = dict.fromkeys(("n0", "n1", "n2"), (99.0, 99.0))
    assert not bound(world(load, age_s=299).decide(policy()))
    report = world(load, age_s=301).decide(policy(), explain=True)
    assert bound(report)
    assert set(report.scores["d/job-0"]["usage"].values()) == {0.0}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("thresholds: {memory: 80}", "thresholds: unknown key 'memory' .*allowed: cpu, mem"),
        ("thresholds: {cpu: 80%}", "thresholds.cpu: '80%' is not a number from 0 to 100"),
        ("thresholds: {mem: 101}", "thresholds.mem: 101 is not a number from 0 to 100"),
        ("cpu.weigth: 1", "no argument 'cpu.weigth' .*did you mean cpu.weight"),
    ],
)
def test_a_wrong_argument_is_named(arguments: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=f"line 5: plugin usage.*{said}"):
        world({}).decide(policy(arguments))
