"""New nodes wait for node-agent's first report.

A kubelet with topology manager policy `restricted` or `single-numa-node`, with a static memory manager or with `full-pcpus-only` refuses pods. Which policy a
kubelet has only node-agent knows, and its pod starts after the node is ready. Where node-agent runs, a node that became ready therefore takes no pod that a
kubelet may refuse until the first report, at most `wait_s`. Then the node is used without a report, and marked (`NodeState.report_missing`): a node-agent that
does not start must not keep a node unused.

The deadline is part of the published state, which a restarted process reads back. A node waits once: a node that was ready before does not wait, whatever
happens to its agent later.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hbox_common.model import Match, MatchOperator, NodeState, Selector, selects


@dataclass(frozen=True, slots=True)
class FirstReport:
    """Which nodes wait for a first report, and for how many seconds at most; 0: no node waits."""

    wait_s: float = 0.0
    selector: Selector = Selector()

    def expected_of(self, labels: Mapping[str, str]) -> bool:
        """Whether node-agent runs on a node with these labels and annotations."""
        return self.wait_s > 0 and selects(self.selector, labels)

    def awaited(self, state: NodeState, known: NodeState | None, *, now: float) -> NodeState:
        """`state` of a node without a report. `known`: its last published state, None for a new node; `now`: seconds since the epoch."""
        if known is not None and known.report_missing:
            return replace(state, report_missing=True)
        if known is not None and known.report_due:
            if now >= known.report_due:
                return replace(state, report_missing=True)
            return replace(state, report_due=min(known.report_due, now + self.wait_s))  # the clock may have been set back
        if not state.ready or (known is not None and known.ready):
            return state
        return replace(state, report_due=now + self.wait_s)


def selector_of(terms: Iterable[str]) -> Selector:
    """A selector of terms `key=value`, or `key` for any value."""
    matches = []
    for term in terms:
        key, equals, value = term.partition("=")
        matches.append(Match(key, MatchOperator.IN, (value,)) if equals else Match(key, MatchOperator.EXISTS, ()))
    return Selector(tuple(matches))
