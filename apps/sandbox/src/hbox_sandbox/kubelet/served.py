"""HAMi's device plugin with emulated cards for the node of a real kubelet: it implements the kubelet's device-plugin API (v1beta1) by the rules of
`allocation`, on a real API server.

    python -m hbox_sandbox.kubelet.served --node node1 --cards 4 --memory-mib 40960 [--mode mig] [--kubeconfig FILE]

In HAMi's order, it registers its cards on the node and its slots (`<uuid>-<n>`) at the kubelet, and answers Allocate with the environment that HAMi's
plugin sets for a container. GetPreferredAllocation returns slots of the cards in the annotation of the pod in allocation (HAMi's
`enableGetPreferredAllocation`), so that the kubelet's PodResources name these cards too.

The container gets NVIDIA_VISIBLE_DEVICES (ids of cards, or of MIG instances) and, for cards shared by memory, CUDA_DEVICE_MEMORY_LIMIT_<i> and
CUDA_DEVICE_SM_LIMIT. No driver files are mounted.

A signal ends it. A restarted kubelet removes the sockets of all plugins; the plugin then registers again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hbox_common.errors import Conflict, HBoxError, InvalidRequest, NotFound, Unavailable
from hbox_common.kube import NODES, PODS, KubeClient
from hbox_common.kube.transport import MERGE_PATCH
from hbox_common.kubelet import StaysOpen, call, listening
from hbox_common.kubelet.protobuf import fields, int64, message, put_bytes, put_int, put_text, text
from hbox_sandbox.api.errors import Json

from .allocation import ENDED, MIG, Allocations, Device, Refused, own_locks, plugin_specs

log = logging.getLogger("device-plugin")

T = TypeVar("T")

FOLDER = Path("/var/lib/kubelet/device-plugins")
SOCKET, KUBELET = "hbox-nvidia.sock", "kubelet.sock"
VERSION = "v1beta1"
_SERVICE = "/v1beta1.DevicePlugin"
_REGISTER = "/v1beta1.Registration/Register"

NVIDIA = next(plugin for plugin in plugin_specs() if plugin.kind == "NVIDIA")

#: Of an NVIDIA A100 with 40 GB (NVIDIA's MIG user guide, table of profiles): name, MiB, percent of compute, first slices, slices.
_PROFILES: tuple[tuple[str, int, int, tuple[int, ...], int], ...] = (
    ("1g.5gb", 5_120, 14, (0, 1, 2, 3, 4, 5, 6), 1),
    ("2g.10gb", 10_240, 28, (0, 2, 4), 2),
    ("3g.20gb", 20_480, 42, (0, 4), 4),
    ("7g.40gb", 40_960, 100, (0,), 8),
)

#: How often the kubelet's socket is looked at.
_LOOK_S = 1.0
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Cards:
    """What the node is to have."""

    node: str
    count: int = 4
    memory_mib: int = 40_960
    mode: str = "hami-core"
    slots: int = 10  #: containers that a card takes; of MIG, seven at most
    model: str = "NVIDIA-A100-SXM4-40GB"

    def uuids(self) -> list[str]:
        return [f"GPU-{i:08x}-aaaa-bbbb-cccc-dddddddddddd" for i in range(self.count)]

    def register(self) -> str:
        """The annotation of the node, as HAMi's plugin of v2.10 writes it."""
        cards: list[Json] = []
        for index, uuid in enumerate(self.uuids()):
            card: Json = {
                "id": uuid, "index": index, "count": self.slots, "devmem": self.memory_mib, "devcore": 100, "type": self.model,
                "mode": self.mode, "health": True,
            }  # fmt: skip
            if self.mode == MIG:
                card["migProfiles"] = [
                    {
                        "name": name, "memoryMB": mib, "core": core, "sliceCount": size,
                        "placements": [{"start": start, "size": size} for start in starts],
                    }
                    for name, mib, core, starts, size in _PROFILES
                ]  # fmt: skip
            cards.append(card)
        return json.dumps(cards, separators=(",", ":"))


