"""Which plans need which evictions, by the pods that still have no place (S7).

A plan needs its victims' eviction while one of its pods waits (has no claim, is not gone, and is not part of another plan) and all of its victims may be
evicted. If no plan needs a claim's eviction any more, it is in vain: `lifecycle.tick` reverts it unless it is already carried out. After a restart the needs
are read from the nominations; evictions for other pods that no nomination needs are in vain.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hbox_common.model import ClaimId, PlanId, PodUid

#: Prefix of the eviction reason of a moved pod: a starting ledger counts the last hour's moves by it.
MOVED = "moved to "

#: Prefixes of the reasons of all other evictions for other pods.
PREEMPTED, RECLAIMED = "preempted", "reclaimed"

#: All prefixes of reasons of evictions for other pods.
FOR_OTHERS = (MOVED, f"{PREEMPTED} for ", f"{RECLAIMED} for ")


@dataclass(slots=True)
class Beneficiaries:
    _pods: dict[PlanId, set[PodUid]] = field(default_factory=dict)
    _plans: dict[PodUid, list[PlanId]] = field(default_factory=dict)
    _victims: dict[PlanId, list[ClaimId]] = field(default_factory=dict)
    _for: dict[ClaimId, set[PlanId]] = field(default_factory=dict)
    _in_vain: dict[ClaimId, None] = field(default_factory=dict)

    def need(self, plan: PlanId, pods: Iterable[PodUid], victims: Iterable[ClaimId]) -> None:
        """Record that the plan's pods wait for the eviction of these claims."""
        self._pods[plan], self._victims[plan] = set(pods), list(victims)
        for pod in self._pods[plan]:
            self._plans.setdefault(pod, []).append(plan)
        for claim in self._victims[plan]:
            self._for.setdefault(claim, set()).add(plan)
            self._in_vain.pop(claim, None)

    def leave(self, claims: Iterable[ClaimId]) -> None:
        """Record evictions for other pods, by their records' reasons: those that no plan needs are in vain."""
        self._in_vain.update(dict.fromkeys(claim for claim in claims if claim not in self._for))

    def settled(self, pod: PodUid) -> None:
        """Record that the pod no longer waits, or waits for another plan."""
        for plan in self._plans.pop(pod, ()):
            waiting = self._pods.get(plan)
            if waiting is None:
                continue
            waiting.discard(pod)
            if not waiting:
                self._over(plan)

    def thwart(self, claim: ClaimId) -> list[PlanId]:
        """Record that the claim may not be evicted. Returns the plans that needed it: they fail, and their other evictions are not needed."""
        plans = sorted(self._for.get(claim, ()))
        for plan in plans:
            self._over(plan)
        return plans

    def left(self, claim: ClaimId) -> None:
        """Drop a claim that is void or whose eviction was reverted."""
        self._in_vain.pop(claim, None)
        for plan in self._for.pop(claim, ()):
            victims = self._victims.get(plan, [])
            if claim in victims:
                victims.remove(claim)
            if not victims:
                self._forget(plan)

    def in_vain(self) -> list[ClaimId]:
        """Claims whose eviction no plan needs any more, in that order; each is returned once."""
        found, self._in_vain = list(self._in_vain), {}
        return found

    def _over(self, plan: PlanId) -> None:
        for claim in self._victims.get(plan, ()):
            plans = self._for.get(claim)
            if plans is not None:
                plans.discard(plan)
                if not plans:
                    del self._for[claim]
                    self._in_vain[claim] = None
        self._forget(plan)

    def _forget(self, plan: PlanId) -> None:
        self._victims.pop(plan, None)
        for pod in self._pods.pop(plan, ()):
            plans = self._plans.get(pod, [])
            if plan in plans:
                plans.remove(plan)
            if not plans:
                self._plans.pop(pod, None)
