"""Biren's GPUs (sources: hami-biren): whole, or as many devices as its plugin makes of them by SVI."""

from collections.abc import Mapping
from dataclasses import dataclass

from .asking import Ask
from .hami import HamiVendor
from .handshake import NODE_LOCK
from .vendor import Quantity, Vendor

_USE_UUID, _NOUSE_UUID = "birentech.com/use-gpuuuid", "birentech.com/nouse-gpuuuid"
_NO_WISHES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SlotVendor(HamiVendor):
    """Devices of which only the slots are counted: who is on one has no amount of its compute or memory. Most have one slot."""

    def ask(self, asked: Mapping[str, Quantity], wishes: Mapping[str, str] = _NO_WISHES) -> Ask | None:
        ask = Vendor.ask(self, asked, wishes)
        return None if ask is None else Ask(self.kind, ask.count, cores=0, memory_percent=0)


BIREN = SlotVendor(
    name="biren",
    kind="Biren",
    cards="birentech.com/gpu",
    register_annotation="hami.io/node-biren-register",
    type_prefix="Biren-",
    use_uuid=_USE_UUID,
    nouse_uuid=_NOUSE_UUID,
    wishes=(_USE_UUID, _NOUSE_UUID),
    allocated_annotation="hami.io/Biren-devices-allocated",
    to_allocate_annotation="hami.io/Biren-devices-to-allocate",
    node_lock=NODE_LOCK,
    always_fits=True,
)
