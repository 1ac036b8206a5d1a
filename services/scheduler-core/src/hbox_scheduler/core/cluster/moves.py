"""Moves of running pods that `consolidate` has found: for whom, what they cost and gain, and what became of them."""

from dataclasses import dataclass

from hbox_common.model import NodeName, PodUid, QueueName
from hbox_common.model.consolidation import MoveTerms

#: Why moves are not made that pay, where the policy only looks for them.
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
    lost_s: float  #: seconds of work, without those to start again


@dataclass(frozen=True, slots=True)
class FoundMoves:
    """All that would move for one gang, each with a place of its own."""

    gang: str  #: its id
    terms: MoveTerms
    moves: tuple[FoundMove, ...]
    refused: str = ""  #: why nobody is moved; "" = they move

    @property
    def words(self) -> str:
        """Of moves that are not made, for the gang that waits."""
        count = self.terms.pods_moved
        return f"moving {count} {'pod' if count == 1 else 'pods'} would make room for it, {self.refused}: {self.terms.words}"
