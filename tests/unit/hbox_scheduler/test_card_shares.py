"""Parts of cards, in arrays as in the rules that the ledger goes by."""

import numpy as np
import pytest

from hbox_common.model import CardRequest, CardSlice, NodeName
from hbox_common.model.devices import GPU
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.devices import memory_needed
from hbox_scheduler.core.devices.cards import seats
from hbox_scheduler.core.simulate import node

WHOLE, TENTH = CardRequest(1), CardRequest(1, cores=10, memory_percent=10)
SMALL, HALF = (CardRequest(1, cores=cores, memory_mib=1000) for cores in (10, 50))


@pytest.mark.parametrize("percent", [1, 30, 33, 70, 99])
def test_a_share_of_memory_is_rounded_as_the_ledger_rounds_it(percent: int) -> None:
    request = CardRequest(1, cores=percent, memory_percent=percent)
    sizes = [1, 99, 24_564, 40_960, 81_559]
    needed = memory_needed(request, np.array(sizes, dtype=np.int64))
    assert needed.tolist() == [request.memory_on(size) for size in sizes]


@pytest.mark.parametrize(
    ("shares", "mib", "there", "request_", "takes"),
    [
        pytest.param(3, 40_960, (), SMALL, 3, id="as many pods as it has shares"),
        pytest.param(3, 40_960, ((10, 1000),), SMALL, 2, id="less those that are there"),
        pytest.param(3, 40_960, ((10, 1000),) * 3, SMALL, 0, id="none beyond them"),
        pytest.param(9, 40_960, (), HALF, 2, id="as many as its cores allow"),
        pytest.param(9, 2500, (), SMALL, 2, id="as many as its memory holds"),
        pytest.param(9, 40_960, (), WHOLE, 1, id="one that takes it whole"),
        pytest.param(9, 40_960, ((10, 1000),), WHOLE, 0, id="nobody takes a used one whole"),
        pytest.param(9, 40_960, ((100, 40_960),), SMALL, 0, id="nobody shares one that is held whole"),
        pytest.param(9, 0, (), SMALL, 0, id="nobody shares one of unknown size"),
        pytest.param(9, 0, (), TENTH, 0, id="nor by a percentage of it"),
        pytest.param(9, 0, (), WHOLE, 1, id="which can be taken whole"),
    ],
)
def test_how_many_pods_a_card_takes(
    shares: int, mib: int, there: tuple[tuple[int, int], ...], request_: CardRequest, takes: int
) -> None:
    columns = Columns()
    columns.put_node(node("n", cards=1, card_mib=mib, shares=shares))
    row = columns.row_of[NodeName("n")]
    for cores, memory_mib in there:
        columns.book(row, {GPU: 1}, (CardSlice(0, cores, memory_mib),))
    assert seats(columns, np.array([row]), request_)[0, 0] == takes
