"""Volcano's vGPU: cards of NVIDIA that volcano-vgpu-device-plugin shares, under names of Volcano's own (sources: hami-volcano-vgpu, volcano-deviceshare).

The plugin is HAMi's, with another protocol: a register of records `uuid,shares,MiB,type,healthy,mode`; MIG only by geometry; amounts of memory in units of
`gpuMemoryFactor` MiB everywhere, on nodes and in allocations as in requests. Cards are selected by Volcano's rule: packed by memory, spread by pods, and
without a policy the highest index first. A node has cards of this kind, or NVIDIA's with HAMi's plugin, never the same cards as both.

A pod with `volcano.sh/vgpu-podgroup-policy: spread` avoids cards with another pod of its PodGroup, whether or not that one has the annotation (Volcano's
deviceshare, `deviceHasPodFromSameGroup`). So if a pod of a group has it, the slices of all pods of the group carry the group: their part is `group=TOKEN`, and
`spread=TOKEN` for pods with the annotation (`in_group`), in addition to the instance of MIG if there is one. So a card's bookings are sufficient: planning,
judging and rebuilding after a restart need no other data on groups.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from hbox_common.errors import InvalidRequest

from .asking import Ask, CardRequest, PodDevices
from .cards import MAX_MEMORY_MIB, Card, CardAllocation, CardSlice
from .cardvendor import Fitting
from .hami import REGISTER_BYTES, registered_cards
from .handshake import assignment
from .labels import DeviceLabel
from .layout import Layout, parts_of
from .nvidia import NvidiaVendor
from .offer import Offer
from .vendor import BINPACK, SPREAD, NodeReport

_FIELDS = 6

#: Of a node in allocation: the plugin releases it with each pod that it is done with. It takes for the pod in allocation the one with the oldest
#: `volcano.sh/vgpu-time`, in seconds, of those whose number of cards is asked for: two pods of one second are mistaken for each other without it. Volcano's own
#: scheduler takes it where `deviceshare.NodeLockEnable` is set.
LOCK = "hamivgpu"

KIND = "volcano-vgpu"

#: Of a pod: `spread`, or nothing that counts.
GROUP_POLICY = "volcano.sh/vgpu-podgroup-policy"

#: Among the wishes of a request, and no annotation: which group the pod is of (`in_group`).
_GROUP = "group"

#: Prefixes of parts: a pod's group on a card, and a group whose pods avoid each other.
_MEMBER, _ALONE = "group=", "spread="
_NO_WISHES: Mapping[str, str] = {}


def spreads(request: CardRequest | None) -> bool:
    """Whether a pod keeps off the cards that others of its group have."""
    return request is not None and request.devices is not None and (GROUP_POLICY, SPREAD) in request.devices.wishes


def in_group(request: CardRequest | None, group: str, models_annotation: str) -> CardRequest | None:
    """The request of a pod of a group in which some pod `spreads`, recorded with each slice. `group`: `namespace/name`."""
    if request is None:
        return None
    devices = request.devices
    if devices is None:
        ask = Ask(KIND, request.count, request.cores, request.memory_mib, request.memory_percent, container=request.container)
        wishes = ((models_annotation, ",".join(request.models)),) if request.models else ()
        devices = PodDevices((ask,), containers=request.containers, wishes=wishes)
    elif all(ask.kind != KIND for ask in devices.asks):
        return request
    token = sha256(group.encode()).hexdigest()[:12]
    wished = tuple(sorted({**devices.wished, _GROUP: token}.items()))
    return replace(request, devices=replace(devices, wishes=wished))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VolcanoVendor(NvidiaVendor):
    def register(self, node: NodeReport) -> tuple[Card, ...]:
        """Only cards that the plugin registered: without a register no card is known."""
        text = node.annotations.get(self.register_annotation)
        if text is None:
            return ()
        try:
            cards = registered_cards(_as_hami(text), self.type_prefix)
        except InvalidRequest as e:
            raise InvalidRequest(f"annotation {self.register_annotation}: {e.message}") from e
        unit = self.memory_unit_mib
        cards = tuple(replace(card, memory_mib=min(card.memory_mib * unit, MAX_MEMORY_MIB)) for card in cards)
        return tuple(self._divided(card) for card in cards)

    def has_type(self, offer: Offer, card: Card) -> bool:
        """The mode is the card's own word, and no other."""
        mode = offer.wishes.get(self.mode_annotation, "")
        return NvidiaVendor.has_type(self, offer, card) and mode in ("", card.effective_traits.mode)

    def judge(self, offer: Offer, card: Card, ask: Ask) -> CardSlice | DeviceLabel:
        held, mark = offer.of(card), _mark(offer.wishes)
        others = offer.others.get(card.index)
        if others is not None and mark.startswith(_ALONE) and any(_of_group(part, mark) for part in others.parts):
            return DeviceLabel.CUSTOM
        if held.parts:
            offer = replace(offer, used={**offer.used, card.index: _without_groups(held)})
        found = NvidiaVendor.judge(self, offer, card, ask)
        return found if isinstance(found, DeviceLabel) or not mark else _marked(found, mark)

    def admits(self, card: Card, held: CardAllocation, taken: CardSlice) -> bool:
        """As NVIDIA's; and none that keeps off the others of its group on a card where one of these is."""
        alone = {part for part in parts_of(taken.part) if part.startswith(_ALONE)}
        if any(_of_group(part, mark) for mark in alone for part in held.parts):
            return False
        return NvidiaVendor.admits(self, card, _without_groups(held), replace(taken, part=_own(taken.part)))

    def device_id(self, card: Card, taken: CardSlice) -> str:
        return NvidiaVendor.device_id(self, card, replace(taken, part=_own(taken.part)))

    def rebuild(
        self, allocated: str, cards: Sequence[Card], asks: Sequence[Ask], wishes: Mapping[str, str] = _NO_WISHES
    ) -> Layout:
        layout, mark = NvidiaVendor.rebuild(self, allocated, cards, asks, wishes), _mark(wishes)
        return tuple(tuple(_marked(s, mark) for s in one) for one in layout) if mark else layout

    def divides(self, offer: Offer) -> bool:  # noqa: ARG002
        """A container has one instance of a card at most."""
        return False

    def further(self, offer: Offer, card: Card, ask: Ask, first: CardSlice) -> tuple[Sequence[CardSlice], None]:  # noqa: ARG002
        return (), None

    def choose(self, offer: Offer, fitting: Sequence[Fitting], ask: Ask) -> Sequence[CardSlice]:
        policy = self.policy(offer)
        if policy.topology or policy.chained:
            return NvidiaVendor.choose(self, offer, fitting, ask)
        ordered = sorted(fitting, key=lambda each: self._key(offer, each[0]))
        return [taken for _, taken in ordered[: ask.count]]

    def annotate(self, layout: Layout, cards: Mapping[int, Card], *, node: str = "", now: float = 0.0) -> dict[str, str]:
        """Containers are divided by `;`, where HAMi closes them with it."""
        notes = NvidiaVendor.annotate(self, layout, cards, node=node, now=now)
        return {name: text.removesuffix(";") for name, text in notes.items()}

    def allocated(self, annotations: Mapping[str, str]) -> str:
        text = NvidiaVendor.allocated(self, annotations)
        return f"{text};" if text else ""

    def assignment(self, node: str, now: float) -> dict[str, str]:
        return {name.replace("hami.io/", "volcano.sh/"): text for name, text in assignment(node, now).items()}

    def usage_score(self, offer: Offer) -> float:  # noqa: ARG002
        """Volcano ranks nodes by the cards that are chosen, and by nothing else."""
        return 0.0

    def choice_score(self, offer: Offer, ask: Ask, chosen: Sequence[CardSlice]) -> float:  # noqa: ARG002
        """Of each card under binpack the share of its memory that is used then, in percent; under spread 100 for an idle one."""
        cards = {card.index: card for card in offer.cards}
        order = self.policy(offer).orders[:1]
        if order == (BINPACK,):
            return sum(
                100.0 * (offer.of(cards[s.index]).memory_mib + s.memory_mib) / max(cards[s.index].memory_mib, 1) for s in chosen
            )
        return 100.0 * sum(not offer.of(cards[s.index]).pods for s in chosen) if order == (SPREAD,) else 0.0

    def _key(self, offer: Offer, card: Card) -> tuple[int, int]:
        held, order = offer.of(card), self.policy(offer).orders[:1]
        if order == (BINPACK,):
            return -held.memory_mib, card.index
        return (held.pods, card.index) if order == (SPREAD,) else (0, -card.index)


