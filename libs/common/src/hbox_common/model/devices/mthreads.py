"""Moore Threads' GPUs, shared as sGPUs (sources: hami-mthreads).

The plugin registers sums: 16 of `sgpu-core` make a card, which has its part of `sgpu-memory`, in units of 512 MiB. All containers of a pod are on one card.
Compute in the books is in percent, rounded down: sixteenths of one card never come to more than 100 unless they are more than 16, since what rounding leaves
out of 17 is less than one of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hbox_common.errors import InvalidRequest

from .asking import Ask
from .cambricon import SummedVendor
from .cards import ALL_CORES, Card, CardSlice
from .hami import CountedVendor
from .labels import DeviceLabel
from .layout import Layout
from .offer import Offer
from .vendor import Completion, Quantity, whole_number

#: Of `sgpu-memory`, for one card.
MEMORY_SIZES = (2, 4, 8, 16, 32, 64, 96)

#: Of `sgpu-core`, to a card.
UNITS = 16

#: Of a pod: how many whole cards, for the plugin.
REQUESTED = "mthreads.com/request-gpu-num"

_USE_UUID, _NOUSE_UUID = "mthreads.ai/use-gpuuuid", "mthreads.ai/nouse-gpuuuid"
_NO_WISHES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mthreads(SummedVendor):
    def ask(self, asked: Mapping[str, Quantity], wishes: Mapping[str, str] = _NO_WISHES) -> Ask | None:  # noqa: ARG002
        count, memory, cores = (whole_number(name, asked) for name in (self.cards, self.memory, self.cores))
        if not count and not memory and not cores:
            return None
        completed = () if count else (self.cards,)
        count = self.bounded(count or 1)
        if count > 1 or memory is None:
            return Ask(self.kind, count, completed=completed)
        if memory not in MEMORY_SIZES:
            sizes = ", ".join(map(str, MEMORY_SIZES))
            raise InvalidRequest(f"{self.memory} is {memory}", hint=f"write one of {sizes}, in units of 512 MiB")
        if cores is not None and cores > UNITS:
            raise InvalidRequest(f"{self.cores} is {cores}", hint=f"write how many of a card's {UNITS} cores, 0 to {UNITS}")
        percent = (cores or 0) * ALL_CORES // UNITS
        return Ask(self.kind, 1, cores=percent, memory_mib=memory * self.memory_unit_mib, completed=completed)

    def complete(
        self, asked: Mapping[str, Quantity], wishes: Mapping[str, str] = _NO_WISHES, container: str = ""
    ) -> Completion:
        found = SummedVendor.complete(self, asked, wishes, container)
        ask = self.ask(asked, wishes)
        return replace(found, annotations={REQUESTED: str(ask.count)}) if ask is not None and ask.count > 1 else found

    def amounts_of(self, count: int, memory_mib: int = 0, cores: int = 0) -> Mapping[str, int]:
        if not memory_mib or count > 1:
            return {self.cards: count}
        needed = -(-memory_mib // self.memory_unit_mib)
        amounts = {self.cards: count, self.memory: next((size for size in MEMORY_SIZES if size >= needed), MEMORY_SIZES[-1])}
        return amounts | {self.cores: -(-cores * UNITS // ALL_CORES)} if cores else amounts

    def judge(self, offer: Offer, card: Card, ask: Ask) -> CardSlice | DeviceLabel:
        found = CountedVendor.judge(self, offer, card, ask)
        if isinstance(found, CardSlice) and any(mine.index != card.index for mine in offer.mine):
            return DeviceLabel.CUSTOM
        return found

    def taken(self, card: Card, memory_mib: int, cores: int, ask: Ask | None, wishes: Mapping[str, str]) -> CardSlice:  # noqa: ARG002
        return CardSlice(card.index, min(cores, UNITS) * ALL_CORES // UNITS, memory_mib)

    def device_text(self, card: Card, taken: CardSlice) -> str:
        return f"{card.uuid},{self.kind},{taken.memory_mib},{-(-taken.cores * UNITS // ALL_CORES)}"

    def annotate(self, layout: Layout, cards: Mapping[int, Card], *, node: str = "", now: float = 0.0) -> dict[str, str]:
        notes = CountedVendor.annotate(self, layout, cards, node=node, now=now)
        own = next((one for one in layout if one), ())
        if len(own) > 1:
            notes["mthreads.com/request-gpu-num"] = str(len(own))  # as HAMi's webhook writes it
        return notes | {
            "mthreads.com/gpu-index": ",".join(cards[s.index].uuid.rpartition("-")[2] for s in own),
            "mthreads.com/predicate-node": node,
            "mthreads.com/predicate-time": str(int(now * 1e9)),
        }


MTHREADS = Mthreads(
    name="mthreads",
    kind="Mthreads",
    cards="mthreads.com/vgpu",
    cores="mthreads.com/sgpu-core",
    memory="mthreads.com/sgpu-memory",
    memory_unit_mib=512,
    units=UNITS,
    word="mthreads",
    model="MTT",
    shares=100,
    use_uuid=_USE_UUID,
    nouse_uuid=_NOUSE_UUID,
    wishes=(_USE_UUID, _NOUSE_UUID),
    allocated_annotation="hami.io/mthreads-vgpu-devices-allocated",
    to_allocate_annotation="hami.io/mthreads-vgpu-devices-to-allocate",
)
