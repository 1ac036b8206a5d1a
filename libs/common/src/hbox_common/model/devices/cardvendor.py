"""Vendors whose cards are judged one by one: HAMi's generic rule (sources: hami-fit).

A vendor's own rules override `node_fault`, `judge`, `further`, `amounts`, `choose` and `choice_score`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from hbox_common.errors import InvalidRequest

from ..bounds import sanitized
from .asking import Ask, PodDevices
from .cards import ALL_CORES, Card, CardSlice
from .labels import DeviceLabel
from .modelnames import any_names_model
from .offer import Offer, Refused, refused
from .policies import CardPolicy, card_policy, is_true
from .vendor import CARD_POLICY, WEIGHTS, Vendor

#: A card that fits, and the slice that it would give.
Fitting = tuple[Card, CardSlice]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CardVendor(Vendor):
    """Names of annotations that are empty do not exist."""

    use_uuid: str = ""  #: annotations of pods: the only cards that it may have, and cards that it may not have, by id
    nouse_uuid: str = ""
    nouse_type: str = ""  #: models that it may not have; those that it may is `models_annotation`

    numa_bind: str = ""  #: of a pod: whether its container's cards have to be of one NUMA node

    def fit(self, offer: Offer, ask: Ask) -> tuple[CardSlice, ...] | Refused:
        """Each card by itself, in HAMi's order of checks, the first of which that fails is its label; of those that fit the vendor's choice."""
        if (label := self.node_fault(offer, ask)) is not None:
            return Refused({label: 1}, len(offer.cards))
        if ask.count > len(offer.cards) and not self.divides(offer):
            return Refused({DeviceLabel.NODE_INSUFFICIENT: 0}, len(offer.cards))
        labels: Counter[DeviceLabel] = Counter()
        exhausted: Counter[DeviceLabel] = Counter()
        fitting: list[Fitting] = []
        for card in offer.cards:
            found = self.judge(offer, card, ask)
            if isinstance(found, DeviceLabel):
                labels[found] += 1
                continue
            fitting.append((card, found))
            more, until = self.further(offer, card, ask, found)
            fitting += [(card, taken) for taken in more]
            if until is not None:
                exhausted[until] += 1
        numa = is_true(offer.wishes.get(self.numa_bind, "")) if self.numa_bind else False
        order = self.policy(offer).order(whole=ask.whole, numa_first=numa)
        fitting.sort(key=lambda each: order(each[0], self.card_score(offer, each[0], each[1])))
        groups = [list(group) for _, group in groupby(fitting, lambda each: each[0].numa)] if numa else [fitting]
        enough = [group for group in groups if len(group) >= ask.count]
        if not enough:
            labels += exhausted
            if len(groups) > 1:
                labels[DeviceLabel.NUMA] = sum(len(group) for group in groups[:-1])
            if fitting:
                labels[DeviceLabel.TOO_FEW] = len(groups[-1])
            return refused(offer, labels)
        if not self.policy(offer).orders:  # where it is all the same to the pod, the NUMA node that it leaves least of
            enough.sort(key=len)
        chosen = self.choose(offer, enough[0], ask)
        if isinstance(chosen, DeviceLabel):
            labels[chosen] += len(fitting)
            return refused(offer, labels)
        if len(chosen) < ask.count:
            labels[DeviceLabel.TOO_FEW] = len(chosen)
            return refused(offer, labels)
        return tuple(chosen)

    def policy(self, offer: Offer) -> CardPolicy:
        return card_policy(offer.wishes.get(CARD_POLICY) or offer.policy)

    def divides(self, offer: Offer) -> bool:  # noqa: ARG002  most vendors do not
        """Whether a container may have several slices of one card of the node: more slices than there are cards."""
        return False

    def further(
        self,
        offer: Offer,  # noqa: ARG002
        card: Card,  # noqa: ARG002
        ask: Ask,  # noqa: ARG002
        first: CardSlice,  # noqa: ARG002  most vendors give a container one slice of a card
    ) -> tuple[Iterable[CardSlice], DeviceLabel | None]:
        """Further slices that a card gives to the same container in addition to the first, and why not one more."""
        return (), None

    def node_fault(self, offer: Offer, ask: Ask) -> DeviceLabel | None:  # noqa: ARG002  most vendors have none
        """Why the node as a whole cannot take the request."""
        return None

    def judge(self, offer: Offer, card: Card, ask: Ask) -> CardSlice | DeviceLabel:
        """The slice that the card would give, or why it gives none."""
        held, traits = offer.of(card), card.effective_traits
        if not card.healthy:
            return DeviceLabel.NOT_HEALTHY
        if traits.cordoned:
            return DeviceLabel.CORDONED
        if not self.has_type(offer, card):
            return DeviceLabel.TYPE
        if not self.has_uuid(offer, card):
            return DeviceLabel.UUID
        memory, cores = self.amounts(card, ask)
        if held.pods and ask.whole and memory == card.memory_mib > 0:
            return DeviceLabel.IN_USE
        if held.pods >= card.shares:
            return DeviceLabel.SLOTS if card.shares > 1 else DeviceLabel.IN_USE
        if held.pods and self.policy(offer).mutex:
            return DeviceLabel.EXCLUSIVE
        if held.memory_mib + memory > card.memory_mib:
            return DeviceLabel.MEMORY
        if held.cores + cores > ALL_CORES:
            return DeviceLabel.CORE
        if cores >= ALL_CORES and held.pods:
            return DeviceLabel.EXCLUSIVE
        if held.pods and held.cores >= ALL_CORES:
            return DeviceLabel.UNITS
        return CardSlice(card.index, cores, memory, ask.part)

    def has_type(self, offer: Offer, card: Card) -> bool:
        """Whether the model is one that the pod's annotations allow and do not exclude (`modelnames`)."""
        wanted, unwanted = listed(offer, self.models_annotation), listed(offer, self.nouse_type)
        return (not wanted or any_names_model(wanted, card.model)) and not any_names_model(unwanted, card.model)

    def has_uuid(self, offer: Offer, card: Card) -> bool:
        wanted = listed(offer, self.use_uuid)
        return (not wanted or card.uuid in wanted) and card.uuid not in listed(offer, self.nouse_uuid)

    def amounts(self, card: Card, ask: Ask) -> tuple[int, int]:
        """MiB and percent of compute that the card has to give."""
        return ask.memory_on(card.memory_mib), ask.cores

    def choose(self, offer: Offer, fitting: Sequence[Fitting], ask: Ask) -> Sequence[CardSlice] | DeviceLabel:  # noqa: ARG002
        """Select `ask.count` of the fitting slices, which come in the order of the pod's policy: the first ones. Without a policy whole cards are ordered by
        index, and parts by remainder. Fewer: the largest number that fits together; a label: none of the fitting ones can be used."""
        return [taken for _, taken in fitting[: ask.count]]

    def card_score(self, offer: Offer, card: Card, taken: CardSlice) -> float:
        """How full the card is with the slice on it, by HAMi's formula (sources: hami-fit): 0 for an idle one, 30 for one with nothing left."""
        slot, core, memory = weights_of(offer.wishes.get(WEIGHTS, ""))
        held = offer.of(card)
        return 10.0 * (
            slot * (held.pods + 1) / max(card.shares, 1)
            + core * (held.cores + taken.cores) / ALL_CORES
            + memory * (held.memory_mib + taken.memory_mib) / max(card.memory_mib, 1)
        )

    def usage_score(self, offer: Offer) -> float:
        held = [offer.of(card) for card in offer.cards]
        shares, memory = sum(card.shares for card in offer.cards), sum(card.memory_mib for card in offer.cards)
        if not held:
            return 0.0
        return 10.0 * (
            sum(card.pods for card in held) / max(shares, 1)
            + sum(card.cores for card in held) / (ALL_CORES * len(held))
            + sum(card.memory_mib for card in held) / max(memory, 1)
        )


