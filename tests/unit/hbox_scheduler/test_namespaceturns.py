"""Turns of those that are looked at again and again. A job's order is its number."""

from collections.abc import Iterable

from hbox_common.model import JobId
from hbox_scheduler.core.queueing.namespaceturns import NamespaceTurns


def add(turns: NamespaceTurns, *jobs: str, cost: int = 1) -> None:
    """`a1`: number 1 of namespace a."""
    for job in jobs:
        turns.add(JobId(job), job[0], (0, float(job[1:]), job[0], job, JobId(job)), cost)


def taken(turns: NamespaceTurns, budget: float, *, again: bool = True) -> str:
    found = turns.take(budget, 100)
    if again:
        add(turns, *found)
    return " ".join(found)


def filled(jobs: Iterable[str]) -> NamespaceTurns:
    turns = NamespaceTurns()
    add(turns, *jobs)
    return turns


def test_namespaces_take_turns_and_their_jobs_in_order() -> None:
    turns = filled(["a3", "a1", "a2", "a4", "b9", "c5"])
    assert taken(turns, 4) == "a1 b9 c5 a2"


def test_all_of_one_namespace_come_before_any_comes_again() -> None:
    turns = filled(f"a{number}" for number in range(6))
    assert [taken(turns, 4) for _ in range(3)] == ["a0 a1 a2 a3", "a4 a5 a0 a1", "a2 a3 a0 a1"]


def test_who_was_never_looked_at_comes_first() -> None:
    turns = filled(["a1", "a2"])
    taken(turns, 2)
    add(turns, "a7")
    assert taken(turns, 1) == "a7"


def test_a_namespace_that_had_its_turn_comes_last() -> None:
    turns = filled(["a1", "a2", "b1", "b2", "c1"])
    assert [taken(turns, 2) for _ in range(3)] == ["a1 b1", "c1 a2", "b2 a1"]


def test_looks_that_cost_more_are_fewer_and_never_none() -> None:
    turns = NamespaceTurns()
    add(turns, "a1", "b1", cost=16)
    add(turns, "a2", cost=100)
    assert turns.take(32, 100) == ["a1", "b1"]
    assert turns.take(32, 100) == ["a2"]
    assert not turns


def test_no_more_than_asked_for() -> None:
    assert filled(["a1", "a2", "a3"]).take(float("inf"), 2) == ["a1", "a2"]


def test_who_is_gone_is_in_no_turn_and_costs_no_memory() -> None:
    turns = filled(["a0"])
    for number in range(1, 1000):
        add(turns, f"a{number}")
        turns.remove(JobId(f"a{number}"))
    assert len(turns._heaps["a"]) < 100
    add(turns, "a5")
    turns.remove(JobId("a0"))
    assert taken(turns, 10) == "a5"
    turns.remove(JobId("a5"))
    assert not turns._heaps
    assert turns.take(10, 10) == []
