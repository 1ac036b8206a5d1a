"""MetaX's GPUs: whole (`Metax-GPU`), and shared as sGPUs (`Metax-SGPU`) (sources: hami-metax).

Whole GPUs: MetaX's own plugin selects the cards, and publishes on each node, by number of cards, the loss of links and the quality of links.

sGPUs: a card in use has one quality-of-service policy, which its pods share. Pods of an app class share cards only with each other: `online` ones, which have
no guaranteed compute, and `offline` ones only on cards without online pods. A part contains both: `fixed-share`, `online`, `offline/best-effort`.

Whole sGPUs (vcore 100) come from one link zone if one has enough. HAMi's documentation of v2.7 makes better links a penalty under spread; its code reverses the
sign, so that the better node wins under both policies. HBox follows the code.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hbox_common.errors import InvalidRequest

from ..bounds import VALUE_BYTES, is_plain, sanitized
from ..resources import parse_quantity
from .asking import Ask
from .cards import ALL_CORES, MAX_MEMORY_MIB, Card, CardAllocation, CardSlice, CardTraits
from .cardvendor import CardVendor, Fitting
from .hami import REGISTER_BYTES, CountedVendor, HamiVendor, registered_cards
from .handshake import NODE_LOCK
from .labels import DeviceLabel
from .layout import Layout, parts_of
from .offer import Offer
from .policies import is_true
from .vendor import NODE_POLICY, SPREAD, Completion, NodeReport, Quantity, whole_number

LOSSES, SCORES = "metax-tech.com/gpu.topology.losses", "metax-tech.com/gpu.topology.scores"
QOS, APP_CLASS, TOPOLOGY = (
    "metax-tech.com/sgpu-qos-policy",
    "metax-tech.com/sgpu-app-class",
    "metax-tech.com/sgpu-topology-aware",
)
POLICIES = BEST_EFFORT, _FIXED, _BURST = "best-effort", "fixed-share", "burst-share"
CLASSES = ONLINE, OFFLINE = "online", "offline"

_USE_UUID, _NOUSE_UUID = "metax-tech.com/use-gpuuuid", "metax-tech.com/nouse-gpuuuid"
_REGISTER = "metax-tech.com/node-gpu-devices"
_NO_WISHES: Mapping[str, str] = {}

#: A node's score is reduced from this by the plugin's value.
_BASE = 2000.0

#: Two cards of one zone.
_PAIR = 10

#: Links and app classes count before how full a node is.
_WEIGHT = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MetaxGpu(CountedVendor):
    """All containers of a pod are on the same card, as in HAMi, so that only one of them can have whole ones."""

    def judge(self, offer: Offer, card: Card, ask: Ask) -> CardSlice | DeviceLabel:
        found = CountedVendor.judge(self, offer, card, ask)
        if isinstance(found, CardSlice) and any(mine.index != card.index for mine in offer.mine):
            return DeviceLabel.CUSTOM
        return found

    def choice_score(self, offer: Offer, ask: Ask, chosen: Sequence[CardSlice]) -> float:  # noqa: ARG002
        text = offer.facts.get(SCORES if offer.wishes.get(NODE_POLICY) == SPREAD else LOSSES)
        return 0.0 if text is None else _BASE - _value_of(text, len(chosen) + len(offer.mine))


def _value_of(text: str, count: int) -> float:
    """Value for this number of cards, from `{"1":100,"2":200}`; 0 if missing."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return 0.0
    value = found.get(str(count)) if isinstance(found, dict) else None
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_MEMORY_MIB else 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MetaxSgpu(HamiVendor):
    topology_aware: bool = False  #: whether link zones count for pods that do not say (`sgpuTopologyAware`)

    def register(self, node: NodeReport) -> tuple[Card, ...]:
        text = node.annotations.get(_REGISTER)
        if text is None:
            return ()
        try:
            return _read(text)
        except InvalidRequest as e:
            raise InvalidRequest(f"annotation {_REGISTER}: {e.message}") from e

    def ask(self, asked: Mapping[str, Quantity], wishes: Mapping[str, str] = _NO_WISHES) -> Ask | None:
        count, cores = whole_number(self.cards, asked), whole_number(self.cores, asked)
        memory = _mib(self.memory, asked)
        if not count and not cores and not memory:
            return None
        completed = () if count else (self.cards,)
        count = self.bounded(count or 1)
        cores = ALL_CORES if cores is None else cores
        if cores > ALL_CORES:
            raise InvalidRequest(f"{self.cores} is {cores}", hint="write the percentage of one card's compute, 0 to 100")
        app_class, qos = wishes.get(APP_CLASS, "").strip(), wishes.get(QOS, "").strip()
        if app_class and app_class not in CLASSES:
            raise InvalidRequest(
                f"annotation {APP_CLASS} is {sanitized(app_class, 64)!r}", hint=f"write {' or '.join(CLASSES)}"
            )
        if app_class and count > 1:
            raise InvalidRequest(f"{self.cards} is {count} of a pod with {APP_CLASS}", hint=f"write {self.cards}: 1")
        if app_class != ONLINE and qos and qos not in POLICIES:
            raise InvalidRequest(f"annotation {QOS} is {sanitized(qos, 64)!r}", hint=f"write one of {', '.join(POLICIES)}")
        percent = 0 if memory else ALL_CORES
        return Ask(self.kind, count, cores, memory, percent, part=_part(app_class, qos, cores), completed=completed)

    def complete(
        self, asked: Mapping[str, Quantity], wishes: Mapping[str, str] = _NO_WISHES, container: str = ""
    ) -> Completion:
        """The policy that counts where a pod names none: `online` ones have none."""
        found = HamiVendor.complete(self, asked, wishes, container)
        return found if wishes.get(APP_CLASS, "").strip() == ONLINE else replace(found, annotations=self.usual)

    def amounts_of(self, count: int, memory_mib: int = 0, cores: int = 0) -> Mapping[str, int]:
        return HamiVendor.amounts_of(self, count, memory_mib, cores or ALL_CORES)

    def judge(self, offer: Offer, card: Card, ask: Ask) -> CardSlice | DeviceLabel:
        """HAMi's order: the app class and the policy come before ids."""
        held, online = offer.of(card), ask.part == ONLINE
        if not card.healthy:
            return DeviceLabel.UNHEALTHY
        if not _class_fits(ask, held):
            return DeviceLabel.APP_CLASS
        if not online and not _qos_fits(card, ask, held):
            return DeviceLabel.QOS
        if not online:
            return CardVendor.judge(self, offer, card, ask)
        # Online pods are not promised compute, so it cannot be short.
        found = CardVendor.judge(
            self, replace(offer, used={**offer.used, card.index: _without_cores(held)}), card, replace(ask, cores=0)
        )
        return found if isinstance(found, DeviceLabel) else replace(found, cores=0)

    def choose(self, offer: Offer, fitting: Sequence[Fitting], ask: Ask) -> Sequence[CardSlice] | DeviceLabel:
        if ask.part == ONLINE:
            counts = {card.index: _classes(offer.of(card)) for card, _ in fitting}
            ordered = sorted(fitting, key=lambda each: _crowd(counts[each[0].index]))
            return [taken for _, taken in ordered[: ask.count]]
        if ask.cores >= ALL_CORES and not ask.part.startswith(OFFLINE):
            return _of_one_zone(fitting, ask.count)
        return CardVendor.choose(self, offer, fitting, ask)

    def choice_score(self, offer: Offer, ask: Ask, chosen: Sequence[CardSlice]) -> float:
        taken = {s.index for s in chosen}
        if ask.part == ONLINE:
            score = float(sum(_crowding(_classes(offer.of(card))) for card in offer.cards if card.index in taken))
        elif ask.cores >= ALL_CORES and self._by_zone(offer):
            score = float(zone_score(offer, taken))
        else:
            return 0.0
        return -_WEIGHT * score if offer.wishes.get(NODE_POLICY) == SPREAD else _WEIGHT * score

    def _by_zone(self, offer: Offer) -> bool:
        return is_true(offer.wishes.get(TOPOLOGY, ""), unsaid=self.topology_aware)

    def admits(self, card: Card, held: CardAllocation, taken: CardSlice) -> bool:
        """Pods with an app class share cards only with each other, and an offline pod joins no online one; pods that are not online share one policy."""
        asks = [Ask(self.kind, 1, taken.cores, taken.memory_mib, part=part) for part in parts_of(taken.part)]
        return all(_class_fits(ask, held) and (ask.part == ONLINE or _qos_fits(card, ask, held)) for ask in asks)

    def taken(self, card: Card, memory_mib: int, cores: int, ask: Ask | None, wishes: Mapping[str, str]) -> CardSlice:  # noqa: ARG002
        part = _part(wishes.get(APP_CLASS, "").strip(), wishes.get(QOS, "").strip(), cores)
        return CardSlice(card.index, min(cores, ALL_CORES), memory_mib, part)

    def registered(self, node: NodeReport) -> bool:
        return _REGISTER in node.annotations

    def annotate(self, layout: Layout, cards: Mapping[int, Card], *, node: str = "", now: float = 0.0) -> dict[str, str]:
        notes = HamiVendor.annotate(self, layout, cards, node=node, now=now)
        own = []
        for one in layout:
            records = [{"uuid": cards[s.index].uuid, "compute": s.cores, "vRam": s.memory_mib} for s in one]
            own.append([{name: value for name, value in each.items() if value} for each in records])
        policy = next(
            (p for one in layout for s in one for part in parts_of(s.part) if (p := part.rpartition("/")[2]) in POLICIES), ""
        )
        if policy:
            notes[QOS] = policy  # HAMi's webhook writes what a pod has that names none
        return notes | {
            "metax-tech.com/gpu-devices-allocated": json.dumps(own, separators=(",", ":")),
            "metax-tech.com/predicate-time": str(int(now * 1e9)),
        }


