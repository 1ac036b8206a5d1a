"""Moves of running pods found by `consolidate`: the gang that gains, costs and gains, and the result."""

from dataclasses import dataclass

from hbox_common.model import NodeName, PodUid, QueueName
from hbox_common.model.consolidation import MoveTerms

#: Reason why profitable moves are not executed under mode: preview.
IN_PREVIEW = "which pays, but the policy has mode: preview"


@dataclass(frozen=True, slots=True)
class FoundMove:
    """One pod that would move."""

    uid: PodUid
    namespace: str
    pod: str
    queue: QueueName
    node: NodeName
    to: NodeName
    cards: int
    lost_s: float  #: seconds of lost work, without the restart time


@dataclass(frozen=True, slots=True)
class FoundMoves:
    """The moves for one gang, each with its target node."""

    gang: str  #: its id
    terms: MoveTerms
    moves: tuple[FoundMove, ...]
    refused: str = ""  #: why the moves are not executed; "" = they are

    @property
    def message(self) -> str:
        """Pending reason of the gang, if the moves are not executed."""
        count = self.terms.pods_moved
        return f"moving {count} {'pod' if count == 1 else 'pods'} would make room for it, {self.refused}: {self.terms.text}"
