"""A device plugin as NVIDIA's is to a kubelet: four cards on two NUMA nodes, of which the kubelet chooses. `python device_plugin.py`, in a pod of our own image
that has the kubelet's folder `device-plugins`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hbox_common.kubelet import StaysOpen, call, listening
from hbox_common.kubelet.protobuf import fields, put_bytes, put_int, put_text

FOLDER = Path("/var/lib/kubelet/device-plugins")
RESOURCE = "nvidia.com/gpu"
CARDS = {f"GPU-0000000{index}-aaaa-bbbb-cccc-dddddddddddd": index // 2 for index in range(4)}


async def options(_: bytes) -> bytes:
    return b""


async def watched(_: bytes) -> bytes:
    def card(id_: str, numa: int) -> bytes:
        where = put_bytes(3, put_bytes(1, put_int(1, numa)))
        return put_bytes(1, put_text(1, id_) + put_text(2, "Healthy") + where)

    return StaysOpen(b"".join(card(id_, numa) for id_, numa in CARDS.items()))


async def allocate(request: bytes) -> bytes:
    return b"".join(put_bytes(1, b"") for number, _ in fields(request) if number == 1)


async def main() -> None:
    service = "/v1beta1.DevicePlugin"
    methods = {
        f"{service}/GetDevicePluginOptions": options,
        f"{service}/ListAndWatch": watched,
        f"{service}/Allocate": allocate,
    }
    async with listening(FOLDER / "test-gpu.sock", methods):
        register = put_text(1, "v1beta1") + put_text(2, "test-gpu.sock") + put_text(3, RESOURCE)
        await call(FOLDER / "kubelet.sock", "/v1beta1.Registration/Register", register)
        print("registered", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
