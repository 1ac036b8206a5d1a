"""Cambricon's MLUs, shared by its dynamic sMLU plugin (sources: hami-cambricon).

The plugin registers sums: cards are what 100 of its `vcore` make, each with its part of `vmemory`, in units of 256 MiB. Doc and code of HAMi differ over
several cards with a part of each: here several are taken whole, as its documentation has it, since the plugin divides one card at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hbox_common.errors import InvalidRequest

from .asking import Ask
from .cards import ALL_CORES, MAX_CARDS, MAX_MEMORY_MIB, Card
from .hami import CountedVendor, HamiVendor
from .layout import Layout
from .vendor import NodeReport, Quantity

_USE_UUID, _NOUSE_UUID = "cambricon.com/use-gpuuuid", "cambricon.com/nouse-gpuuuid"
_NO_WISHES: Mapping[str, str] = {}

#: Of a pod: whether the plugin has handed its sMLU over. Cambricon's own plugin (to v2.0.23) reads the word with its slip of the pen, and passes over pods
#: without it; HAMi has mended that from v2.7.1 on, in its scheduler alone.
ASSIGNED = ("CAMBRICON_DSMLU_ASSIGHED", "CAMBRICON_DSMLU_ASSIGNED")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SummedVendor(CountedVendor):
    """Cards of which a node publishes only total compute and memory; a container with several gets whole ones."""

    units: int  #: of the resource `cores`, to a card

    def register(self, node: NodeReport) -> tuple[Card, ...]:
        compute = node.amounts.get(self.cores, 0)
        count = -(-compute // self.units)
        if count > MAX_CARDS:
            raise InvalidRequest(f"allocatable {self.cores}: {compute}, as of {count} cards on one node")
        return tuple(self.card(node, index, count) for index in range(count))

    def card(self, node: NodeReport, index: int, count: int) -> Card:  # noqa: ARG002
        memory = node.amounts.get(self.memory, 0) * self.memory_unit_mib * self.units // node.amounts[self.cores]
        return Card(
            index=index,
            uuid=f"{node.name}-{self.word}-{index}",
            model=self.model,
            memory_mib=min(memory, MAX_MEMORY_MIB),
            shares=self.shares,
            numa=0,
        )

    def ask(self, asked: Mapping[str, Quantity], wishes: Mapping[str, str] = _NO_WISHES) -> Ask | None:
        ask = HamiVendor.ask(self, asked, wishes)
        return ask if ask is None or ask.count == 1 else Ask(self.kind, ask.count)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cambricon(SummedVendor):
    def annotate(self, layout: Layout, cards: Mapping[int, Card], *, node: str = "", now: float = 0.0) -> dict[str, str]:
        """The plugin reads the first card alone, as `<index>_<percent>_<units of memory>`."""
        notes = SummedVendor.annotate(self, layout, cards, node=node, now=now)
        first = next((s for one in layout for s in one), None)
        if first is not None:
            index = cards[first.index].uuid.rpartition("-")[2]
            notes["CAMBRICON_DSMLU_PROFILE"] = f"{index}_{first.cores}_{first.memory_mib // self.memory_unit_mib}"
            notes |= dict.fromkeys(ASSIGNED, "false")
        return notes


CAMBRICON = Cambricon(
    name="cambricon",
    kind="MLU",
    cards="cambricon.com/vmlu",
    cores="cambricon.com/mlu.smlu.vcore",
    memory="cambricon.com/mlu.smlu.vmemory",
    memory_unit_mib=256,
    units=ALL_CORES,
    word="cambricon-mlu",
    model="MLU",
    shares=100,
    models_annotation="cambricon.com/use-mlutype",
    use_uuid=_USE_UUID,
    nouse_uuid=_NOUSE_UUID,
    wishes=(_USE_UUID, _NOUSE_UUID),
    allocated_annotation="hami.io/cambricon-mlu-devices-allocated",
    to_allocate_annotation="hami.io/cambricon-mlu-devices-to-allocate",
    node_lock="cambricon.com/dsmlu.lock",
    cores_unnamed=100,
)
