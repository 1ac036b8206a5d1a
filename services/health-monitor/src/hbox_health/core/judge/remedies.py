"""Who leaves, what is repaired and how a repair ends."""

from hbox_common.model import IncidentState
from hbox_common.model.remedy import Outcome, Verb

from . import gate
from .courses import DAY_S, MAINTENANCE, Course, Isolation, Leave, contained, course_of, decides
from .finding import Action, Blame, Finding, Scope, Severity
from .happenings import EvictGang, Found, PodOnCards, Policy, Remedied, Remedy, TellOwner, Validated
from .intake import take
from .isolation import demands, fm_hopeless
from .memory import MOST_DECISIONS, Open
from .work import CARD, NODE, Site, hold, of_entity, repaired

#: After a reset, errors of the card's former users still arrive.
RESET_GRACE_S = 30.0
#: A reset that does not end within this time explains nothing any more.
RESET_LASTS_S = 600.0


def act(site: Site, incident: Open, admitted: bool) -> None:
    asked = [(course, finding) for course, finding, muted in demands(site, incident) if not muted]
    disabled = incident.remedy is not None and incident.remedy.verb not in site.work.policies.verbs
    incident.withdrawn = not asked or disabled or site.now < site.node.maintenance_until
    if incident.part_of or (incident.state is not IncidentState.VALIDATING and all(c.leave is Leave.NONE for c, _ in asked)):
        incident.leaving, incident.leaving_jobs = [], []
    if incident.state in (IncidentState.SUSPECT, IncidentState.VALIDATING) or not asked or incident.part_of:
        worst = max((reason.finding for reason in incident.reasons.values()), key=decides, default=None)
        if worst is not None:
            incident.action = Action.VALIDATE if incident.state is IncidentState.VALIDATING else worst.action
        return
    course, finding = max(asked, key=lambda pair: decides(pair[1]))
    incident.action = Action.TICKET if incident.ticket else finding.action
    if course.verb is Verb.RESTART_FM:
        restart_fm(site, incident)
        return
    if course.verb in (Verb.LOAD_MODULE, Verb.ACS_OFF, Verb.RESTART_DEVICE_PLUGIN):
        limited(site, incident, course.verb)
        return
    if course.isolation in (Isolation.NODE, Isolation.MULTI_GPU) and not admitted and incident.kind != MAINTENANCE:
        return
    if incident.state is IncidentState.REPAIRING:
        _await(site, incident)
        return
    touched = affected(site, incident, course)
    _forget_left(site, incident)
    notify(site, incident, finding, touched)
    gone = leave(site, incident, course, touched)
    if course.verb not in (Verb.RESET, Verb.REBOOT):
        incident.state = IncidentState.CONFIRMED if gone else IncidentState.DRAINING
        return
    if contained(finding):
        incident.action = Action.RESET_WHEN_IDLE
    if not incident.ticket and offends(site, incident, course.verb):
        incident.ticket = f"needed a {course.verb} again within {site.work.policies.repeat_window_s / 86400:.0f} days"
        incident.action = Action.TICKET
    free = idle(site, incident, course.verb)
    incident.next_step = ""
    if not free or incident.ticket:
        draining = (course.leave is not Leave.NONE and not free) or bool(incident.evicted and not free)
        incident.state = IncidentState.DRAINING if draining and not incident.ticket else IncidentState.CONFIRMED
        return
    incident.state = IncidentState.DRAINING
    incident.action = Action(course.verb)
    if course.verb is Verb.REBOOT and site.work.policies.cordon and not site.node.unschedulable:
        hold(incident, "cordon")  # a pod that is bound meanwhile would end with the node
        return
    entity = site.node.parents.get(incident.entity, incident.entity)
    if not request(site, incident, entity, course.verb) and course.verb not in site.work.policies.verbs:
        incident.state = IncidentState.CONFIRMED
        incident.next_step = f"no pod uses it: {course.verb} it by hand, since health-monitor's `remedies` has no {course.verb}"


