"""The prices of shares, and the choice of node and card by them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbox_common.model import CardRequest, NodeState, TaskSpec
from hbox_common.model.devices import GPU
from hbox_common.model.resources import CPU, MEMORY, PODS
from hbox_scheduler.core.plugins import LeastWaste, Mix, Shape, card_worth
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.seating import allocate
from hbox_scheduler.core.simulate import node
from hbox_scheduler.core.state import Columns, Journal
from hbox_scheduler.core.task import Tasks
from hbox_scheduler.core.view import Views

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
@settings(max_examples=150, deadline=None)
def test_worth_rises_and_a_set_of_requests_never_costs_more_than_the_room_that_it_takes(demand: dict[int, float]) -> None:
    worth = card_worth(demand)
    assert (np.diff(worth) >= -1e-9).all()
    assert worth[100] == pytest.approx(1.0)
    for a, b in itertools.combinations_with_replacement(demand, 2):
        if a + b <= 100:
            assert worth[a] + worth[b] <= worth[a + b] + 1e-9


@given(demands)
@settings(max_examples=100, deadline=None)
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
        spec = TaskSpec("t", {CPU: 1000 * cpu, MEMORY: 1, PODS: 1, **({GPU: cards} if request else {})}, (), cards=request)
        seats = allocate(self.columns, self.views, self.policy, journal=Journal(self.columns), task=self.tasks.of(spec), pods=1)
        if not seats:
            return ""
        row, slices = seats[0]
        return f"{self.columns.names[row]}:{','.join(str(s.index) for s in slices)}"


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
    policy = LeastWaste(Mix())
    tasks = Tasks(columns)
    task = tasks.of(TaskSpec("t", {CPU: 1000, GPU: 1}, (), cards=CardRequest(1)))
    versions = []
    for _ in range(8):
        policy.learn(task, 1)
        versions.append(policy.version)
    assert versions == [1, 2, 2, 3, 3, 3, 3, 4]
