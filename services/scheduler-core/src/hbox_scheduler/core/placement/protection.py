"""Records of jobs whose possible victims are protected by minimum run time or cool-down, valid until the next search."""

from collections.abc import Mapping

from hbox_common.model import JobId

from ..cluster.entities import Gang
from ..cluster.facts import ClusterFacts
from ..framework import Session
from ..queueing.jobs import Entry
from .gangs import waiting_id


class ProtectionRecords:
    """Kept among the facts that sessions see."""

    def __init__(self, facts: ClusterFacts) -> None:
        self._facts = facts
        self.reworded: list[Entry] = []  #: jobs whose reason changed; the reader empties it

    def clear(self) -> None:
        """Drop all records after a change of policy."""
        self.reworded.clear()
        self._facts.protection_reasons.clear()

    def note(self, session: Session, preemptors: Mapping[Gang, Entry]) -> None:
        """Record the results of this session's victim search."""
        reasons, found = self._facts.protection_reasons, session.outcome.protected
        for gang, entry in preemptors.items():
            if reasons.get(gang.id, "") == (reason := found.get(gang.id, "")):
                continue
            if reason:
                reasons[gang.id] = reason
            else:
                del reasons[gang.id]
            self.reworded.append(entry)

    def forget(self, job: JobId) -> None:
        """Drop the record of a deleted job."""
        self._facts.protection_reasons.pop(waiting_id(job), None)
