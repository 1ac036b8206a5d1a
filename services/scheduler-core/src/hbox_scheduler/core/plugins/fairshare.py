"""How an amount is divided among claims: what they are owed first, the rest by weight. One resource at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import Floats


@dataclass(frozen=True, slots=True)
class Claim:
    """Base units of one resource."""

    deserved: int
    wanted: int  #: no more than this is given
    weight: float = 1.0  #: of what is left over
    priority: int = 0  #: the higher is served from the rest first


def divide(amount: int, claims: Sequence[Claim]) -> list[int]:
    """What each claim gets, in whole units: its deserved amount even if the amount does not cover all of these, then the rest by weight,
    class of priority by class of priority. Units that do not divide go to the largest remainders, of equal ones to the first.

    KAI-Scheduler's rule (reference peers §2.4).
    """
    given = [min(claim.deserved, claim.wanted) for claim in claims]
    rest = amount - sum(given)
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        hungry = [i for i, claim in enumerate(claims) if claim.priority == priority and claim.weight > 0]
        while rest > 0 and (hungry := [i for i in hungry if given[i] < claims[i].wanted]):
            weights = sum(claims[i].weight for i in hungry)
            shares = {i: rest * claims[i].weight / weights for i in hungry}
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
    return given


def fill(amount: float, wanted: Floats, weights: Floats) -> Floats:
    """`[Q]`: the amount divided by weight, nobody getting more than `wanted[Q]`, all of it given away while anybody wants more: water filling.

    Volcano's proportion (reference volcano §4), in fractions of units.
    """
    given = np.zeros(len(wanted), dtype=np.float64)
    hungry = np.flatnonzero((wanted > 0) & (weights > 0))
    rest = float(amount)
    while len(hungry) and rest > 0:
        level = rest / weights[hungry].sum()
        sated = wanted[hungry] <= level * weights[hungry]
        if not sated.any():
            given[hungry] = level * weights[hungry]
            break
        given[hungry[sated]] = wanted[hungry[sated]]
        rest -= float(wanted[hungry[sated]].sum())
        hungry = hungry[~sated]
    return given
