"""Limits of the scheduler's cycles, and the result of a cycle."""

from dataclasses import dataclass, field

from hbox_common.events import GivenUp, JobVerdict, Plan
from hbox_common.model import JobId


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one cycle and of outstanding plans. Times in seconds."""

    placements: int = 512  #: maximum placements of a cycle; a gang is never split
    outstanding: int = 8192  #: maximum unanswered placements; beyond it the scheduler plans nothing new
    resend_after_s: float = 5.0
    backoff_s: float = 0.05  #: after a second refusal in a row, doubling
    backoff_max_s: float = 5.0
    verdict_every_s: float = 2.0  #: of one job, at most
    deadline_s: float = 60.0  #: for a gang to be bound whole
    session_every_s: float = 0.2  #: least time between two sessions of one step
    session_max_s: float = 2.0  #: most time between two, while they find nothing
    session_jobs: int = 512  #: maximum jobs of a session; fewer after a session that did not serve most of its jobs
    #: jobs that the sessions of a cycle examine, after which the next cycle continues: each costs some 50 us even if its queue gets no turn
    cycle_jobs: int = 1024
    session_failures: int = 64  #: failed jobs after which a session ends; the next cycle continues
    shuffle_max_s: float = 15.0  #: most time between two sessions of `shuffle`, while they find nothing
    successor_s: float = 60.0  #: maximum wait for the successor of an evicted pod
    stays_s: float = 30.0  #: exclusion of a pod as victim after its eviction was refused
    fabric_max_age_s: float = 600.0  #: maximum age of the last confirmation of a fabric; beyond it the fabric is stale
    #: wall-clock seconds per monotonic second: above 1 in an emulated cluster with accelerated time
    clock_rate: float = 1.0
    #: seconds until a victim is expected to end if its grace period is unknown; the maximum that binder grants
    leave_s: float = 90.0
    leave_margin_s: float = 15.0  #: seconds beyond its grace period after which the scheduler searches for other victims
    nomination_s: float = 120.0  #: a nomination whose victims have not left by then is given up


@dataclass(slots=True)
class Proposals:
    """Messages that a cycle wants to publish. `wake_at`: time of the next cycle if no message arrives (None = never); `more`: call again at once."""

    plans: list[Plan] = field(default_factory=list)
    resend: list[Plan] = field(default_factory=list)
    verdicts: list[JobVerdict] = field(default_factory=list)
    admitted: list[JobId] = field(default_factory=list)  #: jobs whose PodGroups are admitted
    repeated: bool = False  #: some of `admitted` were published before: job-controller may not listen to this scheduler until it asks for all jobs
    given_up: list[GivenUp] = field(default_factory=list)  #: nominations that the ledger need not remember any more
    wake_at: float | None = None
    more: bool = False
