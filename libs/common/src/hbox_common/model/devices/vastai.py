"""Vastai's cards, whole or die by die (sources: hami-vastai).

Dies of one card are linked better than others: several dies come from the cards with the most that fit, and a node's score is the largest part that is of one
card. Under the policy `mutex` a card is one thing: none of its dies is given where one is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .asking import Ask
from .biren import SlotVendor
from .cards import Card, CardSlice
from .cardvendor import CardVendor, largest_share, together
from .handshake import NODE_LOCK
from .labels import DeviceLabel
from .offer import Offer

_USE_UUID, _NOUSE_UUID = "vastaitech.com/use-gpuuuid", "vastaitech.com/nouse-gpuuuid"
DIE = "die"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vastai(SlotVendor):
    def judge(self, offer: Offer, card: Card, ask: Ask) -> CardSlice | DeviceLabel:
        found = CardVendor.judge(self, offer, card, ask)
        if isinstance(found, CardSlice) and _dies(offer) and self.policy(offer).mutex:
            group = card.effective_traits.group
            if group >= 0 and any(one.effective_traits.group == group and offer.of(one).pods for one in offer.cards):
                return DeviceLabel.EXCLUSIVE
        return found

    def choose(self, offer: Offer, fitting: Sequence[tuple[Card, CardSlice]], ask: Ask) -> Sequence[CardSlice] | DeviceLabel:
        if ask.count == 1 or not _dies(offer):
            return CardVendor.choose(self, offer, fitting, ask)
        return together(fitting, ask.count)

    def usage_score(self, offer: Offer) -> float:
        """Of dies none: HAMi knows no amounts of them, and which are of one card decides."""
        return 0.0 if _dies(offer) else CardVendor.usage_score(self, offer)

    def choice_score(self, offer: Offer, ask: Ask, chosen: Sequence[CardSlice]) -> float:  # noqa: ARG002
        return largest_share(offer, chosen) if _dies(offer) else 0.0


def _dies(offer: Offer) -> bool:
    return bool(offer.cards) and offer.cards[0].effective_traits.mode == DIE


VASTAI = Vastai(
    name="vastai",
    kind="Vastai",
    cards="vastaitech.com/va",
    register_annotation="hami.io/node-va-register",
    type_prefix="Vastai-",
    use_uuid=_USE_UUID,
    nouse_uuid=_NOUSE_UUID,
    wishes=(_USE_UUID, _NOUSE_UUID),
    allocated_annotation="hami.io/Vastai-devices-allocated",
    to_allocate_annotation="hami.io/Vastai-devices-to-allocate",
    node_lock=NODE_LOCK,
    always_fits=True,
)
