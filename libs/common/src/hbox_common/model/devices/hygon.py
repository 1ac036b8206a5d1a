"""Hygon's DCUs, shared by HAMi (sources: hami-hygon)."""

from .hami import HamiVendor
from .handshake import NODE_LOCK

_USE_UUID, _NOUSE_UUID, _NOUSE_TYPE = "hygon.com/use-gpuuuid", "hygon.com/nouse-gpuuuid", "hygon.com/nouse-dcutype"

HYGON = HamiVendor(
    name="hygon",
    kind="DCU",
    cards="hygon.com/dcunum",
    cores="hygon.com/dcucores",
    memory="hygon.com/dcumem",
    register_annotation="hami.io/node-dcu-register",
    models_annotation="hygon.com/use-dcutype",
    nouse_type=_NOUSE_TYPE,
    use_uuid=_USE_UUID,
    nouse_uuid=_NOUSE_UUID,
    wishes=(_USE_UUID, _NOUSE_UUID, _NOUSE_TYPE),
    allocated_annotation="hami.io/dcu-devices-allocated",
    to_allocate_annotation="hami.io/dcu-devices-to-allocate",
    node_lock=NODE_LOCK,
    cores_unnamed=100,
)
