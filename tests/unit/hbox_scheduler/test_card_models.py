"""Which model a pod gets that names none: the cheapest that will do; and what is kept for those who can use no other. T4 nodes come before A100 nodes."""

from collections.abc import Sequence

import pytest

from hbox_common.errors import InvalidRequest
from hbox_common.model import CardRequest, CardSlice, JobId, NodeName
from hbox_common.model.devices import Figures
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.devices.models import Worth, figures_of, named, scarcity
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.registry import PLUGINS, plugins_of
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from .small_world import SmallWorld, bound

POLICY = """
actions: "allocate"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: binpack
  - name: card-models
    arguments: {%s}
"""
T4, V100, A100 = ("Tesla-T4", 15_360), ("Tesla-V100-SXM2-32GB", 32_768), ("NVIDIA-A100-SXM4-80GB", 81_920)


def world(*models: tuple[str, int], cards: int = 4) -> SmallWorld:
    """A node of each of these models."""
    made = SmallWorld(len(models), cards)
    for number, (model, mib) in enumerate(models):
        made.columns.put_node(node(f"n{number}", cards=cards, cpu=128, model=model, card_mib=mib, shares=10))
    return made


def nodes_of(made: SmallWorld, arguments: str = "") -> dict[str, str]:
    return bound(made.decide(POLICY % arguments))


def test_the_cheapest_model_fills_first_and_then_the_next() -> None:
    made = world(A100, V100, T4)
    for number in range(10):
        made.gang(f"p{number}", age_s=100 - number)
    assert list(nodes_of(made).values()) == ["n2"] * 4 + ["n1"] * 4 + ["n0"] * 2


@pytest.mark.parametrize(
    ("asked", "goes_to"),
    [
        (CardRequest(1, cores=30, memory_mib=8_000), "n2"),
        (CardRequest(1, cores=30, memory_mib=24_000), "n1"),
        (CardRequest(1, cores=30, memory_mib=60_000), "n0"),
        (CardRequest(1, models=(A100[0],)), "n0"),
        (CardRequest(1, models=(A100[0], V100[0])), "n1"),
    ],
    ids=["small", "more memory than a T4 has", "more than a V100 has", "names A100", "names A100 and V100"],
)
def test_the_cheapest_has_to_satisfy_what_is_asked_for(asked: CardRequest, goes_to: str) -> None:
    made = world(A100, V100, T4)
    made.gang("p", cards=asked)
    assert nodes_of(made) == {"p-0": goes_to}


def test_pods_over_several_cards_and_gangs_look_for_a_fast_link_first() -> None:
    made = world(A100, V100, T4)
    made.gang("alone", age_s=30)
    made.gang("several", cards=2, age_s=20)
    made.gang("gang", pods=2, age_s=10)
    assert nodes_of(made) == {"alone-0": "n2", "several-0": "n1", "gang-0": "n1", "gang-1": "n1"}


def test_without_a_fast_link_they_run_on_a_slow_one_unless_that_is_forbidden() -> None:
    made = world(T4, T4, A100)
    made.columns.put_node(node("n2", cards=4, model=A100[0], card_mib=A100[1], ready=False))
    made.gang("several", cards=2)
    assert nodes_of(made) == {"several-0": "n0"}
    made = world(T4, T4, A100)
    made.columns.put_node(node("n2", cards=4, model=A100[0], card_mib=A100[1], ready=False))
    made.gang("several", cards=2)
    report = made.decide(POLICY % "link.required: true", explain=True)
    assert report.pending["d/several-0"].reasons == {"CardLinkTooSlow": 2, "NodeNotReady": 1}


def test_tiers_stand_in_place_of_figures() -> None:
    made = world(A100, V100, T4)
    for number in range(9):
        made.gang(f"p{number}", age_s=100 - number)
    assert list(nodes_of(made, "tiers: [[A100, V100], T4]").values()).count("n2") == 1


