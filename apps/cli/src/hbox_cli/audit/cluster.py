"""What the audit reads off Kubernetes' own objects."""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.kube import BIND_COMPLETED
from hbox_common.model import (
    SCHEDULER_NAME,
    CardId,
    CardRequest,
    CardSlice,
    Resources,
    capacity_units,
    parse_slices,
    request_units,
)
from hbox_common.model import annotations as names
from hbox_common.model.devices import VENDORS, NodeReport, card_id, number_in
from hbox_common.model.devices.hami import HamiVendor


@dataclass(frozen=True, slots=True)
class AuditCard:
    memory_mib: int  #: 0 = not known
    shares: int
    model: str
    index: int = -1  #: for display
    named: bool = True  #: whether the Node object has its UUID; else only the kubelet reports it


@dataclass(frozen=True, slots=True)
class AuditNode:
    name: str
    allocatable: Resources
    cards: Mapping[CardId, AuditCard]

    def card(self, id_: CardId) -> AuditCard | None:
        """The card with that id. If the Node object has no UUIDs, any of its cards: they are equal."""
        return self.cards.get(self.canonical(id_)) or next((card for card in self.cards.values() if not card.named), None)

    def canonical(self, id_: CardId) -> CardId:
        """The id of the card; `id_` is an index if an older program wrote it."""
        number = number_in(id_)
        return id_ if number is None else next((own for own, card in self.cards.items() if card.index == number), id_)


@dataclass(frozen=True, slots=True)
class AuditPod:
    uid: str
    name: str  #: namespace/name
    node: str
    holds: bool  #: whether it holds its node's resources: neither succeeded nor failed
    ours: bool
    gang: str  #: namespace/name of its PodGroup
    claim: str
    requests: Resources  #: without those asked per card
    cards: int
    cores: int  #: percent of each card; 100 for whole ones
    memory_mib: int  #: of each card; 0: see `memory_percent`
    memory_percent: int
    models: tuple[str, ...]
    slices: tuple[CardSlice, ...] | None  #: None: the annotation cannot be read
    ports: frozenset[tuple[str, int, str]] = frozenset()  #: of its node: protocol, port, address (empty = all)
    by_containers: bool = (
        False  #: several of its containers ask for cards, or an init container does: amounts of each are not looked at
    )
    least_mib: int = 0  #: MiB that those containers name which run together
    given: frozenset[CardId] = frozenset()  #: cards in the annotation of HAMi's device plugin
    volume_claims: tuple[str, ...] = ()  #: its PersistentVolumeClaims, as namespace/name


@dataclass(frozen=True, slots=True)
class AuditGang:
    name: str  #: namespace/name
    min_member: int
    ran: bool = False  #: its PodGroup reports a complete start, and members have had nodes since then


def read_node(raw: Mapping[str, Any]) -> AuditNode:
    meta = raw["metadata"]
    status = raw.get("status") or {}
    allocatable = {name: capacity_units(name, amount) for name, amount in (status.get("allocatable") or {}).items()}
    return AuditNode(meta["name"], allocatable, _cards(meta, allocatable))


def _cards(meta: Mapping[str, Any], allocatable: Resources) -> dict[CardId, AuditCard]:
    """The cards of a node. `shares` is 0 for a card that no plugin registered: the number of pods that may share it is unknown."""
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    cards = VENDORS.cards_of(NodeReport(meta["name"], allocatable, labels, notes), lambda _: None)
    registered = {card.uuid for card in VENDORS.cards_of(NodeReport(meta["name"], {}, labels, notes), lambda _: None)}
    return {
        card.id: AuditCard(
            card.memory_mib,
            card.shares if card.uuid in registered else 0,
            card.model,
            card.index,
            named=card.uuid in registered,
        )
        for card in cards
    }


#: Phases of a PodGroup that only one reaches whose members had nodes, as many as it needs, all at once; with the last of these it leaves them.
_STARTED = ("Running", "Unknown")


def read_gang(raw: Mapping[str, Any]) -> AuditGang:
    meta = raw["metadata"]
    phase = (raw.get("status") or {}).get("phase")
    least = int((raw.get("spec") or {}).get("minMember") or 1)
    return AuditGang(f"{meta['namespace']}/{meta['name']}", least, ran=phase in _STARTED)


