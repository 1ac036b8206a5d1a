"""Codes of what cards nodes have: bounded, however often nodes are described."""

import numpy as np

from hbox_common.model import NodeName
from hbox_common.model.devices import Ask, PodDevices
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.cardsets import SPARE, CardSets
from hbox_scheduler.core.devices.fits import fits_of
from hbox_scheduler.core.simulate import node

TWO = PodDevices((Ask("NVIDIA", 1, container=0), Ask("NVIDIA", 1, container=1)), 2)


def test_a_node_that_is_described_anew_for_weeks_costs_no_more_memory() -> None:
    columns = Columns()
    columns.put_node(node("still", cards=2))
    for figure in range(3 * SPARE):
        columns.put_node(node("restless", cards=2, card_mib=1000 + figure))
    assert len(columns.card_sets._described) <= 2 * SPARE
    assert len(columns.card_sets._codes) == len(columns.card_sets._described)
    rows = np.array([columns.row_of[NodeName(name)] for name in ("still", "restless")])
    assert fits_of(columns).room(columns, rows, TWO).tolist() == [1, 1], "what nodes have now is known"


def test_a_code_is_never_anothers() -> None:
    sets = CardSets()
    first = sets.codes(node("n", cards=1).cards, {})
    sets.forget(())
    other = sets.codes(node("n", cards=2).cards, {})
    again = sets.codes(node("n", cards=1).cards, {})
    assert len({0, *first, *other, *again}) == 7
    assert sets.described(0) == ((), {})
