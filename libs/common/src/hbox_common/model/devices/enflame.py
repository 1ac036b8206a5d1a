"""Enflame's GCUs: whole (`GCU`), and shared (`Enflame`) by either of HAMi's two ways (sources: hami-enflame).

Up to v2.9 `enflame.com/vgcu` counts cards and `vgcu-percentage` requests a part of each, rounded up to the fraction into which the node's plugin divides its
cards. The plugin does not report sizes: percent are booked as compute, and memory is unknown.

From v2.10 on (DRS) cards are divided by profiles, such as `3g.20gb`: three of six slices with 20 GB. `drs-gcu` requests slices, `gcu-memory` and `gcu-core` the
minimum of the profile. Such a pod has one card, and `enflame.com/vgcu` counts it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hbox_common.errors import InvalidRequest

from ..bounds import is_plain
from .asking import Ask
from .cards import ALL_CORES, MAX_CARDS, MAX_MEMORY_MIB, Card, CardAllocation, CardSlice, CardTraits, Profile
from .cardvendor import CardVendor
from .hami import REGISTER_BYTES, CountedVendor, HamiVendor
from .labels import DeviceLabel
from .layout import Layout, parts_of
from .offer import Offer
from .vendor import NodeReport, Quantity, whole_number

DRS = "drs"
_MAX_PROFILES = 64
#: As parsed by HAMi: a suffix behind a second dot is a name.
_PROFILE = re.compile(r"(\d{1,4})g?\.(\d{1,4})(?:gb)?(?:\..*)?")
_CAPACITY = "enflame.com/gcu-drs-capacity"
_COUNT, _SHARED = "enflame.com/gcu-count", "enflame.com/shared-gcu"
_ASSIGNED = "assigned-containers"
_USE_UUID, _NOUSE_UUID = "enflame.com/use-gpuuuid", "enflame.com/nouse-gpuuuid"
_NO_WISHES: Mapping[str, str] = {}

#: Of an ask: slices by number (`drs=3`), or by what a profile has to have.
_BY_SLICES, _BY_SIZE = "drs=", "drs"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gcu(CountedVendor):
    def judge(self, offer: Offer, card: Card, ask: Ask) -> CardSlice | DeviceLabel:
        """As in HAMi: a card has one slot, and this one is in use."""
        found = CountedVendor.judge(self, offer, card, ask)
        return DeviceLabel.EXCLUSIVE if found in (DeviceLabel.SLOTS, DeviceLabel.IN_USE) else found

    def taken(self, card: Card, memory_mib: int, cores: int, ask: Ask | None, wishes: Mapping[str, str]) -> CardSlice:  # noqa: ARG002
        return CardSlice(card.index, min(cores, ALL_CORES), 0)  # its memory is in percent too

    def device_text(self, card: Card, taken: CardSlice) -> str:
        return f"{card.uuid},{self.kind},{taken.cores},{taken.cores}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedGcu(HamiVendor):
    def register(self, node: NodeReport) -> tuple[Card, ...]:
        text = node.annotations.get(_CAPACITY)
        if text is not None:
            try:
                return _divided(node.name, text)
            except InvalidRequest as e:
                raise InvalidRequest(f"annotation {_CAPACITY}: {e.message}") from e
        count = node.amounts.get(_COUNT, 0)
        if count > MAX_CARDS:
            raise InvalidRequest(f"allocatable {_COUNT}: {count} cards on one node")
        slices = node.amounts.get(_SHARED, 0) // count if count else 0
        if not slices:
            return ()
        traits = CardTraits(units=slices)
        return tuple(Card(i, f"{node.name}-enflame-{i}", "", 0, slices, numa=0, traits=traits) for i in range(count))

    def registered(self, node: NodeReport) -> bool:
        return _CAPACITY in node.annotations or bool(node.amounts.get(_COUNT, 0))

    def offered(self, cards: Sequence[Card], amount: int) -> int:  # noqa: ARG002  kubelet knows slices under other names
        return sum(card.shares for card in cards)

    def ask(self, asked: Mapping[str, Quantity], wishes: Mapping[str, str] = _NO_WISHES) -> Ask | None:  # noqa: ARG002
        slices, memory, cores = (whole_number(name, asked) for name in self.sizes)
        count, percent = whole_number(self.cards, asked), whole_number(self.memory_percent, asked)
        if count and not slices and memory is None and cores is None:
            count = self.bounded(count)
            if percent is not None and percent > ALL_CORES:
                raise InvalidRequest(f"{self.memory_percent} is {percent}", hint="write the percentage of one card, 1 to 100")
            return Ask(self.kind, count, cores=ALL_CORES if count > 1 or percent is None else max(percent, 1), memory_percent=0)
        by_slices, by_memory, by_core = self.sizes
        if slices == 0:
            raise InvalidRequest(f"{by_slices} is 0", hint="write how many slices of a card, 1 or more")
        if slices:
            return Ask(self.kind, 1, cores=0, memory_percent=0, part=f"{_BY_SLICES}{min(slices, MAX_MEMORY_MIB)}")
        if memory is None and cores is None:
            return None
        if memory == 0 or (memory or 0) > MAX_MEMORY_MIB:
            raise InvalidRequest(f"{by_memory} is {memory}", hint="write GB, or MiB where they are many")
        if cores is not None and not 0 < cores <= ALL_CORES:
            raise InvalidRequest(f"{by_core} is {cores}", hint="write the percentage of one card's compute, 1 to 100")
        return Ask(self.kind, 1, cores=cores or 0, memory_mib=memory or 0, memory_percent=0, part=_BY_SIZE)

    def amounts_of(self, count: int, memory_mib: int = 0, cores: int = 0) -> Mapping[str, int]:
        _, by_memory, by_core = self.sizes
        return (
            {by_memory: memory_mib} | ({by_core: cores} if cores else {}) if memory_mib and count == 1 else {self.cards: count}
        )

    def node_fault(self, offer: Offer, ask: Ask) -> DeviceLabel | None:
        """Where no profile is large enough, and where the node divides its cards in the other way."""
        drs = any(card.effective_traits.mode == DRS for card in offer.cards)
        if drs != bool(ask.part) or (drs and _profile(offer.cards, ask) is None):
            return DeviceLabel.MODE
        return None

    def judge(self, offer: Offer, card: Card, ask: Ask) -> CardSlice | DeviceLabel:
        if not ask.part:
            found = CardVendor.judge(self, offer, card, replace(ask, cores=_rounded(ask.cores, card.effective_traits.units)))
            # Percent are memory to HAMi.
            return (
                DeviceLabel.MEMORY
                if found in (DeviceLabel.CORE, DeviceLabel.EXCLUSIVE) and not self._mutex(offer, card)
                else found
            )
        profile = _profile(offer.cards, ask)
        if profile is None:
            return DeviceLabel.MODE
        drs = Ask(self.kind, 1, cores=min(profile.units, ALL_CORES - 1), memory_mib=profile.memory_mib, part=profile.name)
        found = CardVendor.judge(self, offer, card, drs)
        if isinstance(found, DeviceLabel):
            return found
        if offer.of(card).cores + profile.units > ALL_CORES:
            return DeviceLabel.CORE
        return CardSlice(card.index, profile.units, profile.memory_mib, profile.name, _slices(profile.name))

    def _mutex(self, offer: Offer, card: Card) -> bool:
        return self.policy(offer).mutex and offer.of(card).pods > 0

    def admits(self, card: Card, held: CardAllocation, taken: CardSlice) -> bool:
        """Profiles of the card, with their memory, and no more slices than it has."""
        if card.effective_traits.mode != DRS:
            return not taken.part
        memory = {profile.name: profile.memory_mib for profile in card.effective_traits.profiles}
        parts = parts_of(taken.part)
        if not parts or not all(part in memory for part in parts):
            return False
        # Parts of containers that follow one another count once.
        sizes = [memory[part] for part in parts]
        return max(sizes) <= taken.memory_mib <= sum(sizes) and held.pods + taken.slots <= card.shares

    def taken(self, card: Card, memory_mib: int, cores: int, ask: Ask | None, wishes: Mapping[str, str]) -> CardSlice:  # noqa: ARG002
        if card.effective_traits.mode != DRS:
            return CardSlice(card.index, min(max(cores, memory_mib), ALL_CORES), 0)
        profile = next((one for one in card.effective_traits.profiles if one.memory_mib == memory_mib), None)
        if profile is None:
            return CardSlice(card.index, min(cores, ALL_CORES), memory_mib)
        return CardSlice(card.index, profile.units, profile.memory_mib, profile.name, _slices(profile.name))

    def device_text(self, card: Card, taken: CardSlice) -> str:
        memory, cores = (taken.memory_mib, taken.cores) if card.effective_traits.mode == DRS else (taken.cores, 0)
        return f"{card.uuid},{self.kind},{memory},{cores}"

    def annotate(self, layout: Layout, cards: Mapping[int, Card], *, node: str = "", now: float = 0.0) -> dict[str, str]:
        """For the plugin: the first container's cards."""
        notes = HamiVendor.annotate(self, layout, cards, node=node, now=now)
        first = next((one for one in layout if one), ())
        if not first:
            return notes
        index = ",".join(cards[s.index].uuid.rpartition("-")[2] for s in first)
        notes |= {
            "enflame.com/gcu-assigned": "false",
            "enflame.com/gcu-assigned-time": str(int(now * 1e9)),
            "enflame.com/gcu-assigned-id": index,
        }
        if cards[first[0].index].effective_traits.mode == DRS:
            notes |= {
                "enflame.com/gcu-assigned-index": index,
                "enflame.com/gcu-assigned-minor": str(minor)
                if (minor := cards[first[0].index].effective_traits.minor) >= 0
                else index,
                "enflame.com/gcu-request-size": str(_slices(first[0].part)),
            }
        return notes

    def by_container(self, layout: Layout, cards: Mapping[int, Card], containers: Sequence[str]) -> dict[str, str]:
        """Which instance the plugin is to make for each container (HAMi `enflame/device.go`, `assignedContainerInfo`)."""
        assigned: dict[str, dict[str, object]] = {}
        for name, one in zip(containers, layout, strict=False):
            if not one or cards[one[0].index].effective_traits.mode != DRS:
                continue
            profile = next((p for p in cards[one[0].index].effective_traits.profiles if p.name == one[0].part), None)
            fields = {"profileID": profile.id, "profileName": profile.name} if profile is not None else {}
            assigned[name] = {"allocated": False, "request": _slices(one[0].part)} | {k: v for k, v in fields.items() if v}
        return {_ASSIGNED: json.dumps(dict(sorted(assigned.items())), separators=(",", ":"))} if assigned else {}


