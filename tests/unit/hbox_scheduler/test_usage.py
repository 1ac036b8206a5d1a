"""Nodes by what they really use. 3 nodes of 8 cards, one pod that asks for a card; figures worked out from Volcano's formula."""

from collections.abc import Mapping

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import NodeName, NodeUsage, Queue, QueueName
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

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


# --- the estimator: nodes of 128 cpus and pods of 1 cpu; the estimate of 16 pods is 100 * 0.7 * 16 / 128 = 8.75 % of cpu


ESTIMATOR = "usage.weight: 1, memory.weight: 0, estimator: {}"


def fresh(*, ran_s: float | None = 5.0, load: tuple[float, float] = (10.0, 0.0), modest: bool = False) -> SmallWorld:
    """16 pods on n0, of the given age. All three nodes have measurements; n1 and n2 use 15 % of cpu."""
    made = SmallWorld(3)
    made.usage = [NodeUsage(NodeName("n0"), *load, at=NOW), *(NodeUsage(NodeName(f"n{i}"), 15.0, 0.0, at=NOW) for i in (1, 2))]
    made.gang("young", pods=16, cards=0, on=[0] * 16, ran_s=ran_s, modest=modest)
    made.gang("job")
    return made


def scores(made: SmallWorld, arguments: str) -> dict[str, float]:
    return made.decide(policy(arguments), explain=True).scores["d/job-0"]["usage"]


def test_young_pods_count_by_their_requests() -> None:
    assert scores(fresh(), ESTIMATOR) == pytest.approx({"n0": 100 - 10 - 8.75, "n1": 85.0, "n2": 85.0})
    assert scores(fresh(), ESTIMATOR.replace("{}", "{request_ratio: 0.5}"))["n0"] == pytest.approx(100 - 10 - 6.25)
    assert bound(fresh().decide(policy(ESTIMATOR))) == {"job-0": "n1"}
    assert bound(fresh().decide(policy())) == {"job-0": "n0"}, "without an estimator measurements alone count"


def test_older_pods_are_not_estimated() -> None:
    assert scores(fresh(ran_s=31.0), ESTIMATOR)["n0"] == pytest.approx(90.0)


def test_estimate_of_a_node_at_its_risk_threshold_is_multiplied() -> None:
    assert scores(fresh(load=(51.2, 0.0)), ESTIMATOR)["n0"] == pytest.approx(100 - 51.2 - 8.75)
    assert scores(fresh(load=(51.3, 0.0)), ESTIMATOR)["n0"] == pytest.approx(100 - 51.3 - 1.2 * 8.75)
    risky = ESTIMATOR.replace("{}", "{risk_threshold: 0.1, risk_factor: 2}")
    assert scores(fresh(), risky)["n0"] == pytest.approx(100 - 10 - 2 * 8.75)


def test_young_pods_that_request_nothing_count_as_best_effort() -> None:
    assert scores(fresh(modest=True), ESTIMATOR)["n0"] == pytest.approx(100 - 10 - 100 * 16 * 0.25 / 128)
    assert scores(fresh(modest=True), ESTIMATOR.replace("{}", "{be_cpu: 1}"))["n0"] == pytest.approx(100 - 10 - 100 * 16 / 128)


def test_pods_of_one_session_spread_by_the_estimate() -> None:
    made = SmallWorld(3)
    made.usage = [NodeUsage(NodeName(f"n{i}"), 10.0, 10.0, at=NOW) for i in range(3)]
    made.gang("many", pods=6)
    spread = bound(made.decide(policy("estimator: {}")))
    assert sorted(spread.values()) == ["n0", "n0", "n1", "n1", "n2", "n2"]


def test_scheduler_estimates_bookings_since_the_measurement_before_the_last() -> None:
    conf = parse_conf(policy("memory.weight: 0, estimator: {}"), plugins=list(PLUGINS))
    simulation = Simulation(policy_of(PolicyName.BINPACK), queues=[Queue(QueueName("default"))], conf=conf)
    simulation.put_nodes([node(f"n{i}", cpu=128) for i in range(2)])

    def measured(at: float, n0: float, n1: float) -> None:
        simulation.now = at
        found = [NodeUsage(NodeName("n0"), n0, 0.0, at=at), NodeUsage(NodeName("n1"), n1, 0.0, at=at)]
        simulation.scheduler.on_usage(found)

    def node_of(name: str) -> str:
        simulation.submit([job(name, created_at=simulation.now)])
        simulation.run()
        return next(str(one.node) for one in simulation.scheduler.bookings.all().values() if one.job == name)

    measured(1000.0, 10.0, 10.2)
    assert node_of("first") == "n0"
    measured(1015.0, 10.0, 10.2)  # does not show it yet
    assert node_of("second") == "n1"
    measured(1030.0, 10.0, 10.2)  # shows the first one
    assert node_of("third") == "n0"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("estimator: {request_ratio: 2}", "estimator, argument request_ratio: 2 is not a number of at most 1"),
        ("estimator: {risk_factor: 0.5}", "estimator, argument risk_factor: 0.5 is not a number of at least 1"),
        ("estimator: {burst_ratio: 0.3}", "argument burst_ratio: the scheduler knows the requests of pods, not their limits"),
        ("estimator: {be_cpu: lots}", "argument be_cpu: "),
        ("estimator: {be_memory: 1Gi}", "no argument 'be_memory' .*did you mean be_mem"),
        ("thresholds: {memory: 80}", "thresholds: unknown key 'memory' .*allowed: cpu, mem"),
        ("thresholds: {cpu: 80%}", "thresholds.cpu: '80%' is not a number from 0 to 100"),
        ("thresholds: {mem: 101}", "thresholds.mem: 101 is not a number from 0 to 100"),
        ("cpu.weigth: 1", "no argument 'cpu.weigth' .*did you mean cpu.weight"),
    ],
)
def test_a_wrong_argument_is_named(arguments: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=f"line 5: plugin usage.*{said}"):
        world({}).decide(policy(arguments))