def request(site: Site, incident: Open, entity: str, verb: Verb) -> bool:
    """Decide a remedy; False: something holds it back. A card has one remedy at a time, and a node that reboots no other."""
    if verb not in site.work.policies.verbs:
        hold(incident, "remedy")
        return False
    if incident.withdrawn:
        hold(incident, "maintenance")
        return False
    if site.now < incident.retry_at:
        site.due.append(incident.retry_at)
        return False
    running = [other.remedy for other in site.node.open.values() if other.remedy is not None]
    if any(Verb.REBOOT in (verb, other.verb) or other.entity == entity for other in running):
        hold(incident, "remedy")
        return False
    incident.held_by = [by for by in incident.held_by if by not in incident.holders]
    incident.state, incident.asked_at, incident.begun, incident.holders = IncidentState.REPAIRING, site.now, False, []
    incident.attempts += 1
    incident.remedy = Remedy(site.name, site.node.boot_id, incident.id, entity, verb, incident.attempts)
    site.node.decisions[incident.remedy.decision] = ""
    if len(site.node.decisions) > MOST_DECISIONS:
        del site.node.decisions[next(iter(site.node.decisions))]
    site.due.append(site.now + site.work.policies.answer_s)
    site.work.out.append(incident.remedy)
    return True


def _await(site: Site, incident: Open) -> None:
    if incident.remedy is None or incident.begun:
        return
    late = incident.asked_at + site.work.policies.answer_s
    if incident.withdrawn:
        hold(incident, "remedy")
    elif site.now >= late:
        hold(incident, "node-remedy")
    else:
        site.due.append(late)


def affected(site: Site, incident: Open, course: Course) -> list[PodOnCards]:
    match course.leave:
        case Leave.ALL:
            return site.node.pods
        case Leave.MULTI_GPU:
            return [pod for pod in site.node.pods if _has_several(pod, site.node.parents)]
        case Leave.MULTI_NODE:
            return [pod for pod in site.node.pods if pod.multi_node]
        case _:
            cards = {incident.entity, *incident.cards}
            return [pod for pod in site.node.pods if not cards.isdisjoint(pod.cards)]


def _has_several(pod: PodOnCards, parents: dict[str, str]) -> bool:
    """Whether the pod has more than one card; a MIG instance counts once, although its card is named too."""
    return len(set(pod.cards) - {parents.get(card) for card in pod.cards}) > 1


def notify(site: Site, incident: Open, finding: Finding, affected: list[PodOnCards]) -> None:
    for pod in affected:
        if pod.pod not in incident.notified:
            incident.notified.append(pod.pod)
            card = next((card for card in pod.cards if card in (incident.entity, *incident.cards)), incident.entity)
            text = f"{finding.kind} {finding.code} on {card} of {site.name}: {finding.why}"
            site.work.out.append(TellOwner(site.name, pod.pod, pod.job, card, finding.code, text, incident.id))


def leave(site: Site, incident: Open, course: Course, touched: list[PodOnCards]) -> bool:
    """Have gangs leave by their policies; True: no pod has to leave any more."""
    if course.leave is Leave.NONE:
        return True
    jobs: dict[str, tuple[Policy, float, list[str]]] = {}
    reboots = course.leave is Leave.NODE and Verb.REBOOT in site.work.policies.verbs
    leaving = site.node.pods if reboots else touched  # without a reboot the neighbours stay
    for pod in leaving:
        policy, notice = pod.policy, pod.deadline_s if pod.policy is Policy.CHECKPOINT else 0.0
        if pod not in touched:
            notice = max(notice, site.work.policies.neighbours_s)
        known = jobs.get(pod.job)
        jobs[pod.job] = (
            policy,
            notice if known is None else min(notice, known[1]),
            [*(known[2] if known else ()), *pod.cards],
        )
    for job, (policy, notice, cards) in jobs.items():
        if policy is Policy.IGNORE:
            continue
        if job not in incident.evicted and notice:
            incident.evicted[job] = site.now + notice
            site.work.out.append(EvictGang(site.name, job, tuple(sorted(set(cards))), policy, incident.id, site.now + notice))
        deadline = incident.evicted.get(job, site.now)
        if job in incident.evicted and deadline == 0.0:
            _leaves(incident, course, job, cards)
            continue
        if site.now < deadline:
            site.due.append(deadline)
        elif course.leave is Leave.ALL or _leaves_already(site, job) or site.work.memory.breaker.admits_eviction(site.now):
            incident.evicted[job] = 0.0
            _leaves(incident, course, job, cards)
            site.work.out.append(EvictGang(site.name, job, tuple(sorted(set(cards))), policy, incident.id))
        else:
            hold(incident, "breaker")
            room = site.work.memory.breaker.next_room(site.now)
            if room is not None:
                site.due.append(room)
    return not leaving


