"""Reasons over time: debounce, end, recurrence, and what time alone shows."""

from hbox_common.model import IncidentState

from . import gate
from .courses import Isolation, course_of
from .finding import Action, Blame, Finding, Scope, Severity
from .happenings import Found
from .intake import replace_source, take
from .memory import Open
from .validation import check
from .work import NODE, NODE_FAULT, Site, code_of, key_of

_SILENT = Finding(
    NODE,
    "agent-silent",
    "",
    Severity.UNKNOWN,
    Blame.UNKNOWN,
    Scope.NONE,
    Action.REPORT,
    "hbox-requirements",
    "the node's agent does not report",
)


def advance(site: Site, incident: Open) -> bool:
    """Bring the incident's state up to date with its reasons; False: it is closed."""
    for code, reason in list(incident.reasons.items()):
        if not reason.confirmed and reason.ended is None and not reason.cured:
            reason.confirmed = site.now >= reason.since + reason.wait_s
            if not reason.confirmed:
                site.due.append(reason.since + reason.wait_s)
        if reason.ended is not None and not reason.cured:
            clean = site.work.policies.clean_s(reason.finding) if reason.confirmed else 0.0
            if site.now - reason.ended >= clean:
                del incident.reasons[code]
            else:
                site.due.append(reason.ended + clean)
        elif (
            not reason.state
            and course_of(reason.finding).isolation is Isolation.NONE
            and course_of(reason.finding).verb is None
        ):
            if site.now - reason.last >= site.work.policies.expire_s:
                del incident.reasons[code]
            else:
                site.due.append(reason.last + site.work.policies.expire_s)
    if incident.state is IncidentState.VALIDATING:
        if any(not reason.cured and reason.confirmed for reason in incident.reasons.values()):
            incident.state, incident.evicted, incident.notified = IncidentState.CONFIRMED, {}, []
            gate.abandon(incident)
        elif not site.work.policies.validator:
            check(site, incident)
    if not incident.reasons and not incident.ticket:
        site.work.close(site.name, incident, "its reasons have ended")
        return False
    if incident.state is IncidentState.SUSPECT and any(reason.confirmed for reason in incident.reasons.values()):
        incident.state = IncidentState.CONFIRMED
    fold(site, incident)
    return True


def fold(site: Site, incident: Open) -> None:
    """Let the incident of a group cover this one, or part again."""
    groups = (site.work.memory.groups.get(reason.group) for reason in incident.reasons.values() if reason.group)
    cover = next((group.incident for group in groups if group is not None and group.incident is not None), None)
    if cover is not None and not incident.part_of:
        if incident.published is not None:
            site.work.close(site.name, incident, f"part of {cover.id}")
        incident.part_of = cover.id
    elif cover is None and incident.part_of:
        again = site.work.open(site.name, site.node, incident.entity, incident.kind)
        incident.id, incident.part_of, incident.published, incident.opened = again.id, "", None, site.now


def silence(site: Site) -> None:
    """Find that the agent is silent. `Incidents` has the node reviewed at that time."""
    if site.node.agent_seen is None:
        return
    if site.now < site.node.agent_seen + site.work.policies.silent_s:
        return
    rebooting = any(i.kind == NODE_FAULT and i.state is IncidentState.REPAIRING for i in site.node.open.values())
    if not rebooting and key_of(NODE, "agent-silent") not in site.node.open:
        take(
            site,
            Found(
                site.name,
                "",
                (_SILENT,),
                "agent",
                wait_s=site.work.policies.wait(_SILENT) - site.work.policies.silent_s,
                group="control-plane",
                read_at=site.node.agent_seen,
            ),
            _SILENT,
        )


def flaps(site: Site) -> None:
    for entity, times in list(site.node.flaps.items()):
        recent = [at for at in times if site.now - at < site.work.policies.flap_window_s]
        if recent:
            site.node.flaps[entity] = recent
        else:
            del site.node.flaps[entity]
        if len(recent) >= site.work.policies.flaps and recent[-1] == site.now:
            why = f"{len(recent)} times down for {site.work.policies.flap_down_s:.0f} s or more in {site.work.policies.flap_window_s / 3600:.0f} h"
            flap = Finding(
                entity, "port", "flap", Severity.DEGRADED, Blame.HARDWARE, Scope.RAIL, Action.ISOLATE_RAIL, "gpud", why
            )
            take(site, Found(site.name, "", (flap,)), flap)
            rail = site.node.open.get(key_of(entity, "rail"))
            if rail is not None and code_of(flap) in rail.reasons:
                rail.reasons[code_of(flap)].ended, rail.reasons[code_of(flap)].confirmed = site.now, True


def refused(site: Site) -> None:
    """Cards that the device plugin keeps out of use although no incident of ours does: it may not have noticed their return."""
    ours = {
        card
        for incident in site.node.open.values()
        if incident.kind != "register"
        for card in (incident.entity, *incident.cards)
    }
    findings = []
    for card in site.node.refused:
        if card not in ours:
            again = card in site.node.closed_cards
            action = Action.RESTART_DEVICE_PLUGIN if again else Action.REPORT
            why = "the device plugin does not hand the card out" + (", although it was repaired and checked" if again else "")
            findings.append(
                Finding(
                    card,
                    "register",
                    "refused",
                    Severity.MISCONFIGURED,
                    Blame.SOFTWARE,
                    Scope.GPU,
                    action,
                    "hbox-requirements",
                    why,
                )
            )
    known = [incident for incident in site.node.open.values() if incident.kind == "register"]
    if findings or known:
        event = Found(site.name, "", tuple(findings), "register")
        replace_source(site, event)
        for finding in findings:
            take(site, event, finding)


def release_held(site: Site) -> None:
    """Judge states again that were kept back, when what kept them back has ended."""
    site.node.resetting = {card: until for card, until in site.node.resetting.items() if until > site.now}
    site.node.mutes = {key: until for key, until in site.node.mutes.items() if until > site.now}
    site.due += [*site.node.resetting.values(), *site.node.mutes.values(), site.node.maintenance_until]
    held, site.node.held = site.node.held, {}
    for kept in held.values():
        for finding in kept.findings:
            take(site, kept, finding)