def _divided(node: str, text: str) -> tuple[Card, ...]:
    """The cards of a node whose plugin divides them by profiles. Raises InvalidRequest."""
    if len(text) > REGISTER_BYTES:
        raise InvalidRequest(f"{len(text)} characters, at most {REGISTER_BYTES} are read")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise InvalidRequest(f"not valid JSON: {e}") from e
    devices = found.get("devices") if isinstance(found, dict) else None
    names = found.get("profiles") if isinstance(found, dict) else None
    if not isinstance(devices, list) or not isinstance(names, dict) or not all(isinstance(one, dict) for one in devices):
        raise InvalidRequest("an object with devices and profiles is expected")
    if len(devices) > MAX_CARDS or len(names) > _MAX_PROFILES:
        raise InvalidRequest(f"{len(devices)} cards with {len(names)} profiles on one node")
    profiles = _profiles({str(name): str(number) for name, number in names.items()})
    if not profiles:
        raise InvalidRequest("no profile such as 3g.20gb")
    most = max(profile.memory_mib for profile in profiles)
    cards = []
    for position, device in enumerate(devices):
        index, capacity = _number(device.get("index"), position), _number(device.get("capacity"), 0)
        if not 0 < capacity <= 10_000:
            raise InvalidRequest(f"card {position}: capacity {device.get('capacity')!r} is no number of slices"[:200])
        minor = _number(str(device.get("minor", "")).strip(), index)
        traits = CardTraits(mode=DRS, profiles=profiles, minor=minor if minor != index else -1)
        cards.append(Card(index, f"{node}-enflame-drs-{index}", "", most, capacity, numa=0, traits=traits))
    if len({card.index for card in cards}) != len(cards):
        raise InvalidRequest("two cards have the same index")
    return tuple(cards)


