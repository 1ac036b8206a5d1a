"""NVIDIA, shared by HAMi (sources: hami-nvidia).

Without HAMi's register the labels are those of GPU feature discovery. In addition to HAMi's generic rule: the sharing mode of cards (`hami-core`, `mig`,
`mps`), which a pod may request; cards cordoned one by one; links between cards (`linkscore`); instances of MIG (`mig`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from . import linkscore, mig
from .asking import Ask
from .cards import ALL_CORES, Card, CardAllocation, CardSlice
from .cardvendor import Fitting
from .hami import HamiVendor
from .handshake import NODE_LOCK
from .labels import DeviceLabel
from .layout import Layout
from .offer import Offer
from .vendor import Completion, Figures, NodeReport, Quantity, whole_number

GPU = "nvidia.com/gpu"
GPU_CORES = "nvidia.com/gpucores"
GPU_MEMORY = "nvidia.com/gpumem"
GPU_MEMORY_PERCENT = "nvidia.com/gpumem-percentage"

#: Environment variables read by HAMi's library in the container.
TASK_PRIORITY, CORE_POLICY = "CUDA_TASK_PRIORITY", "GPU_CORE_UTILIZATION_POLICY"

_NO_WISHES: Mapping[str, str] = {}

#: Of a node, written by an operator: ids of cards that take no new work. Read up to so many characters: a thousand ids.
CORDON, CORDON_CHARS = "hami.io/device-cordon", 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NvidiaVendor(HamiVendor):
    links_annotation: str = ""  #: of a node: how well its cards are linked
    record_annotation: str = ""  #: of a pod: its instances of MIG
    geometries: mig.Geometries = mig.KNOWN_GEOMETRIES  #: of cards in MIG whose plugin reports no profiles
    #: how HAMi's library holds containers to their compute, where that is not its own default (`gpuCorePolicy`)
    core_policy: str = ""

    def complete(
        self, asked: Mapping[str, Quantity], wishes: Mapping[str, str] = _NO_WISHES, container: str = ""
    ) -> Completion:
        found = HamiVendor.complete(self, asked, wishes, container)
        priority = whole_number(self.priority, asked) if self.priority else None
        env = {TASK_PRIORITY: str(priority)} if priority is not None else {}
        return replace(found, env=env | ({CORE_POLICY: self.core_policy} if self.core_policy else {}))

    def register(self, node: NodeReport) -> tuple[Card, ...]:
        """As for all of HAMi's vendors, with additional card annotations. An unreadable link matrix is ignored: links are a preference and must not disable a
        node."""
        cards = HamiVendor.register(self, node)
        cordoned = {name.strip() for name in node.annotations.get(CORDON, "")[:CORDON_CHARS].split(",")}
        cards = tuple(self._divided(card) for card in cards)
        if not cordoned.isdisjoint([card.uuid for card in cards]):
            cards = tuple(
                replace(card, traits=replace(card.effective_traits, cordoned=True)) if card.uuid in cordoned else card
                for card in cards
            )
        return linkscore.linked(cards, node.annotations.get(self.links_annotation, ""))

    def _divided(self, card: Card) -> Card:
        """If the plugin reports no profiles of a card that it divides, the geometries known to its release apply."""
        if card.effective_traits.mode != mig.MIG or card.effective_traits.profiles:
            return card
        known = mig.known_profiles(f"{self.type_prefix}{card.model}", self.geometries)
        return replace(card, traits=replace(card.effective_traits, profiles=known)) if known else card

    def divides(self, offer: Offer) -> bool:
        """In MIG several instances of one card may go to one container."""
        mode = offer.wishes.get(self.mode_annotation, mig.MIG) if self.mode_annotation else mig.MIG
        return mig.MIG in mode and any(card.effective_traits.mode == mig.MIG for card in offer.cards)

    def judge(self, offer: Offer, card: Card, ask: Ask) -> CardSlice | DeviceLabel:
        """As for all of HAMi's vendors; a card in MIG then gives an instance. A card in use by an unreadable instance is unusable."""
        held = offer.of(card)
        divided = card.effective_traits.mode == mig.MIG
        taken = mig.free_of(card, held) if divided else None
        if (taken is None) if divided else bool(held.parts):
            return DeviceLabel.NOT_HEALTHY
        found = HamiVendor.judge(self, offer, card, ask)
        if taken is None or isinstance(found, DeviceLabel):
            return found
        return self._instance(card, held, taken, ask) or DeviceLabel.MIG

    def further(self, offer: Offer, card: Card, ask: Ask, first: CardSlice) -> tuple[Sequence[CardSlice], DeviceLabel | None]:
        """All instances of a card that is divided, as many as are asked for."""
        if card.effective_traits.mode != mig.MIG:
            return (), None
        held, last = offer.of(card).copy(), first
        more: list[CardSlice] = []
        while len(more) + 1 < ask.count:
            held.book(last)
            taken = mig.free_of(card, held)
            found = self._instance(card, held, taken, ask) if taken is not None and held.pods < card.shares else None
            if found is None:
                return more, DeviceLabel.MIG
            more.append(found)
            last = found
        return more, None

    def _instance(self, card: Card, held: CardAllocation, taken: mig.Taken, ask: Ask) -> CardSlice | None:
        """Counted with the instance's memory, and its compute where that is known: never more than the card has left, by whatever its plugin rounds."""
        memory_mib, cores = self.amounts(card, ask)
        found = mig.instance(card, taken, memory_mib)
        left_mib, left = card.memory_mib - held.memory_mib, ALL_CORES - held.cores
        if found is None or left_mib < memory_mib or (not found.profile.units and left < cores):
            return None
        own = found.profile.units or cores
        return CardSlice(card.index, min(own, left), min(found.profile.memory_mib, left_mib), found.part)

    def admits(self, card: Card, held: CardAllocation, taken: CardSlice) -> bool:
        """Whether the instances fit in addition to the allocated ones; a card that is not divided has none."""
        return mig.admits(card, held, taken.part)

    def allocated(self, annotations: Mapping[str, str]) -> str:
        written = HamiVendor.allocated(self, annotations)
        return mig.with_record(written, annotations.get(self.record_annotation, "")) if self.record_annotation else written

    def annotate(self, layout: Layout, cards: Mapping[int, Card], *, node: str = "", now: float = 0.0) -> dict[str, str]:
        """Also which instances of MIG by placement, for the plugin to make."""
        notes = HamiVendor.annotate(self, layout, cards, node=node, now=now)
        instances = mig.record(layout, cards) if notes and self.record_annotation else ""
        return notes | {self.record_annotation: instances} if instances else notes

    def device_id(self, card: Card, taken: CardSlice) -> str:
        """An instance by geometry follows the card's id."""
        return (
            f"{card.uuid}[{taken.part}]"
            if card.effective_traits.mode == mig.MIG and taken.part and "@" not in taken.part
            else card.uuid
        )

    def device_text(self, card: Card, taken: CardSlice) -> str:
        return f"{self.device_id(card, taken)},NVIDIA,{taken.memory_mib // self.allocated_unit_mib},{taken.cores}"

    def identity(self, text: str) -> tuple[str, str]:
        return mig.identity(text)

    def has_type(self, offer: Offer, card: Card) -> bool:
        """Also by how the card is shared: the pod's word has to contain the card's, as in HAMi."""
        mode = offer.wishes.get(self.mode_annotation, "") if self.mode_annotation else ""
        return (not mode or card.effective_traits.mode in mode) and HamiVendor.has_type(self, offer, card)

    def choose(self, offer: Offer, fitting: Sequence[Fitting], ask: Ask) -> Sequence[CardSlice]:
        """By links if the pod's policy requests it: several cards with the best links, or one card with the least loss for the others."""
        if not self.policy(offer).topology or len(fitting) <= ask.count:
            return [taken for _, taken in fitting[: ask.count]]
        chosen = linkscore.chosen(offer.cards, [card for card, _ in fitting], ask.count)
        return [fitting[place][1] for place in chosen]


