"""Knobs of nodes: which of those that take no pods now have to return."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from hbox_common.model.explanation import MAX_NODE_NAMES, Change, ChangeKind, Owner

from ...cluster import Columns
from .search import Knob, SpentError, Starts
from .trial import Trial

#: Why a node takes no pods, or not on all of its cards; those that are repaired with least effort first.
CORDONED, CARDS, UNHEALTHY, NOT_READY = "cordoned", "cards", "unhealthy", "notReady"
_STATES = (CORDONED, CARDS, UNHEALTHY, NOT_READY)

#: Nodes of a proposal of which each is tried without the others, and other nodes that are tried in place of a single one.
_TRIED = 6


def node_knobs(start: Trial, columns: Columns) -> Iterator[Knob]:
    """Nodes that return to service. `start`: the present state."""
    states = _out_of_service(columns)
    if states:
        yield _nodes(start, columns, states)


def _out_of_service(columns: Columns) -> dict[int, str]:
    """By row, why the node takes no pods; those with the most free cards first within a state."""
    size = columns.size
    faulty = ((columns.card_index[:size] >= 0) & ~columns.card_ok[:size]).any(axis=1)
    free = ((columns.card_index[:size] >= 0) & (columns.card_pods[:size] == 0)).sum(axis=1)
    faulty |= columns.single_card[:size] | columns.single_node[:size] | columns.rail_off[:size]
    out = columns.alive[:size] & (~columns.schedulable[:size] | ~columns.ready[:size] | ~columns.healthy[:size] | faulty)

    def state(row: int) -> str:
        if not columns.ready[row]:
            return NOT_READY
        if not columns.healthy[row]:
            return UNHEALTHY
        return CORDONED if not columns.schedulable[row] else CARDS

    found = {row: state(row) for row in np.flatnonzero(out).tolist()}
    return dict(sorted(found.items(), key=lambda item: (_STATES.index(item[1]), -int(free[item[0]]), columns.names[item[0]])))


def _nodes(start: Trial, columns: Columns, states: dict[int, str]) -> Knob:
    rows = list(states)

    def with_rows(trial: Trial, chosen: Sequence[int]) -> Trial:
        return replace(trial, repaired=trial.repaired | frozenset(chosen))

    def change(step: int, starts: Starts) -> Change:
        """`count` of the named nodes: all of them, or one of several that do alike."""
        chosen, others = rows[:step], rows[step : step + _TRIED]
        for row in chosen[:-1] if step <= _TRIED else ():  # the last one is needed: the step before did not help
            if starts(with_rows(start, rest := [one for one in chosen if one != row])):
                chosen = rest
        count = len(chosen)
        if count == 1:
            with suppress(SpentError):  # the proposal is proven without the others
                for row in others:
                    if starts(with_rows(start, (row,))):
                        chosen = [*chosen, row]
        named = chosen[:MAX_NODE_NAMES]
        return Change(
            ChangeKind.NODES,
            Owner.OPERATOR,
            {
                "count": count,
                "among": len(named),
                "nodes": tuple(columns.names[row] for row in named),
                "states": tuple(states[row] for row in named),
            },
            "; ".join(_commands(columns, states, chosen[:count])),
        )

    return Knob(len(rows), lambda trial, step: with_rows(trial, rows[:step]), change)


def _commands(columns: Columns, states: dict[int, str], rows: Sequence[int]) -> Iterator[str]:
    """Uncordon nodes that are in order, and show the others, whose fault has to be repaired."""
    if cordoned := [columns.names[row] for row in rows if states[row] == CORDONED]:
        yield f"kubectl uncordon {' '.join(cordoned)}"
    for row in rows:
        if states[row] != CORDONED:
            yield f"hbox node show {columns.names[row]}"