def place(offer: Offer, card: Card) -> int:
    """The card's index as its plugin has it: where a node has several kinds, those of the second start at a multiple of 16 (`Vendors.cards_of`)."""
    return card.index - min(one.index for one in offer.cards) // 16 * 16


def together(fitting: Sequence[tuple[Card, CardSlice]], count: int) -> list[CardSlice]:
    """`count` of the slices that fit, from the groups of linked cards with the most of them first; within a group by index."""
    groups: dict[int, list[CardSlice]] = {}
    for card, taken in sorted(fitting, key=lambda each: each[0].index):
        groups.setdefault(card.effective_traits.group, []).append(taken)
    largest_first = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    return [taken for _, slices in largest_first for taken in slices][:count]


def largest_share(offer: Offer, chosen: Sequence[CardSlice]) -> float:
    """The part of the chosen cards that is of one group of linked cards; 0 where one of them is of none."""
    group_of = {card.index: card.effective_traits.group for card in offer.cards}
    groups = Counter(group_of[taken.index] for taken in chosen)
    if not chosen or -1 in groups:
        return 0.0
    return max(groups.values()) / len(chosen)


def listed(offer: Offer, annotation: str) -> tuple[str, ...]:
    """The names in a pod's annotation, separated by commas."""
    text = offer.wishes.get(annotation, "") if annotation else ""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def check_wishes(devices: PodDevices) -> None:
    """Raises InvalidRequest for a wish that no vendor's `fit` could read."""
    weights_of(devices.wished.get(WEIGHTS, ""))


@lru_cache(maxsize=1024)
def weights_of(text: str) -> tuple[float, float, float]:
    """Of slots, cores and memory in the score of a card, from `slot=1,core=1,memory=3`; (1, 1, 1) where nothing is written. Raises InvalidRequest."""
    if not text.strip():
        return 1.0, 1.0, 1.0
    found: dict[str, int] = {}
    for item in text.split(","):
        name, _, value = (part.strip() for part in item.partition("="))
        if (
            name not in ("slot", "core", "memory")
            or name in found
            or not (value.isascii() and value.isdecimal() and len(value) < 7)
        ):
            break
        found[name] = int(value)
    if len(found) != 3 or len(text.split(",")) != 3 or not any(found.values()):
        raise InvalidRequest(
            f"annotation {WEIGHTS} is {sanitized(text, 64)!r}",
            hint="write all three, as slot=1,core=1,memory=3: whole numbers, 0 or more, not all 0",
        )
    return float(found["slot"]), float(found["core"]), float(found["memory"])
