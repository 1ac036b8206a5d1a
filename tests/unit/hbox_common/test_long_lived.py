"""What a service holds is not walked by the collector again and again."""

import gc
from collections.abc import Iterator

import pytest

from hbox_common.runtime import LongLived


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_what_grew_is_not_walked_until_half_of_it_is_gone() -> None:
    memory = LongLived(step=100)
    held = [[i] for i in range(1000)]
    memory.holds(99)
    assert gc.get_freeze_count() == 0
    memory.holds(100)
    assert gc.get_freeze_count() >= len(held)
    before = gc.get_freeze_count()
    more = [[i] for i in range(1000)]
    memory.holds(199)
    assert gc.get_freeze_count() == before, "a walk over the young is no harm"
    memory.holds(200)
    assert gc.get_freeze_count() >= before + len(more)
    memory.holds(100)
    assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() >= len(held) + len(more)
    more.clear()
    memory.holds(99)
    assert 0 < gc.get_freeze_count() < before + len(held), "what is left is not walked again either"


def test_cycles_that_end_there_are_freed_once_half_of_it_is_gone() -> None:
    class Thing:
        gone = 0

        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            Thing.gone += 1

    memory = LongLived(step=10)
    things = [Thing() for _ in range(20)]
    memory.holds(20)
    things.clear()
    gc.collect()
    assert Thing.gone == 0
    memory.holds(9)
    assert Thing.gone == 20


def test_what_nobody_refers_to_is_freed_all_the_same() -> None:
    class Thing:
        gone = 0

        def __del__(self) -> None:
            Thing.gone += 1

    things = [Thing() for _ in range(10)]
    LongLived(step=1).holds(10)
    things.clear()
    assert Thing.gone == 10
