"""Labels and taints as integers: what is kept of them is what would be made anew, and no more of it than nodes have and selectors ask for."""

import random
from dataclasses import replace

import numpy as np
import pytest

from hbox_common.model import Taint, TaintEffect
from hbox_scheduler.core.cluster import interning
from hbox_scheduler.core.cluster.columns import Columns
from hbox_scheduler.core.cluster.interning import NAME_FIELD, Descriptions
from hbox_scheduler.core.simulate.simulation import node


def _is_odd(value: str | None) -> bool:
    return value is not None and value[-1] in "13579"


KEYS = [NAME_FIELD, "colour", *(f"key-{number}" for number in range(8))]


def test_what_is_kept_is_what_would_be_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes come under ever new names, and go; labels and taints are ever others."""
    monkeypatch.setattr(interning, "SPARE", 4)
    monkeypatch.setattr(interning, "COLUMNS", 5)
    rng = random.Random(1)
    columns = Columns()
    for number in range(2000):
        there = list(columns.row_of)
        if len(there) > 8 or (there and rng.random() < 0.2):
            columns.drop_node(rng.choice(there))
        name = rng.choice(there) if there and rng.random() < 0.5 else f"n{number}"
        labels = {key: str(rng.choice((number, 1, 2))) for key in KEYS[1:] if rng.random() < 0.5}
        taints = tuple(Taint(key, str(rng.choice((number, 1))), TaintEffect.NO_SCHEDULE) for key in "ab" if rng.random() < 0.5)
        columns.put_node(replace(node(name, labels=labels), taints=taints))
        kept, anew, alive = columns.descriptions, Descriptions(len(columns.alive)), np.flatnonzero(columns.alive)
        for row in alive.tolist():
            state = columns.states[row]
            assert state is not None
            anew.put(row, state)
            assert kept.taint_sets[kept.taints[row]] == state.taints
        for key in rng.sample(KEYS, 3):
            for holds in (_is_odd, lambda value: value is None):
                assert np.array_equal(kept.column(key).matching(holds, alive), anew.column(key).matching(holds, alive))
        assert len(kept._columns) <= 5
        assert len(kept.taint_sets) <= 2 * len(columns.alive) + 4
        assert all(len(column.values) <= 2 * len(columns.alive) + 4 for column in kept._columns.values())


def test_taints_that_say_when_they_were_set_are_forgotten() -> None:
    """Each set is judged for each task: the cluster autoscaler's are new ones with each node that it thinks of taking away."""
    columns = Columns()
    for second in range(5000):
        columns.put_node(replace(node("n0"), taints=(Taint("DeletionCandidate", str(second), TaintEffect.PREFER_NO_SCHEDULE),)))
        columns.put_node(replace(node("n0"), taints=()))
    assert len(columns.descriptions.taint_sets) <= 2 * interning.SPARE


def test_names_of_nodes_that_are_gone_are_forgotten() -> None:
    columns = Columns()
    columns.descriptions.column(NAME_FIELD)
    for number in range(5000):
        columns.put_node(node(f"n{number}"))
        columns.drop_node(f"n{number}")  # type: ignore[arg-type]
    assert len(columns.descriptions.column(NAME_FIELD).values) <= 2 * interning.SPARE


def test_keys_that_selectors_made_up_are_forgotten() -> None:
    columns = Columns()
    columns.put_node(node("n0", labels={"colour": "red"}))
    for number in range(5000):
        columns.descriptions.column(f"made-up-{number}")
        assert columns.descriptions.column("colour").matching(lambda value: value == "red", slice(0, 1)).all()
    assert len(columns.descriptions._columns) <= interning.COLUMNS
