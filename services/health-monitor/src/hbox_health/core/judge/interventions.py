"""What operators order: exemptions, maintenance of a node, the end of an incident.

A maintenance is an incident of its own, blamed on the operator: new work stays away, pods leave by their policies, and the node is checked at the end, all as
for a fault. No fault of the node opens an incident meanwhile. The breaker neither delays nor counts it, and no exemption covers it.
"""

from hbox_common.model import IncidentState
from hbox_common.model.healthorder import Exemption

from . import gate
from .courses import MAINTENANCE
from .finding import Action, Blame, Finding, Scope, Severity
from .memory import Reason
from .work import NODE, Site, Work, code_of, key_of, of_entity, repaired


def exempt(work: Work, exemption: Exemption) -> None:
    work.memory.exemptions = [e for e in work.memory.exemptions if e.until > work.now] + [exemption]
    _exemptions_changed(work)


def end_exemption(work: Work, id_: str) -> None:
    work.memory.exemptions = [e for e in work.memory.exemptions if e.id != id_]
    _exemptions_changed(work)


def _exemptions_changed(work: Work) -> None:
    work.changed.add("")
    work.dirty |= {name: None for name, node in work.memory.nodes.items() if node.open}


def maintain(site: Site, until: float, why: str) -> None:
    """Begin a maintenance, change its end, or end it: `until` that is not in the future."""
    node = site.node
    node.maintenance_until = max(until, site.now)
    if until <= site.now:
        return
    key = key_of(NODE, MAINTENANCE)
    incident = node.open.get(key)
    if incident is None:
        incident = node.open[key] = site.work.open(site.name, node, NODE, MAINTENANCE)
    finding = Finding(
        NODE, MAINTENANCE, "", Severity.INFO, Blame.OPERATOR, Scope.NODE, Action.CORDON, "operator", why or "maintenance"
    )
    incident.reasons = {code_of(finding): Reason(finding, site.now, site.now, 0.0, confirmed=True)}
    incident.ticket = ""
    if incident.state is IncidentState.VALIDATING:
        incident.evicted, incident.notified = {}, []
        gate.abandon(incident)
    if incident.state is not IncidentState.DRAINING:
        incident.state = IncidentState.CONFIRMED


def end_maintenance(site: Site) -> None:
    """Check the node once the time of its maintenance has come."""
    incident = site.node.open.get(key_of(NODE, MAINTENANCE))
    if incident is None or incident.state is IncidentState.VALIDATING or site.now < site.node.maintenance_until:
        return
    for reason in incident.reasons.values():
        reason.cured = True
    repaired(site, incident, MAINTENANCE)


def close(site: Site, entity: str, id_: str) -> None:
    """Close the node's incidents, or those of an entity or of an id. The operator answers for what is reported now: it opens nothing again until it ends or
    the mute does."""
    node = site.node
    for key, incident in list(node.open.items()):
        if (entity and incident not in of_entity(node, entity)) or (id_ and incident.id != id_):
            continue
        for code, reason in incident.reasons.items():
            if reason.state:
                node.mutes[f"{key}|{code}"] = site.now + site.work.policies.mute_s
        if incident.kind == MAINTENANCE:
            node.maintenance_until = site.now
        site.work.close(site.name, incident, "closed by an operator")
        del node.open[key]
