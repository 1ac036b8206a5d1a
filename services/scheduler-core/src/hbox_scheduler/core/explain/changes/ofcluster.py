"""Knobs of nodes: which of those that take no pods now have to return."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from hbox_common.model.explanation import MAX_NODE_NAMES, Change, ChangeKind, Owner

from ...cluster import Columns
from .search import Knob

#: Why a node takes no pods, or not on all of its cards; those that are repaired with least effort first.
CORDONED, CARDS, UNHEALTHY, NOT_READY = "cordoned", "cards", "unhealthy", "notReady"
_STATES = (CORDONED, CARDS, UNHEALTHY, NOT_READY)


def cluster_knobs(columns: Columns) -> Iterator[Knob]:
    """Nodes that return."""
    states = _out_of_service(columns)
    if states:
        yield _nodes(columns, states)


def _out_of_service(columns: Columns) -> dict[int, str]:
    """By row, why the node takes no pods; those with the most free cards first within a state."""
    size = columns.size
    faulty = ((columns.card_index[:size] >= 0) & ~columns.card_ok[:size]).any(axis=1)
    free = ((columns.card_index[:size] >= 0) & (columns.card_pods[:size] == 0)).sum(axis=1)
    out = columns.alive[:size] & (~columns.schedulable[:size] | ~columns.ready[:size] | ~columns.healthy[:size] | faulty)

    def state(row: int) -> str:
        if not columns.ready[row]:
            return NOT_READY
        if not columns.healthy[row]:
            return UNHEALTHY
        return CORDONED if not columns.schedulable[row] else CARDS

    found = {row: state(row) for row in np.flatnonzero(out).tolist()}
    return dict(sorted(found.items(), key=lambda item: (_STATES.index(item[1]), -int(free[item[0]]), columns.names[item[0]])))


def _nodes(columns: Columns, states: dict[int, str]) -> Knob:
    rows = list(states)

    def change(chosen: Sequence[int]) -> Change:
        names = tuple(columns.names[row] for row in chosen[:MAX_NODE_NAMES])
        cordoned = [columns.names[row] for row in chosen if not columns.schedulable[row]]
        return Change(
            ChangeKind.NODES,
            Owner.OPERATOR,
            {"count": len(chosen), "nodes": names, "states": tuple(states[row] for row in chosen[:MAX_NODE_NAMES])},
            f"kubectl uncordon {' '.join(cordoned)}" if cordoned else "",
        )

    return Knob(
        len(rows),
        lambda trial, step: replace(trial, repaired=trial.repaired | frozenset(rows[:step])),
        lambda step: change(rows[:step]),
    )
