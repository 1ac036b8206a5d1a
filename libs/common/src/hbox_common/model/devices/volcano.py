"""Volcano's vGPU: cards of NVIDIA that volcano-vgpu-device-plugin shares, under names of Volcano's own (reference hami §2.16, volcano §4).

The plugin is HAMi's, with another protocol: a register of records `uuid,shares,MiB,type,healthy,mode`; MIG only by geometry; amounts of memory in units of
`gpuMemoryFactor` MiB everywhere, on nodes and in allocations as in requests. Cards are chosen by Volcano's rule: packed by memory, spread by pods, and where no
policy is set the highest index first. A node has cards of this kind, or NVIDIA's with HAMi's plugin, never the same cards as both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hbox_common.errors import InvalidRequest

from .asking import Ask
from .cards import MAX_MEMORY_MIB, Card, CardSlice
from .cardvendor import Fitting
from .fitting import Offer
from .hami import REGISTER_BYTES, registered_cards
from .handshake import assignment
from .layout import Layout
from .nvidia import NvidiaVendor
from .vendor import BINPACK, SPREAD, NodeReport

_FIELDS = 6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VolcanoVendor(NvidiaVendor):
    def register(self, node: NodeReport) -> tuple[Card, ...]:
        """Only what the plugin registered: without a register nobody knows of any card."""
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
        return NvidiaVendor.has_type(self, offer, card) and mode in ("", card.says.mode)

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
    kind="volcano-vgpu",
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
    ),
    allocated_annotation="volcano.sh/vgpu-ids-new",
    to_allocate_annotation="volcano.sh/devices-to-allocate",
    without_init=True,
)
