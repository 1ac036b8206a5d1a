"""Active steps of the check of what was repaired: DCGM's diagnostics, which node-remedy executes, and a Job of the operator, which the binder creates.

A step is planned if an operator enabled it and the incident's hardware was reset, its node booted, was maintained or joins. The steps run one after the other,
once the facts of `validation.py` are good but for the time without a new fault, and no pod uses the hardware; one step runs on a node at a time. The verdict
keeps other work away, since the incident is not closed.

    result    entered when                                                   what follows
    --------  -------------------------------------------------------------  -------------------------------------------------------
    waiting   planned; refused, or a Job failed that may be tried again      it begins, at the earliest at `retry_at`
    running   decided                                                        a new fault or a boot ends it without a result; no answer in time
    passed    done, or succeeded                                             the next step
    skipped   the node has no DCGM, or no node-remedy answered               the next step
    failed    a test failed, or the last of `job_attempts`                   the repair has failed (`remedies.check_failed`)

A refusal is no evidence about the hardware: the step waits, `held_by` names it, and an operator may close the incident. An attempt that ended is kept in
`attempted`, and its number names its decision, so that no result counts for a later attempt.
"""

from hbox_common.health.gatejob import GateJob, JobOutcome, deadline_of
from hbox_common.model import IncidentState, StepResult
from hbox_common.model.remedy import Outcome, Verb

from .courses import MAINTENANCE, NEW_NODE, Policies
from .happenings import JobObserved, Remedied, Remedy
from .memory import MOST_ATTEMPTS, MOST_DECISIONS, NodeMemory, Open, Step
from .work import NODE, Site, ended, hold, is_card, shown

DIAGNOSTICS, JOB = "diagnostics", "job"
#: What precedes a check with active steps, by `action_done`.
_AFTER = (Verb.RESET, Verb.REBOOT, MAINTENANCE, NEW_NODE)
#: Seconds in which node-remedy has to begin; a node without it has no diagnostics.
UNAVAILABLE_S = 300.0
#: Longest time of diagnostics that began: DCGM's longest level takes about two hours (`dcgmi diag -r 4`).
LONGEST_S = 4 * 3600.0
#: Seconds that a Job's result may be late, for Kubernetes to end and report it.
LATE_S = 120.0


def enabled(policies: Policies) -> bool:
    return Verb.DIAGNOSE in policies.verbs or bool(policies.job or policies.unread)


def planned(site: Site, incident: Open) -> list[str]:
    policies = site.work.policies
    if incident.action_done not in _AFTER:
        return []
    return [DIAGNOSTICS] * (Verb.DIAGNOSE in policies.verbs) + [JOB] * bool(policies.job)


def advance(site: Site, incident: Open, *, ready: bool) -> list[Step]:
    """Bring the steps up to date. `ready`: the facts are good, so that one may begin."""
    names = planned(site, incident)
    known = {step.name: step for step in incident.steps}
    incident.steps = [known.get(name) or Step(name) for name in names]
    if incident.remedy is not None and incident.remedy.verb is Verb.DIAGNOSE and not _runs(known.get(DIAGNOSTICS)):
        incident.remedy = None
    for step in incident.steps:
        if _runs(step):
            _watch(site, incident, step)
        if step.result is StepResult.WAITING and ready:
            _begin(site, incident, step)
        if step.result not in (StepResult.PASSED, StepResult.SKIPPED):
            break
    return incident.steps


def _runs(step: Step | None) -> bool:
    return step is not None and step.result is StepResult.RUNNING


def _begin(site: Site, incident: Open, step: Step) -> None:
    if site.now < step.retry_at:
        site.due.append(step.retry_at)
        return
    if step.text.startswith(_WAITS):
        step.text = ""
    if _in_use(site, incident):
        step.text = f"{_WAITS} pods that use the hardware"
        return
    others = [other for other in site.node.open.values() if other is not incident]
    if any(other.remedy is not None for other in others) or any(_runs(one) for other in others for one in other.steps):
        step.text = f"{_WAITS} another step or remedy of the node"
        site.due.append(site.now + _LOOK_S)
        return
    incident.counts[step.name] = step.attempt = incident.counts.get(step.name, 0) + 1
    step.result, step.at, step.begun, step.text = StepResult.RUNNING, site.now, False, ""
    if step.name == JOB:
        step.deadline_s = deadline_of(site.work.policies.job, site.work.policies.job_deadline_s)
        step.cards = [card.removeprefix("gpu:") for card in _cards(site.node, incident)]
    else:
        remedy = Remedy(site.name, site.node.boot_id, incident.id, _target(site.node, incident), Verb.DIAGNOSE, step.attempt)
        incident.remedy, incident.asked_at, incident.begun = remedy, site.now, False
        site.node.decisions[remedy.decision] = ""
        if len(site.node.decisions) > MOST_DECISIONS:
            del site.node.decisions[next(iter(site.node.decisions))]
        site.work.out.append(remedy)
    _watch(site, incident, step)


_WAITS = "waits for"
_LOOK_S = 10.0


def _watch(site: Site, incident: Open, step: Step) -> None:
    """What time shows of a step that runs."""
    if step.name == DIAGNOSTICS:
        _watch_diagnostics(site, incident, step)
        return
    late = step.at + (step.deadline_s + LATE_S if step.begun else site.work.policies.answer_s)
    if site.now < late:
        site.due.append(late)
    elif step.begun:
        _job_failed(site, incident, step, f"no result within {step.deadline_s + LATE_S:.0f} s")
    else:
        hold(incident, "binder")


