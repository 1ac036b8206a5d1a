"""Bookings of nodes at the time of their measurements. What was booked since belongs to pods that no measurement includes yet."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from hbox_common.model import NodeName, NodeUsage
from hbox_common.model.resources import CPU, MEMORY, PODS

from .columns import Columns

#: Amounts on one node: cpu, memory and the number of pods, in base units.
Amounts: TypeAlias = tuple[int, int, int]


class _Measured(NamedTuple):
    at: float
    booked: Amounts  #: when this measurement was published
    before: Amounts  #: when the one before it was published


@dataclass(slots=True)
class BookedBefore:
    """`amounts`: by node, the bookings at the publication of the measurement before the last one. The last measurement includes at least these pods."""

    amounts: Mapping[NodeName, Amounts] = field(default_factory=dict)
    _nodes: dict[NodeName, _Measured] = field(default_factory=dict)

    def measured(self, usages: Iterable[NodeUsage], columns: Columns) -> None:
        """Take new measurements of all nodes; a node's is new if its `at` has changed. `columns`: the current bookings."""
        used = [columns.used[columns.resource(name), : columns.size].tolist() for name in (CPU, MEMORY, PODS)]
        nodes: dict[NodeName, _Measured] = {}
        for usage in usages:
            row = columns.row_of.get(usage.node)
            if row is None:
                continue
            last = self._nodes.get(usage.node)
            if last is None or last.at != usage.at:
                booked = (used[0][row], used[1][row], used[2][row])
                last = _Measured(usage.at, booked, last.booked if last is not None else booked)
            nodes[usage.node] = last
        self._nodes = nodes
        self.amounts = {name: one.before for name, one in nodes.items()}
