"""Plans name the cards of their slices as the node has them at that time."""

from dataclasses import replace

from hbox_common.model import Card, CardSlice, NodeName
from hbox_common.model.devices import ALL_CORES
from hbox_scheduler.core.cluster.columns import Columns
from hbox_scheduler.core.simulate import node

SLICES = tuple(CardSlice(index, ALL_CORES, 80 << 10) for index in range(2))


def columns_with(*uuids: str) -> Columns:
    columns = Columns()
    put(columns, *uuids)
    return columns


def put(columns: Columns, *uuids: str, name: str = "n0") -> int:
    cards = tuple(Card(index, uuid, "H100", 80 << 10) for index, uuid in enumerate(uuids))
    return columns.put_node(replace(node(name, cards=len(uuids)), name=NodeName(name), cards=cards))


def ids(columns: Columns, row: int = 0) -> list[str]:
    return [one.card for one in columns.named(row, SLICES)]


def test_same_slices_name_the_cards_of_each_node() -> None:
    columns = columns_with("a", "b")
    assert put(columns, "c", "d", name="n1") == 1
    assert (ids(columns), ids(columns, 1)) == (["gpu:a", "gpu:b"], ["gpu:c", "gpu:d"])


def test_cards_exchanged_while_slices_are_known_are_named_anew() -> None:
    columns = columns_with("a", "b")
    assert ids(columns) == ["gpu:a", "gpu:b"]
    put(columns, "b", "c")
    assert ids(columns) == ["gpu:b", "gpu:c"]


def test_row_taken_over_by_another_node_names_its_cards() -> None:
    columns = columns_with("a", "b")
    assert ids(columns) == ["gpu:a", "gpu:b"]
    columns.drop_node(NodeName("n0"))
    assert put(columns, "c", "d", name="n1") == 0
    assert ids(columns) == ["gpu:c", "gpu:d"]


def test_many_sets_of_slices_are_all_named_rightly() -> None:
    columns = columns_with("a", "b")
    for memory in range(100):
        slices = tuple(replace(one, memory_mib=memory) for one in SLICES)
        assert [(one.card, one.memory_mib) for one in columns.named(0, slices)] == [("gpu:a", memory), ("gpu:b", memory)]
