"""The prices of shares, and the choice of node and card by them."""

import gc
import itertools
import math
import weakref
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import CardRequest, NodeState, PodGroupTask
from hbox_common.model.devices import PodDevices
from hbox_common.model.devices.neuron import NEURON
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.resources import CPU, MEMORY, PODS
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.devices import free_percent, pick, slices_of
from hbox_scheduler.core.framework.views import Views
from hbox_scheduler.core.plugins import Shape, card_worth, expected_fragment
from hbox_scheduler.core.plugins.rooms import Rooms, prices_of
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.simulate import node
from hbox_scheduler.core.simulate.uniform import place_uniform

from ...searching import examples
from ..hbox_common.vendorcases import asked, neurons

demands = st.dictionaries(st.integers(3, 99), st.integers(1, 50).map(float), min_size=1, max_size=8)


def test_thirds_and_two_thirds_are_worth_what_they_take() -> None:
    worth = card_worth({65: 10.0, 32: 10.0})
    assert worth[100] == pytest.approx(1.0)
    assert worth[65] + worth[32] == pytest.approx(1.0)
    assert worth[35] == pytest.approx(worth[32])


def test_what_is_left_beside_a_share_that_nothing_fits_beside_is_worth_nothing() -> None:
    worth = card_worth({81: 10.0})
    assert worth[19] == pytest.approx(0.0)
    assert worth[81] == pytest.approx(1.0)


def test_without_shares_a_part_of_a_card_is_worth_its_part() -> None:
    assert card_worth({}) == pytest.approx(np.arange(101) / 100)


@given(demands)
@examples(150)
def test_worth_rises_and_a_set_of_requests_never_costs_more_than_the_room_that_it_takes(demand: dict[int, float]) -> None:
    worth = card_worth(demand)
    assert (np.diff(worth) >= -1e-9).all()
    assert worth[100] == pytest.approx(1.0)
    for a, b in itertools.combinations_with_replacement(demand, 2):
        if a + b <= 100:
            assert worth[a] + worth[b] <= worth[a + b] + 1e-9


@given(demands)
@examples(100)
def test_the_prices_of_all_requests_lie_between_their_volume_and_the_cards_that_a_packing_needs(
    demand: dict[int, float],
) -> None:
    worth = card_worth(demand)
    cards: list[int] = []
    for size in sorted(demand, reverse=True):
        for _ in range(int(demand[size])):
            place = next((i for i, left in enumerate(cards) if left >= size), None)
            if place is None:
                cards.append(100 - size)
            else:
                cards[place] -= size
    priced = sum(count * worth[size] for size, count in demand.items())
    assert sum(size * count for size, count in demand.items()) / 100 - 1e-6 <= priced <= len(cards) + 1e-6


class Cluster:
    """Nodes under least waste with a given mix; pods are placed one by one."""

    def __init__(self, mix: dict[Shape, float], *nodes: NodeState) -> None:
        self.columns = Columns()
        for one in nodes:
            self.columns.put_node(one)
        self.policy = policy_of(PolicyName.LEAST_WASTE, mix=mix)
        self.views, self.tasks = Views(self.columns, self.policy), Tasks(self.columns)

    def place(self, percent: int = 0, *, cpu: int = 1, cards: int = 1, models: tuple[str, ...] = ()) -> str:
        """`node:card,card`, or nothing."""
        request = CardRequest(cards, cores=percent, memory_percent=percent, models=models) if percent else None
        spec = PodGroupTask("t", {CPU: 1000 * cpu, MEMORY: 1, PODS: 1, **({GPU: cards} if request else {})}, (), cards=request)
        batches = place_uniform(self.columns, self.views, self.policy, self.tasks.of(spec), 1)
        if not batches:
            return ""
        slices = slices_of(self.columns, batches[0], cards if request else 0)[0]
        return f"{self.columns.names[int(batches[0].rows[0])]}:{','.join(str(s.index) for s in slices)}"


def test_a_share_goes_beside_the_one_that_it_makes_a_full_card_with() -> None:
    mix = {Shape(1000, 1, 65): 5.0, Shape(1000, 1, 32): 5.0, Shape(1000, 1, 47): 10.0}
    cluster = Cluster(mix, node("n1", cards=3, shares=10))
    assert cluster.place(47) == "n1:0"
    assert cluster.place(65) == "n1:1"
    assert cluster.place(32) == "n1:1"
    assert cluster.place(47) == "n1:0"


