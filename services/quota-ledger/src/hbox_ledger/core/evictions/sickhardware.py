"""Requests of health-monitor that jobs leave sick hardware, and what jobs state about it.

Neither is stored: requests are last values in the stream, and the list of pods that opens the books contains the jobs' policies.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from hbox_common.events import HealthEvictionAsked
from hbox_common.model import Claim, ClaimId, JobId, NodeName
from hbox_common.model.annotations import ON_SICK_HARDWARE
from hbox_common.model.sickhardware import SickPolicy, sick_policy

#: Seconds until a pod that could not be evicted, for example because of a disruption budget, is tried again.
AGAIN_S = 60.0
#: Seconds for which the policy of a job without live claims is kept: until the pods of a gang that is created anew, or moved, are claimed again.
KEPT_S = 3600.0


@dataclass(slots=True)
class SickHardware:
    notice_s: int = 600  #: maximum time for a checkpoint under the policy `checkpoint`
    _requests: dict[tuple[NodeName, str], HealthEvictionAsked] = field(default_factory=dict)
    _policies: dict[JobId, SickPolicy] = field(default_factory=dict)
    _without: dict[JobId, float | None] = field(
        default_factory=dict
    )  #: jobs of `_policies` that may have no live claim -> since
    _tried: dict[ClaimId, float] = field(default_factory=dict)

    def put(self, asked: HealthEvictionAsked) -> None:
        """Record a request, or that it has ended."""
        key = asked.node, asked.incident
        if asked.ended:
            self._requests.pop(key, None)
        else:
            self._requests[key] = asked

    def requests(self) -> Iterable[HealthEvictionAsked]:
        return self._requests.values()

    def note_policy(self, job: JobId, word: str) -> None:
        """What the job's annotation states now."""
        policy = sick_policy({ON_SICK_HARDWARE: word}) if word else None
        if policy is not None:
            if job not in self._policies:
                self._without[job] = None
            self._policies[job] = policy
        elif self._policies:
            self._policies.pop(job, None)

    def policy(self, job: JobId) -> SickPolicy | None:
        return self._policies.get(job)

    def due(self, claims: Iterable[ClaimId], now: float, *, rate: float) -> bool:
        """Whether one of these claims was not tried within `AGAIN_S`. If so, all of them count as tried now."""
        claims = list(claims)
        if all(0 <= now - self._tried.get(claim, float("-inf")) < rate * AGAIN_S for claim in claims):
            return False
        self._tried.update(dict.fromkeys(claims, now))
        return True

    def left(self, claim: Claim, *, last: bool) -> None:
        """A claim ended. `last`: its job has no more."""
        self._tried.pop(claim.id, None)
        if last and claim.job in self._policies:
            self._without[claim.job] = None

    def forget(self, live: Container[JobId], now: float, *, rate: float) -> None:
        """Forget the policies of jobs without live claims, after `KEPT_S`. `live`: jobs with some."""
        for job, since in list(self._without.items()):
            if job in live or job not in self._policies:
                del self._without[job]
            elif since is None:
                self._without[job] = now
            elif not 0 <= now - since < rate * KEPT_S:
                del self._without[job], self._policies[job]