def test_a_model_that_others_are_bound_to_is_left_to_them_though_it_is_cheap() -> None:
    made = world(V100, T4)
    made.gang("bound", pods=3, cards=CardRequest(1, models=(T4[0],)), age_s=1)
    made.gang("free", age_s=100)
    assert nodes_of(made)["free-0"] == "n0"
    made = world(V100, T4)
    made.gang("bound", pods=3, cards=CardRequest(1, models=(T4[0],)), age_s=1)
    made.gang("free", age_s=100)
    assert nodes_of(made, "scarcity.weight: 0")["free-0"] == "n1"


def test_scarcity_counts_those_who_name_a_model_and_those_whom_no_other_is_large_enough_for() -> None:
    columns = Columns()
    for number, (model, mib) in enumerate((A100, T4, T4, T4)):
        columns.put_node(node(f"n{number}", cards=4, model=model, card_mib=mib))
    a100, t4 = columns.model_names.index(A100[0]), columns.model_names.index(T4[0])
    nobody = scarcity(columns, {CardRequest(1): 100.0})
    assert not nobody.any()
    evenly = scarcity(columns, {CardRequest(1, models=(A100[0],)): 4.0, CardRequest(1): 12.0})
    assert not evenly.any(), "one card is asked for per A100, and one per card of the cluster"
    twice = scarcity(columns, {CardRequest(1, models=(A100[0],)): 16.0, CardRequest(1): 16.0})
    assert twice[a100] == pytest.approx(0.5), "four, and two"
    assert twice[t4] == 0.0
    large = scarcity(columns, {CardRequest(1, cores=10, memory_mib=60_000): 16.0, CardRequest(1): 16.0})
    assert large.tolist() == twice.tolist()
    assert not scarcity(columns, {CardRequest(1, models=("H100",)): 4.0}).any(), "there is none to keep"


RESERVE = "reserve.percent: 50"


def waiting_for_a100(*, age_s: float = 60.0, pods: int = 2) -> SmallWorld:
    """Two A100 nodes, two of whose eight cards are in use, and a full T4 node. `large` needs both A100 nodes whole."""
    made = world(A100, A100, T4)
    made.gang("old", pods=2, cards=1, on=[0, 1], age_s=100)
    made.gang("full", cards=4, on=[2], age_s=100)
    made.gang("large", pods=pods, cards=CardRequest(4, models=(A100[0],)), age_s=age_s)
    return made


def test_idle_cards_are_kept_for_gangs_that_can_use_no_other_and_the_reason_says_so() -> None:
    made = waiting_for_a100()
    for number in range(6):
        made.gang(f"p{number}", age_s=50 - number)
    report = made.decide(POLICY % RESERVE, explain=True)
    assert len(bound(report)) == 2, "six are idle, half of the eight are kept"
    assert report.pending["d/p5-0"].reasons["CardModelKeptForOthers"] == 2
    made = waiting_for_a100()
    for number in range(6):
        made.gang(f"p{number}", age_s=50 - number)
    assert len(nodes_of(made)) == 6


def test_no_more_is_kept_than_is_waited_for() -> None:
    made = world(A100, A100, T4)
    made.gang("full", cards=4, on=[2], age_s=100)
    made.gang("old", pods=2, cards=2, on=[0, 1], age_s=100)
    made.gang("three", cards=CardRequest(3, models=(A100[0],)), age_s=60)
    for number in range(4):
        made.gang(f"p{number}", age_s=50 - number)
    assert len(nodes_of(made, RESERVE)) == 1, "four are idle, three of them asked for"


def test_who_waits_for_too_long_has_nothing_kept_any_more() -> None:
    made = waiting_for_a100(age_s=4000)
    made.gang("p", age_s=50)
    made.gang("q", age_s=40)
    made.gang("r", age_s=40)
    assert len(nodes_of(made, RESERVE)) == 3
    assert len(nodes_of(waiting_and_three(), RESERVE + ", reserve.for: 2h")) == 2


