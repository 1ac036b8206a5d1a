"""Pods on which a list, or a consistent read, disagreed with the books: drift, or news that has not arrived yet.

job-controller answers a list at once, from its copy of the pods, and publishes the changes of that copy behind all that it published before. Under load a
list is seconds ahead of the messages. A list that changes the books is therefore no evidence of a lost message: it is one if no message reports the same
within REPORTED_WITHIN_S.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hbox_common.model import PodFact, PodUid

#: Seconds within which a message reports what a list, or a read, showed first.
REPORTED_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class _Unreported:
    name: str
    holds: bool
    since: float


@dataclass(slots=True)
class Drift:
    """Pods whose news came by a list or a read and by no message yet, the oldest first."""

    _pods: dict[PodUid, _Unreported] = field(default_factory=dict)

    def differs(self, uid: PodUid, name: str, *, holds: bool, now: float) -> None:
        """The books disagreed on this pod and were corrected. `holds`: it holds its node."""
        known = self._pods.get(uid)
        if known is None or known.holds != holds:
            self._pods.pop(uid, None)
            self._pods[uid] = _Unreported(name, holds, now)

    def reported(self, facts: Iterable[PodFact]) -> None:
        """Messages say this of pods."""
        if not self._pods:
            return
        for fact in facts:
            known = self._pods.get(fact.uid)
            if known is not None and known.holds == fact.phase.holds:
                del self._pods[fact.uid]

    def overdue(self, now: float, *, within_s: float = REPORTED_WITHIN_S) -> list[str]:
        """Names of pods that no message reported in time, each once. After a step back of the clock the time of a pod begins anew."""
        names = []
        while self._pods:
            uid, first = next(iter(self._pods.items()))
            if 0 <= now - first.since < within_s:
                break
            del self._pods[uid]
            if now >= first.since:
                names.append(first.name)
            else:
                self._pods[uid] = replace(first, since=now)
        return names
