"""The answer of the endpoint `explain`: the explanation of the core, with the smallest changes that help."""

from collections.abc import Callable
from dataclasses import replace

from hbox_common.events.explain import ExplainAnswer, ExplainRequest, NodeRules

from .core.explain.changes import ChangeLimits
from .core.reports import Reports


def explain_answer(reports: Reports, request: ExplainRequest, *, wall: float, clock: Callable[[], float]) -> ExplainAnswer:
    """`wall`: seconds since the epoch; `clock`: seconds, monotonic."""
    found = reports.explanation(request.job, wall)
    if found is not None and request.changes:
        found = replace(found, changes=reports.changes(request.job, ChangeLimits(), clock).changes)
    failed = reports.failed_rules(request.job, request.node) if request.node else None
    return ExplainAnswer(explanation=found, node=None if failed is None else NodeRules(node=request.node, failed=tuple(failed)))
