"""The check of what was repaired, by what the node's agent reports after the repair. A node without an agent passes after `validated_s` without a new fault.

A repair is complete when no new fault appeared for `validated_s`, the agent reports, each state that was bad is taken back by its source, after a reboot or
a maintenance NVML lists all cards, and the active steps that an operator enabled have passed (`gate.py`). What is missing is in `held_by`. A state that is
still bad `check_s` after a reset, cards that NVML still does not list, and a failed step are a failed repair; an agent that does not report only delays.
"""

from dataclasses import dataclass

from hbox_common.model import StepResult
from hbox_common.model.remedy import Verb

from . import gate
from .courses import MAINTENANCE, NEW_NODE
from .finding import Action, Blame, Finding, Scope, Severity
from .memory import Open, Reason, Step
from .remedies import check_failed
from .work import CARD, Site, code_of, ended, hold


@dataclass(frozen=True, slots=True)
class Result:
    what: str
    passed: bool | None  #: None: not known yet
    quiet: bool = False  #: it passes by time alone


def check(site: Site, incident: Open) -> None:
    """Let the incident's reasons end, or its repair fail, or wait."""
    policies, since = site.work.policies, incident.validated_from
    found = results(site, incident)
    if policies.unread:  # the steps are unknown; those that run go on
        hold(incident, "rules")
        return
    ready = all(one.passed or one.quiet for one in found) and site.now >= site.node.maintenance_until
    steps = gate.advance(site, incident, ready=ready)
    incident.checks = [f"{one.what}: {_OUTCOMES[one.passed]}" for one in found]
    failed = next((step for step in steps if step.result is StepResult.FAILED), None)
    if failed is not None:
        _fail(site, incident, failed)
        return
    if all(one.passed for one in found) and all(ended(step) for step in steps):
        incident.reasons = {}
        return
    fails_at = since + max(policies.validated_s, policies.check_s)
    if site.now >= fails_at and any(one.passed is False for one in found):
        check_failed(site, incident)
        return
    site.due += [since + policies.validated_s, fails_at]
    for one in found:
        if not one.passed:
            hold(incident, f"check: {one.what}")
    for step in steps:
        if not ended(step):
            hold(incident, f"check: {step.name} is {step.result}" + (f", {step.text}" if step.text else ""))
    if site.node.unschedulable and not site.node.ours:
        hold(incident, "hand")
    if not {incident.entity, *incident.cards}.isdisjoint(site.node.refused):
        hold(incident, "device-plugin")


def _fail(site: Site, incident: Open, step: Step) -> None:
    """The failed step is a reason of its own: the states that were bad are good, and would end."""
    why = f"{step.name} failed after {incident.action_done}: {step.text}"
    card = incident.kind == CARD
    finding = Finding(
        incident.entity,
        "check",
        step.name,
        Severity.FATAL_GPU if card else Severity.FATAL_NODE,
        Blame.HARDWARE,
        Scope.GPU if card else Scope.NODE,
        Action.RESET if card else Action.TICKET,
        "hbox",
        why,
    )
    check_failed(site, incident, why)
    incident.reasons[code_of(finding)] = Reason(finding, site.now, site.now, 0.0, confirmed=True)


_OUTCOMES = {True: "passed", False: "failed", None: "unknown"}


def results(site: Site, incident: Open) -> list[Result]:
    node, policies, since = site.node, site.work.policies, incident.validated_from
    still = False if incident.action_done == Verb.RESET else None  # a boot's states are read anew
    if incident.action_done == NEW_NODE:
        out = [Result("the node is complete by its profile", node.accepted is not None or None)]
    else:
        quiet_s = policies.validated_s
        out = [Result(f"no new fault for {quiet_s:.0f} s", site.now >= since + quiet_s or None, quiet=True)]
    if node.agent_seen is not None:
        out.append(Result("the agent reports", node.agent_seen >= since or None))
    out += [
        Result(
            f"{reason.finding.kind} {reason.finding.code} of {reason.finding.entity} ended", reason.ended is not None or still
        )
        for reason in incident.reasons.values()
        if reason.state and reason.source
    ]
    if incident.action_done in (Verb.REBOOT, MAINTENANCE) and node.reads_cards:
        wanted = {card for card in node.cards if card not in node.parents}
        listed = wanted.intersection(node.counted.cards or ())
        what = f"{len(listed)} of {len(wanted)} cards are listed"
        out.append(Result(what, None if node.counted.cards is None else listed == wanted))
    return out