def _mark(wishes: Mapping[str, str]) -> str:
    """The group marks of a pod's slices; empty: no pod of the group spreads."""
    token = wishes.get(_GROUP, "")
    return f"{_ALONE if wishes.get(GROUP_POLICY) == SPREAD else _MEMBER}{token}" if token else ""


def _marked(taken: CardSlice, mark: str) -> CardSlice:
    return replace(taken, part=f"{taken.part}+{mark}" if taken.part else mark)


def _of_group(part: str, mark: str) -> bool:
    """Whether a slice with this part is of a pod of the group that the mark names."""
    token = mark.partition("=")[2]
    return any(one in (_MEMBER + token, _ALONE + token) for one in parts_of(part))


def _own(part: str) -> str:
    """The part without group marks: the instances of MIG."""
    return "+".join(one for one in parts_of(part) if not one.startswith((_MEMBER, _ALONE)))


def _without_groups(held: CardAllocation) -> CardAllocation:
    parts = tuple(own for part in held.parts if (own := _own(part)))
    return held if parts == held.parts else CardAllocation(held.cores, held.memory_mib, held.pods, parts)


def _as_hami(text: str) -> str:
    """The register in HAMi's form: with index and mode, compute and NUMA node unknown."""
    if len(text) > REGISTER_BYTES:
        raise InvalidRequest(f"{len(text)} characters, at most {REGISTER_BYTES} are read")
    records = []
    for position, record in enumerate(part for part in text.split(":") if part.strip()):
        fields = [field.strip() for field in record.split(",")]
        if len(fields) != _FIELDS:
            raise InvalidRequest(f"card {position}: {len(fields)} fields, {_FIELDS} are expected")
        uuid, shares, memory, model, healthy, mode = fields
        records.append(f"{uuid},{shares},{memory},100,{model},-1,{healthy},{position},{mode}")
    return ":".join(records)


VOLCANO = VolcanoVendor(
    name="volcano",
    kind=KIND,
    cards="volcano.sh/vgpu-number",
    cores="volcano.sh/vgpu-cores",
    memory="volcano.sh/vgpu-memory",
    memory_percent="volcano.sh/vgpu-memory-percentage",
    register_annotation="volcano.sh/node-vgpu-register",
    type_prefix="NVIDIA-",
    models_annotation="nvidia.com/use-gputype",
    nouse_type="nvidia.com/nouse-gputype",
    use_uuid="volcano.sh/vgpu-use-gpuuuid",
    nouse_uuid="volcano.sh/vgpu-nouse-gpuuuid",
    mode_annotation="volcano.sh/vgpu-mode",
    wishes=(
        "nvidia.com/nouse-gputype",
        "volcano.sh/vgpu-use-gpuuuid",
        "volcano.sh/vgpu-nouse-gpuuuid",
        "volcano.sh/vgpu-mode",
        GROUP_POLICY,
    ),
    allocated_annotation="volcano.sh/vgpu-ids-new",
    to_allocate_annotation="volcano.sh/devices-to-allocate",
    without_init=True,
    node_lock=LOCK,
)
