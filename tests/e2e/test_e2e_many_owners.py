"""Many workloads of another controller at once, in any order of arrival (`python -m tests.bench owners`, smaller): each gang whole, each owner read once."""

import pytest

from ..bench.owners import MEMBERS, READS, Order, measure

pytestmark = pytest.mark.e2e

JOBS = 40


@pytest.mark.parametrize("order", list(Order))
def test_gangs_by_owner_start_whole_and_each_owner_is_read_at_most_once(order: Order) -> None:
    found = measure(order, owned=True, jobs=JOBS)
    assert found.pods == MEMBERS * JOBS
    assert found.partial == 0
    assert found.most_gets <= 1
    assert found.reads["GET"] <= READS * JOBS
