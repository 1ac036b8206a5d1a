"""Division of an amount among claims: deserved amounts first, the rest by weight. One resource at a time.

History. The recent usage of a claim's owner can correct its weight: w' = max(0, n + k * (n - u)), where n is its part of the weights of all claims that want
more than they deserve, and u the part of the cluster that it has used (KAI-Scheduler's rule, sources: kai-fair-share). With k = 1, an owner that has used
exactly its part keeps its weight, one that has used nothing gets twice its weight, and one that has used twice its part gets weight 0. History does not change
deserved amounts, and leaves nothing idle: what the other claims do not want is divided among the claims of weight 0, by n * n / u.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShareDemand:
    """Base units of one resource."""

    deserved: int
    wanted: int  #: no more than this is given
    weight: float = 1.0  #: of what is left over
    priority: int = 0  #: the higher is served from the rest first
    last: float = 0.0  #: the weight that counts once only claims of weight 0 want more


def remembering(claims: Sequence[ShareDemand], used: Sequence[float], k: float) -> list[ShareDemand]:
    """The claims with weights corrected by their owners' recent usage, as parts of the cluster. A claim that wants no more than it deserves keeps its weight
    and does not count in the correction of others. With k = 0 all weights stay."""
    if k == 0:
        return list(claims)
    sums: dict[int, float] = {}
    for claim in claims:
        if claim.wanted > claim.deserved:
            sums[claim.priority] = sums.get(claim.priority, 0.0) + claim.weight
    return [
        _corrected(claim, claim.weight / sums[claim.priority], part, k)
        if claim.wanted > claim.deserved and claim.weight > 0
        else claim
        for claim, part in zip(claims, used, strict=True)
    ]


def corrected(weight: float, used: float, k: float) -> tuple[float, float]:
    """A weight that is a part of all weights, by the part of the cluster that was used; and the one that counts where that is 0."""
    return max(0.0, weight + k * (weight - used)), weight * weight / used if used > 0 else 0.0


def _corrected(claim: ShareDemand, weight: float, used: float, k: float) -> ShareDemand:
    now, last = corrected(weight, used, k)
    return ShareDemand(claim.deserved, claim.wanted, now, claim.priority, last)


def divide(amount: int, claims: Sequence[ShareDemand]) -> list[int]:
    """What each claim gets, in whole units: its deserved amount even if the amount does not cover all of these, then the rest by weight,
    class of priority by class of priority. Units that do not divide go to the largest remainders, of equal ones to the first.

    KAI-Scheduler's rule (sources: kai-fair-share).
    """
    given = [min(claim.deserved, claim.wanted) for claim in claims]
    rest = amount - sum(given)
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        own = [i for i, claim in enumerate(claims) if claim.priority == priority]
        rest = _give(rest, claims, {i: claims[i].weight for i in own if claims[i].weight > 0}, given)
        rest = _give(rest, claims, {i: claims[i].last for i in own if claims[i].weight <= 0 < claims[i].last}, given)
    return given


def _give(rest: int, claims: Sequence[ShareDemand], weights: Mapping[int, float], given: list[int]) -> int:
    """Divide `rest` among these of the claims, on top of what they were given. Returns what is left."""
    hungry = list(weights)
    while rest > 0 and (hungry := [i for i in hungry if given[i] < claims[i].wanted]):
        total = sum(weights[i] for i in hungry)
        shares = {i: rest * weights[i] / total for i in hungry}
        sated = [i for i in hungry if claims[i].wanted - given[i] <= shares[i]]
        for i in sated:
            rest -= claims[i].wanted - given[i]
            given[i] = claims[i].wanted
        if sated:
            continue
        for i in hungry:
            given[i] += int(shares[i])
        rest -= sum(int(shares[i]) for i in hungry)
        for i in sorted(hungry, key=lambda i: (int(shares[i]) - shares[i], i))[:rest]:
            given[i] += 1
            rest -= 1
    return rest