def zone_score(offer: Offer, taken: set[int]) -> int:
    """Ten times how well the taken cards are linked, less what the idle ones lose: 10 for each pair of one link zone."""
    idle = [card for card in offer.cards if not offer.of(card).pods]
    given = _links([card for card in offer.cards if card.index in taken])
    return 10 * given - (_links(idle) - given - _links([card for card in idle if card.index not in taken]))


def _links(cards: Sequence[Card]) -> int:
    zones = Counter(card.effective_traits.group for card in cards if card.effective_traits.group > 0)
    return _PAIR * sum(count * (count - 1) // 2 for count in zones.values())


def _of_one_zone(fitting: Sequence[Fitting], count: int) -> list[CardSlice]:
    """From the smallest zone that holds all; else from the smallest zones on; cards without links last."""
    zones: dict[int, list[CardSlice]] = {}
    for card, taken in fitting:
        zones.setdefault(max(card.effective_traits.group, 0), []).append(taken)
    linked = sorted((zone for number, zone in zones.items() if number), key=lambda zone: (len(zone), zone[0].index))
    holds = next((zone for zone in linked if len(zone) >= count), None)
    if holds is not None:
        return holds[:count]
    return [s for zone in (*linked, zones.get(0, [])) for s in zone][:count]


def _part(app_class: str, qos: str, cores: int) -> str:
    """What a slice is to its card: its app class, and the policy that the card has for it; none for whole cards."""
    if app_class == ONLINE:
        return ONLINE
    policy = "" if cores >= ALL_CORES else qos if qos in POLICIES else BEST_EFFORT
    return f"{OFFLINE}/{policy}" if app_class == OFFLINE else policy


def _classes(held: CardAllocation) -> Counter[str]:
    """How many of the card's pods are online and offline."""
    parts = [part for text in held.parts for part in parts_of(text)]
    return Counter(part.partition("/")[0] for part in parts if part.partition("/")[0] in CLASSES)


def _class_fits(ask: Ask, held: CardAllocation) -> bool:
    if not held.pods:
        return True
    own, there = ask.part.partition("/")[0], _classes(held)
    if bool(there) != (own in CLASSES):
        return False
    return not (there[ONLINE] and own == OFFLINE)


def _qos_fits(card: Card, ask: Ask, held: CardAllocation) -> bool:
    """The card's policy is that of the pods on it; as long as these say none, the registered one."""
    if not held.pods or ask.cores >= ALL_CORES:
        return True
    parts = [part for text in held.parts for part in parts_of(text) if part != ONLINE]
    own = [policy for part in parts if (policy := part.rpartition("/")[2])]
    policy = own[-1] if own else card.effective_traits.qos
    return not policy or policy == ask.part.rpartition("/")[2]


def _crowd(classes: Counter[str]) -> tuple[bool, int, int]:
    """Cards with offline pods only are last, those with the fewest online pods first."""
    only_offline = bool(classes[OFFLINE]) and not classes[ONLINE]
    return only_offline, classes[ONLINE], classes[OFFLINE]


def _crowding(classes: Counter[str]) -> int:
    if classes[OFFLINE] and not classes[ONLINE]:
        return -100 * classes[OFFLINE]
    return -20 * classes[ONLINE] - 2 * classes[OFFLINE]


def _without_cores(held: CardAllocation) -> CardAllocation:
    return CardAllocation(0, held.memory_mib, held.pods, held.parts)


def _mib(name: str, asked: Mapping[str, Quantity]) -> int:
    """GiB where it is a bare number, else as Kubernetes writes bytes. Raises InvalidRequest."""
    text = str(asked.get(name, "")).strip()
    if not text:
        return 0
    if any(c.isalpha() for c in text):
        try:
            mib = int(parse_quantity(text)) // 2**20
        except InvalidRequest as e:
            raise InvalidRequest(
                f"{name} is {sanitized(text, 64)!r}, not a quantity", hint="write GiB, or an amount such as 500Mi"
            ) from e
        fits = 0 < mib <= MAX_MEMORY_MIB
    else:
        mib = (whole_number(name, asked) or 0) * 1024
        fits = mib <= MAX_MEMORY_MIB
    if not fits:
        raise InvalidRequest(f"{name} is {sanitized(text, 64)}", hint="write GiB of one card, or an amount such as 500Mi")
    return mib


def _read(text: str) -> tuple[Card, ...]:
    """The cards of MetaX's annotation, by HAMi's names. Raises InvalidRequest."""
    if len(text) > REGISTER_BYTES:
        raise InvalidRequest(f"{len(text)} characters, at most {REGISTER_BYTES} are read")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise InvalidRequest(f"not valid JSON: {e}") from e
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise InvalidRequest("a JSON array of objects is expected")
    renamed = {
        "uuid": "id", "model": "type", "totalDevCount": "count", "totalCompute": "devcore", "totalVRam": "devmem", "numa": "numa", "healthy": "health",
    }  # fmt: skip
    plain = [{new: entry[old] for old, new in renamed.items() if old in entry} for entry in found]
    cards = registered_cards(json.dumps([{"type": "", **entry} for entry in plain]))
    return tuple(_linked(card, position, entry) for position, (card, entry) in enumerate(zip(cards, found, strict=True)))


def _linked(card: Card, position: int, entry: Mapping[str, object]) -> Card:
    zone, qos = entry.get("linkZone", 0), entry.get("qosPolicy", "")
    if isinstance(zone, bool) or not isinstance(zone, int) or not isinstance(qos, str) or not is_plain(qos, VALUE_BYTES):
        raise InvalidRequest(f"card {position}: linkZone or qosPolicy is of the wrong kind")
    return replace(
        card, traits=CardTraits(units=card.effective_traits.units, group=zone if 0 < zone <= MAX_MEMORY_MIB else -1, qos=qos)
    )


METAX_GPU = MetaxGpu(
    name="metax",
    kind="Metax-GPU",
    cards="metax-tech.com/gpu",
    word="metax",
    memory_mib=65_536,
    facts=(LOSSES, SCORES),
    allocated_annotation="hami.io/metax-gpu-devices-allocated",
    to_allocate_annotation="hami.io/metax-gpu-devices-to-allocate",
    always_fits=True,
)

METAX_SGPU = MetaxSgpu(
    name="metax-sgpu",
    kind="Metax-SGPU",
    cards="metax-tech.com/sgpu",
    cores="metax-tech.com/vcore",
    memory="metax-tech.com/vmemory",
    memory_unit_mib=1024,
    use_uuid=_USE_UUID,
    nouse_uuid=_NOUSE_UUID,
    wishes=(_USE_UUID, _NOUSE_UUID, QOS, APP_CLASS, TOPOLOGY),
    usual={QOS: BEST_EFFORT},
    allocated_annotation="hami.io/metax-sgpu-devices-allocated",
    to_allocate_annotation="hami.io/metax-sgpu-devices-to-allocate",
    node_lock=NODE_LOCK,
    always_fits=True,
)