def test_cpu_is_taken_where_it_feeds_no_card() -> None:
    mix = {Shape(8000, 1, 100): 10.0, Shape(16_000): 5.0}
    cluster = Cluster(mix, node("tight", cards=8, cpu=64), node("plenty", cards=2, cpu=96))
    assert cluster.place(cpu=16) == "plenty:"


def test_scarce_models_are_left_to_those_who_need_them() -> None:
    mix = {Shape(1000, 1, 100, ("T4",)): 5.0, Shape(1000, 1, 100): 5.0}
    cluster = Cluster(mix, node("scarce", cards=2, model="T4"), node("common", cards=8, model="A100"))
    assert cluster.place(100) == "common:0"
    assert cluster.place(100, models=("T4",)) == "scarce:0"


def test_the_mix_is_learned_anew_each_time_the_requests_have_doubled() -> None:
    columns = Columns()
    policy = policy_of(PolicyName.LEAST_WASTE)
    tasks = Tasks(columns)
    task = tasks.of(PodGroupTask("t", {CPU: 1000, GPU: 1}, (), cards=CardRequest(1)))
    versions = []
    for _ in range(8):
        policy.learn(task, 1)
        versions.append(policy.version)
    assert versions == [1, 2, 2, 3, 3, 3, 3, 4]


def test_scarce_room_for_a_large_job_stays_whole() -> None:
    large = Shape(60_000, 8)
    mix = {large: 5.0, Shape(1000, 1): 60.0, Shape(8000): 5.0}
    whole, begun = node("whole", cards=8, cpu=64), node("begun", cards=8, cpu=64)
    cluster = Cluster(mix, whole, begun)
    assert cluster.place(100) == "whole:0", "the first of two equal nodes"
    assert {cluster.place(100) for _ in range(3)} == {f"whole:{card}" for card in (1, 2, 3)}
    assert cluster.place(cpu=8) == "whole:", "the eight-card room of that node is already destroyed"
    assert cluster.place(100, cpu=60, cards=8) == "begun:0,1,2,3,4,5,6,7"


def stepped(scarcity: float) -> float:
    """Demand over supply of rooms as prices count it: at most 1, in steps of an eighth."""
    return math.ceil(8 * min(1.0, scarcity)) / 8


def test_rooms_have_a_price_by_demand_and_supply() -> None:
    asked = {Shape(8000, 8): 20.0, Shape(1000, 1): 60.0}

    def price(nodes: int, idle: int) -> float:
        cpu, free = np.full(nodes, 64_000), np.tile(100 * (np.arange(8) < idle), (nodes, 1))
        free[0] = 100
        prices = prices_of(asked, cpu, free, np.zeros(nodes, dtype=np.int64), models=[""], prior=32, largest=8)
        rooms = Rooms(prices, models=[""], most=8)
        worth = np.asarray(rooms.worth(cpu[:2], free[:2], np.zeros(2, dtype=np.int64)))
        assert worth[1] == (worth[0] if idle == 8 else 0.0)
        return float(worth[0])

    assert price(9, 7) == pytest.approx(0.8), "one room, and the demand is higher"
    share = (20 + 32) / (80 + 32)
    assert price(9, 8) == pytest.approx(0.8 * stepped(share) ** 3), "all rooms that the idle cards allow"
    assert price(3, 7) == price(9, 7)


def versions_of(rooms: float) -> list[int]:
    """The policy's version after each of 16 pods of one card on ten nodes of eight. `rooms`: weight of pods of eight cards, beside 60 of one card."""
    cluster = Cluster({Shape(1000, 8): rooms, Shape(1000, 1): 60.0}, *(node(f"n{i}", cards=8) for i in range(10)))
    versions = []
    for _ in range(16):
        cluster.place(100)
        versions.append(cluster.policy.version)
    return versions


def test_node_with_more_cards_than_all_before_is_scored() -> None:
    cluster = Cluster({Shape(1000, 8): 1.0, Shape(1000, 1): 1.0}, node("small", cards=8))
    assert cluster.place(100) == "small:0"
    cluster.columns.put_node(node("large", cards=16))
    assert cluster.place(100, cards=16) == "large:" + ",".join(map(str, range(16)))


