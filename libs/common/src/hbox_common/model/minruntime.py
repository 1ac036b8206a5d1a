"""Protection from preemption: a queue's minimum run time, and the cool-down of recently evicted jobs (ADR 40).

Administrators set both as annotations of a Queue; they apply to its descendants until one of these sets its own. The ledger computes a claim's protection end
when it creates the claim, and checks every plan with victims against it; engine and previews read it from the claim. Tenants have no influence.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hbox_common.errors import InvalidRequest

from .annotations import COOL_DOWN, QUEUE_MIN_RUN_TIME
from .durations import duration_s

#: Upper limit of both: longest delay that one annotation can cause to a queue reclaiming its own resources.
LONGEST_S = 86_400.0

#: Without a word of the administrators'. No minimum: an owner waits for nothing. A cool-down so short that an owner hardly notices it, and long enough that a
#: job which loses its place again and again gets something done each time.
MIN_RUN_S, COOL_DOWN_S = 0.0, 60.0

#: An eviction longer ago makes no cool-down.
OF_LATE_S = 3600.0


@dataclass(frozen=True, slots=True)
class RunTime:
    """In seconds, from when a pod got its place."""

    min_run_s: float = MIN_RUN_S
    cool_down_s: float = COOL_DOWN_S  #: of recently evicted jobs

    def protected_until(self, since: float, *, evicted: bool) -> float:
        """End of the protection of a pod placed at `since`, in seconds since the epoch; 0 = unprotected.

        evicted: its job was evicted recently.
        """
        protected_s = max(self.min_run_s, self.cool_down_s) if evicted else self.min_run_s
        return since + protected_s if protected_s > 0 else 0.0


def run_time_of(path: Iterable[Mapping[str, str]]) -> RunTime:
    """The values from the annotations of a queue and its ancestors, the queue's own first. Unreadable values are ignored: on entry they close the queue."""
    min_run_s = cool_down_s = None
    for annotations in path:
        if min_run_s is None:
            min_run_s = _seconds(annotations, QUEUE_MIN_RUN_TIME)
        if cool_down_s is None:
            cool_down_s = _seconds(annotations, COOL_DOWN)
    return RunTime(MIN_RUN_S if min_run_s is None else min_run_s, COOL_DOWN_S if cool_down_s is None else cool_down_s)


def check_run_time(annotations: Mapping[str, str]) -> None:
    """Raises InvalidRequest where one of the two is no duration, or longer than a day."""
    for name in (QUEUE_MIN_RUN_TIME, COOL_DOWN):
        if (text := annotations.get(name)) is not None and _seconds(annotations, name) is None:
            raise InvalidRequest(
                f"{name} is {text[:64]!r}, which is no duration of at most a day", hint="write it like 90s or 10m; 0s = none"
            )


def _seconds(annotations: Mapping[str, str], name: str) -> float | None:
    seconds = duration_s(annotations.get(name, ""))
    return seconds if seconds is not None and seconds <= LONGEST_S else None


def protects(protected_until: float, now: float) -> bool:
    """Whether the pod is still protected. If the clock was set back by more than the longest time, the protection is void."""
    return now < protected_until <= now + LONGEST_S


def same_job(*, job: str, pod_uid: str, queue: str, namespace: str, pod: str) -> str:
    """Identifies the successor of an evicted pod: its job, or, for a pod without a job, the name prefix that its controller gives to its pods (`web-6c9f` of
    `web-6c9f-x2x1z`) in that queue. A tenant that copies the name gains a cool-down and nothing else."""
    return job if job != pod_uid else f"{queue}/{namespace}/{pod.rpartition('-')[0] or pod}"
