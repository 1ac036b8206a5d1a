"""Parts of cards, in arrays as in the rules that the ledger goes by."""

import random

import numpy as np
import pytest

from hbox_common.model import CardRequest, CardSlice, NodeName
from hbox_common.model.devices import GPU
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.devices import memory_needed
from hbox_scheduler.core.devices.cards import pick, seats
from hbox_scheduler.core.simulate import job, node

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


@pytest.mark.parametrize("request_", [SMALL, CardRequest(1, models=("A100",))], ids=["a share", "a whole card of a model"])
@pytest.mark.parametrize("ordered", [False, True], ids=["by the engine", "as a plugin orders them"])
def test_a_pod_by_itself_gets_the_card_that_the_first_of_two_gets(request_: CardRequest, ordered: bool) -> None:
    rng, looked_at = random.Random(7), 0
    for _ in range(60):
        columns = Columns()
        columns.put_node(node("n", cards=4, shares=3))
        for index in range(4):
            for _ in range(rng.randrange(4)):
                columns.book(0, {GPU: 1}, (CardSlice(index, 10, rng.choice((1000, 2000))),))
        task = Tasks(columns).of(job("j", cards=request_).tasks[0])
        row = np.zeros(1, dtype=np.int64)
        room = seats(columns, row, request_)
        if room.sum() < 2:
            continue
        keys = np.array([[float(rng.randrange(3)) for _ in room[0]]]) if ordered else None
        one, two = (pick(columns, row, np.array([count]), task, keys) for count in (1, 2))
        assert one.card_positions.tolist() == two.card_positions[:1].tolist()
        assert one.memory_mib.tolist() == two.memory_mib[:1].tolist()
        looked_at += 1
    assert looked_at > 5
