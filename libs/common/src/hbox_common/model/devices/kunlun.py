"""Kunlunxin's XPUs: whole (`kunlun`), and P800 OAMs in quarters and halves (`XPU`) (sources: hami-kunlun).

Eight cards are two wings of four, left 0 to 3 and right 4 to 7, each card linked to all of its wing and to one of the other (0-4, 1-5, 2-6, 3-7). One, two or
four cards come from one wing, the one with the fewest that fit, so that the other stays whole; where no wing has enough, from pairs and fours that are linked
across. Of a single card the wing with an odd number left is first, which a pair cannot use up.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hbox_common.errors import InvalidRequest

from .asking import Ask
from .cards import ALL_CORES, Card, CardAllocation, CardSlice
from .cardvendor import listed, place
from .hami import CountedVendor, HamiVendor
from .handshake import NODE_LOCK
from .labels import DeviceLabel
from .layout import Layout
from .offer import Offer, Refused
from .vendor import Completion, NodeReport, Quantity, whole_number

LEFT, RIGHT = (0, 1, 2, 3), (4, 5, 6, 7)

#: Cards that are linked across the wings.
PAIRS = ((0, 4), (1, 5), (2, 6), (3, 7))
FOURS = ((0, 1, 4, 5), (2, 3, 6, 7), (0, 2, 4, 6), (1, 3, 5, 7), (0, 3, 4, 7), (1, 2, 5, 6))

#: In which order wings with so many cards left give one, two and four.
_LEFT_OVER = {1: (1, 3, 2, 4), 2: (2, 3, 4), 4: (4,)}

#: Memory of a P800 OAM, and the sizes in which it is shared.
CARD_MIB = 98_304
SIZES_MIB = (24_576, 49_152, CARD_MIB)

#: That the driver has for a node: each card takes one, each card divided into quarters four more, into halves two more.
HANDLES = 32

#: How many parts of cards one container may have. HAMi's documentation has six, its code has not.
PART_COUNTS = (1, 2, 4, 6, 8)

#: What HAMi adds to a node's score, by how many wings more are broken afterwards.
_BROKEN_SCORE = {-1: 3000.0, 0: 2000.0, 1: 1000.0, 2: 0.0}

_USE_UUID, _NOUSE_UUID = "hami.io/use-xpu-uuid", "hami.io/no-use-xpu-uuid"
_OLD_USE_UUID, _OLD_NOUSE_UUID = "baidu.com/use-gpuuuid", "baidu.com/nouse-gpuuuid"
_WISHES = (_USE_UUID, _NOUSE_UUID, _OLD_USE_UUID, _OLD_NOUSE_UUID)
_NO_WISHES: Mapping[str, str] = {}


def choose_linked(free: Collection[int], count: int) -> tuple[int, ...]:
    """Which of these places a container gets; () where none go together."""
    left, right = ([one for one in wing if one in free] for wing in (LEFT, RIGHT))
    if count == len(LEFT) + len(RIGHT):
        return LEFT + RIGHT if len(left) + len(right) == count else ()
    if count in _LEFT_OVER:
        for number in _LEFT_OVER[count]:
            for wing in (left, right):
                if len(wing) == number:
                    return tuple(wing[:count])
    if count == len(PAIRS[0]):
        return next((pair for pair in PAIRS if set(pair) <= set(free)), ())
    if count == len(FOURS[0]):
        whole = [four for four in FOURS if set(four) <= set(free)]
        return next((four for four in whole if _linked(set(free) - set(four))), whole[-1] if whole else ())
    if count == 6:
        fuller, other = (left, right) if len(left) >= len(right) else (right, left)
        return tuple(sorted([*fuller, *other][:count])) if len(left) + len(right) >= count else ()
    return ()


def _linked(rest: Collection[int]) -> bool:
    """Whether two of these are linked."""
    return any(a in rest and b in rest for a, b in PAIRS) or any(sum(one in rest for one in wing) > 1 for wing in (LEFT, RIGHT))


def broken(used: Collection[int]) -> int:
    """How far wings are from being whole, used up, or of use for pairs (HAMi's `bubbles`): 1 where nothing is used."""
    if not used:
        return 1
    return sum({4: 0, 1: 2}.get(sum(one in used for one in wing), 1) for wing in (LEFT, RIGHT))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WingVendor(HamiVendor):
    """Common to both kinds: groups of cards, or a label if no group fits."""

    def has_uuid(self, offer: Offer, card: Card) -> bool:
        wanted, old = listed(offer, _USE_UUID), listed(offer, _OLD_USE_UUID)
        unwanted = (*listed(offer, _NOUSE_UUID), *listed(offer, _OLD_NOUSE_UUID))
        return all(not names or card.uuid in names for names in (wanted, old)) and card.uuid not in unwanted

    def fit(self, offer: Offer, ask: Ask) -> tuple[CardSlice, ...] | Refused:
        if ask.count > len(offer.cards):
            return Refused({DeviceLabel.NODE_INSUFFICIENT: 0}, len(offer.cards))
        places = {place(offer, card): card for card in offer.cards}
        free = self.free(offer, places, ask)
        found = choose_linked(free, ask.count) if ask.count in PART_COUNTS else ()
        if not found:
            return Refused(self.reasons(offer, ask, len(free)), len(offer.cards))
        return tuple(self.given(places[one], ask) for one in found)

    def free(self, offer: Offer, places: Mapping[int, Card], ask: Ask) -> list[int]:
        """The places that fit by themselves."""
        return [
            number
            for number, card in places.items()
            if card.healthy
            and not card.effective_traits.cordoned
            and self.has_uuid(offer, card)
            and self.takes(offer, card, ask)
        ]

    def takes(self, offer: Offer, card: Card, ask: Ask) -> bool:  # noqa: ARG002  of whole cards
        return offer.of(card).pods == 0

    def given(self, card: Card, ask: Ask) -> CardSlice:  # noqa: ARG002  of whole cards
        return CardSlice(card.index, ALL_CORES, card.memory_mib)

    def reasons(self, offer: Offer, ask: Ask, free: int) -> Mapping[DeviceLabel, int]:  # noqa: ARG002  of whole cards
        """As in HAMi: the number of excluded ids, else one for the missing group."""
        if barred := sum(not self.has_uuid(offer, card) for card in offer.cards):
            return {DeviceLabel.UUID: barred}
        return {DeviceLabel.NUMA: 1}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kunlun(WingVendor, CountedVendor):
    """Whole cards, one, two, four or eight of them."""

    def card(self, node: NodeReport, index: int, count: int) -> Card:
        return Card(
            index, f"{node.name}-{self.word}-{index}", self.model, self.memory_mib, self.shares, numa=int(index >= count // 2)
        )

    def fit(self, offer: Offer, ask: Ask) -> tuple[CardSlice, ...] | Refused:
        if ask.count == 6:
            return Refused({DeviceLabel.NUMA: 1}, len(offer.cards))
        return WingVendor.fit(self, offer, ask)

    def usage_score(self, offer: Offer) -> float:
        """HAMi has 100 slots to a card, and counts no amounts of it."""
        return 10.0 * sum(offer.of(card).pods for card in offer.cards) / (100 * max(len(offer.cards), 1))

    def choice_score(self, offer: Offer, ask: Ask, chosen: Sequence[CardSlice]) -> float:  # noqa: ARG002
        before = {place(offer, card) for card in offer.cards if offer.of(card).pods}
        taken = {s.index for s in chosen}
        after = before | {place(offer, card) for card in offer.cards if card.index in taken}
        return _BROKEN_SCORE.get(broken(after) - broken(before), 1000.0)

    def annotate(self, layout: Layout, cards: Mapping[int, Card], *, node: str = "", now: float = 0.0) -> dict[str, str]:
        notes = HamiVendor.annotate(self, layout, cards, node=node, now=now)
        own = next((one for one in reversed(layout) if one), ())
        return notes | {"BAIDU_COM_DEVICE_IDX": ",".join(cards[s.index].uuid.rpartition("-")[2] for s in own)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedXpu(WingVendor):
    """Quarters, halves and whole cards; all parts of one card are alike. The driver's handles bound how many cards of a node are divided."""

    def ask(self, asked: Mapping[str, Quantity], wishes: Mapping[str, str] = _NO_WISHES) -> Ask | None:
        ask = HamiVendor.ask(self, asked, wishes)
        if ask is None:
            return None
        if ask.memory_mib > CARD_MIB:
            raise InvalidRequest(f"{self.memory} is {ask.memory_mib}", hint=f"a card has {CARD_MIB} MiB: write that or less")
        size = next(size for size in SIZES_MIB if size >= (ask.memory_mib or CARD_MIB))
        return Ask(self.kind, ask.count, size * ALL_CORES // CARD_MIB, size, part=str(size), completed=ask.completed)

    def complete(
        self, asked: Mapping[str, Quantity], wishes: Mapping[str, str] = _NO_WISHES, container: str = ""
    ) -> Completion:
        """The memory of the size that is given, where another amount is written."""
        found = WingVendor.complete(self, asked, wishes, container)
        ask, written = self.ask(asked, wishes), whole_number(self.memory, asked)
        rounded = ask.memory_mib // self.memory_unit_mib if ask is not None else 0
        return replace(found, amounts={**found.amounts, self.memory: rounded}) if written and written != rounded else found

    def free(self, offer: Offer, places: Mapping[int, Card], ask: Ask) -> list[int]:
        """Those that fit and may be divided: no more idle cards than the driver has handles for, lowest first."""
        fitting = sorted(WingVendor.free(self, offer, places, ask))
        each = _handles(ask.memory_mib)
        if not each:
            return fitting
        in_use = len(offer.cards) + sum(
            _handles(held.memory_mib // held.pods) for c in offer.cards if (held := offer.of(c)).pods
        )
        divided = [one for one in fitting if offer.of(places[one]).pods]
        idle = [one for one in fitting if not offer.of(places[one]).pods]
        return sorted([*divided, *idle[: max(HANDLES - in_use, 0) // each]])

    def takes(self, offer: Offer, card: Card, ask: Ask) -> bool:
        held = offer.of(card)
        if held.memory_mib + ask.memory_mib > card.memory_mib or (held.pods and self.policy(offer).mutex):
            return False
        return not held.pods or held.memory_mib == held.pods * ask.memory_mib

    def given(self, card: Card, ask: Ask) -> CardSlice:
        return CardSlice(card.index, ask.cores, ask.memory_mib, ask.part)

    def reasons(self, offer: Offer, ask: Ask, free: int) -> Mapping[DeviceLabel, int]:
        if self.policy(offer).mutex and (used := sum(offer.of(card).pods > 0 for card in offer.cards)):
            return {DeviceLabel.EXCLUSIVE: used}
        places = {place(offer, card): card for card in offer.cards}
        if kept := len(WingVendor.free(self, offer, places, ask)) - free:  # for want of handles
            return {DeviceLabel.CUSTOM: kept}
        return WingVendor.reasons(self, offer, ask, free)

    def admits(self, card: Card, held: CardAllocation, taken: CardSlice) -> bool:  # noqa: ARG002
        """Sizes of one card are alike, and such as there are."""
        size, rest = divmod(taken.memory_mib, taken.slots)
        return rest == 0 and size in SIZES_MIB and (not held.pods or held.memory_mib == held.pods * size)

    def taken(self, card: Card, memory_mib: int, cores: int, ask: Ask | None, wishes: Mapping[str, str]) -> CardSlice:  # noqa: ARG002
        return CardSlice(card.index, min(cores, ALL_CORES), memory_mib, str(memory_mib))


def _handles(size_mib: int) -> int:
    """Handles used by a card divided into parts of this size, in addition to its own."""
    parts = CARD_MIB // max(size_mib, SIZES_MIB[0])
    return parts if parts > 1 else 0


KUNLUN = Kunlun(
    name="kunlun",
    kind="kunlun",
    cards="kunlunxin.com/xpu",
    word="kunlun",
    model="kunlun",
    memory_mib=CARD_MIB,
    wishes=_WISHES,
    allocated_annotation="hami.io/kunlun-allocated",
    always_fits=True,
)

XPU = SharedXpu(
    name="kunlun-vxpu",
    kind="XPU",
    cards="kunlunxin.com/vxpu",
    memory="kunlunxin.com/vxpu-memory",
    register_annotation="hami.io/node-register-xpu",
    type_prefix="XPU-",
    wishes=_WISHES,
    allocated_annotation="hami.io/xpu-devices-allocated",
    to_allocate_annotation="hami.io/xpu-devices-to-allocate",
    node_lock=NODE_LOCK,
    always_fits=True,
)
