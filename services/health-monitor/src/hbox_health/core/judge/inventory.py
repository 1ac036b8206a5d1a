"""The cards, NVLinks and ports that a node had, over boots and restarts of all programs: what its agent has ever listed, until an operator accepts the node
with less, or the node's object is deleted. A new card replaces one that is not listed; which one of several is unknown, the first one is assumed.
"""

from hbox_common.health.report import NODE, Check, Fact

from .finding import Action, Blame, Finding, Scope, Severity
from .happenings import Found
from .intake import replace_source, take
from .memory import NodeMemory, Parts
from .work import Site

REQUIREMENTS = "hbox-requirements"
#: Ports are counted one by one, within one reading; NVLinks are trained within seconds of the driver's start.
COUNT_S = 20.0
RAIL = "rail:"
#: Cards and ports of one node that are remembered.
MOST_PARTS = 128


def learn(node: NodeMemory, fact: Fact) -> bool:
    """Note what the fact lists; True: something is new."""
    parts, value = node.parts, fact.value
    pci = value.get("pci")
    pci = pci if isinstance(pci, str) else ""
    match fact.check, fact.code:
        case Check.NVML, "cards":
            return _learn_cards(parts, fact)
        case Check.NVML, "card":
            uuid, active = fact.entity.removeprefix("gpu:"), value.get("nvlinks_active")
            if uuid not in parts.cards:
                return False
            links = active if isinstance(active, int) and value.get("mig") not in (True, "enabled") else 0
            known = parts.cards[uuid], parts.links.get(uuid, 0)
            parts.cards[uuid] = pci or known[0]
            parts.links[uuid] = max(links, known[1])
            return (parts.cards[uuid], parts.links[uuid]) != known
        case Check.PORTS, _:
            if value.get("missing") or fact.entity in parts.ports or not is_port(fact) or len(parts.ports) >= MOST_PARTS:
                return False
            parts.ports[fact.entity] = pci
            return True
    return False


def is_port(fact: Fact) -> bool:
    """Whether its entity is a port: an agent may state ports of anything, and a port that was stated once is missed later."""
    return fact.entity.startswith(RAIL) and fact.entity != RAIL


def _learn_cards(parts: Parts, fact: Fact) -> bool:
    listed, inventory = _uuids(fact, "listed"), _uuids(fact, "inventory")
    if listed is None:  # an incomplete answer
        return False
    before = dict(parts.cards), list(parts.removed)
    parts.removed = [uuid for uuid in parts.removed if uuid not in listed]
    present = [*listed, *(uuid for uuid in inventory or () if uuid not in parts.removed)]
    new = [uuid for uuid in dict.fromkeys(present) if uuid not in parts.cards]
    gone = [uuid for uuid in parts.cards if uuid not in present]
    for uuid in gone[: len(new)]:  # replaced
        del parts.cards[uuid]
        parts.links.pop(uuid, None)
    for uuid in new[: max(0, MOST_PARTS - len(parts.cards))]:
        parts.cards[uuid] = ""
    return (parts.cards, parts.removed) != before


def _uuids(fact: Fact, key: str) -> list[str] | None:
    found = fact.value.get(key)
    return [str(uuid) for uuid in found] if isinstance(found, tuple) else None


def lost_cards(fact: Fact, node: NodeMemory) -> list[Finding]:
    """Cards that NVML does not list any more: of this boot's inventory, of those that the node had, or of the number with which it was accepted."""
    parts, count = node.parts, fact.value.get("count")
    listed, inventory = _uuids(fact, "listed"), _uuids(fact, "inventory")
    known = dict.fromkeys([*(inventory or ()), *parts.cards])
    lost = [uuid for uuid in known if listed is not None and uuid not in listed and uuid not in parts.removed]
    accepted = fact.value.get("expected", node.accepted)
    if not lost and not (isinstance(accepted, int) and isinstance(count, int) and count < accepted):
        return []
    expected = max(len(parts.cards), accepted if isinstance(accepted, int) else 0)
    why = f"NVML lists {count} cards" + (f" of {expected}" if expected else "")
    if not lost:
        return [_lost(NODE, why)]
    places = {uuid: f" at {pci}" if (pci := parts.cards.get(uuid)) else "" for uuid in lost}
    return [_lost(f"gpu:{uuid}", f"{why}; missing: {uuid}{places[uuid]}") for uuid in lost]


def _lost(entity: str, why: str) -> Finding:
    return Finding(entity, "cards", "lost", Severity.FATAL_NODE, Blame.HARDWARE, Scope.NODE, Action.REBOOT, REQUIREMENTS, why)


def review_ports(site: Site) -> None:
    """Find the ports that the node had and that no report of this boot names. If none is named, ports are not read, or no adapter has a driver."""
    counted = site.node.counted
    if counted.since is None or not counted.ports:
        return
    missing = {name: pci for name, pci in site.node.parts.ports.items() if name not in counted.ports}
    if missing and site.now < counted.since + COUNT_S:
        site.due.append(counted.since + COUNT_S)
        return
    for entity, pci in missing.items():
        if any(
            reason.finding.entity == entity and reason.ended is None and not reason.cured
            for incident in site.node.open.values()
            for reason in incident.reasons.values()
        ):
            continue
        why = "the port is missing since the node booted" + (f" (PCI {pci})" if pci else "")
        finding = Finding(
            entity, "port", "down", Severity.DEGRADED, Blame.HARDWARE, Scope.RAIL, Action.ISOLATE_RAIL, REQUIREMENTS, why
        )
        take(site, Found(site.name, site.node.boot_id, (finding,), _source(entity)), finding)


def _source(port: str) -> str:
    """That of the port's own reports, which end it."""
    return f"{Check.PORTS}|{port}|port"


def accept_parts(site: Site) -> None:
    """What the agent counts now is what the node has."""
    parts, counted = site.node.parts, site.node.counted
    present = [card.removeprefix("gpu:") for card in counted.cards or ()]
    removed = [uuid for uuid in parts.cards if uuid not in present]
    for port in [port for port in parts.ports if port not in counted.ports]:
        replace_source(site, Found(site.name, "", (), _source(port)))
    site.node.parts = Parts(
        {uuid: parts.cards.get(uuid, "") for uuid in present},
        {uuid: counted.links.get(f"gpu:{uuid}") or 0 for uuid in present},
        {port: parts.ports.get(port, "") for port in counted.ports},
        [*parts.removed, *removed][-MOST_PARTS:],
    )
