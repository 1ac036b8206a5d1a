"""The fence: the pod condition `hbox.io/claim-gen`, which makes bindings of a claim impossible for good.

It is a condition because it has to stay: any user who may change pods can remove an annotation, but has no right to the pod's status. A decision about a void
claim that arrives late at a binder without memory finds the fence.

Writing it changes the pod's resourceVersion, so the API server refuses every Binding that was sent before. The value shows a binder that wants to bind on the
new resourceVersion whether it still may: a claim's generation alone would not, since each claim of a pod counts its decisions from one.
"""

from hbox_common.model import ClaimId

#: Of a generation; Python reads no number of thousands.
_DIGITS = 18


def fence_value(claim: ClaimId, generation: int) -> str:
    """What the decision `generation` of `claim` writes: new to the pod unless the same decision wrote it before."""
    return f"{claim}:{generation}"


def fences_off(value: str, claim: ClaimId, generation: int) -> bool:
    """Whether an unbound pod with fence `value` may no longer be bound by the decision `generation` of `claim`.

    A fence of the same claim, of this or a later generation, forbids it. So does a fence of another claim: the order of two claims is unknown here, and a late
    binding of the older one would take a pod whose claim is void. The decision of the newer claim contains the pod's resourceVersion after the fence, and then
    succeeds without a check.
    """
    if not value:
        return False
    owner, _, number = value.rpartition(":")
    # The pod's owner can write any number as an annotation.
    if owner != claim or not number.isdecimal() or len(number) > _DIGITS:
        return True
    return int(number) >= generation
