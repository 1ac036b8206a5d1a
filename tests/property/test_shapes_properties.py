"""What rows may hold of what waits, found for all at once, is what it is for each alone."""

from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import CardRequest
from hbox_scheduler.core.cluster.task import Task
from hbox_scheduler.core.queueing.shapes import Shapes

Change: TypeAlias = tuple[bool, int]

AMOUNTS = st.dictionaries(st.integers(0, 5), st.integers(0, 4), max_size=3).map(lambda of: tuple(of.items()))
CARDS = st.one_of(
    st.none(), st.builds(CardRequest, st.integers(1, 3)), st.builds(CardRequest, st.just(1), cores=st.integers(1, 99))
)
TASKS = st.lists(st.tuples(AMOUNTS, CARDS), min_size=1, max_size=8)


def may_hold(task: Task, free: list[int], idle_cards: int, percent: int) -> bool:
    """The rule, for one."""
    if any(units > 0 and (column >= len(free) or units > free[column]) for column, units in task.amount):
        return False
    if task.cards is None or task.cards.devices is not None:
        return True
    return idle_cards >= task.cards.count if task.cards.whole else percent >= task.cards.cores


@given(
    TASKS,
    st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=100),
    st.lists(st.integers(-1, 4), max_size=5),
    st.integers(0, 3),
    st.integers(0, 100),
)
def test_what_fits_is_found_for_all_as_for_each(
    asked: list[tuple[tuple[tuple[int, int], ...], CardRequest | None]],
    changes: list[Change],
    free: list[int],
    idle_cards: int,
    percent: int,
) -> None:
    tasks = [Task({}, amount, cards, (), None, (), ()) for amount, cards in asked]
    shapes, there = Shapes(), list[Task]()
    for comes, number in changes:
        task = tasks[number % len(tasks)]
        if comes:
            shapes.add(task)
            there.append(task)
        elif task in there:
            shapes.drop(task)
            there.remove(task)
    found = shapes.within(free, idle_cards, percent)
    expected = {task for task in there if may_hold(task, free, idle_cards, percent)}
    assert set(found) == expected
    assert bool(found) is bool(expected)
    assert len(shapes) == len(set(there))
    for task in there:
        assert found.any_of([task]) is (task in expected)
