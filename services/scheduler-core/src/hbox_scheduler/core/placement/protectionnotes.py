"""What is remembered of those who could take from others, were these not in their minimum run time or cool-down: told until the next look finds otherwise."""

from collections.abc import Mapping

from hbox_common.model import JobId

from ..cluster.entities import Gang
from ..framework import Session
from ..queueing.jobs import Entry
from .facts import ClusterFacts
from .gangs import waiting_id


class ProtectionNotes:
    """Kept among the facts that sessions see."""

    def __init__(self, facts: ClusterFacts) -> None:
        self._facts = facts
        self.reworded: list[Entry] = []  #: of whom something else is said since it was emptied

    def clear(self) -> None:
        """Another policy: nothing was found by it yet."""
        self.reworded.clear()
        self._facts.protected_words.clear()

    def note(self, session: Session, preemptors: Mapping[Gang, Entry]) -> None:
        """Remember what this look found."""
        words, found = self._facts.protected_words, session.outcome.protected
        for gang, entry in preemptors.items():
            if words.get(gang.id, "") == (said := found.get(gang.id, "")):
                continue
            if said:
                words[gang.id] = said
            else:
                del words[gang.id]
            self.reworded.append(entry)

    def forget(self, job: JobId) -> None:
        """The job is gone."""
        self._facts.protected_words.pop(waiting_id(job), None)
