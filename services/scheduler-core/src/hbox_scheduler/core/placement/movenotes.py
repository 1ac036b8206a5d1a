"""What is remembered of moves (the policy's action `consolidate`): those that were found and are not made, and those that this process made of late."""

from collections.abc import Mapping

from hbox_common.model import JobId, PlanId

from ..cluster.entities import Gang
from ..cluster.moves import FoundMoves
from ..framework import Session
from ..queueing.jobs import Entry
from .facts import ClusterFacts
from .gangs import waiting_id

#: What is said of moves that are not made is said anew after so long, though they are the same ones, seconds.
REWORD_S = 60.0


class MoveNotes:
    """Kept among the facts that sessions see."""

    def __init__(self, facts: ClusterFacts) -> None:
        self._facts = facts
        self.reworded: list[Entry] = []  #: of whom something else is said since it was emptied

    def clear(self) -> None:
        """Another policy: nothing was found by it yet."""
        self.reworded.clear()
        self._facts.move_words.clear()
        self._facts.moves_seen.clear()

    def note(self, session: Session, preemptors: Mapping[Gang, Entry]) -> None:
        """Remember for whom moves were found that are not made, and why. What was said of a job before stays while it is about the same moves: the hours that
        they cost change with each look."""
        words, facts = self._facts.move_words, self._facts
        for gang, entry in preemptors.items():
            found = session.outcome.moves.get(gang.id)
            if found is None or not found.refused:
                facts.moves_seen.pop(gang.id, None)
                if words.pop(gang.id, None) is not None:
                    self.reworded.append(entry)
                continue
            kind, (before, at) = _kind_of(found), facts.moves_seen.get(gang.id, (None, 0.0))
            if kind == before and facts.now - at < REWORD_S:
                continue
            facts.moves_seen[gang.id] = kind, facts.now
            if words.get(gang.id) != found.words:
                words[gang.id] = found.words
                self.reworded.append(entry)

    def forget(self, job: JobId) -> None:
        """The job is gone."""
        self._facts.move_words.pop(waiting_id(job), None)
        self._facts.moves_seen.pop(waiting_id(job), None)

    def note_made(self, plan: PlanId, pods: int) -> None:
        """So many pods move by this plan."""
        self._facts.recent_moves.note(plan, pods, self._facts.now)

    def withdraw(self, plan: PlanId) -> None:
        """The plan was refused: nobody moves by it."""
        self._facts.recent_moves.withdraw(plan)

    def hold(self, why: str) -> None:
        """The ledger has nobody move now, and says why; "": it may be asked again."""
        self._facts.moves_held = why

    @property
    def refused(self) -> bool:
        """Whether moves were found that are not made: time alone may change that."""
        return bool(self._facts.move_words)


def _kind_of(found: FoundMoves) -> tuple[str, float, int]:
    """By what two findings are about the same moves."""
    return found.refused, found.terms.cards_gained, found.terms.pods_moved