def test_cards_of_one_node_are_scored_after_the_mix_changed() -> None:
    """`cards_of` is a view of one row: tables of prices and models are computed from all nodes."""
    cluster = Cluster(
        {Shape(1000, 2): 1.0, Shape(1000, 1, 50): 1.0}, *(node(f"n{number}", cards=2, shares=2) for number in range(4))
    )
    share = PodGroupTask("t", {CPU: 1000, MEMORY: 1, PODS: 1, GPU: 1}, (), cards=CardRequest(1, cores=50, memory_percent=50))
    task = cluster.tasks.of(share)
    view = cluster.columns.cards_of(3)
    first = cluster.policy.card_keys(view, np.array([0]), task)
    cluster.policy.score(cluster.columns, slice(0, 4), task)
    again = cluster.policy.card_keys(view, np.array([0]), task)
    assert first is not None
    assert again is not None
    assert (first == again).all()


def test_columns_are_freed_without_the_garbage_collector() -> None:
    """Services collect rarely: columns of a policy's check or of a simulation would stay with all their arrays."""
    columns = Columns()
    columns.put_node(node("n"))
    assert columns.future().actual is columns
    gone = weakref.ref(columns)
    gc.disable()
    try:
        del columns
        assert gone() is None
    finally:
        gc.enable()


def test_full_node_gets_no_pod_though_its_score_is_higher() -> None:
    """A share on `open` costs the room of a whole card; no card of `full` has room, so that its score is 0."""
    mix = {Shape(1000, 1, 50): 1.0, Shape(1000, 1, 100): 20.0}
    cluster = Cluster(mix, node("full", cards=1, shares=2), node("open", cards=1, shares=2))
    assert cluster.place(100) == "full:0"
    share = PodGroupTask("t", {CPU: 1000, MEMORY: 1, PODS: 1, GPU: 1}, (), cards=CardRequest(1, cores=50, memory_percent=50))
    full, of_open = cluster.policy.score(cluster.columns, slice(0, 2), cluster.tasks.of(share))
    assert full > of_open
    assert cluster.place(50) == "open:0"
    assert cluster.place(50) == "open:0"
    assert cluster.place(50) == ""


def test_share_whose_room_only_its_vendor_computes_is_placed_while_there_is_room() -> None:
    """Cards without memory have no room by amounts. Two pods with one core each fit on a Neuron device."""
    columns = Columns()
    columns.put_node(node("without-cards"))
    for name in ("n1", "n2"):
        columns.put_node(replace(node(name, vendor=NEURON, cards=1, shares=2), cards=neurons(1)))
    policy = policy_of(PolicyName.LEAST_WASTE)
    devices = PodDevices((asked("AWSNeuron", {"aws.amazon.com/neuroncore": 1}),), 1)
    request = CardRequest(1, cores=50, memory_percent=0, devices=devices)
    task = Tasks(columns).of(PodGroupTask("t", {CPU: 1000, MEMORY: 1, PODS: 1, NEURON.cards: 1}, (), cards=request))
    batches = place_uniform(columns, Views(columns, policy), policy, task, 5)
    assert Counter(columns.names[row] for batch in batches for row in batch.rows.repeat(batch.counts)) == {"n1": 2, "n2": 2}


def test_rooms_are_repriced_when_cards_come_into_use() -> None:
    """80 idle cards receive requests for 1.18 rooms, of 10; 77 for 1.13, of 9: two steps of eight in place of one."""
    versions = versions_of(1.0)
    assert versions[:3] == [0, 0, 0], "3 of a hundred of 80 cards are 2.4"
    assert versions[3] == 1


def test_scores_stay_valid_while_no_price_changes() -> None:
    """Demand over supply is 0.2 to 0.25 all the time."""
    assert versions_of(2.0) == [0] * 16


def prices_by_definition(nodes: list[tuple[int, list[int], str]], asked: dict[Shape, float]) -> dict[Shape, float]:
    """The price of a room for each shape with several whole cards."""
    several = {shape: cards for shape, cards in asked.items() if shape.cards > 1 and shape.percent == 100}
    found = {}
    for shape, cards in several.items():
        supply = sum(rooms_by_definition(cpu, free, model, shape) for cpu, free, model in nodes)
        alike = sum(amount for other, amount in several.items() if other.cards == shape.cards)
        demand = alike / sum(asked.values()) * sum(sum(free) for _, free, _ in nodes) / 100 / shape.cards
        if supply:
            found[shape] = 0.1 * shape.cards * cards / alike * stepped(demand / supply) ** 3
    return found


