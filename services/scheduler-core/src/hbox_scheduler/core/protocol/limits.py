"""Bounds of the scheduler's cycles, and what a cycle gives."""

from dataclasses import dataclass, field

from hbox_common.events import GivenUp, JobVerdict, Plan
from hbox_common.model import JobId


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one cycle and of what may be outstanding. Times in seconds."""

    placements: int = 512  #: after so many a cycle ends; a gang is never cut
    outstanding: int = 8192  #: placements without an answer, beyond which nothing new is planned
    resend_after_s: float = 5.0
    backoff_s: float = 0.05  #: after a second refusal in a row, doubling
    backoff_max_s: float = 5.0
    verdict_every_s: float = 2.0  #: of one job, at most
    deadline_s: float = 60.0  #: for a gang to be bound whole
    session_every_s: float = 0.2  #: least time between two sessions of one step
    session_max_s: float = 2.0  #: most time between two, while they find nothing
    session_jobs: int = 512  #: most jobs in one session; fewer after one that did not come to most of its own
    session_failures: int = 64  #: jobs without a place after which a session leaves the turns of others to the next cycle
    shuffle_max_s: float = 15.0  #: most time between two sessions of `shuffle`, while they find nothing
    successor_s: float = 60.0  #: for a successor of a pod that was sent away to appear
    stays_s: float = 30.0  #: a pod whose eviction was refused is no victim for so long
    fabric_max_age_s: float = 600.0  #: a fabric that nobody confirmed for longer promises no domain
    #: seconds of the wall clock in one of the monotonic clock: more where an emulated cluster goes faster
    clock_rate: float = 1.0
    #: seconds until a victim is expected to end if its grace period is unknown; the maximum that binder grants
    leave_s: float = 90.0
    leave_margin_s: float = 15.0  #: seconds beyond its grace period after which the scheduler searches for other victims
    nomination_s: float = 120.0  #: a nomination whose victims have not left by then is given up


@dataclass(slots=True)
class Proposals:
    """What a cycle wants to be sent. `wake_at`: when to call again though nothing happens (None = never); `more`: at once."""

    plans: list[Plan] = field(default_factory=list)
    resend: list[Plan] = field(default_factory=list)
    verdicts: list[JobVerdict] = field(default_factory=list)
    admitted: list[JobId] = field(default_factory=list)  #: jobs whose PodGroups are admitted
    repeated: bool = False  #: some of `admitted` were published before: job-controller may not listen to this scheduler until it asks for all jobs
    given_up: list[GivenUp] = field(default_factory=list)  #: nominations that the ledger need not remember any more
    wake_at: float | None = None
    more: bool = False
