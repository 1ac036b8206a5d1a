"""When somebody has to hear of a node: where what is known differs from what the stream has, and now and then, so that silence means something."""

from dataclasses import dataclass, replace

from hbox_common.model import NodeDevices, NodeName
from hbox_common.model.bounds import sanitized

#: What did not change is said again after so long: readers take older words for those of an agent that is gone.
RESAY_S = 600.0
#: A kubelet that restarts is away for less.
PATIENCE_S = 10.0


@dataclass(slots=True)
class Telling:
    """Of one node. `said` is the last value that the stream is known to have, None where it has none or that is not known."""

    node: NodeName
    said: NodeDevices | None = None
    _known: NodeDevices | None = None
    _failing_since: float | None = None

    def answered(self, found: NodeDevices) -> None:
        """The kubelet has answered."""
        self._known, self._failing_since = found, None

    def failed(self, why: str, *, now: float) -> None:
        """It did not. After PATIENCE_S of that, what it said last is said to be old; nothing of it is taken back."""
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= PATIENCE_S:
            known = self._known or NodeDevices(self.node, now)
            self._known = replace(known, problem=sanitized(why))

    @property
    def silent(self) -> bool:
        """Whether the kubelet did not answer for so long that it is told."""
        return self._known is not None and bool(self._known.problem)

    def due(self, *, now: float) -> NodeDevices | None:
        """What is to be said now."""
        known = self._known
        if known is None:
            return None
        if self.said is None or known.said != self.said.said:
            return known
        return known if known.at - self.said.at >= RESAY_S and not known.problem and now >= known.at else None
