"""Huawei's Ascend NPUs: whole, divided by templates, or shared by HAMi's software (`huawei.com/vnpu-mode: hami-core`) (sources: hami-ascend).

Each chip is a kind with its own resources and templates: a memory request gets the smallest template that covers it, or the whole card above the largest.
Several 910s come from one HCCS group if possible. A 910C is a module of two dies, which are allocated together: a request for one gets both.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hbox_common.errors import InvalidRequest

from .asking import Ask
from .cards import ALL_CORES, Card, CardAllocation, CardSlice
from .cardvendor import CardVendor, Fitting, largest_share, place, together
from .hami import HamiVendor
from .handshake import NODE_LOCK
from .labels import DeviceLabel
from .layout import Layout, parts_of
from .offer import Offer
from .vendor import Completion, Quantity, whole_number


@dataclass(frozen=True, slots=True)
class Template:
    """A size into which Huawei's driver divides a chip."""

    name: str
    memory_mib: int
    cores: int  #: AI cores


@dataclass(frozen=True, slots=True)
class Chip:
    """`memory_mib`: allocatable, `capacity_mib`: installed, which no request can exceed."""

    word: str
    memory_mib: int
    cores: int
    templates: tuple[Template, ...]
    capacity_mib: int
    linked: bool = True  #: whether HCCS groups count
    dies: int = 1  #: of a module, which are given together


def _chip(
    word: str,
    memory_mib: int,
    cores: int,
    *templates: tuple[str, int, int],
    capacity_mib: int = 0,
    linked: bool = True,
    dies: int = 1,
) -> Chip:
    return Chip(word, memory_mib, cores, tuple(Template(*one) for one in templates), capacity_mib or memory_mib, linked, dies)


_B3 = (("vir05_1c_16g", 16_384, 5), ("vir10_3c_32g", 32_768, 10))

#: As in HAMi's chart. Users reported wrong values for the 910B4-1 with some firmware (HAMi issues 1497, 2288).
CHIPS = (
    _chip("Ascend910A", 32_768, 30, ("vir02", 2184, 2), ("vir04", 4369, 4), ("vir08", 8738, 8), ("vir16", 17_476, 16)),
    _chip("Ascend910B2", 65_536, 24, ("vir03_1c_8g", 8192, 3), ("vir06_1c_16g", 16_384, 6), ("vir12_3c_32g", 32_768, 12)),
    _chip("Ascend910B3", 65_536, 20, *_B3),
    _chip("Ascend910B4-1", 65_536, 20, *_B3),
    _chip("Ascend910B4", 32_768, 20, ("vir05_1c_8g", 8192, 5), ("vir10_3c_16g", 16_384, 10)),
    _chip("Ascend910C", 65_536, 20, *_B3, dies=2),
    _chip(
        "Ascend310P", 21_527, 8, ("vir01", 3072, 1), ("vir02", 6144, 2), ("vir04", 12_288, 4), capacity_mib=24_576, linked=False
    ),
)

MODE, SOFT = "huawei.com/vnpu-mode", "hami-core"

#: Of a node: whether HAMi's software shares its cards.
SOFT_NODE = "hami-vnpu-core"

