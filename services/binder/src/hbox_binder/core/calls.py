"""Calls to the API server, and what an answer means for a decision.

    verb    finding    the pod                                    outcome
    ------  ---------  -----------------------------------------  ------------------------------------------------
    VOLUME  READY      has all volumes, which its node reaches    none yet: BIND
    VOLUME  WAITING    has claims that provisioners work on       none yet: VOLUME again
    VOLUME  NOT_YET    has a claim that changed meanwhile         none yet: VOLUME again
    VOLUME  REFUSED    has a claim that gets no volume there      none yet: FENCE, then REJECTED
    VOLUME  UNCLEAR    outcome unknown, or a right is missing     none yet: VOLUME again
    BIND    BOUND      is on our node under our claim             BOUND
    BIND    ELSEWHERE  is bound under another claim, or none      CONFLICT
    BIND    GONE       uid absent, or being deleted unbound       GONE
    BIND    FENCED     unbound, bears a later fence               none yet: FENCE, then REVOKED
    BIND    REFUSED    unbound, and the server never will         none yet: FENCE, then REJECTED
    BIND    LOCKED     is unbound; its node is in allocation      none yet: BIND when the node's lock is gone; before it the pod that has it, if it is here
    BIND    NOT_YET    is unbound; its node's cards are not known none yet: BIND again
    BIND    UNBOUND    changed while it was being bound           none yet: BIND on the new resourceVersion
    BIND    UNCLEAR    outcome unknown, or a right is missing     none yet: BIND again, which reads the pod first if needed
    FENCE   UNBOUND    cannot be bound by this claim any more     what the fence was for: REVOKED, EXPIRED, REJECTED
    FENCE   BOUND      was bound before the fence                 BOUND: the ledger evicts
    FENCE   ELSEWHERE  as above                                   CONFLICT
    FENCE   GONE       as above                                   GONE
    FENCE   REFUSED    a webhook forbids it                       REJECTED where that was coming, else none yet: FENCE
    EVICT   ACCEPTED   is being deleted                           EVICTED
    EVICT   GONE       as above                                   GONE
    EVICT   BLOCKED    its disruption budget forbids it           none yet, said to be blocked: EVICT
    EVICT   REFUSED    we may not, or a webhook forbids it        none yet, as above: EVICT, in no hurry
    EVICT   UNCLEAR    nobody knows, or the server is busy        none yet: EVICT

A bind's outcome that lets the ledger free the claim is given only when the pod bears our fence, is bound otherwise or is gone: the same
decision, delivered once more to a binder that remembers nothing, can then do no harm.
"""

from dataclasses import dataclass
from enum import StrEnum

from hbox_common.events import Bind, BindOutcome, Evict


class Verb(StrEnum):
    VOLUME = "volume"
    BIND = "bind"
    FENCE = "fence"
    EVICT = "evict"


class Finding(StrEnum):
    """What a call learnt about the pod."""

    BOUND = "bound"
    ELSEWHERE = "elsewhere"
    UNBOUND = "unbound"
    FENCED = "fenced"
    GONE = "gone"
    ACCEPTED = "accepted"
    BLOCKED = "blocked"
    LOCKED = "locked"
    NOT_YET = "not yet"
    READY = "ready"
    WAITING = "waiting"
    REFUSED = "refused"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Answer:
    finding: Finding
    message: str = ""
    node: str = ""  #: where the pod is, if it is bound
    resource_version: str = ""  #: the pod's, where it was read
    retry_after_s: float | None = None  #: the server's wish
    not_allowed: bool = False  #: caused by a missing right of the binder; nothing is known about the pod
    grace_s: int = -1  #: of ACCEPTED: the pod's grace period in seconds; -1 = unknown
    holder: tuple[str, str] | None = None  #: of LOCKED: the pod (namespace, name) that has all locks of the node


@dataclass(frozen=True, slots=True)
class Call:
    """One call to make now. `then` is the outcome of a fence that finds the pod unbound."""

    verb: Verb
    decision: Bind | Evict
    resource_version: str = ""  #: what fences a BIND
    then: BindOutcome = BindOutcome.UNKNOWN
    locked: bool = False  #: of a BIND: it is this pod's turn on its node, and it may take the node's lock
    seen: bool = False  #: of a BIND: it may have been made before, and the pod may be bound
    waits_since: float = 0.0  #: of a VOLUME: since when provisioners work, in seconds since the epoch; 0 = not known to


#: The calls of a bind before a fence.
BINDS = frozenset({Verb.VOLUME, Verb.BIND})

_SETTLED: dict[tuple[Verb, Finding], BindOutcome] = {
    (Verb.BIND, Finding.BOUND): BindOutcome.BOUND,
    (Verb.BIND, Finding.ELSEWHERE): BindOutcome.CONFLICT,
    (Verb.BIND, Finding.GONE): BindOutcome.GONE,
    (Verb.FENCE, Finding.BOUND): BindOutcome.BOUND,
    (Verb.FENCE, Finding.ELSEWHERE): BindOutcome.CONFLICT,
    (Verb.FENCE, Finding.GONE): BindOutcome.GONE,
    (Verb.EVICT, Finding.ACCEPTED): BindOutcome.EVICTED,
    (Verb.EVICT, Finding.GONE): BindOutcome.GONE,
}

#: Findings after which no pod was evicted.
STAYS = frozenset({Finding.BLOCKED, Finding.REFUSED})

_FENCE_NEXT: dict[Finding, BindOutcome] = {Finding.FENCED: BindOutcome.REVOKED, Finding.REFUSED: BindOutcome.REJECTED}


def settles(call: Call, finding: Finding) -> BindOutcome | None:
    """The outcome of the decision, or None where the answer leaves it open."""
    if call.verb is Verb.FENCE and (
        finding is Finding.UNBOUND or (finding is Finding.REFUSED and call.then is BindOutcome.REJECTED)
    ):
        return call.then
    return _SETTLED.get((call.verb, finding))


def fence_after(call: Call, finding: Finding) -> BindOutcome | None:
    """What a fence is to be set for after this answer to a VOLUME or BIND; None = no fence."""
    return _FENCE_NEXT.get(finding) if call.verb in BINDS else None
