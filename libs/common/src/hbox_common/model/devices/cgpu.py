"""Alibaba's shared GPUs: cGPU of ACK, and its open plugin gpushare-device-plugin, both with `aliyun.com/gpu-mem`.

A node publishes sums: `aliyun.com/gpu-count` cards with `aliyun.com/gpu-mem` GiB in total, all equal, and if compute is divided too (ACK's node label
`ack.node.gpu.schedule: core_mem`) 100 of `aliyun.com/gpu-core.percentage` per card. A container requests GiB of one card; a pod's containers share one card
(policy SingleDevice of ACK's scheduler). Pods that request compute are placed on nodes that divide it, others on nodes that do not, as in ACK.

The plugins' annotations of a pod are written in both forms: `ALIYUN_COM_GPU_MEM_*` (gpushare-scheduler-extender), one card and the pod's sum; and
`scheduler.framework.gpushare.*` with `gpushare.alibabacloud.com/core-percentage`, by container and card (Koordinator's plugin for ACK). They find a pod by its
amount: of two pods with equal amounts that arrive on a node together, each may get the other's card, and the allocated amounts stay correct.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hbox_common.errors import InvalidRequest

from .asking import Ask
from .cards import ALL_CORES, MAX_CARDS, MAX_MEMORY_MIB, Card, CardSlice, CardTraits
from .hami import REGISTER_BYTES, CountedVendor
from .labels import DeviceLabel
from .layout import Layout
from .offer import Offer
from .vendor import NodeReport, Quantity, whole_number

_GIB = 1024

#: GiB to a card: more are units of MiB, which requests would have to be read by as well.
_MOST_GIB = 1024

#: How a card is shared where compute is divided too.
CORE_MEM = "core_mem"

ALLOCATION, CORES = "scheduler.framework.gpushare.allocation", "gpushare.alibabacloud.com/core-percentage"
_INDEX, _AMOUNT = "ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_POD"
_NO_WISHES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CGpu(CountedVendor):
    def register(self, node: NodeReport) -> tuple[Card, ...]:
        count, memory = node.amounts.get(self.cards, 0), node.amounts.get(self.memory, 0)
        if not count or not memory:
            return ()
        if count > MAX_CARDS:
            raise InvalidRequest(f"allocatable {self.cards}: {count} cards on one node")
        if memory // count > _MOST_GIB:
            raise InvalidRequest(
                f"allocatable {self.memory}: {memory} for {count} cards is no number of GiB: start the device plugin with --memory-unit=GiB"
            )
        return CountedVendor.register(self, node)

    def card(self, node: NodeReport, index: int, count: int) -> Card:
        gib = node.amounts[self.memory] // count
        divided = CardTraits(mode=CORE_MEM) if node.amounts.get(self.cores, 0) >= ALL_CORES * count else None
        return Card(index, f"{node.name}-{self.word}-{index}", "", gib * _GIB, max(gib, 1), numa=0, traits=divided)

    def registered(self, node: NodeReport) -> bool:
        return bool(node.amounts.get(self.cards, 0) and node.amounts.get(self.memory, 0))

    def offered(self, cards: Sequence[Card], amount: int) -> int:  # noqa: ARG002  kubelet knows GiB
        return sum(card.shares for card in cards)

    def ask(self, asked: Mapping[str, Quantity], wishes: Mapping[str, str] = _NO_WISHES) -> Ask | None:  # noqa: ARG002
        if whole_number(self.cards, asked):
            raise InvalidRequest(f"{self.cards} counts a node's cards", hint=f"write GiB of one card as {self.memory}")
        gib, cores = whole_number(self.memory, asked), whole_number(self.cores, asked)
        if not gib:
            if cores:
                raise InvalidRequest(f"{self.cores} given without {self.memory}", hint=f"add {self.memory}: GiB of the card")
            return None
        if gib > MAX_MEMORY_MIB // _GIB:
            raise InvalidRequest(f"{self.memory} is {gib}", hint="write GiB of one card")
        if cores is not None and not 1 <= cores <= ALL_CORES:
            raise InvalidRequest(f"{self.cores} is {cores}", hint="write the percentage of one card's compute, 1 to 100")
        return Ask(self.kind, 1, cores=cores or 0, memory_mib=gib * _GIB)

    def amounts_of(self, count: int, memory_mib: int = 0, cores: int = 0) -> Mapping[str, int]:  # noqa: ARG002  one card to a pod
        return {self.memory: max(-(-memory_mib // _GIB), 1)} | ({self.cores: cores} if cores else {})

    def judge(self, offer: Offer, card: Card, ask: Ask) -> CardSlice | DeviceLabel:
        if (ask.cores > 0) != (card.effective_traits.mode == CORE_MEM):
            return DeviceLabel.MODE
        found = CountedVendor.judge(self, offer, card, ask)
        if isinstance(found, CardSlice) and any(mine.index != card.index for mine in offer.mine):
            return DeviceLabel.CUSTOM
        return found

    def annotate(self, layout: Layout, cards: Mapping[int, Card], *, node: str = "", now: float = 0.0) -> dict[str, str]:  # noqa: ARG002
        taken = [(number, s) for number, one in enumerate(layout) for s in one]
        if not taken:
            return {}
        first = cards[taken[0][1].index]
        place = {index: card.uuid.rpartition("-")[2] for index, card in cards.items()}
        when = str(int(now * 1e9))
        memory = {str(number): {place[s.index]: s.memory_mib // _GIB} for number, s in taken}
        cores = {str(number): {place[s.index]: s.cores} for number, s in taken if s.cores}
        return {
            _INDEX: place[first.index],
            _AMOUNT: str(sum(s.memory_mib for _, s in taken) // _GIB),
            "ALIYUN_COM_GPU_MEM_DEV": str(first.memory_mib // _GIB),
            "ALIYUN_COM_GPU_MEM_ASSUME_TIME": when,
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
            ALLOCATION: _text(memory),
            "scheduler.framework.gpushare.assume-time": when,
            "scheduler.framework.gpushare.assigned": "false",
        } | ({CORES: _text(cores)} if cores else {})

    def assignment(self, node: str, now: float) -> dict[str, str]:  # noqa: ARG002
        """Nothing of HAMi's: its plugins have no part in it."""
        return {}

    @property
    def allocated_annotations(self) -> tuple[str, ...]:
        return ALLOCATION, _INDEX

    def allocated(self, annotations: Mapping[str, str]) -> str:
        """In ACK's form, also where only the open plugin's is written."""
        if text := annotations.get(ALLOCATION, ""):
            return text
        index, gib = annotations.get(_INDEX, ""), annotations.get(_AMOUNT, "")
        known = all(text.isascii() and text.isdecimal() and len(text) < 7 for text in (index, gib))
        return _text({"0": {index: int(gib)}}) if known else ""

    def rebuild(
        self,
        allocated: str,
        cards: Sequence[Card],
        asks: Sequence[Ask],
        wishes: Mapping[str, str] = _NO_WISHES,  # noqa: ARG002
    ) -> Layout:
        if len(allocated) > REGISTER_BYTES:
            return ()
        try:
            found = json.loads(allocated)
        except (ValueError, RecursionError):
            return ()
        by_place = {card.uuid.rpartition("-")[2]: card for card in cards}
        layout: list[tuple[CardSlice, ...]] = []
        for number in sorted(int(key) for key in found if key.isdecimal() and len(key) < 4) if isinstance(found, dict) else ():
            own = found.get(str(number))
            ask = next((ask for ask in asks if ask.container == number), None)
            slices = [
                CardSlice(by_place[place].index, ask.cores if ask is not None else 0, min(gib * _GIB, MAX_MEMORY_MIB))
                for place, gib in (own.items() if isinstance(own, dict) else ())
                if place in by_place and type(gib) is int and gib > 0
            ]
            layout += [()] * (number - len(layout)) + [tuple(slices)]
        return tuple(layout) if any(layout) else ()


def _text(value: Mapping[str, Mapping[str, int]]) -> str:
    return json.dumps(value, separators=(",", ":"))


CGPU = CGpu(
    name="aliyun",
    kind="cGPU",
    cards="aliyun.com/gpu-count",
    cores="aliyun.com/gpu-core.percentage",
    memory="aliyun.com/gpu-mem",
    memory_unit_mib=_GIB,
    word="cgpu",
    misnamed={"aliyun.com/gpu-core": "aliyun.com/gpu-core.percentage"},
    unsupported=("aliyun.com/gpu-count", "ack.gpushare.placement"),
    allocated_annotation=ALLOCATION,
    without_init=True,
    always_fits=True,
)
