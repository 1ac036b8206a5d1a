"""Traces in time: who starts when, who is stopped for whom, and what is counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.errors import InvalidRequest
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.simulate import node
from hbox_scheduler.core.simulate.trace import TraceSimulation
from hbox_scheduler.core.simulate.trace_jobs import JobOutcome, TraceJob
from hbox_scheduler.core.simulate.trace_turns import BACKFILL, FAIR_SHARE, FIFO, LEAST_SERVED, ORDERS, TraceTurns

from ...searching import examples

HOUR = 3600.0


def run(*jobs: TraceJob, turns: TraceTurns, nodes: int = 1, leaf: int = 0) -> JobOutcome:
    simulation = TraceSimulation(
        [node(f"n{i}", cards=8) for i in range(nodes)], policy=policy_of(PolicyName.BINPACK), turns=turns, leaf_nodes=leaf
    )
    return simulation.run(jobs)


def job(name: str, at: float, hours: float, cards: int) -> TraceJob:
    return TraceJob(name, at, hours * HOUR, cards)


def test_in_order_nobody_starts_before_who_came_first() -> None:
    out = run(job("a", 0, 2, 6), job("b", 1, 1, 8), job("c", 2, 1, 2), turns=FIFO)
    assert out.first.tolist() == [0, 2 * HOUR, 3 * HOUR]


def test_backfill_uses_what_the_first_in_line_cannot() -> None:
    out = run(job("a", 0, 2, 6), job("b", 1, 1, 8), job("c", 2, 1, 2), turns=BACKFILL)
    assert out.first.tolist() == [0, 2 * HOUR, 2]


def test_who_has_held_cards_for_long_makes_room_and_goes_on_later() -> None:
    out = run(job("long", 0, 10, 8), job("short", 5 * HOUR, 0.5, 8), turns=LEAST_SERVED)
    assert out.first.tolist() == [0, 5 * HOUR]
    assert out.finish[1] == 5.5 * HOUR
    assert out.preemptions.tolist() == [1, 0]
    assert out.finish[0] == 10.5 * HOUR + 60  # and a minute for its checkpoint
    assert out.totals.restarts_s == 8 * 60


def owned(queue: str, name: str, at: float, hours: float, cards: int) -> TraceJob:
    return TraceJob(f"{queue}-{name}", at, hours * HOUR, cards, queue)


def test_the_queue_that_had_it_all_lets_the_other_go_first_and_nobody_is_stopped() -> None:
    past = owned("greedy", "past", 0, 9, 8)
    late = [owned("greedy", f"g{n}", 8 * HOUR + n, 1, 4) for n in range(4)]
    other = [owned("modest", f"m{n}", 8.5 * HOUR + n, 1, 4) for n in range(4)]
    out = run(past, *late, *other, turns=FAIR_SHARE)
    assert out.first[5:].tolist() == [9 * HOUR, 9 * HOUR, 10 * HOUR, 10 * HOUR], "modest, all of it"
    assert out.first[1:5].tolist() == [11 * HOUR, 11 * HOUR, 12 * HOUR, 12 * HOUR]
    assert out.preemptions.sum() == 0


def test_queues_without_a_past_share_equally() -> None:
    jobs = [owned(queue, f"{n}", n / 10, 1, 4) for queue in ("a", "b") for n in range(4)]
    out = run(*jobs, turns=FAIR_SHARE)
    for hour in range(4):
        assert sorted(queue for queue, first in zip(out.queues, out.first, strict=True) if int(first // HOUR) == hour) == [
            "a",
            "b",
        ]


def test_what_is_long_ago_counts_little() -> None:
    turns = TraceTurns(usage_weight=1.0, half_life_s=HOUR)
    jobs = [
        owned("a", "past", 0, 2, 8),
        owned("b", "since", 2 * HOUR, 2, 8),
        owned("a", "x", 3 * HOUR, 1, 8),
        owned("b", "y", 2.5 * HOUR, 1, 8),
    ]
    assert run(*jobs, turns=turns).first.tolist() == [0, 2 * HOUR, 5 * HOUR, 4 * HOUR], (
        "in the order of submission: past, since, y, x"
    )


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8), st.integers(1, 16)), min_size=1, max_size=12))
@examples(40)
def test_with_one_queue_history_changes_nothing(drawn: list[tuple[int, int, int]]) -> None:
    jobs = [owned("q", f"{n}", at * 600.0, hours / 2, cards) for n, (at, hours, cards) in enumerate(drawn)]
    fair, plain = run(*jobs, turns=FAIR_SHARE, nodes=2), run(*jobs, turns=BACKFILL, nodes=2)
    assert fair.first.tolist() == plain.first.tolist()


def test_equals_do_not_take_turns() -> None:
    out = run(job("a", 0, 0.9, 8), job("b", 0.5 * HOUR, 0.9, 8), turns=LEAST_SERVED)
    assert out.preemptions.sum() == 0


def test_nobody_is_stopped_within_the_minimum_run() -> None:
    turns = TraceTurns(levels=(60.0,), minimum_run_s=1800.0)
    out = run(job("a", 0, 2, 8), job("b", 300, 0.2, 8), turns=turns)
    assert out.first[1] == 1800.0


def test_one_node_gives_what_is_lacking_and_gangs_are_spared() -> None:
    jobs = [job("gang", 0, 9, 16), job("alone", 0, 9, 8), job("new", 2 * HOUR, 0.5, 8)]
    out = run(*jobs, turns=LEAST_SERVED, nodes=3)
    assert out.preemptions.tolist() == [0, 1, 0]


def test_a_gang_takes_as_many_nodes_as_it_needs() -> None:
    small = [job(f"s{i}", 0, 9, 4) for i in range(4)]
    out = run(*small, job("gang", 2 * HOUR, 0.5, 16), turns=LEAST_SERVED, nodes=2)
    assert out.first[4] == 2 * HOUR
    assert out.preemptions.tolist() == [1, 1, 1, 1, 0]


def test_patience_ends_and_a_stopped_job_stands_first_again() -> None:
    turns = TraceTurns(levels=(HOUR,), minimum_run_s=60.0, patience_s=3 * HOUR)
    short = [job(f"s{i}", 2 * HOUR + 0.5 * HOUR * i, 0.5, 8) for i in range(40)]
    out = run(job("long", 0, 4, 8), *short, turns=turns)
    assert out.preemptions[0] >= 1
    assert out.longest[0] <= 3 * HOUR + 0.5 * HOUR


def test_leaves_used_are_compared_with_the_fewest_possible() -> None:
    out = run(job("a", 0, 1, 8), job("gang", 1, 1, 24), turns=BACKFILL, nodes=4, leaf=2)
    assert out.topology.used == (2,)
    assert out.topology.possible == (2,)
    assert out.topology.empty == (2,)


def test_gangs_are_placed_in_the_fewest_leaves_that_hold_them_now() -> None:
    # Two leaves of three nodes; one node of the first is taken, so that two free nodes are there and three in the second.
    out = run(job("a", 0, 9, 8), job("three", 1, 9, 24), job("two", 2, 9, 16), turns=BACKFILL, nodes=6, leaf=3)
    assert out.topology.used == out.topology.possible == (1, 1)


def test_a_job_that_can_never_start_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="asks for 9 cards"):
        run(job("a", 0, 1, 9), turns=BACKFILL)


@pytest.mark.parametrize(
    ("cards", "nodes", "pods"),
    [(1, 8, (1, 1)), (8, 8, (1, 8)), (12, 8, (2, 6)), (64, 8, (8, 8)), (11, 8, (11, 1)), (20, 4, (4, 5)), (20, 3, (5, 4))],
)
def test_cards_are_split_evenly_over_as_few_pods_as_fit(cards: int, nodes: int, pods: tuple[int, int]) -> None:
    assert job("a", 0, 1, cards).pods(np.full(nodes, 8)) == pods


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from([0.05, 0.5, 2, 9, 30]), st.sampled_from([1, 2, 4, 8, 16])),
        min_size=1,
        max_size=25,
    ),
    st.sampled_from(sorted(ORDERS)),
)
@examples(60)
def test_every_job_runs_whole_and_no_card_twice(drawn: list[tuple[int, float, int]], order: str) -> None:
    jobs = [job(f"j{i}", at * 0.25 * HOUR, hours, cards) for i, (at, hours, cards) in enumerate(drawn)]
    out = run(*jobs, turns=ORDERS[order], nodes=2)
    assert (out.first >= out.submit).all()
    assert (out.finish >= out.first + out.duration - 1e-6).all()
    assert (out.preemptions == 0).all() or order == "least-served"
    # Work is kept: cards were given away for all durations and restarts, and for nothing else.
    assert out.totals.allocated == pytest.approx(float((out.duration * out.cards).sum()) + out.totals.restarts_s)
    assert all(sample.allocated <= out.capacity for sample in out.samples)
