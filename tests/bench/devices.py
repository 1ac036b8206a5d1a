"""Fit of devices node by node: the best-linked cards (HAMi's topology-aware), 4 of 8 on 1,250 nodes, and the largest search for one node.

Nodes in the same state are evaluated once (`core.devices.statefits`). The first figure is a placement without cached results: one node of each state
is evaluated. The second is a placement after one node changed. Figures are processor time, the best of several runs.
"""

import time
from collections.abc import Callable

import numpy as np

from hbox_common.model import Card, CardSlice, Generation, NodeName, NodeState
from hbox_common.model.devices import Ask, CardTraits, PodDevices, linkscore
from hbox_common.model.devices.linkscore import Matrix
from hbox_common.model.devices.vendor import CARD_POLICY
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.devices.statefits import StateFits

from .scheduler import report

NODES, ROUNDS = 1250, 7
LIMIT_MS = 1.0

#: NVLinks between the cards of a DGX-1: a hybrid cube, four good groups of four.
CUBE = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
    (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip


def main() -> None:
    columns = _cluster()
    asked = PodDevices((Ask("NVIDIA", 4),), wishes=((CARD_POLICY, "topology-aware"),))
    rows = np.arange(NODES)
    assert (StateFits().room(columns, rows, asked, most=2) == 2).all()

    def forget() -> StateFits:
        linkscore._chosen.cache_clear()
        return StateFits()

    report(
        "topology choice of 4 of 8 cards, 1,250 nodes",
        _best(forget, lambda f: f.room(columns, rows, asked)),
        "ms",
        LIMIT_MS,
        least=False,
    )

    def changed() -> StateFits:
        known = forget()
        known.room(columns, rows, asked)
        return known

    def again(known: StateFits) -> object:
        columns.book(7, {}, (CardSlice(0, 100, 40_960),), 1)
        found = known.room(columns, rows, asked)
        columns.book(7, {}, (CardSlice(0, 100, 40_960),), -1)
        return found

    report("  the same, one node has changed", _best(changed, again), "ms", LIMIT_MS, least=False)
    for name, matrix, count in (
        ("8 of 16 cards of two sockets, in pairs", _matrix(16, _pairs), 8),
        ("8 of 16 cards of no machine", _matrix(16, lambda i, j: (i * 7919 + j * 104_729) % 997), 8),
    ):
        report(
            f"best {name}",
            _best(lambda: None, lambda _, m=matrix, n=count: linkscore.nearest(m, n)),
            "ms",
            LIMIT_MS,
            least=False,
        )


def _best(prepare: Callable[[], object], act: Callable[..., object]) -> float:
    """ms of processor time."""
    found = []
    for _ in range(ROUNDS):
        ready = prepare()
        started = time.process_time()
        act(ready)
        found.append((time.process_time() - started) * 1e3)
    return min(found)


def _cluster() -> Columns:
    columns = Columns()
    matrix = _matrix(8, lambda i, j: 100 * CUBE.get((i, j), 0) + 10)
    for number in range(NODES):
        cards = tuple(
            Card(
                i,
                f"GPU-{number}-{i}",
                "V100-SXM2-32GB",
                40_960,
                10,
                i // 4,
                True,
                "NVIDIA",
                CardTraits("hami-core", links=matrix[i]),
            )
            for i in range(8)
        )
        columns.put_node(
            NodeState(
                NodeName(f"node-{number}"),
                "",
                Generation(1),
                ready=True,
                allocatable={"cpu": 128_000, "nvidia.com/gpu": 80},
                cards=cards,
            )
        )
    return columns


def _pairs(i: int, j: int) -> int:
    return 400 if i // 2 == j // 2 else 30 if i // 8 == j // 8 else 10


def _matrix(size: int, score: Callable[[int, int], int]) -> Matrix:
    return tuple(tuple(0 if i == j else score(min(i, j), max(i, j)) for j in range(size)) for i in range(size))