def read_pod(raw: Mapping[str, Any], schedulers: Container[str] = (SCHEDULER_NAME,)) -> AuditPod:
    """`schedulers`: the names that make a pod ours."""
    meta, spec = raw["metadata"], raw["spec"]
    notes = meta.get("annotations") or {}
    asked = _requests(spec)
    vendor = VENDORS.of(asked)
    request: CardRequest | None = None
    if vendor is not None:
        with suppress(InvalidRequest):  # of a pod that is not ours: it holds its cards all the same
            request = vendor.request({name: asked[name] for name in (vendor.cards, *vendor.parts) if name in asked}, ())
    wanted = notes.get(vendor.models_annotation, "") if vendor is not None else ""
    try:
        slices: tuple[CardSlice, ...] | None = parse_slices(notes.get(names.CARDS, ""))
    except ValueError:
        slices = None
    group = notes.get(names.GROUP_NAME, "")
    return AuditPod(
        uid=meta["uid"],
        name=f"{meta['namespace']}/{meta['name']}",
        node=spec.get("nodeName") or "",
        holds=(raw.get("status") or {}).get("phase") not in ("Succeeded", "Failed"),
        ours=spec.get("schedulerName") in schedulers,
        gang=f"{meta['namespace']}/{group}" if group else "",
        claim=notes.get(names.CLAIM, ""),
        requests={name: units for name, units in asked.items() if name not in VENDORS.no_amounts} | {"pods": 1},
        cards=_implied(spec, notes) or VENDORS.asked(asked),
        cores=request.cores if request is not None else 0,
        memory_mib=request.memory_mib if request is not None else 0,
        memory_percent=request.memory_percent if request is not None else 0,
        models=tuple(part for part in wanted.split(",") if part),
        slices=slices,
        ports=frozenset(_ports(spec)),
        by_containers=_by_containers(spec),
        least_mib=_least_mib(spec),
        given=frozenset(_given(notes)),
        volume_claims=tuple(f"{meta['namespace']}/{name}" for name in _volume_claims(meta["name"], spec)),
    )


def _volume_claims(pod: str, spec: Mapping[str, Any]) -> Iterator[str]:
    """The names of the claims, also of those that are created for the pod (ephemeral volumes)."""
    for volume in spec.get("volumes") or ():
        if source := volume.get("persistentVolumeClaim"):
            yield source["claimName"]
        elif volume.get("ephemeral"):
            yield f"{pod}-{volume['name']}"


def is_bound(raw: Mapping[str, Any]) -> bool:
    """Whether a PersistentVolumeClaim has its volume."""
    return bool((raw.get("spec") or {}).get("volumeName")) and BIND_COMPLETED in (raw["metadata"].get("annotations") or {})


def _given(notes: Mapping[str, str]) -> Iterator[CardId]:
    """Cards in the annotations of all vendors whose plugins read HAMi's format: `UUID,kind,MiB,cores:` for a card, `;` ends a container."""
    for vendor in VENDORS:
        if isinstance(vendor, HamiVendor) and vendor.allocated_annotation in notes:
            for record in re.split("[:;]", notes[vendor.allocated_annotation]):
                uuid, comma, _ = record.partition(",")
                if comma:
                    yield card_id(uuid.strip().partition("[")[0])


def _by_containers(spec: Mapping[str, Any]) -> bool:
    asking = [VENDORS.asked(_asked(container)) > 0 for container in spec.get("containers") or ()]
    init = [VENDORS.asked(_asked(container)) > 0 for container in spec.get("initContainers") or ()]
    return any(init) or sum(asking) > 1


def _least_mib(spec: Mapping[str, Any]) -> int:
    return sum(
        asked.get(vendor.memory, 0) * max(asked.get(vendor.cards, 0), 1)
        for asked in map(_asked, spec.get("containers") or ())
        for vendor in VENDORS
        if vendor.memory and vendor.cards in asked
    )


def _implied(spec: Mapping[str, Any], notes: Mapping[str, str]) -> int:
    """Cards of kinds whose pods may name something else: slices, cores, one die of two. 0 where a container names none of such."""
    found = 0
    for container in spec.get("containers") or ():
        resources = container.get("resources") or {}
        amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for vendor in VENDORS.whose(amounts):
            own = {name: amounts[name] for name in (vendor.cards, *vendor.parts) if name in amounts}
            with suppress(InvalidRequest):
                ask = vendor.ask(own, notes) if vendor.always_fits else None
                found += ask.count if ask is not None else 0
    return found


def _ports(spec: Mapping[str, Any]) -> Iterator[tuple[str, int, str]]:
    """Of containers, and of init containers that go on running."""
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    for container in [*(spec.get("containers") or ()), *sidecars]:
        for port in container.get("ports") or ():
            if number := port.get("hostPort"):
                address = port.get("hostIP") or ""
                yield port.get("protocol") or "TCP", int(number), "" if address == "0.0.0.0" else address


def _requests(spec: Mapping[str, Any]) -> Resources:
    """As Kubernetes counts a pod: the larger of its running containers and its most demanding start, and the overhead."""
    running = _sum(spec.get("containers") or ())
    started: Resources = {}
    peak: Resources = {}
    for container in spec.get("initContainers") or ():
        own = _asked(container)
        if container.get("restartPolicy") == "Always":
            started = _plus(started, own)
            peak = _most(peak, started)
        else:
            peak = _most(peak, _plus(started, own))
    total = _most(_plus(running, started), peak)
    return _plus(total, {name: request_units(name, amount) for name, amount in (spec.get("overhead") or {}).items()})


def _asked(container: Mapping[str, Any]) -> Resources:
    resources = container.get("resources") or {}
    both = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    try:
        return {name: request_units(name, amount) for name, amount in both.items()}
    except InvalidRequest:
        return {}


def _sum(containers: Sequence[Mapping[str, Any]]) -> Resources:
    total: Resources = {}
    for container in containers:
        total = _plus(total, _asked(container))
    return total


def _plus(a: Resources, b: Resources) -> Resources:
    return {name: a.get(name, 0) + b.get(name, 0) for name in a.keys() | b.keys()}


def _most(a: Resources, b: Resources) -> Resources:
    return {name: max(a.get(name, 0), b.get(name, 0)) for name in a.keys() | b.keys()}
