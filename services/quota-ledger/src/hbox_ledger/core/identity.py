"""Ids that follow from what they name, so that deciding the same twice cannot make two of them."""

from functools import lru_cache
from hashlib import blake2b

from hbox_common.events import EvictKind
from hbox_common.model import ClaimId, DecisionId, Epoch, Index, PlanId, PodUid

BIND = "bind"


def claim_id(plan: PlanId, pod: PodUid) -> ClaimId:
    """The claim of one pod of one plan: 32 hexadecimal digits. The plan's claims have the first 16 in common, so that they lie together in every index."""
    return ClaimId(_of_plan(plan) + _digest("claim", plan, pod)[:16])


def found_claim_id(pod: PodUid, epoch: Epoch, index: Index) -> ClaimId:
    """The claim of a pod that was found bound at this place in the ledger's history: a pod may be found again after a voided claim."""
    return ClaimId(_digest("found", pod, str(epoch), str(index)))


def decision_id(claim: ClaimId, generation: int, kind: EvictKind | str) -> DecisionId:
    """The decision of this kind on this claim; sent again, it is the same."""
    return DecisionId(_digest("decision", claim, str(generation), str(kind)))


@lru_cache(maxsize=64)
def _of_plan(plan: PlanId) -> str:
    return _digest("plan", plan)[:16]


def _digest(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