def _profiles(names: Mapping[str, str]) -> tuple[Profile, ...]:
    """Smallest first; compute in percent, rounded up."""
    sizes = [(int(m[1]), int(m[2]), name, number) for name, number in names.items() if (m := _PROFILE.fullmatch(name.lower()))]
    sizes = [size for size in sizes if size[0] and size[1] and is_plain(size[3], 64)]
    whole = max((size[0] for size in sizes), default=1)
    return tuple(Profile(name, gb * 1024, -(-size * ALL_CORES // whole), id=number) for size, gb, name, number in sorted(sizes))


def _number(value: object, default: int) -> int:
    try:
        number = int(value) if isinstance(value, str | int) and not isinstance(value, bool) else default
    except ValueError:
        return default
    return number if 0 <= number < MAX_CARDS else default


def _profile(cards: Sequence[Card], ask: Ask) -> Profile | None:
    """The smallest profile of the node that covers the request. Memory above twice the largest profile's GB is MiB, else GB, as in HAMi."""
    profiles = sorted(
        {profile for card in cards for profile in card.effective_traits.profiles}, key=lambda one: (one.units, one.memory_mib)
    )
    if ask.part.startswith(_BY_SLICES):
        wanted = int(ask.part.removeprefix(_BY_SLICES))
        return next((profile for profile in profiles if _slices(profile.name) == wanted), None)
    if not profiles:
        return None
    memory, largest = ask.memory_mib, profiles[-1].memory_mib // 1024
    gb = -(-memory // 1024) if memory > 2 * largest else memory
    return next((profile for profile in profiles if profile.memory_mib >= gb * 1024 and profile.units >= ask.cores), None)


def _slices(profile: str) -> int:
    found = _PROFILE.fullmatch(profile.lower())
    return int(found[1]) if found else 1


def _rounded(percent: int, slices: int) -> int:
    """Up to a whole number of slices of the card, in percent, rounded down as HAMi does: of 6 slices 16, 33, 50, 66, 83 and 100."""
    return -(-percent * slices // ALL_CORES) * ALL_CORES // slices


GCU = Gcu(
    name="enflame",
    kind="GCU",
    cards="enflame.com/gcu",
    word="GCU",
    allocated_annotation="hami.io/enflame-gcu-devices-allocated",
    to_allocate_annotation="hami.io/enflame-gcu-devices-to-allocate",
    always_fits=True,
)

SHARED_GCU = SharedGcu(
    name="enflame-vgcu",
    kind="Enflame",
    cards="enflame.com/vgcu",
    memory_percent="enflame.com/vgcu-percentage",
    sizes=("enflame.com/drs-gcu", "enflame.com/gcu-memory", "enflame.com/gcu-core"),
    use_uuid=_USE_UUID,
    nouse_uuid=_NOUSE_UUID,
    wishes=(_USE_UUID, _NOUSE_UUID),
    names_containers=True,
    allocated_annotation="hami.io/enflame-vgpu-devices-allocated",
    always_fits=True,
)
