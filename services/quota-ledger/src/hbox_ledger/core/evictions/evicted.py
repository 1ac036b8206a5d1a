"""Jobs that were recently evicted for others, by the attributes that identify their successors (`minruntime.same_job`). A starting ledger finds them among the
void claims of its database (`load.recent_evictions`).
"""

from dataclasses import dataclass, field

from hbox_common.events import Placement, Plan
from hbox_common.model import Claim
from hbox_common.model.minruntime import OF_LATE_S, same_job

#: So many are remembered, the latest.
MOST = 20_000


@dataclass(slots=True)
class Evicted:
    _at: dict[str, float] = field(default_factory=dict)  #: when, in seconds since the epoch, in that order

    def __bool__(self) -> bool:
        return bool(self._at)

    def note(self, claim: Claim, now: float) -> None:
        """Its pod is gone, for others."""
        self.note_job(
            same_job(job=claim.job, pod_uid=claim.pod_uid, queue=claim.queue, namespace=claim.namespace, pod=claim.pod), now
        )

    def note_job(self, key: str, now: float) -> None:
        """As `note`, by what the job is known by. Later ones are noted later."""
        self._at.pop(key, None)
        self._at[key] = now
        while len(self._at) > MOST or next(iter(self._at.values())) < now - OF_LATE_S:
            del self._at[next(iter(self._at))]

    def of_late(self, plan: Plan, placement: Placement, now: float) -> bool:
        """Whether the job of this pod is one of them."""
        key = same_job(job=plan.job, pod_uid=placement.pod_uid, queue=plan.queue, namespace=plan.namespace, pod=placement.pod)
        return 0 <= now - self._at.get(key, float("-inf")) <= OF_LATE_S
