"""When the state of a node is published: if it differs from the last published one, and at intervals, so that readers can detect an absent agent."""

from dataclasses import dataclass, replace

from hbox_common.model import NodeDevices, NodeName
from hbox_common.model.bounds import sanitized

#: Seconds after which an unchanged state is published again. Readers treat an older one as that of an absent agent.
REPUBLISH_S = 600.0
#: Seconds without an answer after which the kubelet counts as failing; a restart takes less.
PATIENCE_S = 10.0


@dataclass(slots=True)
class Publication:
    """Decides when the devices of one node are published. `published`: the last value in the stream; None if there is none or it is unknown."""

    node: NodeName
    published: NodeDevices | None = None
    _known: NodeDevices | None = None
    _failing_since: float | None = None

    def answered(self, found: NodeDevices) -> None:
        """Record the kubelet's answer."""
        self._known, self._failing_since = found, None

    def failed(self, why: str, *, now: float) -> None:
        """Record that the kubelet did not answer. After PATIENCE_S the last answer is published with the problem; its content stays."""
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= PATIENCE_S:
            known = self._known or NodeDevices(self.node, now)
            self._known = replace(known, problem=sanitized(why))

    @property
    def silent(self) -> bool:
        """Whether the kubelet has not answered for PATIENCE_S."""
        return self._known is not None and bool(self._known.problem)

    def due(self, *, now: float) -> NodeDevices | None:
        """The value to publish now, if any."""
        known = self._known
        if known is None:
            return None
        if self.published is None or known.content != self.published.content:
            return known
        return known if known.at - self.published.at >= REPUBLISH_S and not known.problem and now >= known.at else None
