"""Hygon's DCUs, shared by HAMi (reference hami §2.9)."""

from .hami import HamiVendor

HYGON = HamiVendor(
    name="hygon",
    kind="DCU",
    cards="hygon.com/dcunum",
    cores="hygon.com/dcucores",
    memory="hygon.com/dcumem",
    register_annotation="hami.io/node-dcu-register",
    models_annotation="hygon.com/use-dcutype",
    unsupported=("hygon.com/nouse-dcutype", "hygon.com/use-gpuuuid", "hygon.com/nouse-gpuuuid"),
    allocated_annotation="hami.io/dcu-devices-allocated",
    cores_unnamed=100,
)