def waiting_and_three() -> SmallWorld:
    made = waiting_for_a100(age_s=4000)
    for name in "pqr":
        made.gang(name, age_s=50)
    return made


def test_a_pod_that_names_its_model_is_kept_from_nothing() -> None:
    made = waiting_for_a100()
    made.gang("named", cards=CardRequest(3, models=(A100[0],)), age_s=50)
    made.gang("large share", cards=CardRequest(1, cores=50, memory_mib=60_000), age_s=40)
    assert set(nodes_of(made, "reserve.percent: 100")) == {"named-0", "large share-0"}


def test_a_gang_that_could_go_elsewhere_does_not_take_in_one_go_what_is_kept() -> None:
    made = waiting_for_a100()
    made.gang("gang", pods=3, age_s=50)
    assert not nodes_of(made, RESERVE)
    made = waiting_for_a100()
    made.gang("gang", pods=2, age_s=50)
    assert len(nodes_of(made, RESERVE)) == 2


def test_a_share_beside_others_uses_up_nothing_idle_and_is_let_in() -> None:
    made = world(A100, T4)
    made.gang("full", cards=4, on=[1], age_s=100)
    made.gang("old", cards=CardRequest(1, cores=30, memory_mib=8_000), on=[0], age_s=100)
    made.gangs[-1].members[0].slices = (CardSlice(0, 30, 8_000),)
    made.gang("large", cards=CardRequest(4, models=(A100[0],)), age_s=60)
    made.gang("beside", cards=CardRequest(1, cores=30, memory_mib=8_000), age_s=50)
    made.gang("alone", cards=CardRequest(1, cores=80, memory_mib=8_000), age_s=40)
    assert nodes_of(made, "reserve.percent: 100") == {"beside-0": "n0"}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("reserve.percent: 120", "argument reserve.percent: 120 is not a number of at most 100"),
        ("reserve.for: soon", "argument reserve.for: 'soon' is not a duration such as 90s, 10m or 1h30m"),
        ("models: {A100: {speed: 3}}", "models.A100: {'speed': 3}"),
        ("models: {A100: {compute: 0}}", "models.A100.compute: 0 is not a number above 0"),
        ("tiers: T4", "argument tiers: 'T4' is not a list"),
        ("tiers: [T4, []]", "tiers: [] (number 2)"),
        ("reserve: 5", "has no argument 'reserve'"),
    ],
)
def test_wrong_arguments_are_named(arguments: str, error: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        plugins_of(parse_conf(POLICY % arguments, plugins=list(PLUGINS)))
    assert raised.value.message.startswith("line 8: plugin card-models")
    assert error in raised.value.message


@pytest.mark.parametrize(
    ("model", "figures"),
    [
        ("NVIDIA-A100-SXM4-80GB", (312, 600)),
        ("NVIDIA-A100-PCIE-40GB", (312, 64)),
        ("NVIDIA L40S", (362, 64)),
        ("NVIDIA-NVIDIA A800-SXM4-80GB", (312, 400)),
        ("V100M32", (125, 300)),
        ("NVIDIA-GeForce-RTX-4090", (165, 64)),
        ("NVIDIA-GH200-480GB", (989, 900)),
    ],
)
def test_models_are_known_by_the_names_that_nodes_report(model: str, figures: tuple[float, float]) -> None:
    found = figures_of(model, {})
    assert (found.compute_tflops, found.link_gb_s) == figures


def test_a_name_is_a_word_of_the_model() -> None:
    assert named("NVIDIA-A100-SXM4-80GB", "a100-sxm4")
    assert not named("NVIDIA-RTX-A1000", "A100")
    assert not named("NVIDIA-A100-SXM4-80GB", "A10")
    assert figures_of("NVIDIA-RTX-A1000", {}) != Figures(312, 600)


def worth(*models: tuple[str, int], **weights: object) -> Sequence[float]:
    columns = Columns()
    for number, (model, mib) in enumerate(models):
        columns.put_node(node(f"n{number}", cards=1, model=model, card_mib=mib))
    found = Worth(**weights).of(columns, slice(0, len(models)))[:, 0]  # type: ignore[arg-type]
    return [round(float(one), 3) for one in found]


def test_what_a_card_is_worth_by_figures_weights_and_tiers() -> None:
    h100, other = ("NVIDIA-H100-SXM5-80GB", 81_920), ("Acme-1", 40_960)
    assert worth(h100, T4, other, ("Acme-2", 0)) == [1.0, 0.096, 0.5, 1.0], (
        "of Acme-1 only the memory is known, of Acme-2 nothing"
    )
    assert worth(h100, other, memory=0.0, given={"acme-1": Figures(compute_tflops=494.5)}) == [1.0, 0.5]
    assert worth(h100, T4, other, tiers=[["T4"], ["H100"]]) == [1.0, 0.5, 1.0]


def test_the_scheduler_without_a_policy_of_the_users_leaves_scarce_models_alone_and_has_gangs_of_cards_on_fast_links() -> None:
    simulation = Simulation(policy_of(PolicyName.BINPACK))
    simulation.put_nodes([
        node("n0", cards=4, model=T4[0], card_mib=T4[1]), node("n1", cards=4, model=V100[0], card_mib=V100[1]),
        node("n2", cards=4, model=A100[0], card_mib=A100[1]), node("n3", cards=8, model=T4[0], card_mib=T4[1]),
    ])  # fmt: skip
    named = CardRequest(1, models=(V100[0],))
    simulation.submit([
        *(job(f"named{i}", cards=named, created_at=1.0) for i in range(4)),
        job("several", cards=2, created_at=2.0), job("one", cards=CardRequest(1, models=(V100[0], A100[0])), created_at=3.0),
    ])  # fmt: skip
    simulation.run()
    where = {str(uid): claim.node for uid, claim in simulation.claims.items()}
    assert {where[f"named{i}-0"] for i in range(4)} == {NodeName("n1")}
    assert where["several-0"] == where["one-0"] == NodeName("n2")


def test_it_would_have_taken_a_card_of_them_for_being_the_first() -> None:
    """As above, before anybody has come who is bound to V100."""
    simulation = Simulation(policy_of(PolicyName.BINPACK))
    simulation.put_nodes(node(f"n{i}", cards=4, model=model, card_mib=mib) for i, (model, mib) in enumerate((V100, A100)))
    simulation.submit([job("free", cards=1, created_at=1.0)])
    simulation.run()
    assert [claim.node for claim in simulation.claims.values()] == ["n0"]
    simulation.submit(
        [
            job("bound", pods=4, min_member=1, cards=CardRequest(2, models=(V100[0],)), created_at=2.0),
            job("next", cards=1, created_at=3.0),
        ]
    )
    simulation.run()
    where = {str(uid): claim.node for uid, claim in simulation.claims.items()}
    assert where["next-0"] == "n1"


def test_the_scheduler_tells_why_a_pod_waits_for_whom() -> None:
    conf = parse_conf(POLICY % RESERVE, plugins=list(PLUGINS))
    simulation = Simulation(policy_of(PolicyName.BINPACK), conf=conf)
    simulation.put_nodes([
        node("n0", cards=4, model=A100[0], card_mib=A100[1]),
        node("n1", cards=1, model=T4[0], card_mib=T4[1]),
    ])  # fmt: skip
    simulation.submit(
        [job("first", cards=CardRequest(2, models=(A100[0],)), created_at=1.0), job("t4", cards=1, created_at=2.0)]
    )
    simulation.run()
    simulation.now = 10.0
    simulation.submit(
        [job("large", cards=CardRequest(4, models=(A100[0],)), created_at=10.0), job("p", cards=1, created_at=11.0)]
    )
    simulation.run()
    assert "CardModelKeptForOthers" in simulation.verdicts[JobId("p")]
    simulation.scheduler.on_withdrawn([JobId("large")], [2])
    simulation.now += 5.0
    simulation.run()
    assert "p-0" in simulation.claims