def rooms_by_definition(cpu: int, free: list[int], model: str, shape: Shape) -> int:
    if shape.models and model not in shape.models:
        return 0
    rooms = free.count(100) // shape.cards
    return min(rooms, cpu // shape.cpu_milli) if shape.cpu_milli else rooms


def loss_by_definition(
    cpu: int, free: list[int], model: str, mix: dict[Shape, float], supply: dict[str, int], prices: dict[Shape, float]
) -> float:
    """Waste of a node, term by term as the module's description has it."""
    idle = sum(free) / 100
    asked = {shape: weight * shape.cards * shape.percent / 100 for shape, weight in mix.items() if shape.cards}
    total = sum(asked.values())
    shares: dict[int, float] = {}
    for shape in asked:
        if shape.percent < 100:
            shares[shape.percent] = shares.get(shape.percent, 0.0) + mix[shape] * shape.cards
    worth = card_worth(shares)
    lost = sum(r / 100 - worth[r] for r in free if r < 100)
    fragment = float(expected_fragment(free_cpu_milli=[cpu], free_percent=[free], models=[model], mix=mix)[0])
    stranded = sum(
        amount / total * max(0.0, idle - cpu / (shape.cpu_milli / (shape.cards * shape.percent / 100)))
        for shape, amount in asked.items()
    )
    bound = sum(amount / sum(supply[m] for m in shape.models) for shape, amount in asked.items() if model in shape.models)
    scarce = idle * bound / (total / sum(supply.values()))
    rooms = sum(price * rooms_by_definition(cpu, free, model, shape) for shape, price in prices.items())
    return float(lost + 0.1 * (fragment + stranded - scarce) - rooms)


@given(
    st.dictionaries(
        st.builds(
            Shape,
            cpu_milli=st.sampled_from([1000, 4000, 9000]),
            cards=st.integers(0, 2),
            percent=st.sampled_from([20, 50, 65, 100]),
            models=st.sampled_from([(), ("A100",), ("T4", "A100")]),
        ),
        st.integers(1, 9).map(float),
        min_size=1,
        max_size=6,
    ).filter(lambda mix: any(shape.cards for shape in mix)),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 24), st.sampled_from(["A100", "T4"])), min_size=2, max_size=4),
    st.lists(st.sampled_from([20, 50, 65, 100]), max_size=6),
)
@examples(80)
def test_a_score_is_the_fall_of_the_waste_by_its_definition(
    mix: dict[Shape, float], drawn: list[tuple[int, int, str]], before: list[int]
) -> None:
    models = {"A100": 0, "T4": 0}
    for cards, _, model in drawn:
        models[model] += cards
    if not all(models.values()):
        return
    nodes = [node(f"n{i}", cards=c, cpu=cpu, model=m, shares=100, card_mib=10_000) for i, (c, cpu, m) in enumerate(drawn)]
    cluster = Cluster(mix, *nodes)
    for percent in before:
        cluster.place(percent)
    columns = cluster.columns
    task = cluster.tasks.of(PodGroupTask("t", {CPU: 1000, PODS: 1, GPU: 1}, (), cards=CardRequest(1)))
    policy = policy_of(PolicyName.LEAST_WASTE, mix=mix)
    view = Views(columns, policy).of(task)  # prices the rooms at this state
    scores = dict(policy.terms(columns, slice(0, columns.size), task))["least-waste"]

    def now(row: int) -> tuple[int, list[int], str]:
        cpu = columns.resource(CPU)
        left = int(columns.allocatable[cpu, row] - columns.used[cpu, row])
        return left, free_percent(columns, np.array([row]))[0].tolist(), drawn[row][2]

    asked = {shape: weight * shape.cards * shape.percent / 100 for shape, weight in mix.items() if shape.cards}
    prices = prices_by_definition([now(row) for row in range(len(nodes))], asked)

    def loss(row: int) -> float:
        return loss_by_definition(*now(row), mix, models, prices)

    for row in np.flatnonzero(view.capacity).tolist():
        fall = loss(row)
        batch = pick(columns, np.array([row]), np.array([1]), task)
        columns.apply(batch)
        fall -= loss(row)
        columns.apply(batch, -1)
        assert scores[row] == pytest.approx(100 * fall, abs=1e-7), "least-waste.weight is 100"
