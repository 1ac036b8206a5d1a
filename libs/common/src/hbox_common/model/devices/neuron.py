"""AWS Neuron devices, whole or one of their two cores (sources: hami-neuron).

Several devices follow the instance's links: on Inferentia any consecutive ones; on Trainium 1, 4, 8 or 16, starting at a multiple of their number. A part of a
device names its cores: `1` and `2` are the first and the second, `12` both, requested as cores, `d` the device.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hbox_common.errors import InvalidRequest

from .asking import Ask
from .cards import ALL_CORES, Card, CardAllocation, CardSlice, CardTraits
from .cardvendor import place
from .hami import CountedVendor
from .labels import DeviceLabel
from .layout import Layout, parts_of
from .offer import Offer, Refused
from .vendor import NodeReport, Quantity, Vendor, whole_number

#: Cores of a device that the plugin hands out one by one.
CORES = 2

#: Devices that go together on Trainium.
TRAINIUM_COUNTS = (1, 4, 8, 16)

DEVICE, BOTH = "d", "12"

#: Of parts: which cores they are, as bits.
MASKS: Mapping[str, int] = {"1": 1, "2": 2, BOTH: 3, DEVICE: 3}

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_USE_UUID, _NOUSE_UUID = "aws.amazon.com/use-neuron-uuid", "aws.amazon.com/nouse-neuron-uuid"
_NO_WISHES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Neuron(CountedVendor):
    @property
    def core(self) -> str:
        """The resource that counts cores."""
        return self.sizes[0]

    def card(self, node: NodeReport, index: int, count: int) -> Card:
        cores = node.amounts.get(self.core, CORES * count) // count
        return Card(
            index,
            f"{node.name}-{self.word}-{index}",
            self.model,
            0,
            shares=min(max(cores, 1), CORES),
            numa=0,
            traits=CardTraits(units=max(cores, 1)),
        )

    def offered(self, cards: Sequence[Card], amount: int) -> int:
        """Two pods with a core each share one device: a unit a share, not one a device."""
        return max(amount, sum(card.shares for card in cards))

    def ask(self, asked: Mapping[str, Quantity], wishes: Mapping[str, str] = _NO_WISHES) -> Ask | None:
        devices = Vendor.ask(self, asked, wishes)
        if devices is not None:
            return Ask(self.kind, devices.count, part=DEVICE)
        cores = whole_number(self.core, asked)
        if not cores:
            return None
        if cores == 1:
            return Ask(self.kind, 1, cores=ALL_CORES // CORES, memory_percent=0, part="1")
        if cores % CORES:
            raise InvalidRequest(f"{self.core} is {cores}", hint=f"write 1, or a multiple of {CORES}: whole devices")
        return Ask(self.kind, self.bounded(cores // CORES), part=BOTH)

    def fit(self, offer: Offer, ask: Ask) -> tuple[CardSlice, ...] | Refused:
        if ask.count == 1 or ask.count > len(offer.cards):
            return CountedVendor.fit(self, offer, ask)
        places = {place(offer, card): card for card in offer.cards}
        free = {
            number
            for number, card in places.items()
            if card.healthy and not card.effective_traits.cordoned and not offer.of(card).pods and self.has_uuid(offer, card)
        }
        start = _run(free, max(places) + 1, ask.count, offer.facts.get(INSTANCE_TYPE, ""))
        if start is None:
            barred = sum(not self.has_uuid(offer, card) for card in offer.cards)
            return Refused({DeviceLabel.UUID: barred} if barred else {DeviceLabel.NUMA: 1}, len(offer.cards))
        return tuple(CardSlice(places[number].index, ALL_CORES, 0, ask.part) for number in range(start, start + ask.count))

    def judge(self, offer: Offer, card: Card, ask: Ask) -> CardSlice | DeviceLabel:
        found = CountedVendor.judge(self, offer, card, ask)
        if isinstance(found, DeviceLabel) or MASKS[ask.part] == MASKS[DEVICE]:
            return found
        part = "2" if _mask(offer.of(card)) & MASKS["1"] else "1"
        return CardSlice(card.index, found.cores, 0, part)

    def admits(self, card: Card, held: CardAllocation, taken: CardSlice) -> bool:  # noqa: ARG002
        """No core is given twice."""
        masks = [MASKS.get(part, 0) for part in parts_of(taken.part)]
        own = sum({bit for mask in masks for bit in (1, 2) if mask & bit})
        # Containers that run one after the other may share a core; concurrent ones may not.
        compatible = taken.slots < len(masks) or sum(masks) == own
        return all(masks) and bool(masks) and compatible and not own & _mask(held)

    def taken(self, card: Card, memory_mib: int, cores: int, ask: Ask | None, wishes: Mapping[str, str]) -> CardSlice:  # noqa: ARG002
        part = next((name for name in ("1", "2") if MASKS[name] == cores), ask.part if ask is not None else DEVICE)
        part = DEVICE if cores not in (1, 2) and part not in (BOTH, DEVICE) else part
        return CardSlice(card.index, ALL_CORES if MASKS[part] == MASKS[DEVICE] else ALL_CORES // CORES, 0, part)

    def device_text(self, card: Card, taken: CardSlice) -> str:
        return f"{card.uuid},{self.kind},0,{MASKS.get(taken.part, MASKS[DEVICE])}"

    def annotate(self, layout: Layout, cards: Mapping[int, Card], *, node: str = "", now: float = 0.0) -> dict[str, str]:
        """Devices by their indices, or cores by theirs over all devices of the node."""
        notes = CountedVendor.annotate(self, layout, cards, node=node, now=now)
        ids: list[str] = []
        for s in (s for one in layout for s in one):
            index, mask = int(cards[s.index].uuid.rpartition("-")[2]), MASKS.get(s.part, MASKS[DEVICE])
            if s.part in ("", DEVICE):
                ids.append(str(index))
            else:
                notes["NEURON_RESOURCE_TYPE"] = self.core
                ids += [str(cards[s.index].effective_traits.units * index + core) for core in range(CORES) if mask & 1 << core]
        return notes | {
            "AWS_NEURON_IDS": ",".join(ids),
            "NEURON_ALLOC_TIME": str(int(now * 1e9)),
            "NEURON_ALLOCATED": "false",
            "aws.amazon.com/predicate-node": node,
        }


def _mask(held: CardAllocation) -> int:
    """The allocated cores; all of them if an allocation does not name its cores."""
    masks = [MASKS.get(part, MASKS[DEVICE]) for text in held.parts for part in parts_of(text)]
    return sum({bit for mask in masks for bit in (1, 2) if mask & bit}) if len(masks) >= held.pods else MASKS[DEVICE]


def _run(free: set[int], places: int, count: int, instance: str) -> int | None:
    """Where the first row of devices starts that go together; None: nowhere."""
    anywhere = "inf" in instance.lower()
    if not anywhere and count not in TRAINIUM_COUNTS:
        return None
    starts = range(0, places - count + 1, 1 if anywhere else count)
    return next((start for start in starts if all(start + i in free for i in range(count))), None)


NEURON = Neuron(
    name="neuron",
    kind="AWSNeuron",
    cards="aws.amazon.com/neuron",
    sizes=("aws.amazon.com/neuroncore",),
    word="AWSNeuron",
    model="AWSNeuron",
    use_uuid=_USE_UUID,
    nouse_uuid=_NOUSE_UUID,
    wishes=(_USE_UUID, _NOUSE_UUID),
    facts=(INSTANCE_TYPE,),
    allocated_annotation="hami.io/aws-neuron-devices-allocated",
    always_fits=True,
)