def environment(devices: Sequence[Device]) -> dict[str, str]:
    """What the plugin has the kubelet put into the container."""
    if any(device.instance for device in devices):
        return {"NVIDIA_VISIBLE_DEVICES": ",".join(device.instance for device in devices)}
    return {
        "NVIDIA_VISIBLE_DEVICES": ",".join(device.uuid for device in devices),
        **{f"CUDA_DEVICE_MEMORY_LIMIT_{i}": f"{device.memory_mib}m" for i, device in enumerate(devices)},
        "CUDA_DEVICE_SM_LIMIT": str(devices[0].cores),
    }


def prefer(available: Sequence[str], required: Sequence[str], wanted: Sequence[str], size: int) -> list[str]:
    """Slots of the wanted cards, as HAMi's plugin picks them. Empty if they are not available: the kubelet then chooses itself."""
    free: dict[str, list[str]] = {}
    for slot in available:
        if slot not in required:
            free.setdefault(card_of(slot), []).append(slot)
    met = [card_of(slot) for slot in required]
    chosen = list(required)
    for uuid in wanted[:size]:
        if uuid in met:
            met.remove(uuid)
        elif free.get(uuid):
            chosen.append(free[uuid].pop(0))
        else:
            return []
    return chosen if len(chosen) == size else []


def card_of(slot: str) -> str:
    """The uuid of the card whose slot it is."""
    return slot.rpartition("-")[0]


class Plugin:
    """One node's. Its calls come in the kubelet's order, one at a time."""

    def __init__(self, cards: Cards, allocations: Allocations) -> None:
        self._cards, self._allocations = cards, allocations
        self._one = asyncio.Lock()

    def methods(self) -> dict[str, Any]:
        return {
            f"{_SERVICE}/GetDevicePluginOptions": self._options,
            f"{_SERVICE}/ListAndWatch": self._watched,
            f"{_SERVICE}/GetPreferredAllocation": self._preferred,
            f"{_SERVICE}/Allocate": self._allocate,
        }

    async def register(self, folder: Path) -> None:
        """At the kubelet. Raises Unavailable, Refused."""
        request = put_text(1, VERSION) + put_text(2, SOCKET) + put_text(3, NVIDIA.count) + put_bytes(4, _options())
        await call(folder / KUBELET, _REGISTER, request)
        log.info("registered with the kubelet of %s", self._cards.node)

    async def _options(self, _: bytes) -> bytes:
        return _options()

    async def _watched(self, _: bytes) -> bytes:
        slots = [f"{uuid}-{slot}" for uuid in self._cards.uuids() for slot in range(self._cards.slots)]
        return StaysOpen(b"".join(put_bytes(1, put_text(1, slot) + put_text(2, "Healthy")) for slot in slots))

    async def _preferred(self, request: bytes) -> bytes:
        answer = b""
        for number, body in fields(request):
            if number != 1:
                continue
            available: list[str] = []
            required: list[str] = []
            size = 0
            for field, value in fields(message(body)):
                if field == 1:
                    available.append(text(value))
                elif field == 2:
                    required.append(text(value))
                elif field == 3:
                    size = int64(value)
            try:
                wanted = await asyncio.to_thread(self._allocations.next_cards, self._cards.node, NVIDIA)
            except Refused as refusal:
                log.warning("no preference: %s", refusal)
                wanted = []
            answer += put_bytes(1, b"".join(put_text(1, slot) for slot in prefer(available, required, wanted, size)))
        return answer

    async def _allocate(self, request: bytes) -> bytes:
        answer = b""
        async with self._one:
            for number, body in fields(request):
                if number != 1:
                    continue
                slots = [text(value) for field, value in fields(message(body)) if field == 1]
                try:
                    devices = await asyncio.to_thread(self._allocations.allocate, self._cards.node, NVIDIA, len(slots))
                except Refused as refusal:
                    log.warning("refused: %s", refusal)
                    raise InvalidRequest(str(refusal)) from refusal
                log.info("handed over %s for %s", devices, slots)
                given = environment(devices).items()
                answer += put_bytes(1, b"".join(put_bytes(1, put_text(1, key) + put_text(2, value)) for key, value in given))
        return answer


def _options() -> bytes:
    return put_int(2, 1)  # get_preferred_allocation_available


