"""The totals that `Columns` keeps equal those that are computed anew, whatever happened to nodes and bookings between."""

from collections.abc import Mapping

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import CardSlice, NodeName
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.resources import CPU, PODS
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.columns import Batch
from hbox_scheduler.core.simulate import node

from ..searching import examples

NODES = [f"n{i}" for i in range(4)]

names = st.sampled_from(NODES)
#: Less and more than a node has: a node may hold more than it has left.
requests = st.builds(
    lambda cpu, cards: {CPU: cpu, PODS: 1, **({GPU: cards} if cards else {})},
    st.sampled_from([100, 70_000, 200_000]),
    st.integers(0, 3),
)
times = st.sampled_from([1, 1, -1])
steps = st.one_of(
    st.tuples(st.just("put"), st.tuples(names, st.integers(0, 4))),
    st.tuples(st.just("drop"), names),
    st.tuples(st.just("book"), st.tuples(names, requests, times)),
    st.tuples(st.just("undo"), st.tuples(names, requests)),
    st.tuples(st.just("depart"), st.tuples(names, requests, times)),
    st.tuples(st.just("depart uniform"), st.tuples(names, requests)),
    st.tuples(st.just("batch"), st.tuples(st.sets(names, min_size=1), requests, times)),
    st.tuples(st.just("clear"), names),
    st.tuples(st.just("another resource"), st.integers(0, 20)),
    st.tuples(st.just("many nodes"), st.none()),
    st.tuples(st.just("look"), st.none()),
)


def do(columns: Columns, what: str, subject: object) -> None:
    row_of = columns.row_of
    match what, subject:
        case "put", (str() as name, int() as cards):
            columns.put_node(node(name, cards=cards))
        case "drop", str() as name:
            columns.drop_node(NodeName(name))
        case "book", (str() as name, dict() as asked, int() as times) if NodeName(name) in row_of:
            columns.book(row_of[NodeName(name)], asked, _slices(asked), times)
        case "undo", (str() as name, dict() as asked) if NodeName(name) in row_of:
            columns.undo(row_of[NodeName(name)], asked, _slices(asked))
        case "depart", (str() as name, dict() as asked, int() as times) if NodeName(name) in row_of:
            columns.depart(row_of[NodeName(name)], asked, _slices(asked), times)
        case "depart uniform", (str() as name, dict() as asked) if NodeName(name) in row_of:
            columns.depart_uniform(row_of[NodeName(name)], columns.amount(asked), (), 2, _slices(asked))
        case "batch", (set() as some, dict() as asked, int() as times):
            rows = np.array(sorted(row_of[NodeName(name)] for name in some if NodeName(name) in row_of), dtype=np.int64)
            if len(rows):
                none = np.zeros(0, dtype=np.int64)
                columns.apply(Batch(rows, np.ones_like(rows), columns.amount(asked), none, none, 100, none), times)
        case "clear", str() as name if NodeName(name) in row_of:
            columns.clear_usage(row_of[NodeName(name)])
        case "another resource", int() as number:
            columns.column(f"example.com/{number}")
        case "many nodes", None:
            for number in range(70):
                columns.put_node(node(f"more-{number}", cards=1))
        case "look", None:
            check(columns)


def _slices(asked: Mapping[str, int]) -> tuple[CardSlice, ...]:
    return tuple(CardSlice(i, 100, 1000) for i in range(asked.get(GPU, 0)))


@examples(600)
@given(st.lists(steps, min_size=8, max_size=40))
def test_kept_totals_and_rows_equal_recomputed_ones(done: list[tuple[str, object]]) -> None:
    columns = Columns()
    for what, subject in (*[("put", (name, 2)) for name in NODES[:3]], ("look", None), *done):
        do(columns, what, subject)
    check(columns)


def check(columns: Columns) -> None:
    alive = np.flatnonzero(columns.alive[: columns.size])
    assert columns.alive_rows.tolist() == alive.tolist() == sorted(columns.row_of.values())
    assert columns.total().tolist() == columns.present(alive).tolist()
    view = columns.future()  # a view keeps no totals of its own, and changes none of the original
    assert view.total().tolist() == view.present(alive).tolist()
    assert columns.total().tolist() == columns.present(alive).tolist()


def test_total_follows_a_departure_from_a_node_that_holds_more_than_it_has() -> None:
    columns = Columns()
    row = columns.put_node(node("n", cards=1))
    columns.book(row, {GPU: 3}, ())
    cards = columns.resource(GPU)
    assert columns.total()[cards] == 3
    columns.depart(row, {GPU: 1}, ())
    assert columns.total()[cards] == 2
    columns.depart_uniform(row, ((cards, 1),), (), 1, ())
    assert columns.total()[cards] == 1
