"""Cards, NVLinks and ports of a node as its agent counts them. A node that joins with fewer than its profile has takes no work until an operator accepts it."""

from hbox_common.health.report import NODE, Check, Fact
from hbox_common.model import IncidentState

from . import gate
from .courses import NEW_NODE, course_of
from .finding import Action, Blame, Finding, Scope, Severity
from .happenings import Found
from .intake import replace_source, take
from .inventory import COUNT_S, MOST_PARTS, accept_parts, is_port
from .memory import Counted, Expected, NodeMemory, Reason
from .work import Site, code_of, key_of

#: Sources of findings about a node that joins, and about cards that it has lost.
JOINS, CARDS = "joins", f"{Check.NVML}|{NODE}|cards"
REQUIREMENTS = "hbox-requirements"


def count(node: NodeMemory, fact: Fact, now: float) -> bool:
    """Note what the fact counts; True: the counts changed."""
    counted, value = node.counted, fact.value
    match fact.check, fact.code:
        case Check.NVML, "cards":
            listed = value.get("listed")
            if not isinstance(listed, tuple):  # an incomplete answer
                return False
            cards = [f"gpu:{uuid}" for uuid in listed]
            number = value.get("count")
            number = number if isinstance(number, int) else len(cards)
            changed = (cards, number) != (counted.cards, counted.count)
            counted.cards, counted.count, node.reads_cards = cards, number, True
        case Check.NVML, "card":
            model, active = str(value.get("model") or counted.model), value.get("nvlinks_active")
            links = active if isinstance(active, int) and value.get("mig") not in (True, "enabled") else None
            changed = model != counted.model or (fact.entity, links) not in counted.links.items()
            counted.model, counted.links[fact.entity] = model, links
        case Check.PORTS, _:
            changed = is_port(fact) and fact.entity not in counted.ports and len(counted.ports) < MOST_PARTS
            if changed:
                counted.ports.append(fact.entity)
        case _:
            return False
    counted.since = counted.since or now
    return changed


def joins(site: Site) -> None:
    """Accept a complete node, and close one that lacks something; a node of an unknown profile, or whose cards are not listed yet, is neither."""
    counted, expected = site.node.counted, site.node.expected
    if (
        site.node.accepted is not None
        or expected is None
        or not expected.cards
        or counted.cards is None
        or counted.since is None
    ):
        return
    _check_first(site)
    lacking = _lacking(counted, expected)
    if site.now < counted.since + COUNT_S:
        site.due.append(counted.since + COUNT_S)
        lacking = lacking if counted.count < expected.cards else []
    elif not lacking and set(counted.cards) <= counted.links.keys():
        site.node.accepted = counted.count
    why = (
        f"The node joins with {', '.join(lacking)}, profile {expected.profile}: it takes no work until an operator accepts it."
    )
    short = Finding(NODE, JOINS, "short", Severity.DEGRADED, Blame.UNKNOWN, Scope.NODE, Action.CORDON, REQUIREMENTS, why)
    if lacking or any(incident.kind == course_of(short).kind for incident in site.node.open.values()):
        event = Found(site.name, "", (short,) if lacking else (), JOINS)
        replace_source(site, event)
        for finding in event.findings:
            take(site, event, finding)


def _check_first(site: Site) -> None:
    """Close a node without pods until the active steps of its check have passed (`gate.py`). It is closed for no fault, so no limit of the breaker applies."""
    node = site.node
    if node.gated or not gate.enabled(site.work.policies) or node.pods or node.known is not None:
        return
    node.gated = True
    incident = node.open[key_of(NODE, NEW_NODE)] = site.work.open(site.name, node, NODE, NEW_NODE)
    why = "The node joins: it takes no work until its check has passed."
    joined = Finding(NODE, NEW_NODE, "", Severity.INFO, Blame.OPERATOR, Scope.NODE, Action.CORDON, REQUIREMENTS, why)
    incident.reasons = {code_of(joined): Reason(joined, site.now, site.now, 0.0, confirmed=True, cured=True)}
    incident.state, incident.validated_from, incident.action_done = IncidentState.VALIDATING, site.now, NEW_NODE


def accept(site: Site) -> None:
    """The node is complete as it is, by an operator's word."""
    site.node.accepted = site.node.counted.count
    accept_parts(site)
    for incident in site.node.open.values():
        if all(reason.source in (JOINS, CARDS) for reason in incident.reasons.values()):
            incident.ticket = ""
    for source in (JOINS, CARDS):
        replace_source(site, Found(site.name, "", (), source))


def _lacking(counted: Counted, expected: Expected) -> list[str]:
    links = min((links for links in counted.links.values() if links is not None), default=None)
    numbers = (
        ("cards", counted.count, expected.cards),
        ("NVLinks of a card", links, expected.links),
        ("ports", len(counted.ports) or None, expected.ports),
    )
    return [f"{there} of {wanted} {what}" for what, there, wanted in numbers if there is not None and wanted and there < wanted]