#: What a node's score gets for cards of one HCCS group.
_GROUP_WEIGHT = 10.0
_NO_WISHES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ascend(HamiVendor):
    chip: Chip
    soft: bool = False  #: whether HAMi's software shares the cards of nodes that do not say (`hamiVnpuCore`)

    def ask(self, asked: Mapping[str, Quantity], wishes: Mapping[str, str] = _NO_WISHES) -> Ask | None:
        count, memory, cores = (whole_number(name, asked) for name in (self.cards, self.memory, self.cores))
        if not count and not memory and not cores:
            return None
        completed = () if count else (self.cards,)
        named = self.bounded(count or 1)
        dies = self.chip.dies
        if named > 1 and named % dies:
            raise InvalidRequest(f"{self.cards} is {named}", hint=f"a module has {dies} dies: write 1, or a multiple of {dies}")
        count = -(-named // dies) * dies
        unit = self.memory_unit_mib
        memory = None if memory is None else memory * unit
        if memory is not None and not 0 < memory <= self.chip.capacity_mib:
            of = "MiB" if unit == 1 else f"{unit} MiB"
            hint = f"write {of} of one card, 1 to {self.chip.capacity_mib // unit}, or leave it out for whole cards"
            raise InvalidRequest(f"{self.memory} is {asked[self.memory]}", hint=hint)
        if wishes.get(MODE, "").strip() == SOFT:
            if cores is not None and cores > ALL_CORES:
                raise InvalidRequest(f"{self.cores} is {cores}", hint="write the percentage of one card's compute, 0 to 100")
            return Ask(self.kind, count, cores=cores or 0, memory_mib=memory or 0, completed=completed)
        if cores:
            raise InvalidRequest(
                f"{self.cores} is {cores}, and templates have their own compute",
                hint=f"leave it out, or write the annotation {MODE}: {SOFT}",
            )
        template = next((one for one in self.chip.templates if memory is not None and memory <= one.memory_mib), None)
        if template is None:
            return Ask(self.kind, count, cores=0, completed=completed)
        if named > 1:
            raise InvalidRequest(
                f"{self.memory} is {memory} of {named} cards",
                hint=f"a part of a card needs {self.cards}: 1; several cards are whole cards",
            )
        return Ask(self.kind, count, cores=0, memory_mib=template.memory_mib, part=template.name, completed=completed)

    def complete(
        self,
        asked: Mapping[str, Quantity],
        wishes: Mapping[str, str] = _NO_WISHES,
        container: str = "",  # noqa: ARG002  a vendor to which names are nothing
    ) -> Completion:
        """A template's memory where another amount is written, and both dies of a module where one is asked for."""
        ask = self.ask(asked, wishes)
        amounts: dict[str, int] = {}
        if ask is not None:
            if whole_number(self.cards, asked) != ask.count:
                amounts[self.cards] = ask.count
            # Rounded down to units: the next one up may be another template.
            if ask.part and whole_number(self.memory, asked) != (rounded := ask.memory_mib // self.memory_unit_mib):
                amounts[self.memory] = rounded
        return Completion(amounts)

    def node_fault(self, offer: Offer, ask: Ask) -> DeviceLabel | None:  # noqa: ARG002
        if offer.wishes.get(MODE, "").strip() != SOFT:
            return None
        value = offer.facts.get(SOFT_NODE)
        return None if value == "true" or (value is None and self.soft) else DeviceLabel.MODE

    def choose(self, offer: Offer, fitting: Sequence[Fitting], ask: Ask) -> Sequence[CardSlice] | DeviceLabel:
        if ask.count == 1:
            return CardVendor.choose(self, offer, fitting, ask)
        if self.chip.dies > 1:
            return self._modules(offer, fitting)[: ask.count]
        if self.chip.linked and all(card.effective_traits.group >= 0 for card in offer.cards):
            return together(fitting, ask.count)
        return CardVendor.choose(self, offer, fitting, ask)

    def _modules(self, offer: Offer, fitting: Sequence[Fitting]) -> list[CardSlice]:
        """The dies of modules of which all fit, in the pod's order."""
        modules: dict[int, list[CardSlice]] = {}
        for card, taken in fitting:
            modules.setdefault(place(offer, card) // self.chip.dies, []).append(taken)
        return [s for dies in modules.values() if len(dies) == self.chip.dies for s in sorted(dies, key=lambda die: die.index)]

    def choice_score(self, offer: Offer, ask: Ask, chosen: Sequence[CardSlice]) -> float:  # noqa: ARG002
        return _GROUP_WEIGHT * largest_share(offer, chosen) if self.chip.linked else 0.0

    def admits(self, card: Card, held: CardAllocation, taken: CardSlice) -> bool:  # noqa: ARG002  memory determines the remainder
        """Templates of the chip, with their memory."""
        parts = parts_of(taken.part)
        sizes = {template.name: template.memory_mib for template in self.chip.templates}
        if not parts or not all(part in sizes for part in parts):
            return not parts
        # Containers that follow one another count once, and one of them may have the whole card.
        memory = [sizes[part] for part in parts]
        return max(memory) <= taken.memory_mib <= sum(memory) or taken.memory_mib == card.memory_mib

    def taken(self, card: Card, memory_mib: int, cores: int, ask: Ask | None, wishes: Mapping[str, str]) -> CardSlice:  # noqa: ARG002
        soft = wishes.get(MODE, "").strip() == SOFT
        template = next((one.name for one in self.chip.templates if not soft and one.memory_mib == memory_mib), "")
        return CardSlice(card.index, min(cores, ALL_CORES), memory_mib, template)

    def annotate(self, layout: Layout, cards: Mapping[int, Card], *, node: str = "", now: float = 0.0) -> dict[str, str]:
        notes = HamiVendor.annotate(self, layout, cards, node=node, now=now)
        own = []
        for s in (s for one in layout for s in one):
            record = {"UUID": cards[s.index].uuid, "temp": s.part, "memory": s.memory_mib, "core": s.cores}
            own.append({name: value for name, value in record.items() if value})
        return notes | {f"huawei.com/{self.kind}": json.dumps(own, separators=(",", ":")), "predicate-time": str(int(now))}


def kind_of(chip: Chip) -> Ascend:
    """The kind of a chip, with the names that HAMi gives its resources and annotations."""
    word = chip.word
    use, nouse = f"hami.io/use-{word}-uuid", f"hami.io/no-use-{word}-uuid"
    return Ascend(
        name=word.lower(),
        kind=word,
        cards=f"huawei.com/{word}",
        cores=f"huawei.com/{word}-core",
        memory=f"huawei.com/{word}-memory",
        register_annotation=f"hami.io/node-register-{word}",
        use_uuid=use,
        nouse_uuid=nouse,
        wishes=(use, nouse, MODE),
        facts=(SOFT_NODE,),
        allocated_annotation=f"hami.io/{word}-devices-allocated",
        to_allocate_annotation=f"hami.io/{word}-devices-to-allocate",
        node_lock=NODE_LOCK,
        always_fits=True,
        chip=chip,
    )


ASCEND = tuple(kind_of(chip) for chip in CHIPS)
