"""Jobs as job-controller would have told of them, for tests that make plans without it."""

from itertools import count

from hbox_common.events import Plan
from hbox_common.model import JobTerms

revisions = count(1)


def terms(plan: Plan) -> JobTerms:
    """The job that a plan is for, just as the plan says; newer than what was told before."""
    return JobTerms(
        plan.job,
        plan.namespace,
        plan.queue,
        plan.priority,
        plan.min_member,
        plan.created_at,
        next(revisions),
        plan.preemptable,
    )
