"""The ledger against a complete list of the pods that have a node: every pod is taken in as if just seen, and claims without a pod are looked into.

Absence from a list frees nothing: the list comes from another service's copy, and whatever is wrong with that copy would free what runs. A
posted claim whose pod a list lacks, asked for after it was posted, is a suspect, and stays booked. What frees it is its pod's own end, or a
consistent read of that pod, by uid, at the API server (`lifecycle.read`). No clock has a part in this.

Nor does a list bring back what was told to be gone: it may be the older news. A pod that it shows on a node though it was told to be gone before the list was
asked for is read likewise, and is accounted for again where the API server says that it is there.

A comparison is taken in slices, with others' turns between them: whatever changes meanwhile is newer than the list, and is known to be by what the
ledger's state remembers of it (`LedgerState.gone`, `ClaimRecord.posted`), and by which pods were told of meanwhile (`Comparison.changed`): these are not
judged by what they were.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hbox_common.model import CardSlice, ClaimId, ClaimState, Index, NodeName, PodFact, PodUid

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
        """What is newer than the list has been said of these pods, and is in the books."""
        self._newer.update(pods)

    def take(self, state: LedgerState, step: Step, facts: Iterable[PodFact]) -> None:
        """A part of the list, in the order of `in_order`."""
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
        """Whether the pod was taken in where the list shows it since the list was asked for: what it holds there is known better."""
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
        """A part of the claims that are live, or were a moment ago."""
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


def in_order(state: LedgerState, facts: Iterable[PodFact]) -> tuple[list[PodFact], ...]:
    """A part of the list in the order in which it is to be taken, kind by kind: those first of whom it is known what they hold. What is of a kind in any
    part is to be taken before what is of the next in another."""
    kinds: tuple[list[PodFact], ...] = ([], [], [])
    for fact in facts:
        kinds[doubt(state, fact)].append(fact)
    return kinds
