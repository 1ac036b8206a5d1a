"""How long a pod runs, by what is written and what was learned."""

from collections.abc import Mapping
from functools import lru_cache
from math import inf

from hbox_common.model import QueueName
from hbox_common.model.annotations import WALLTIME

from ..cluster.entities import Member, QueueInfo
from ..cluster.runtimes import RunTimes
from .durations import duration_s

_parsed = lru_cache(maxsize=1024)(duration_s)


def written_s(member: Member, queue: QueueInfo | None) -> float | None:
    """The member's walltime by the annotation of the pod, its PodGroup or its queue, in this order; None if none is a duration."""
    return walltime_in(member.annotations, member.gang.annotations, queue.annotations if queue is not None else {})


def walltime_in(*written: Mapping[str, str]) -> float | None:
    """Seconds, by the first of these annotations that say it."""
    for annotations in written:
        if (text := annotations.get(WALLTIME)) and (found := _parsed(text[:65])) is not None:
            return found
    return None


def not_longer(annotations: Mapping[str, str], before: Mapping[str, str], queue: Mapping[str, str]) -> Mapping[str, str]:
    """Annotations of a placed pod. If they have a longer walltime than before, or none any more, the former one stays, with which the pod was admitted."""
    had, has = walltime_in(before, queue), walltime_in(annotations, queue)
    if had is None or (has is not None and has <= had):
        return annotations
    return {**annotations, WALLTIME: f"{had:.3f}s"}


def bound_s(member: Member, queue: QueueInfo | None, known: RunTimes, *, sure: bool) -> float:
    """How long the member runs at most if it starts now; inf = unknown. Not `sure`: more likely than not."""
    return bound_of(written_s(member, queue), member.gang.queue, member.namespace, known, sure=sure)


def bound_of(written_s: float | None, queue: QueueName, namespace: str, known: RunTimes, *, sure: bool) -> float:
    """As `bound_s`, of a pod of this namespace in the queue for which a walltime is written, or none."""
    if written_s is not None:
        return known.believed_s(queue, namespace, written_s)
    learned = known.bound_s(queue, namespace, sure=sure)
    return inf if learned is None else learned


def end_of(member: Member, queue: QueueInfo | None, known: RunTimes, now: float) -> float:
    """Expected end of a running member, in seconds since the epoch; inf = unknown.

    The earlier of the written and the learned end: an end expected too early keeps nodes idle for nothing, one expected too late admits pods that delay the
    start. A member that overran both is expected to continue for a quarter of what it has run.
    """
    started = now if member.started_at is None else min(member.started_at, now)
    ran_s = now - started
    written, learned = written_s(member, queue), known.whole_s(member.gang.queue, member.namespace, ran_s)
    left = [whole - ran_s for whole in (written, learned) if whole is not None and whole > ran_s]
    if left:
        return now + min(left)
    return inf if written is None and not known.any_of(member.gang.queue, member.namespace) else now + ran_s / 4


def likely_end_of(member: Member, queue: QueueInfo | None, known: RunTimes, now: float) -> float:
    """As `end_of`, but the end that is as likely too early as too late: the median of the runs that lasted longer, or half of what the walltime leaves."""
    started = now if member.started_at is None else min(member.started_at, now)
    ran_s = now - started
    learned = known.whole_s(member.gang.queue, member.namespace, ran_s, part=0.5)
    if learned is not None and learned > ran_s:
        return now + learned - ran_s
    written = written_s(member, queue)
    if written is not None and written > ran_s:
        return now + (written - ran_s) / 2
    return end_of(member, queue, known, now)
