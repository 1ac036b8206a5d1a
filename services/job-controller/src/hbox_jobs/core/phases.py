"""The phase of a job, for integrators (`JobPhase`) and for its PodGroup's status (Volcano's phases)."""

from dataclasses import replace

from hbox_common.events import JobPhase

from .job import Record, Tally
from .views import GroupCondition, GroupPhase, GroupStatus

UNSCHEDULABLE = "Unschedulable"
SCHEDULED = "Scheduled"

#: Volcano's reasons for the two conditions above.
_NOT_ENOUGH = "NotEnoughResources"
_READY = "tasks in gang are ready to be scheduled"


def phase_of(record: Record, tally: Tally) -> JobPhase:
    """The phase of a job that exists."""
    if tally.live == 0 and tally.failed:
        return JobPhase.FAILED
    if tally.live == 0 and tally.succeeded:
        return JobPhase.SUCCEEDED
    if tally.running and tally.running + tally.succeeded >= record.min_member:
        return JobPhase.RUNNING
    if tally.bound and tally.bound == tally.live and tally.bound + tally.succeeded >= record.min_member:
        return JobPhase.BOUND
    return JobPhase.WAITING if record.reason else JobPhase.PENDING


def is_news(phase: JobPhase, published: JobPhase | None) -> bool:
    """Whether a job's `phase` has to be published, if an earlier process last published `published`.

    After a restart a waiting job is pending again for a moment, until the scheduler repeats the reason.
    """
    return phase is not published and (phase, published) != (JobPhase.PENDING, JobPhase.WAITING)


def group_status(record: Record, tally: Tally, *, now: str, with_reason: bool = True, passed: bool = True) -> GroupStatus:
    """What the status of the job's PodGroup should say; `now` is RFC 3339. Without `with_reason` its waiting is not mentioned yet. `passed`: it may
    be Inqueue (`Admission.may_enqueue`); Volcano's Job controller creates pods only then. Members that leave count for the phase
    until they are gone: a gang does not fall back because one of its pods takes its time to end. Conditions of other writers are kept.
    """
    assert record.group is not None
    old = record.group.status
    started = tally.bound + tally.succeeded >= record.min_member
    if (tally.live == 0 and tally.leaving == 0 and tally.succeeded + tally.failed > 0) or (
        old.phase is GroupPhase.COMPLETED and not record.pods
    ):
        phase = GroupPhase.COMPLETED
    elif tally.bound + tally.leaving + tally.succeeded >= record.min_member:
        phase = GroupPhase.RUNNING
    elif old.phase in (GroupPhase.RUNNING, GroupPhase.UNKNOWN) and tally.bound:
        phase = GroupPhase.UNKNOWN
    elif not passed:
        phase = GroupPhase.PENDING
    else:
        phase = GroupPhase.INQUEUE
    conditions = old.conditions
    if started:
        conditions = _with(conditions, GroupCondition(SCHEDULED, "True", _READY, "", now))
        if any(_is_unschedulable(c) for c in conditions):
            conditions = _with(conditions, GroupCondition(UNSCHEDULABLE, "False", SCHEDULED, "", now))
    elif with_reason and record.reason and (tally.live > tally.bound or record.gated or record.stuck or not passed):
        reason = record.problem_reason or _NOT_ENOUGH
        conditions = _with(conditions, GroupCondition(UNSCHEDULABLE, "True", reason, record.line, now))
        if any(c.type == SCHEDULED and c.status == "True" for c in conditions):
            conditions = _with(conditions, GroupCondition(SCHEDULED, "False", UNSCHEDULABLE, "", now))
    elif phase is GroupPhase.INQUEUE and not old.phase.is_enqueued and any(_is_unschedulable(c) for c in conditions):
        conditions = _with(conditions, GroupCondition(UNSCHEDULABLE, "False", phase.value, "", now))
    return GroupStatus(phase, tally.running, tally.succeeded, tally.failed, conditions)


def _is_unschedulable(condition: GroupCondition) -> bool:
    return condition.type == UNSCHEDULABLE and condition.status == "True"


def _with(conditions: tuple[GroupCondition, ...], wanted: GroupCondition) -> tuple[GroupCondition, ...]:
    """The conditions with the one of `wanted`'s type replaced, or it added; its time moves only with its status."""
    out, found = [], False
    for condition in conditions:
        if condition.type != wanted.type:
            out.append(condition)
            continue
        found = True
        out.append(replace(wanted, since=condition.since) if condition.status == wanted.status else wanted)
    return tuple(out) if found else (*conditions, wanted)
