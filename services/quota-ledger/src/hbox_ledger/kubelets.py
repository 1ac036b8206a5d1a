"""The kubelets' last reported device allocations, and which of them the books do not follow yet."""

import logging
from collections.abc import Iterator

from hbox_common.clock import Clock
from hbox_common.model import NodeDevices, NodeName
from hbox_common.model.bounds import sanitized

from . import metrics
from .core.chain import Record
from .core.kubelet_cards import Moves, moves
from .core.ledgerstate import LedgerState

log = logging.getLogger(__name__)

#: What does not agree for so long is a conflict: evidence of a pod's start and end is on its way for less.
CONFLICT_S = 10.0
#: Seconds for which an unmatched allocation is checked again: if its pod is still unknown then, it is not HBox's.
FRESH_S = 60.0
#: Nodes looked at in one turn, and characters of what is written down of one.
AT_ONCE, LONGEST_NOTE = 256, 1000


class Kubelets:
    """`look` once a second, before the turn that moves what it returns."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reports: dict[NodeName, NodeDevices] = {}
        self._look_at: dict[NodeName, float] = {}  #: since when
        self._conflicts: dict[NodeName, str] = {}

    def receive(self, report: NodeDevices) -> None:
        if report.gone:
            self._reports.pop(report.node, None)
        else:
            self._reports[report.node] = report
        self._look_at[report.node] = self._clock()

    def node_changed(self, node: NodeName) -> None:
        """The ids of its cards may be known now."""
        if node in self._reports:
            self._look_at.setdefault(node, self._clock())

    def look(self, state: LedgerState) -> tuple[list[Moves], list[Record]]:
        """What is to be moved now, and what is to be written down of conflicts that began or ended."""
        found: list[Moves] = []
        notes: list[Record] = []
        now = self._clock()
        for node, since in list(self._look_at.items())[:AT_ONCE]:
            del self._look_at[node]
            report = self._reports.get(node)
            one = moves(state, report) if report is not None else Moves()
            if one.slices:
                found.append(one)
            lasting = now - since >= CONFLICT_S
            if (one.conflicts and not lasting) or (one.waits and now - since < FRESH_S):
                self._look_at[node] = since
            if lasting or not one.conflicts:
                notes += self._noted(state, node, "; ".join(sorted(one.conflicts)), now)
        metrics.CARD_CONFLICTS.set(len(self._conflicts))
        return found, notes

    def _noted(self, state: LedgerState, node: NodeName, conflict: str, now: float) -> Iterator[Record]:
        if conflict == self._conflicts.get(node, ""):
            return
        if conflict:
            self._conflicts[node] = conflict
            log.warning("node %s: kubelet and books differ: %s", node, conflict, extra={"node": node})
        else:
            del self._conflicts[node]
            log.info("node %s: kubelet and books agree again", node, extra={"node": node})
        change = "cards-differ" if conflict else "cards-agree"  # an arrow is for changes of claims alone
        yield Record(state.epoch, now, "node-agent", f"node {node}", change, sanitized(conflict, LONGEST_NOTE))
