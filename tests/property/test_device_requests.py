"""Pods whose containers ask for cards each by itself: what scheduler-core picks the ledger takes, a card is never given away twice, and what is known of a
node's state by its number is what a look at the node says."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import (
    VENDORS,
    Card,
    CardRequest,
    CardSlice,
    Generation,
    NodeAllocation,
    NodeName,
    NodeState,
    PodGroupTask,
    PodRef,
    PodUid,
    format_slices,
    parse_slices,
    validate_claim,
)
from hbox_common.model.devices import Ask, Fitted, PodDevices, layout_fault, parse_layout
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.task import Task
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.devices import CardFit, pick, slices_of
from hbox_scheduler.core.devices.statefits import after, allocations, layout_of, states

from ..searching import examples

MIB = 1000


def node(name: str, gpus: int, dcus: int) -> NodeState:
    cards = [Card(i, f"{name}-GPU-{i}", "A100", 10 * MIB, 4, kind="NVIDIA") for i in range(gpus)]
    cards += [Card(16 + i, f"{name}-DCU-{i}", "Z100", 5 * MIB, 3, kind="DCU") for i in range(dcus)]
    allocatable = {"pods": 100, "nvidia.com/gpu": 4 * gpus, "hygon.com/dcunum": 3 * dcus}
    return NodeState(NodeName(name), name, Generation(1), ready=True, allocatable=allocatable, cards=tuple(cards))


ASKS = st.builds(
    Ask,
    kind=st.sampled_from(["NVIDIA", "NVIDIA", "DCU"]),
    count=st.integers(1, 2),
    cores=st.sampled_from([0, 10, 30, 60, 100]),
    memory_mib=st.sampled_from([0, MIB, 3 * MIB, 6 * MIB]),
    memory_percent=st.sampled_from([10, 50, 100]),
    container=st.integers(0, 3),
)
POLICY = st.sampled_from([(), (("hami.io/gpu-scheduler-policy", "spread"),), (("hami.io/gpu-scheduler-policy", "binpack"),)])


@st.composite
def requests(draw: st.DrawFn) -> CardRequest:
    asks = draw(st.lists(ASKS, min_size=1, max_size=4, unique_by=lambda ask: (ask.container, ask.kind)))
    init = draw(st.integers(0, 2))
    sidecars = tuple(place for place in range(init) if draw(st.booleans()))
    devices = PodDevices(
        tuple(sorted(asks, key=lambda ask: ask.container)), containers=4, init=init, sidecars=sidecars, wishes=draw(POLICY)
    )
    return CardRequest(sum(ask.count for ask in asks), cores=0, memory_mib=1, devices=devices, containers=4)


def task_of(tasks: Tasks, request: CardRequest) -> Task:
    """The numbers of cards are Kubernetes' own sum: the most that containers ask for at one time."""
    assert request.devices is not None
    devices = request.devices
    most: dict[str, int] = {}
    lasting: dict[str, int] = {}
    for container in range(devices.containers):
        now = dict(lasting)
        for ask in devices.of(container):
            name = VENDORS.kind(ask.kind).cards
            now[name] = now.get(name, 0) + ask.count
        most = {name: max(units, most.get(name, 0)) for name, units in now.items()} | {
            n: u for n, u in most.items() if n not in now
        }
        if not devices.ends_early(container):
            lasting = now
    return tasks.of(PodGroupTask("t", {"pods": 1, **most}, (PodRef(PodUid("p"), "p", "1"),), cards=request))


NODES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)).filter(any), min_size=1, max_size=3)


@examples(150)
@given(NODES, st.lists(st.tuples(requests(), st.integers(1, 3)), min_size=1, max_size=5), st.data())
def test_what_is_picked_is_what_the_ledger_takes_and_no_card_is_given_twice(
    sizes: list[tuple[int, int]], wanted: list[tuple[CardRequest, int]], data: st.DataObject
) -> None:
    nodes = [node(f"n{i}", *size) for i, size in enumerate(sizes)]
    columns = Columns()
    for state in nodes:
        columns.put_node(state)
    tasks = Tasks(columns)
    books = [NodeAllocation() for _ in nodes]
    held: list[tuple[int, dict[str, int], tuple[CardSlice, ...]]] = []
    for request, pods in wanted:
        task = task_of(tasks, request)
        rows = slice(0, columns.size)
        room = CardFit(8).capacity(columns, rows, task)
        assert room is not None
        for row, state in enumerate(nodes):
            assert bool(room[row]) == isinstance(_fit(columns, row, state, request), Fitted)
        for row in np.flatnonzero(room).tolist():
            count = min(pods, int(room[row]))
            batch = pick(columns, np.array([row]), np.array([count]), task)
            taken = slices_of(columns, batch, request.count)
            columns.apply(batch)
            for slices in taken:
                asked = dict(task.requests)
                assert layout_fault(layout_of(request, slices), slices, VENDORS.asked(asked)) == ""
                assert parse_slices(format_slices(tuple(slices))) == tuple(slices)
                layout, init = parse_layout(layout_of(request, slices))
                assert request.devices is not None
                assert (len(layout), init) == (4, request.devices.init)
                assert validate_claim(nodes[row], None, books[row], asked, slices) is None
                books[row].book(asked, slices)
                held.append((row, asked, slices))
        _alike(columns, nodes, books)
        if data.draw(st.booleans()) and held:
            row, asked, slices = held.pop(data.draw(st.integers(0, len(held) - 1)))
            columns.book(row, asked, slices, -1)
            books[row].book(asked, slices, -1)


def _fit(columns: Columns, row: int, state: NodeState, request: CardRequest) -> object:
    assert request.devices is not None
    return VENDORS.fit(state.cards, allocations(columns, row), request.devices, {})


def _alike(columns: Columns, nodes: Sequence[NodeState], books: Sequence[NodeAllocation]) -> None:
    """Columns and the ledger's books say the same of each card, and no card has more given away than it has."""
    for row, (state, book) in enumerate(zip(nodes, books, strict=True)):
        mine = allocations(columns, row)
        for card in state.cards:
            theirs = book.of(card)
            figures = (0, 0, 0) if theirs is None else (theirs.cores, theirs.memory_mib, theirs.pods)
            own = mine.get(card.index)
            assert figures == ((0, 0, 0) if own is None else (own.cores, own.memory_mib, own.pods))
            assert figures[0] <= 100
            assert figures[1] <= card.memory_mib
            assert figures[2] <= card.shares


@examples(100)
@given(NODES, requests(), st.integers(1, 4))
def test_the_state_that_a_pod_leads_to_is_that_of_the_row_with_it(
    sizes: list[tuple[int, int]], request: CardRequest, pods: int
) -> None:
    columns = Columns()
    for i, size in enumerate(sizes):
        columns.put_node(node(f"n{i}", *size))
    task = task_of(Tasks(columns), request)
    rows = slice(0, columns.size)
    first = CardFit(8).capacity(columns, rows, task)
    assert first is not None
    before = states(columns, rows).tolist()
    for row in np.flatnonzero(first).tolist():
        count = min(pods, int(first[row]))
        batch = pick(columns, np.array([row]), np.array([count]), task)
        columns.apply(batch)
        foreseen = before[row]
        for slices in slices_of(columns, batch, request.count):
            foreseen = after(foreseen, columns, row, slices)
        assert states(columns, rows).tolist()[row] == foreseen
        later = CardFit(8).capacity(columns, rows, task)
        assert later is not None
        assert first[row] == 8 or later[row] == first[row] - count, "as many fit as were counted"
        columns.apply(batch, -1)
    assert states(columns, rows).tolist() == before
