"""Bounds of the scheduler's cycles, and what a cycle gives."""

from dataclasses import dataclass, field

from hbox_common.events import JobVerdict, Plan
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
    session_every_s: float = 0.2  #: for room that others hold, at most, and for jobs that wait for others
    session_max_s: float = 2.0  #: while that finds nothing
    session_jobs: int = 512  #: jobs in one such look
    shuffle_max_s: float = 15.0  #: between two looks for pods that the policy wants elsewhere, while there are none
    successor_s: float = 60.0  #: for a successor of a pod that was sent away to appear
    stays_s: float = 30.0  #: for so long nobody asks again for a pod whose eviction was refused
    nomination_s: float = 120.0  #: after so long without its victims gone a job looks elsewhere


@dataclass(slots=True)
class Proposals:
    """What a cycle wants to be sent. `wake_at`: when to call again though nothing happens (None = never); `more`: at once."""

    plans: list[Plan] = field(default_factory=list)
    resend: list[Plan] = field(default_factory=list)
    verdicts: list[JobVerdict] = field(default_factory=list)
    admitted: list[JobId] = field(default_factory=list)  #: whose PodGroups are let in
    repeated: bool = (
        False  #: some of `admitted` were said before: who is to hear it may not listen to us, until we ask for all jobs
    )
    wake_at: float | None = None
    more: bool = False
