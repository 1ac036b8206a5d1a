"""Ids that follow from what they name, so that deciding the same twice cannot make two of them.

A claim's id is written on its pod, where tenants may write what they like. Its second half is a code that only this ledger's key makes (keyed BLAKE2b, 64
bits), over plan, pod, node and cards: who finds it on a pod knows whether the ledger issued that very claim, even where its record was lost.
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from hmac import compare_digest

from hbox_common.events import EvictKind
from hbox_common.model import CardSlice, ClaimId, DecisionId, Epoch, Index, NodeName, PlanId, PodUid, format_slices

BIND = "bind"


#: Hexadecimal digits of a claim's id that say whose plan it is, and as many that prove it.
_HALF = 16

#: Numbers of changes for which claims of found pods have one first half.
_TOGETHER = 4096


def claim_id(key: bytes, plan: PlanId, pod: PodUid, node: NodeName, slices: Sequence[CardSlice]) -> ClaimId:
    """The claim of one pod of one plan: 32 hexadecimal digits. The plan's claims have the first 16 in common, so that they lie together in every index."""
    half = _of_plan(plan)
    return ClaimId(half + _proof(key, half, pod, node, slices))


def issued(key: bytes, claim: ClaimId, pod: PodUid, node: NodeName, slices: Sequence[CardSlice]) -> bool:
    """Whether the ledger of this key made this id, for this pod on these cards of this node."""
    if len(claim) != 2 * _HALF or not claim.isascii():
        return False
    return compare_digest(claim[_HALF:], _proof(key, claim[:_HALF], pod, node, slices))


def found_claim_id(pod: PodUid, epoch: Epoch, index: Index) -> ClaimId:
    """The claim of a pod that was found bound at this place in the ledger's history: a pod may be found again after a voided claim. As of a plan, claims that
    are found one after the other have the first half in common."""
    return ClaimId(_of_found(epoch, index // _TOGETHER) + _digest("found", pod, str(epoch), str(index))[_HALF:])


def decision_id(claim: ClaimId, generation: int, kind: EvictKind | str) -> DecisionId:
    """The decision of this kind on this claim; sent again, it is the same."""
    return DecisionId(_digest("decision", claim, str(generation), str(kind)))


def _proof(key: bytes, half: str, pod: PodUid, node: NodeName, slices: Sequence[CardSlice]) -> str:
    message = "\0".join(("claim", half, pod, node, format_slices(tuple(slices))))
    return blake2b(message.encode(), digest_size=_HALF // 2, key=key).hexdigest()


@lru_cache(maxsize=64)
def _of_found(epoch: Epoch, part: int) -> str:
    return _digest("found", str(epoch), str(part))[:_HALF]


@lru_cache(maxsize=64)
def _of_plan(plan: PlanId) -> str:
    return _digest("plan", plan)[:_HALF]


def _digest(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