NVIDIA = NvidiaVendor(
    name="nvidia",
    kind="NVIDIA",
    cards=GPU,
    cores=GPU_CORES,
    memory=GPU_MEMORY,
    memory_percent=GPU_MEMORY_PERCENT,
    priority="nvidia.com/priority",
    partitions="nvidia.com/mig-",
    no_models=frozenset({f"{GPU}.shared"}),  # as the plugin may call cards that it shares by time: a resource of its own
    register_annotation="hami.io/node-nvidia-register",
    type_prefix="NVIDIA-",
    count_label="nvidia.com/gpu.count",
    replicas_label="nvidia.com/gpu.replicas",
    model_label="nvidia.com/gpu.product",
    memory_label="nvidia.com/gpu.memory",
    models_annotation="nvidia.com/use-gputype",
    mode_annotation="nvidia.com/vgpu-mode",
    clique_label="nvidia.com/gpu.clique",  # by its feature discovery where multi-node NVLink is up: <ClusterUUID>.<CliqueID>
    nouse_type="nvidia.com/nouse-gputype",
    use_uuid="nvidia.com/use-gpuuuid",
    nouse_uuid="nvidia.com/nouse-gpuuuid",
    numa_bind="nvidia.com/numa-bind",
    links_annotation="hami.io/node-nvidia-score",
    record_annotation=mig.RECORD,
    wishes=(
        "nvidia.com/nouse-gputype",
        "nvidia.com/use-gpuuuid",
        "nvidia.com/nouse-gpuuuid",
        "nvidia.com/numa-bind",
        "nvidia.com/vgpu-mode",
    ),
    allocated_annotation="hami.io/vgpu-devices-allocated",
    to_allocate_annotation="hami.io/vgpu-devices-to-allocate",
    node_lock=NODE_LOCK,
    # By NVIDIA's data sheets; of models that come in several shapes the one with NVLink (SXM).
    figures={
        "P4": Figures(5.5, 32), "P40": Figures(12, 32), "P100": Figures(21, 160), "T4": Figures(65, 32), "V100": Figures(125, 300),
        "A2": Figures(18, 16), "A10": Figures(125, 64), "A16": Figures(18, 64), "A30": Figures(165, 200), "A40": Figures(150, 112),
        "A100": Figures(312, 600), "A800": Figures(312, 400), "L4": Figures(121, 64), "L20": Figures(119, 64), "L40": Figures(181, 64),
        "L40S": Figures(362, 64), "H20": Figures(148, 900), "H100": Figures(989, 900), "H800": Figures(989, 400), "H200": Figures(989, 900),
        "GH200": Figures(989, 900), "B200": Figures(2250, 1800), "GB200": Figures(2500, 1800), "RTX 3090": Figures(71, 32),
        "RTX 4090": Figures(165, 64),
    },
)  # fmt: skip
