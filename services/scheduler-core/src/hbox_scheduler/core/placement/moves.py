"""Records of moves (the policy's action `consolidate`): moves found but not executed, and moves that this process executed recently."""

from collections.abc import Mapping

from hbox_common.model import JobId, PlanId

from ..cluster.entities import Gang
from ..cluster.facts import ClusterFacts
from ..cluster.moves import FoundMoves
from ..framework import Session
from ..queueing.jobs import Entry
from .gangs import waiting_id

#: Seconds after which the reason of unexecuted moves is updated even if the moves are the same.
REWORD_S = 60.0


class MoveRecords:
    """Kept among the facts that sessions see."""

    def __init__(self, facts: ClusterFacts) -> None:
        self._facts = facts
        self.reworded: list[Entry] = []  #: jobs whose reason changed; the reader empties it

    def clear(self) -> None:
        """Drop all records after a change of policy."""
        self.reworded.clear()
        self._facts.move_reasons.clear()
        self._facts.moves_seen.clear()

    def note(self, session: Session, preemptors: Mapping[Gang, Entry]) -> None:
        """Record the jobs with unexecuted moves, and why. A job's reason stays while the kind of its moves does: their cost changes with each search."""
        reasons, facts = self._facts.move_reasons, self._facts
        for gang, entry in preemptors.items():
            found = session.outcome.moves.get(gang.id)
            if found is None or not found.refused:
                facts.moves_seen.pop(gang.id, None)
                if reasons.pop(gang.id, None) is not None:
                    self.reworded.append(entry)
                continue
            kind, (before, at) = _kind_of(found), facts.moves_seen.get(gang.id, (None, 0.0))
            if kind == before and facts.now - at < REWORD_S:
                continue
            facts.moves_seen[gang.id] = kind, facts.now
            if reasons.get(gang.id) != found.message:
                reasons[gang.id] = found.message
                self.reworded.append(entry)

    def forget(self, job: JobId) -> None:
        """Drop the records of a deleted job."""
        self._facts.move_reasons.pop(waiting_id(job), None)
        self._facts.moves_seen.pop(waiting_id(job), None)

    def note_made(self, plan: PlanId, pods: int) -> None:
        """Record the number of pods that this plan moves."""
        self._facts.recent_moves.note(plan, pods, self._facts.now)

    def withdraw(self, plan: PlanId) -> None:
        """Remove the moves of a refused plan."""
        self._facts.recent_moves.withdraw(plan)

    def hold(self, why: str) -> None:
        """Record why the ledger pauses moves; "" = moves may be proposed again."""
        self._facts.moves_held = why

    @property
    def refused(self) -> bool:
        """Whether there are unexecuted moves, which may become admissible as time passes."""
        return bool(self._facts.move_reasons)


def _kind_of(found: FoundMoves) -> tuple[str, float, int]:
    """Key by which two results count as the same moves."""
    return found.refused, found.terms.cards_gained, found.terms.pods_moved