def _forget_left(site: Site, incident: Open) -> None:
    """Forget pods and jobs that are not on the node any more."""
    names, jobs = {pod.pod for pod in site.node.pods}, {pod.job for pod in site.node.pods}
    incident.notified = [name for name in incident.notified if name in names]
    incident.evicted = {job: at for job, at in incident.evicted.items() if job in jobs}


def _leaves_already(site: Site, job: str) -> bool:
    """Whether an incident of the node evicted the job: it leaves once, for however many reasons."""
    return any(one.evicted.get(job) == 0.0 for one in site.node.open.values())


def _leaves(incident: Open, course: Course, job: str, cards: list[str]) -> None:
    """Note which hardware the job leaves; also of its pods that arrived later."""
    if course.leave in (Leave.CARD, Leave.NODE, Leave.ALL):
        sick = {incident.entity, *incident.cards} & set(cards)
        incident.leaving = sorted({*incident.leaving, *(sick or cards)})
    else:
        incident.leaving = sorted({*incident.leaving, *cards})
        incident.leaving_jobs = sorted({*incident.leaving_jobs, job})


def idle(site: Site, incident: Open, verb: Verb) -> bool:
    """Whether no pod uses what the verb needs; a card whose users are unknown is in use."""
    if verb is Verb.REBOOT:
        return not site.node.pods and site.node.known is None
    card = site.node.parents.get(incident.entity, incident.entity)
    parts = {card, *(part for part, parent in site.node.parents.items() if parent == card)}
    return all(parts.isdisjoint(pod.cards) for pod in site.node.pods) and (site.node.known is None or card in site.node.known)


def offends(site: Site, incident: Open, verb: Verb) -> bool:
    since = site.now - site.work.policies.repeat_window_s
    site.node.repairs = [repair for repair in site.node.repairs if repair[0] > since]
    if verb is Verb.RESET:
        card = site.node.parents.get(incident.entity, incident.entity)
        return sum(done == Verb.RESET and of == card for _, done, of in site.node.repairs) >= site.work.policies.resets
    cards = incident.cards or [""]
    return any(
        sum(done == Verb.REBOOT and of == card for _, done, of in site.node.repairs) >= site.work.policies.reboots
        for card in cards
    )


def restart_fm(site: Site, incident: Open) -> None:
    if all(reason.ended is not None for reason in incident.reasons.values()):
        incident.state = IncidentState.VALIDATING if incident.attempts else IncidentState.CONFIRMED
        return
    times = [at for at, verb, _ in site.node.repairs if verb == Verb.RESTART_FM]
    last = max(times, default=float("-inf"))
    wait = site.work.policies.fm_answer_s
    if site.now - last < site.work.policies.fm_restart_every_s:
        site.due += [last + site.work.policies.fm_restart_every_s, last + wait]
        if fm_hopeless(site, incident):
            incident.failures += incident.failures == 0
            incident.state, incident.action = IncidentState.CONFIRMED, Action.MULTI_GPU_OFF
        return
    if request(site, incident, NODE, Verb.RESTART_FM):
        site.node.repairs.append((site.now, Verb.RESTART_FM, ""))
        site.due += [site.now + wait, site.now + site.work.policies.fm_restart_every_s]


def limited(site: Site, incident: Open, verb: Verb) -> None:
    """A remedy that disturbs no pod: at once, but only so often a day, and again only if the state was reported again since."""
    times = [at for at, done, of in site.node.repairs if done == verb and of == incident.entity and site.now - at < DAY_S]
    seen = max(reason.last for reason in incident.reasons.values())
    if times and seen <= times[-1]:
        return
    if len(times) >= site.work.policies.fixes_a_day:
        incident.state, incident.action = IncidentState.CONFIRMED, Action.REPORT
        return
    if request(site, incident, incident.entity, verb):
        site.node.repairs.append((site.now, verb, incident.entity))


