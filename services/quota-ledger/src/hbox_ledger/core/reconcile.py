"""Comparison of the ledger with a complete list of bound pods: every pod is applied like a new fact, and claims without a pod are checked.

Absence from a list voids no claim: the list comes from another service's copy, and a fault of that copy would free the cards of running pods. A posted claim
whose pod is missing in a list that was requested after the claim was posted is a suspect, and stays booked. Only its pod's own end, or a consistent read of
that pod, by uid, at the API server (`lifecycle.read`) voids it. No clock is involved.

Nor does a list revive a pod that was reported gone: the list may be older. If a list shows a pod on a node that was reported gone before the list was
requested, the pod is read in the same way, and is accounted for again if the API server confirms it.

A comparison is taken in slices, and other turns run in between. Changes made meanwhile are newer than the list; the ledger recognizes them by its own state
(`LedgerState.gone`, `ClaimRecord.posted`) and by the pods that were reported meanwhile (`Comparison.changed`), and ignores the list for them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hbox_common.model import CardSlice, ClaimId, ClaimState, Index, NodeName, PodFact, PodUid, QueueName

from .foreign_pods import doubt
from .ledgerstate import LedgerState
from .lifecycle import observed
from .step import Step


@dataclass(slots=True)
class Comparison:
    """Compares the ledger with a list of pods that was requested at index `as_of`. First `take` all of the list, then `miss` all live claims.

    `differed`: facts of pods that the ledger had on another node, on other cards or not at all, or that had a claim after their end. A pending claim whose
    pod is bound to the claim's node does not differ. Nor does a claim whose amount or job alone changed: while a gang is being bound, `observed` leaves these
    to the next comparison."""

    as_of: Index
    differed: dict[PodUid, PodFact] = field(default_factory=dict)
    _seen: set[PodUid] = field(default_factory=set)
    _newer: set[PodUid] = field(default_factory=set)

    def changed(self, pods: Iterable[PodUid]) -> None:
        """Exclude these pods: the books have facts of them that are newer than the list."""
        self._newer.update(pods)

    def take(self, state: LedgerState, step: Step, facts: Iterable[PodFact]) -> None:
        """Apply a part of the list, in the order of `ListOrder`."""
        for fact in facts:
            if fact.phase.holds:
                self._seen.add(fact.uid)
            if fact.uid in self._newer or self._is_older(state, fact):
                continue
            before = _place(state, fact.uid)
            observed(state, step, fact, actor="reconciler")
            if _place(state, fact.uid) != before:
                self.differed[fact.uid] = fact
            if fact.phase.holds and state.gone.get(fact.uid, self.as_of) < self.as_of:
                state.contradicted[fact.uid] = fact

    def _is_older(self, state: LedgerState, fact: PodFact) -> bool:
        """Whether the pod was recorded on the list's node after the list was requested: the recorded fact is newer."""
        known = state.by_pod.get(fact.uid)
        if known is None or not fact.phase.holds:
            return False
        record = state.live[known]
        if record.posted <= self.as_of or record.claim.node != fact.node:
            return False
        state.suspects.pop(known, None)
        state.unseen.pop(known, None)
        return True

    def miss(self, state: LedgerState, claims: Iterable[ClaimId]) -> None:
        """Check a part of the claims that are, or recently were, live."""
        for id in claims:
            record = state.live.get(id)
            if record is None or record.claim.state is not ClaimState.POSTED or record.posted > self.as_of:
                continue
            if record.claim.pod_uid in self._seen:
                state.suspects.pop(id, None)
            elif record.claim.pod_uid not in self._newer:
                state.suspects[id] = None
                state.unseen.pop(id, None)


def _place(state: LedgerState, pod: PodUid) -> tuple[NodeName, tuple[CardSlice, ...]] | None:
    """Node and slices of the pod's claim; None if it has none."""
    claim = state.by_pod.get(pod)
    if claim is None:
        return None
    held = state.live[claim].claim
    return held.node, held.slices


class ListOrder:
    """The order in which the pods of a list are applied: pods with known cards first, and in each of these groups queue by queue, so that the turn of a slice
    changes the accounts of few queues."""

    def __init__(self) -> None:
        self._groups: tuple[dict[QueueName, list[PodFact]], ...] = ({}, {}, {})

    def add(self, state: LedgerState, facts: Iterable[PodFact]) -> None:
        """Sort a part of the list."""
        for fact in facts:
            self._groups[doubt(state, fact)].setdefault(fact.queue, []).append(fact)

    def facts(self) -> list[PodFact]:
        """All parts, in order."""
        return [fact for group in self._groups for queue in group.values() for fact in queue]
