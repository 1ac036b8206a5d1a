"""The fence: what is written on a pod, as its condition `hbox.io/claim-gen`, to make bindings of a claim impossible for good.

A condition, since it has to stay: whoever may change pods can remove an annotation from one, but has no right to its status. A decision of a
claim that was freed, delivered late to a binder that remembers nothing, finds it there.

Writing it moves the pod's resourceVersion, so the API server itself refuses every Binding that was sent before. The value then tells a
binder that wants to bind on the new resourceVersion whether it still may: a claim's number alone could not, since each claim of a pod counts
its decisions from one.
"""

from hbox_common.model import ClaimId

#: Of a generation; Python reads no number of thousands.
_DIGITS = 18


def fence_value(claim: ClaimId, generation: int) -> str:
    """What the decision `generation` of `claim` writes: new to the pod unless the same decision wrote it before."""
    return f"{claim}:{generation}"


def fences_off(value: str, claim: ClaimId, generation: int) -> bool:
    """Whether an unbound pod that bears `value` may not be bound any more by the decision `generation` of `claim`.

    An own fence of this or a later generation forbids it. So does another claim's: the order of two claims cannot be told from here, and a
    binding of an old one, delivered late, would otherwise take a pod whose claim is freed. The decision of the newer claim names the pod's
    resourceVersion as of after the fence, and then succeeds without asking.
    """
    if not value:
        return False
    owner, _, number = value.rpartition(":")
    # Whoever owns the pod can write any number, as an annotation.
    if owner != claim or not number.isdecimal() or len(number) > _DIGITS:
        return True
    return int(number) >= generation
