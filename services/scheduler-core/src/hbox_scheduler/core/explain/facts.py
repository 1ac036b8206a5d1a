"""Facts of an explanation: what its code's text and its amounts are filled with."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hbox_common.model import VENDORS, CardRequest, NodeName, QueueName
from hbox_common.model.devices import any_names_model
from hbox_common.model.explanation import MAX_NODE_NAMES, Fact, NodeCounts
from hbox_common.model.resources import CPU, MEMORY, MIB

from ..cluster import Booking, Columns
from ..cluster.arrays import Bools, Ints
from ..cluster.task import Task
from .names import nearest

#: Names of a list of existing models, label values or queues.
MAX_KNOWN = 20


@dataclass(slots=True)
class Facts:
    """`facts` by placeholder; `need`, `have`: amounts by unit."""

    facts: dict[str, Fact] = field(default_factory=dict)
    need: dict[str, float] = field(default_factory=dict)
    have: dict[str, float] = field(default_factory=dict)

    def amount(self, unit: str, need: float, have: float) -> None:
        """What is needed, and the most of it that can be had."""
        self.need[unit], self.have[unit] = need, have

    def limit(self, resource: str, need: int, most: int) -> None:
        """What is needed of a resource, and a limit on it, in base units."""
        asked, largest = amount_of(resource, need), amount_of(resource, most)
        self.facts |= {"need": f"{asked:g} {resource}", "largest": f"{largest:g} {resource}"}
        self.amount("cards" if resource in VENDORS else resource, asked, largest)


def node_counts(columns: Columns, first: Ints, failed: Ints, labels: Sequence[str]) -> NodeCounts:
    """Of all nodes. first: `[N]` the number of the first rule that each fails, -1 = none; failed: `[N]` how many it fails."""
    alive = columns.alive[: columns.size]
    counts: Counter[str] = Counter()
    only: Counter[str] = Counter()
    names: dict[str, list[NodeName]] = {}
    for row in np.flatnonzero(alive & (first >= 0)).tolist():
        label = labels[first[row]]
        counts[label] += 1
        only[label] += int(failed[row] == 1)
        if len(listed := names.setdefault(label, [])) < MAX_NODE_NAMES:
            listed.append(columns.names[row])
    few = {label: tuple(sorted(listed)) for label, listed in names.items() if counts[label] < MAX_NODE_NAMES}
    total = int(np.count_nonzero(alive))
    return NodeCounts(total, total - sum(counts.values()), dict(counts), {name: n for name, n in only.items() if n}, few)


def condition(columns: Columns, row: int) -> str:
    """The node's name with why it is out of service."""
    state, name = columns.states[row], columns.names[row]
    if state is None:
        return name
    verdict = columns.verdicts.get(name)
    if not state.ready:
        return f"{name} (not ready)"
    if verdict is not None and not verdict.healthy:
        return f"{name} ({verdict.reason or 'unhealthy'})"
    if state.unschedulable:
        by = f" by {state.cordoned_by}" if state.cordoned_by else ""
        why = f": {state.cordon_reason}" if state.cordon_reason else ""
        return f"{name} (cordoned{by}{why})"
    return f"{name} (cards unhealthy)"


def card_holders(bookings: Iterable[Booking], rows: Bools, columns: Columns) -> list[str]:
    """The queues whose pods hold cards of these nodes, those with the most first, with the numbers."""
    held: Counter[QueueName] = Counter()
    for booking in bookings:
        row = columns.row_of.get(booking.node)
        if row is not None and rows[row] and booking.slices:
            held[booking.queue] += len(booking.slices)
    return [f"{name} ({count})" for name, count in held.most_common(MAX_KNOWN)]


def wanted_models(request: CardRequest) -> Sequence[str]:
    """Models that the request names."""
    if request.models or request.devices is None:
        return request.models
    wishes = dict(request.devices.wishes)
    return [name.strip() for key in VENDORS.models_annotations for name in wishes.get(key, "").split(",") if name.strip()]


def known_models(columns: Columns, rows: Bools) -> list[str]:
    """Models of the cards of these nodes, those on most nodes first."""
    codes = np.where(columns.card_index[: columns.size] >= 0, columns.card_model[: columns.size], 0)[rows]
    counts = {columns.model_names[code]: int((codes == code).any(axis=1).sum()) for code in np.unique(codes).tolist() if code}
    return sorted(counts, key=lambda name: (-counts[name], name))


def model_facts(columns: Columns, rows: Bools, request: CardRequest, found: Facts) -> None:
    """The model that no card of these nodes has, and the most similar name, or part of a name, that selects one that cards have."""
    wanted, models = wanted_models(request), known_models(columns, rows)
    missing = [name for name in wanted if not any(any_names_model([name], model) for model in models)] or list(wanted)
    found.facts |= {"model": ", ".join(missing), "models": models[:MAX_KNOWN]}
    parts = [part for model in models for part in (model, *re.split(r"[\s_-]+", model)) if any_names_model([part], model)]
    if missing and (near := nearest(missing[0], parts)):
        found.facts["nearest"] = near


def selector_facts(columns: Columns, rows: Bools, task: Task, found: Facts) -> None:
    """The label of the node selector that none of these nodes has, and the values that they have; or all labels, which no node has together."""
    for key, value in task.node_selector:
        column = columns.descriptions.column(key)
        values = [column.values[code] for code in np.unique(column.codes[: columns.size][rows]).tolist()]
        if value not in values:
            known = sorted(filter(None, values))
            found.facts |= {"key": key, "value": value, "known": known[:MAX_KNOWN]}
            if near := nearest(value, known):
                found.facts["nearest"] = near
            return
    found.facts["labels"] = [f"{key}={value}" for key, value in task.node_selector]


def resource_facts(columns: Columns, task: Task, label: str, rows: Bools, found: Facts, *, empty: bool) -> None:
    """The request of a resource, and the most of it that one of the nodes has."""
    name = label.removeprefix("Insufficient ")
    column = columns.resource(name)
    amounts = columns.allocatable[column, : columns.size] - (0 if empty else columns.used[column, : columns.size])
    largest = int(amounts[rows].max(initial=0))
    need, most = amount_of(name, task.requests.get(name, 0)), amount_of(name, max(largest, 0))
    unit = "memory_mib" if name == MEMORY else name
    found.facts |= {"resource": "MiB of memory" if name == MEMORY else name, "need": need, "largest": most}
    found.amount(unit, need, most)


def amount_of(resource: str, units: int) -> float:
    """CPUs of millicores, MiB of bytes of memory, else the number itself."""
    if resource == CPU:
        return units / 1000
    return units // MIB if resource == MEMORY else units
