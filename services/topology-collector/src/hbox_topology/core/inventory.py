"""All nodes, and which of their changes are published.

A generation rises with every published change of its node and over restarts: previous + 1, at least the wall clock in milliseconds, so that it rises even if
the last value was lost with its stream. Kubelets update their node every few seconds; updates without a relevant change are not published.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from hbox_common.model import Generation, NodeDevices, NodeName, NodeNuma, NodeState
from hbox_common.model.cardadapters import with_adapters

from .facts import NodeFacts
from .firstreport import FirstReport
from .kubelets import with_devices
from .lasting import with_lasting_indices
from .migparents import with_parents
from .node import read_node
from .pools import PoolRule, placed_in_pool

#: Nodes that are gone whose last generation is remembered, the newest: names that a cluster's autoscaler makes up never come again.
MOST_GONE = 4_096


@dataclass(frozen=True, slots=True)
class Observed:
    """`changed` is the state to publish, None where nothing changed; `warnings` are new ones, to be logged."""

    changed: NodeState | None
    warnings: tuple[str, ...] = ()


class Inventory:
    """The last published state of every node, by name. One writer; times are Unix times in seconds."""

    def __init__(self, first_report: FirstReport | None = None, reported: Callable[[NodeName], bool] = lambda _: False) -> None:
        """`reported`: whether it is known what the node's kubelet refuses."""
        self._first_report, self._reported = first_report or FirstReport(), reported
        self._waiting: dict[str, None] = {}  #: nodes whose published state has `report_due` or `report_missing`
        self._published: dict[str, NodeState] = {}
        self._gone: dict[str, None] = {}  #: of these, nodes that are gone, in the order in which they went
        self._warned: dict[str, tuple[str, ...]] = {}
        self.devices: dict[str, NodeDevices] = {}  #: by node: what kubelets gave out; counts as `pools`
        self.numa: dict[str, NodeNuma] = {}  #: by node: how machines are made; likewise
        self.pools: Sequence[PoolRule] = ()  #: counts from the next look at a node on

    def __len__(self) -> int:
        return sum(not state.gone for state in self._published.values())

    def get(self, name: str) -> NodeState | None:
        """The last published state; None without such a node."""
        known = self._published.get(name)
        return None if known is None or known.gone else known

    def states(self) -> Iterator[NodeState]:
        """The last state of every node that is there."""
        return (state for state in self._published.values() if not state.gone)

    def warnings(self) -> int:
        """How many nodes have something in their object that could not be read."""
        return len(self._warned)

    def waits(self, name: str) -> bool:
        """Whether the node's first report changes its state."""
        return name in self._waiting

    def overdue(self, now: float) -> list[str]:
        """Nodes whose first report is due at `now` and has not arrived."""
        return [name for name in self._waiting if 0.0 < self._published[name].report_due <= now]

    def count_waiting(self) -> tuple[int, int]:
        """Numbers of nodes that wait for their first report, and of nodes that are used without one."""
        missing = sum(self._published[name].report_missing for name in self._waiting)
        return len(self._waiting) - missing, missing

    def restore(self, state: NodeState) -> None:
        """Record a state read back from the stream, published by an earlier process. The newest generation of a node counts."""
        known = self._published.get(state.name)
        if known is None or state.generation > known.generation:
            self._keep(state)

    def observe(self, facts: NodeFacts, *, now: float) -> Observed:
        """A node object was listed, added or modified."""
        known = self._published.get(facts.name)
        reading = read_node(facts, known.generation if known else Generation(0))
        warnings = reading.warnings if reading.warnings != self._warned.get(facts.name, ()) else ()
        if reading.warnings:
            self._warned[facts.name] = reading.warnings
        else:
            self._warned.pop(facts.name, None)
        same = known if known is not None and known.uid == facts.uid else None
        placed = placed_in_pool(reading.state, self.pools)
        state = with_devices(placed, self.devices.get(facts.name), same, capacity=facts.capacity)
        state = with_lasting_indices(state, same)
        state = with_parents(state, self.numa.get(facts.name), same)
        state = with_adapters(state, self.numa.get(facts.name))
        if self._first_report.expected_of({**facts.annotations, **facts.labels}) and not self._reported(state.name):
            state = self._first_report.awaited(state, same, now=now)
        if state == known:
            return Observed(None, warnings)
        return Observed(self._numbered(state, known, now), warnings)

    def removed(self, name: str, *, uid: str = "", now: float) -> NodeState | None:
        """A node object was deleted: its tombstone. None where it is gone already, or where `uid` names an earlier node of that name."""
        known = self._published.get(name)
        self._warned.pop(name, None)
        if known is None or known.gone or (uid and uid != known.uid):
            return None
        return self._numbered(
            NodeState(name=known.name, uid=known.uid, generation=Generation(0), ready=False, gone=True), known, now
        )

    def vanished(self, present: Collection[str], *, now: float) -> list[NodeState]:
        """Tombstones of the nodes that were deleted while no collector watched; `present`: names of the API's nodes."""
        missing = [state.name for state in self.states() if state.name not in present]
        return [gone for name in missing if (gone := self.removed(name, now=now)) is not None]

    def _numbered(self, state: NodeState, known: NodeState | None, now: float) -> NodeState:
        previous = known.generation if known else 0
        numbered = replace(state, generation=Generation(max(previous + 1, int(now * 1000))))
        self._keep(numbered)
        return numbered

    def _keep(self, state: NodeState) -> None:
        self._published[state.name] = state
        if state.report_due or state.report_missing:
            self._waiting[state.name] = None
        else:
            self._waiting.pop(state.name, None)
        self._gone.pop(state.name, None)
        if state.gone:
            self._gone[state.name] = None
            if len(self._gone) > MOST_GONE:
                oldest = next(iter(self._gone))
                del self._gone[oldest], self._published[oldest]