def _watch_diagnostics(site: Site, incident: Open, step: Step) -> None:
    late, silent_s = step.at + (LONGEST_S if step.begun else UNAVAILABLE_S), site.work.policies.silent_s
    if site.now < late:
        site.due += [step.at + site.work.policies.answer_s, late]
    elif step.begun:
        incident.remedy = None
        _wait(site, step, f"node-remedy reported no end within {LONGEST_S / 3600:.0f} h")
    elif site.node.agent_seen is not None and site.now - site.node.agent_seen > silent_s:
        site.due.append(site.now + _LOOK_S)  # no program of the node reports: whether node-remedy runs is unknown
    else:
        incident.remedy = None
        _end(site, incident, step, StepResult.SKIPPED, "node-remedy did not begin")
        return
    if site.now >= step.at + (LONGEST_S if step.begun else site.work.policies.answer_s):
        hold(incident, "node-remedy")


def _in_use(site: Site, incident: Open) -> bool:
    """Whether a pod uses what is checked, or that is unknown."""
    node = site.node
    if not is_card(incident.entity):
        return bool(node.pods) or node.known is not None
    card = node.parents.get(incident.entity, incident.entity)
    parts = {card, *(part for part, parent in node.parents.items() if parent == card)}
    used = any(not parts.isdisjoint(pod.cards) for pod in node.pods)
    return used or (node.known is not None and card not in node.known)


def _target(node: NodeMemory, incident: Open) -> str:
    return node.parents.get(incident.entity, incident.entity) if is_card(incident.entity) else NODE


def _cards(node: NodeMemory, incident: Open) -> list[str]:
    """Entities of the cards that a step is about: the card, or all of the node without those of other incidents."""
    target = _target(node, incident)
    if target != NODE:
        return [target]
    others = {card for one in node.open.values() if one is not incident for card in (one.entity, *one.cards)}
    return [card for card in node.cards if card not in node.parents and card not in others]


def gate_jobs(node: NodeMemory | None, manifest: str) -> tuple[GateJob, ...]:
    """Jobs that have to run on the node now."""
    return tuple(
        GateJob(incident.id, step.attempt, _target(node, incident), tuple(step.cards), manifest, step.deadline_s)
        for incident in (node.open.values() if node is not None and manifest else ())
        for step in incident.steps
        if node is not None and incident.state is IncidentState.VALIDATING and step.name == JOB and _runs(step)
    )


def diagnosed(site: Site, incident: Open, event: Remedied) -> None:
    """A result of node-remedy for the decision that the incident waits for."""
    step = next((one for one in incident.steps if one.name == DIAGNOSTICS and _runs(one)), None)
    if event.outcome is not Outcome.BEGUN:
        incident.remedy = None
    if step is None:
        return
    step.begun = True
    match event.outcome:
        case Outcome.DONE:
            _end(site, incident, step, StepResult.PASSED, event.text)
        case Outcome.SKIPPED:
            _end(site, incident, step, StepResult.SKIPPED, event.text)
        case Outcome.FAILED:
            _end(site, incident, step, StepResult.FAILED, event.text)
        case Outcome.REFUSED:
            _wait(site, step, "; ".join(filter(None, (event.text, *event.holders))))


def job_observed(site: Site, event: JobObserved) -> None:
    for incident in site.node.open.values():
        for step in incident.steps:
            if step.name == JOB and _runs(step) and event.job == GateJob(incident.id, step.attempt, "", (), "", 0).id:
                _job_result(site, incident, step, event)


def _job_result(site: Site, incident: Open, step: Step, event: JobObserved) -> None:
    match event.outcome:
        case JobOutcome.STARTED:
            step.begun, step.at = True, site.now if not step.begun else step.at
        case JobOutcome.SUCCEEDED:
            _end(site, incident, step, StepResult.PASSED, event.text)
        case JobOutcome.FAILED:
            _job_failed(site, incident, step, event.text)
        case JobOutcome.REFUSED:
            _wait(site, step, event.text)


def _job_failed(site: Site, incident: Open, step: Step, text: str) -> None:
    step.tries += 1
    _end(site, incident, step, StepResult.FAILED, text)
    if step.tries < site.work.policies.job_attempts:
        step.result, step.text = StepResult.WAITING, f"attempt {step.attempt} failed: {text}"


def _end(site: Site, incident: Open, step: Step, result: StepResult, text: str) -> None:
    step.result, step.at, step.text = result, site.now, text
    incident.attempted = [*incident.attempted, shown(step)][-MOST_ATTEMPTS:]


def _wait(site: Site, step: Step, why: str) -> None:
    step.result, step.at, step.text = StepResult.WAITING, site.now, f"refused: {why}"
    step.retry_at = site.now + site.work.policies.retry_s


def restart(incident: Open) -> None:
    """The node booted: what ran on it has no result."""
    for step in incident.steps:
        if not ended(step):
            step.result, step.text = StepResult.WAITING, ""


def abandon(incident: Open) -> None:
    """The check ended otherwise: what runs is withdrawn."""
    incident.steps = []
    if incident.remedy is not None and incident.remedy.verb is Verb.DIAGNOSE:
        incident.remedy = None
