"""What was booked on nodes before they were measured: the difference to what is booked now are pods that no measurement shows."""

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
    """`amounts`: what was booked on each node when the measurement before its last one was published. The last one covers at least the pods of then."""

    amounts: Mapping[NodeName, Amounts] = field(default_factory=dict)
    _nodes: dict[NodeName, _Measured] = field(default_factory=dict)

    def measured(self, usages: Iterable[NodeUsage], columns: Columns) -> None:
        """These measurements were published, of all nodes."""
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
