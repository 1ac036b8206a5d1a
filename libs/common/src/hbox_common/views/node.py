"""The document of one node: its cards, and the pods that hold them by the ledger's claims and by the kubelet's report. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from hbox_common.model import (
    CardId,
    Claim,
    ContainerHolds,
    NodeDevices,
    NodeNuma,
    NodeNvml,
    NodeState,
    PciKind,
    Verdict,
    pool_of,
)
from hbox_common.model.cardadapters import addresses_of, nearest_by_address
from hbox_common.model.cardparts import parts_on
from hbox_common.model.devices import VENDORS, short_card
from hbox_common.model.devices.identity import made_up
from hbox_common.model.nodedevices import card_of
from hbox_common.model.nodenuma import bridges_between
from hbox_common.views.cards import allocation_of, card_items, free_percent, kind_of, link_items, named_claims
from hbox_common.views.firstreport import report_item

Item = dict[str, Any]

#: Seconds after which a report of node-agent is stale; it publishes one at least every ten minutes.
OLD_S = 1500.0


def node_item(
    node: NodeState,
    verdict: Verdict | None,
    claims: Iterable[Claim],
    reported: NodeDevices | None,
    *,
    numa: NodeNuma | None = None,
    now: float,
) -> Item:
    """The document of one node. `reported`, `numa`: None if no node-agent publishes for the node. `counts`: of cards without identity, the number that each pod
    holds."""
    own = named_claims(node, claims)
    given, held = _given(node, reported), allocation_of(own).cards
    owners = {
        item["indices"][0]: item["owners"]
        for item in card_items([node], {node.name: verdict} if verdict else {}, own)
        if item["known"]
    }
    cards = []
    counts: Counter[str] = Counter()
    for card in node.cards:
        holders = [(claim, piece) for claim in own for piece in claim.slices if piece.index == card.index]
        known = not made_up(node.name, card, node.registered)
        if not known:
            counts.update(f"{claim.namespace}/{claim.pod}" for claim, _ in holders)
        cards.append(
            {
                "index": card.index,
                "uuid": card.uuid if known else None,
                "parent": card.parent or None,
                "kind": kind_of(node, card),
                "model": card.model,
                "mode": card.effective_traits.mode,
                "memoryMib": card.memory_mib,
                "numa": card.numa if card.numa >= 0 else None,
                "healthy": card.healthy and not (verdict and verdict.marks_unhealthy(card)),
                "cordoned": card.effective_traits.cordoned,
                "freePercent": free_percent(card, held.get(card.id)) if known else None,
                "owners": owners.get(card.index, []),
                "books": sorted(f"{claim.namespace}/{claim.pod}" for claim, _ in holders) if known else [],
                "kubelet": sorted(given.get(card.index, ())),
            }
        )
    return {
        "name": node.name,
        "state": "NOT-READY" if not node.ready else "CORDONED" if node.unschedulable else "READY",
        "pool": pool_of(node.labels),
        "kubeletReport": report_item(node, now),
        "cards": cards,
        "parts": parts_item(node, own),
        "gone": gone_items(node, own),
        "counts": dict(sorted(counts.items())),
        "links": link_items(node),
        "identity": identity(node, reported, now=now),
        "containers": [_holds(one) for one in reported.holds] if reported is not None else [],
        "numa": None if numa is None else numa_item(node, reported, numa),
        "cpus": reported.cpus if reported is not None else "",
        "kubelet": None
        if reported is None
        else {"ageSeconds": round(max(0.0, now - reported.at), 1), "problem": reported.problem, "leftOut": reported.left_out},
    }


def parts_item(node: NodeState, claims: Iterable[Claim]) -> Item | None:
    """How many cards of the machine are in use where its resources count parts of cards, in all and by pod; None for whole cards."""
    parts = parts_on(node)
    if parts is None:
        return None
    held: dict[str, Fraction] = {}
    for claim in claims:
        if cards := parts.held(claim.requests):
            pod = f"{claim.namespace}/{claim.pod}"
            held[pod] = held.get(pod, Fraction(0)) + cards
    used = round(float(sum(held.values())), 2)
    return {"used": used, "total": parts.total, "pods": {pod: round(float(cards), 2) for pod, cards in sorted(held.items())}}


def gone_items(node: NodeState, claims: Iterable[Claim]) -> list[Item]:
    """Cards that the node no longer has: cards of claims, and cards of its earlier states."""
    holders: dict[CardId, set[str]] = {card.id: set() for card in node.lost}
    for claim in claims:
        for piece in claim.slices:
            if node.card(piece.card) is None:
                known = node.known_card(piece.card)
                holders.setdefault(piece.card if known is None else known.id, set()).add(f"{claim.namespace}/{claim.pod}")
    lost = {card.id: card for card in node.lost}
    return [
        {
            "name": short_card(id_),
            "index": lost[id_].index if id_ in lost else None,
            "model": lost[id_].model if id_ in lost else "",
            "books": sorted(own),
        }
        for id_, own in sorted(holders.items())
    ]


def numa_item(node: NodeState, reported: NodeDevices | None, numa: NodeNuma) -> Item:
    """How the machine is made, zone by zone."""
    zones = []
    for zone in numa.zones:
        here = [device for device in numa.devices if device.numa == zone.id]
        zones.append(
            {
                "name": str(zone.id),
                "cpus": zone.cpus,
                "memoryMib": zone.memory_mib,
                "distances": list(zone.distances),
                "cards": [card.index for card in node.cards if card.numa == zone.id],
                "adapters": [device.name for device in here if device.kind is PciKind.HCA],
                "pci": [device.address for device in here if device.address],
                "pods": sorted(_pods_on(reported, zone.id)),
            }
        )
    rules, between = numa.rules, bridges_between(numa.devices)
    policies = {
        "cpuManager": rules.cpu_manager or "none",
        "memoryManager": rules.memory_manager or "None",
        "topologyManager": rules.topology_manager or "none",
        "scope": rules.topology_scope or "container",
    } if rules is not None else None  # fmt: skip
    return {
        "sockets": numa.sockets,
        "threadsPerCore": numa.threads_per_core,
        "zones": zones,
        "kubelet": policies,
        "adapters": adapter_items(node, numa),
        "adaptersDown": [one.name for one in numa.devices if one.kind is PciKind.HCA and one.down],
        "bridges": [{"name": one.address, "acs": str(one.redirect)} for one in numa.bridges if one.address in between],
        "guest": numa.guest,
        "unplaced": [d.address or d.name for d in numa.devices if d.numa < 0],
        "problems": unread(numa, reported),
        "nvml": None if numa.nvml is None else nvml_item(numa.nvml),
    }


def unread(numa: NodeNuma, devices: NodeDevices | None) -> list[str]:
    """What cannot be read on the node, in words, each file once."""
    named = {problem.partition(":")[0] for problem in numa.problems}
    more = devices.problems if devices is not None else ()
    return [*numa.problems, *(problem for problem in more if problem.partition(":")[0] not in named)]


def adapter_items(node: NodeState, numa: NodeNuma) -> list[Item]:
    """The nearest RDMA adapters of each card of the machine, by its PCI address, and of cards whose adapters an annotation of the node names."""
    near, index_of = nearest_by_address(numa), {address: index for index, address in addresses_of(node, numa).items()}
    cards = {card.index: card for card in node.cards}
    found: list[Item] = []
    for device in (one for one in numa.devices if one.kind is PciKind.CARD):
        index = index_of.get(device.address)
        policies = cards[index].adapters if index is not None and index in cards else None
        counts = policies or near.get(device.address)
        found.append(
            {
                "name": device.address,
                "card": index,
                "path": None if counts is None else str(counts.path),
                "adapters": [] if counts is None else list(counts.names),
                "near": counts is not None and counts.near,
            }
        )
    placed = {item["card"] for item in found}
    found += [
        {
            "name": "",
            "card": card.index,
            "path": str(card.adapters.path),
            "adapters": list(card.adapters.names),
            "near": card.adapters.near,
        }
        for card in node.cards
        if card.index not in placed and card.adapters is not None
    ]
    return found


def nvml_item(nvml: NodeNvml) -> Item:
    """Cards as NVML reports them, in NVML's order."""
    cards = [
        {
            "name": str(card.index),
            "uuid": card.uuid,
            "address": card.address,
            "model": card.model,
            "memoryMib": card.memory_mib,
            "numa": card.numa if card.numa >= 0 else None,
            "mig": card.mig,
            "instances": [{"uuid": one.uuid, "profile": one.profile} for one in card.instances],
            "nvlinks": dict(card.links),
            "nvlinksDown": list(card.links_down),
            "clique": card.clique,
            "fabric": card.fabric,
            "ecc": card.ecc,
            "remapPending": card.remap_pending,
            "remapFailed": card.remap_failed,
            "lost": card.lost,
            "problems": list(card.problems),
        }
        for card in nvml.cards
    ]
    return {"driver": nvml.driver, "problem": nvml.problem, "cards": cards}