class _Cluster:
    """`Api` of a real API server. Its methods wait for the loop of `client`, and are called in threads of their own."""

    def __init__(self, client: KubeClient, loop: asyncio.AbstractEventLoop) -> None:
        self._client, self._loop = client, loop

    def node(self, name: str) -> Json | None:
        return self._found(NODES.path(name=name))

    def pod(self, namespace: str, name: str) -> Json | None:
        return self._found(PODS.path(namespace, name))

    def keeps(self, namespace: str, name: str, uid: str) -> bool:
        found = self.pod(namespace, name)
        return found is not None and found["metadata"]["uid"] == uid and (found.get("status") or {}).get("phase") not in ENDED

    def pending(self, node: str) -> Iterable[Json]:
        selector = {"fieldSelector": f"spec.nodeName={node},status.phase=Pending"}
        items: list[Json] = self._wait(self._client.json("GET", PODS.path(), params=selector))["items"]
        return items

    def annotate(self, pod: Json, notes: Mapping[str, str]) -> None:
        metadata = pod["metadata"]
        body = {"metadata": {"uid": metadata["uid"], "annotations": dict(notes)}}
        path = PODS.path(metadata["namespace"], metadata["name"])
        with suppress(NotFound, Conflict):  # it is gone, or another's by that name
            self._wait(self._client.json("PATCH", path, body=body, content_type=MERGE_PATCH))

    def release(self, node: str, pod: Json) -> None:
        for _ in range(_TRIES):
            found = self.node(node)
            own = [] if found is None else own_locks(found, pod)
            if found is None or not own:
                return
            body = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"], "annotations": dict.fromkeys(own)}}
            try:
                self._wait(self._client.json("PATCH", NODES.path(name=node), body=body, content_type=MERGE_PATCH))
            except Conflict:
                continue  # its kubelet wrote in between
            return
        log.warning("the lock of %s was written by others %s times over: it stays", node, _TRIES)

    def _found(self, path: str) -> Json | None:
        try:
            found: Json = self._wait(self._client.json("GET", path))
        except NotFound:
            return None
        return found

    def _wait(self, asked: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(asked, self._loop).result()
        except (NotFound, Conflict):
            raise
        except (Unavailable, InvalidRequest) as e:
            raise Refused(f"the Kubernetes API: {e}") from e


async def serve(cards: Cards, *, folder: Path = FOLDER, kubeconfig: str | None = None) -> None:
    """Until cancelled. Raises Unavailable and InvalidRequest where the node cannot be written."""
    async with KubeClient.connect(kubeconfig, user_agent="hbox-device-plugin") as client:
        plugin = Plugin(cards, Allocations(_Cluster(client, asyncio.get_running_loop())))
        notes = {"metadata": {"annotations": {NVIDIA.register: cards.register()}}}
        await client.json("PATCH", NODES.path(name=cards.node), body=notes, content_type=MERGE_PATCH)
        while True:
            async with listening(folder / SOCKET, plugin.methods()):
                try:
                    await plugin.register(folder)
                    await _removed(folder / SOCKET)
                except HBoxError as e:
                    log.warning("the kubelet does not take it: %s", e)
                    await asyncio.sleep(_LOOK_S)


async def _removed(socket: Path) -> None:
    """Returns when a kubelet that started anew has taken the socket away."""
    while True:
        await asyncio.sleep(_LOOK_S)
        if not await asyncio.to_thread(socket.exists):
            return


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hbox_sandbox.kubelet.served", description=(__doc__ or "").partition("\n\n")[0]
    )
    parser.add_argument("--node", required=True, help="the node whose kubelet it is")
    parser.add_argument("--cards", type=int, default=4)
    parser.add_argument("--memory-mib", type=int, default=40_960, help="of each card")
    parser.add_argument(
        "--mode",
        choices=("hami-core", MIG),
        default="hami-core",
        help="mig: cards that are divided into instances, as an A100's",
    )
    parser.add_argument("--slots", type=int, default=10, help="containers that a card takes (7 in mode mig)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the kubelet has the sockets of plugins")
    parser.add_argument("--kubeconfig", help="default: the service account of the pod")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    slots = min(options.slots, 7) if options.mode == MIG else options.slots
    cards = Cards(options.node, options.cards, options.memory_mib, options.mode, slots)
    try:
        asyncio.run(serve(cards, folder=options.folder, kubeconfig=options.kubeconfig))
    except HBoxError as e:
        log.error("%s", e)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