def remedied(site: Site, event: Remedied) -> None:
    """A result counts once. One whose incident does not wait for it any more only counts among the repairs of its card."""
    requested = [
        incident
        for incident in site.node.open.values()
        if incident.remedy is not None
        and (
            incident.remedy.decision == event.decision
            if event.decision
            else (incident.remedy.verb, incident.remedy.entity) == (event.verb, event.entity)
        )
    ]
    if event.decision and not _is_new(site, event, known=bool(requested)):
        return
    if event.decision and not requested:
        if event.verb is Verb.RESET and event.outcome in (Outcome.DONE, Outcome.FAILED):
            site.node.repairs.append((site.now, Verb.RESET, event.entity))
        return
    if event.verb is Verb.DIAGNOSE:
        for incident in requested:
            gate.diagnosed(site, incident, event)
        return
    for incident in requested:
        incident.begun = True
        if event.outcome is not Outcome.BEGUN:
            incident.remedy = None
        if event.outcome is Outcome.DONE:
            incident.action_done = event.verb
        if event.verb is not Verb.RESET:
            _answered(site, incident, event)
    if event.verb is not Verb.RESET:
        return
    if event.outcome is Outcome.BEGUN:
        site.node.resetting[event.entity] = site.now + RESET_LASTS_S
    elif event.outcome is not Outcome.REFUSED:
        site.node.repairs.append((site.now, Verb.RESET, event.entity))
    for incident in [incident for incident in of_entity(site.node, event.entity) if incident.kind == CARD]:
        match event.outcome:
            case Outcome.BEGUN:
                incident.state = IncidentState.REPAIRING
            case Outcome.DONE:
                for reason in incident.reasons.values():
                    reason.cured = reason.cured or course_of(reason.finding).cured_by_boot
                repaired(site, incident, Verb.RESET)
            case Outcome.REFUSED:
                incident.holders = list(event.holders) or ["unknown"]
                incident.state, incident.retry_at = IncidentState.DRAINING, site.now + site.work.policies.retry_s
            case Outcome.FAILED:
                reset_failed(site, incident)
    if event.outcome is Outcome.DONE:
        site.node.resetting[event.entity] = site.now + RESET_GRACE_S
    elif event.outcome is not Outcome.BEGUN:
        site.node.resetting.pop(event.entity, None)


def _is_new(site: Site, event: Remedied, *, known: bool) -> bool:
    """Whether the result is of a decision of ours, and was not received before. `known`: an incident waits for it."""
    last = site.node.decisions.get(event.decision, "" if known else None)
    if last is None or last not in ("", Outcome.BEGUN) or last == event.outcome:
        return False
    site.node.decisions[event.decision] = event.outcome
    return True


def _answered(site: Site, incident: Open, event: Remedied) -> None:
    """Success shows in the node's states, or in its next boot."""
    if event.outcome in (Outcome.BEGUN, Outcome.DONE):
        return
    incident.state, incident.retry_at = IncidentState.CONFIRMED, site.now + site.work.policies.retry_s
    incident.holders = list(event.holders)
    incident.failures += event.outcome is Outcome.FAILED or event.verb is Verb.RESTART_FM
    if event.outcome is Outcome.REFUSED:  # nothing was changed: it does not count among the repairs
        refused = [(at, verb, of) for at, verb, of in site.node.repairs if (at, verb) == (incident.asked_at, event.verb)]
        for repair in refused[-1:]:
            site.node.repairs.remove(repair)
    if event.verb is Verb.REBOOT and incident.failures >= site.work.policies.failures:
        incident.ticket = f"the reboot failed {incident.failures} times"


def reset_failed(site: Site, incident: Open) -> None:
    incident.failures += 1
    incident.state = IncidentState.CONFIRMED
    for reason in incident.reasons.values():
        reason.cured = False
    if incident.failures >= site.work.policies.failures:
        why = f"the reset failed {incident.failures} times"
        card = site.node.parents.get(incident.entity, incident.entity)
        reboot = Finding(card, "reset", "failed", Severity.FATAL_GPU, Blame.HARDWARE, Scope.NODE, Action.REBOOT, "hbox", why)
        take(site, Found(site.name, site.node.boot_id, (reboot,)), reboot)


def validated(site: Site, event: Validated) -> None:
    for incident in list(site.node.open.values()) if event.entity == NODE else of_entity(site.node, event.entity):
        if incident.state is not IncidentState.VALIDATING:
            continue
        if event.passed:
            incident.reasons = {code: reason for code, reason in incident.reasons.items() if not reason.cured}
        else:
            check_failed(site, incident)


def check_failed(site: Site, incident: Open, why: str = "") -> None:
    if incident.kind == CARD:
        reset_failed(site, incident)
        return
    incident.state, incident.ticket = IncidentState.CONFIRMED, why or "it is not well after its repair"
    for reason in incident.reasons.values():
        reason.cured = False
