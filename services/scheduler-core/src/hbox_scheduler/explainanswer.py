"""The answer of the endpoint `explain`: the explanation of the core, with the smallest changes that help."""

from collections.abc import Callable
from dataclasses import replace

from hbox_common.events.explain import ExplainAnswer, ExplainRequest, NodeRules

from . import metrics
from .core.explain.changes import ChangeLimits
from .core.reports import Reports
from .core.starttimes import StartTimes

#: Seconds after which no search for changes goes on: no cycle begins while a question is answered.
ANSWER_S = 0.25


def explain_answer(
    reports: Reports, starts: StartTimes, request: ExplainRequest, *, wall: float, clock: Callable[[], float]
) -> ExplainAnswer:
    """`wall`: seconds since the epoch; `clock`: seconds, monotonic."""
    began = clock()
    found = reports.explanation(request.job, wall)
    if found is not None and (start := starts.estimate(request.job, wall)) is not None:
        found = replace(found, start=start)
    if found is not None and request.changes:
        limits = ChangeLimits()
        limits = replace(limits, seconds=min(limits.seconds, max(0.0, began + ANSWER_S - clock())))
        proposed = reports.changes(request.job, limits, clock)
        found = replace(found, changes=proposed.changes)
        metrics.CHANGE_SEARCHES.labels("complete" if proposed.complete else "limited").inc()
        metrics.CHANGE_PROBES.inc(proposed.probes)
    failed = reports.failed_rules(request.job, request.node) if request.node else None
    return ExplainAnswer(explanation=found, node=None if failed is None else NodeRules(node=request.node, failed=tuple(failed)))
