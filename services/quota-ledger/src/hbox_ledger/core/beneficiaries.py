"""Who needs that others leave: plans with victims, by the pods that still have no place (S7).

A plan needs its victims to go while one of its pods waits: has no claim, is not gone and was not asked for anew by another plan; and while all of them
may go. A claim that leaves for
plans none of which needs it any more leaves in vain: what was not done of its eviction yet is taken back (`lifecycle.tick`). Over a restart what is needed is
read from the nominations, and who leaves for others, but for none of these, leaves in vain.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hbox_common.model import ClaimId, PlanId, PodUid

#: How the reason of the eviction of a pod that moves begins: by that the moves of the last hour are counted when the ledger starts.
MOVED = "moved to "

#: The first words of the reason of every other eviction for somebody.
PREEMPTED, RECLAIMED = "preempted", "reclaimed"

#: As all of these begin.
FOR_OTHERS = (MOVED, f"{PREEMPTED} for ", f"{RECLAIMED} for ")


@dataclass(slots=True)
class Beneficiaries:
    _pods: dict[PlanId, set[PodUid]] = field(default_factory=dict)
    _plans: dict[PodUid, list[PlanId]] = field(default_factory=dict)
    _victims: dict[PlanId, list[ClaimId]] = field(default_factory=dict)
    _for: dict[ClaimId, set[PlanId]] = field(default_factory=dict)
    _in_vain: dict[ClaimId, None] = field(default_factory=dict)

    def need(self, plan: PlanId, pods: Iterable[PodUid], victims: Iterable[ClaimId]) -> None:
        """The plan's pods wait for these to leave."""
        self._pods[plan], self._victims[plan] = set(pods), list(victims)
        for pod in self._pods[plan]:
            self._plans.setdefault(pod, []).append(plan)
        for claim in self._victims[plan]:
            self._for.setdefault(claim, set()).add(plan)
            self._in_vain.pop(claim, None)

    def leave(self, claims: Iterable[ClaimId]) -> None:
        """These leave for others, as far as their records say: where no plan needs that, in vain."""
        self._in_vain.update(dict.fromkeys(claim for claim in claims if claim not in self._for))

    def settled(self, pod: PodUid) -> None:
        """The pod waits no more, or for something else."""
        for plan in self._plans.pop(pod, ()):
            waiting = self._pods.get(plan)
            if waiting is None:
                continue
            waiting.discard(pod)
            if not waiting:
                self._over(plan)

    def thwart(self, claim: ClaimId) -> list[PlanId]:
        """It may not leave: the plans that asked for it, which are returned, come to nothing, and nobody else has to leave for them."""
        plans = sorted(self._for.get(claim, ()))
        for plan in plans:
            self._over(plan)
        return plans

    def left(self, claim: ClaimId) -> None:
        """It is gone, or stays after all."""
        self._in_vain.pop(claim, None)
        for plan in self._for.pop(claim, ()):
            victims = self._victims.get(plan, [])
            if claim in victims:
                victims.remove(claim)
            if not victims:
                self._forget(plan)

    def in_vain(self) -> list[ClaimId]:
        """Claims for whose leaving nobody has a need any more, in the order in which that came about; told once."""
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
