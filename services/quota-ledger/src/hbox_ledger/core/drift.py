"""Detects drift: differences between the ledger and a list, or a consistent read, of pods that no message explains.

job-controller answers a list at once from its cache of pods, and publishes changes of the cache in order. Under load a list is seconds ahead of the messages.
Therefore a list that changes the ledger does not prove that a message was lost. It is drift if no message reports the same within REPORTED_WITHIN_S.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hbox_common.model import PodFact, PodUid

#: Seconds that a message may lag behind a list or a read. Times of this module are seconds since the epoch.
REPORTED_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class _Unreported:
    name: str
    holds: bool
    since: float


@dataclass(slots=True)
class Drift:
    """Pods whose state a list or a read corrected and no message has reported yet, the oldest first."""

    _pods: dict[PodUid, _Unreported] = field(default_factory=dict)

    def differs(self, uid: PodUid, name: str, *, holds: bool, now: float) -> None:
        """A list or a read corrected the ledger on this pod. `holds`: the pod holds its node."""
        known = self._pods.get(uid)
        if known is None or known.holds != holds:
            self._pods.pop(uid, None)
            self._pods[uid] = _Unreported(name, holds, now)

    def reported(self, facts: Iterable[PodFact]) -> None:
        """Messages reported these facts."""
        if not self._pods:
            return
        for fact in facts:
            known = self._pods.get(fact.uid)
            if known is not None and known.holds == fact.phase.holds:
                del self._pods[fact.uid]

    def overdue(self, now: float, *, within_s: float = REPORTED_WITHIN_S) -> list[str]:
        """Names of pods that no message reported within `within_s`; each pod is returned once. If the clock was set back, the time of a pod restarts."""
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
