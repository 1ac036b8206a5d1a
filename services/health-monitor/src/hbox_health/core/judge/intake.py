"""Findings become reasons of incidents, unless something explains them."""

from hbox_common.model import IncidentState

from .courses import course_of, lasts
from .finding import Action, Blame, Finding
from .happenings import Found
from .memory import JobFault, Reason
from .work import CARD, NODE, NODE_FAULT, Site, code_of, is_card, key_of, of_entity, repaired

MOST_FAULTS = 256


def replace_source(site: Site, event: Found) -> None:
    """End the reasons that the source does not report any more."""
    shown = {(finding.entity, finding.code) for finding in event.findings}
    site.node.held = {key: held for key, held in site.node.held.items() if held.source != event.source}
    for incident in site.node.open.values():
        for reason in incident.reasons.values():
            if reason.source == event.source and (reason.finding.entity, reason.finding.code) not in shown:
                end_reason(site, reason)


def end_reason(site: Site, reason: Reason) -> None:
    if reason.ended is not None:
        return
    reason.ended = site.now
    if reason.group and not _is_shown(site, reason.group):
        site.work.leave(reason.group, site.name)
    if (
        reason.finding.kind == "port"
        and reason.finding.code == "down"
        and site.now - reason.since >= site.work.policies.flap_down_s
    ):
        entity = reason.finding.entity
        flaps = [at for at in site.node.flaps.get(entity, ()) if site.now - at < site.work.policies.flap_window_s]
        site.node.flaps[entity] = [*flaps, site.now]


def _is_shown(site: Site, group: str) -> bool:
    """Whether another reason of the node belongs to the group."""
    return any(
        reason.group == group and reason.ended is None for one in site.node.open.values() for reason in one.reasons.values()
    )


def take(site: Site, event: Found, finding: Finding) -> None:
    if finding.action is Action.CLOSE_REASON:
        taken_back(site, finding.entity)
        return
    if finding.blame is Blame.USER:
        if finding.action is not Action.NONE:
            site.node.faults = [*site.node.faults, JobFault(site.now, finding, event.pid)][-MOST_FAULTS:]
        return
    if not lasts(finding):
        return
    course = course_of(finding)
    entity, cards = finding.entity, [finding.entity] if is_card(finding.entity) else []
    if course.kind == NODE_FAULT:
        entity = NODE
        absorbed = [incident for incident in site.node.open.values() if incident.kind == CARD and incident.entity in cards]
    else:
        absorbed = []
        fault = site.node.open.get(key_of(NODE, NODE_FAULT))
        if fault is not None and not set(cards).isdisjoint(fault.cards) and fault.state is not IncidentState.VALIDATING:
            if _outlasts(finding):
                fault.reasons.setdefault(code_of(finding), Reason(finding, site.now, site.now, 0.0, event.source))
            return  # the worse code decides
    key = key_of(entity, course.kind)
    if kept_back(site, finding, key):
        if not event.record:
            site.node.held[f"{key}|{code_of(finding)}"] = Found(
                event.node, event.boot_id, (finding,), event.source, group=event.group
            )
        return
    incident = site.node.open.get(key)
    if incident is None:
        incident = site.node.open[key] = site.work.open(site.name, site.node, entity, course.kind)
        incident.read_at = event.read_at
    for other in absorbed:
        incident.reasons |= {code: reason for code, reason in other.reasons.items() if _outlasts(reason.finding)}
        site.work.close(site.name, other, f"part of {incident.id}")
        site.node.timed.pop(other.id, None)
        del site.node.open[key_of(other.entity, other.kind)]
    incident.cards += [card for card in cards if card not in incident.cards]
    wait = site.work.policies.wait(finding) if event.wait_s is None else event.wait_s
    reason = incident.reasons.setdefault(code_of(finding), Reason(finding, site.now, site.now, wait, group=event.group))
    if reason.ended is not None or reason.cured:
        reason.since, reason.ended, reason.cured = site.now, None, False
    reason.finding, reason.last, reason.source, reason.state = finding, site.now, event.source, not event.record
    if event.group:
        site.work.join(event.group, site.name)


def _outlasts(finding: Finding) -> bool:
    """Whether a reboot leaves it as it is."""
    return not course_of(finding).cured_by_boot


def kept_back(site: Site, finding: Finding, key: str) -> bool:
    """Whether a maintenance, a reset of ours, or an operator's decision explains the finding for now."""
    if site.now < site.node.maintenance_until or site.now < site.node.mutes.get(f"{key}|{code_of(finding)}", 0.0):
        return True
    resetting = [card for card, until in site.node.resetting.items() if site.now < until]
    if not resetting:
        return False
    return finding.entity in resetting or site.node.parents.get(finding.entity) in resetting or finding.entity == NODE


def taken_back(site: Site, entity: str) -> None:
    """The card's recovery action is None again: it was reset."""
    for incident in of_entity(site.node, entity):
        for reason in incident.reasons.values():
            reason.cured = reason.cured or course_of(reason.finding).cured_by_boot
        if incident.kind == NODE_FAULT:
            continue  # other cards, and the reboot itself, are not answered by one card
        repaired(site, incident, "")