def _pods_on(reported: NodeDevices | None, zone: int) -> set[str]:
    """Who has something of its own there."""
    holds = reported.holds if reported is not None else ()
    found = set()
    for one in holds:
        places = [part.numa for part in one.devices] + [part.numa for part in one.memory]
        if any(zone in where for where in places):
            found.add(f"{one.namespace}/{one.pod}")
    return found


def identity(node: NodeState, reported: NodeDevices | None, *, now: float) -> str:
    """Who knows which cards a pod has, in words."""
    if not node.cards:
        return ""
    uuids = {card.uuid: card.index for card in node.cards}
    ids = (
        [id_ for part in reported.allocatable if part.resource in VENDORS.cards for id_ in part.ids]
        if reported is not None
        else []
    )
    if ids and all(card_of(id_, uuids) is not None for id_ in ids):
        if reported is not None and (reported.problem or now - reported.at > OLD_S):
            return "the kubelet chose; it no longer answers, and its last report is used"
        return "the kubelet chooses and reports the cards"
    if any(made_up(node.name, card, node.registered) for card in node.cards):
        return "the cards of each pod are unknown: the ledger has only their number"
    return "the device plugin uses the cards that HBox writes on the pod"


def _given(node: NodeState, reported: NodeDevices | None) -> Mapping[int, set[str]]:
    """Index of a card -> the pods that its kubelet gave it to."""
    uuids = {card.uuid: card.index for card in node.cards}
    found: dict[int, set[str]] = {}
    for one in reported.holds if reported is not None else ():
        for part in one.devices:
            for id_ in part.ids if part.resource in VENDORS.cards else ():
                index = card_of(id_, uuids)
                if index is not None:
                    found.setdefault(index, set()).add(f"{one.namespace}/{one.pod}")
    return found


def _holds(one: ContainerHolds) -> Item:
    return {
        "name": f"{one.namespace}/{one.pod}/{one.container}",
        "devices": [{"resource": part.resource, "ids": list(part.ids), "numa": list(part.numa)} for part in one.devices],
        "cpus": one.cpus,
        "memory": [{"kind": m.kind, "bytes": m.size_bytes, "numa": list(m.numa)} for m in one.memory],
    }
