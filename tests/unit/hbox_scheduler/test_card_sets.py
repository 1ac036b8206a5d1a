"""Codes of what cards nodes have: bounded, however often nodes are described."""

import numpy as np

from hbox_common.model import NodeName
from hbox_common.model.devices import VENDORS, Ask, Fitted, PodDevices
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.cardsets import SPARE, CardSets
from hbox_scheduler.core.devices.statefits import StateFits, fits_of
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


def test_nodes_without_a_card_that_a_pod_names_are_asked_about_once() -> None:
    """Each node by itself says the same: also where the id is of the first node, whose cards stand for those of all."""
    columns = Columns()
    nodes = [node(f"n{i:02}", cards=2) for i in range(20)]
    for one in nodes:
        columns.put_node(one)
    ids = [one.cards[0].uuid for one in nodes]
    rows = np.arange(20)
    for wish, named in (("use", ids[0]), ("use", f"{ids[3]}, {ids[7]}"), ("nouse", ids[0]), ("nouse", ids[9]), ("use", "none")):
        wishes = ((f"nvidia.com/{wish}-gpuuuid", named),)
        devices = PodDevices((Ask("NVIDIA", 2 if wish == "nouse" else 1),), wishes=wishes)
        fits = StateFits()
        found = fits.room(columns, rows, devices)
        alone = [isinstance(VENDORS.fit(one.cards, {}, devices, one.device_facts), Fitted) for one in nodes]
        assert found.tolist() == alone
        assert fits._kept <= len(named.split(",")) + 1
    moved = node("n05", cards=3)
    columns.put_node(moved)
    devices = PodDevices((Ask("NVIDIA", 1),), wishes=(("nvidia.com/use-gpuuuid", moved.cards[2].uuid),))
    assert np.flatnonzero(StateFits().room(columns, rows, devices)).tolist() == [5], "cards that came later are known"
