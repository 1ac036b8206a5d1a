"""One node's kubelet: its socket is asked, and its checkpoints say by their times when that is worth it."""

import asyncio
from pathlib import Path
from typing import TypeAlias

from hbox_common.clock import monotonic_s, wall_s
from hbox_common.errors import HBoxError
from hbox_common.kubelet import (
    ALLOCATABLE,
    LIST,
    AllocatableResources,
    GrpcCode,
    Refused,
    call,
    decode_allocatable,
    decode_list,
)
from hbox_common.model import NodeDevices, NodeName

from .. import metrics
from ..core import holders, node_devices
from ..core.facts import CHECKPOINT_BYTES, zone_memory
from .host import bytes_of

SOCKET = Path("pod-resources/kubelet.sock")
DEVICES = Path("device-plugins/kubelet_internal_checkpoint")
MEMORY = Path("memory_manager_state")
#: Written whenever a container is given something of its own, or gives it back.
CHECKPOINTS = (DEVICES, Path("cpu_manager_state"), MEMORY)

Stamp: TypeAlias = tuple[tuple[int, int, int], ...]


class Kubelet:
    def __init__(self, node: NodeName, root: Path) -> None:
        self._node, self._root = node, root

    def stamp(self) -> Stamp:
        """Something that differs when a checkpoint, or the kubelet's socket, was made anew."""
        return tuple(_stamp(self._root / path) for path in (SOCKET, *CHECKPOINTS))

    async def ask(self) -> NodeDevices:
        """What it says now. Raises HBoxError."""
        started = monotonic_s()
        try:
            found = await self._ask()
        except HBoxError:
            metrics.READS.labels("failed").inc()
            raise
        metrics.READS.labels("answered").inc()
        metrics.READ_S.observe(monotonic_s() - started)
        return found

    async def _ask(self) -> NodeDevices:
        socket = self._root / SOCKET
        at = wall_s()
        pods = decode_list(await call(socket, LIST))
        try:
            allocatable = decode_allocatable(await call(socket, ALLOCATABLE))
        except Refused as e:
            if e.code != GrpcCode.UNIMPLEMENTED:
                raise
            allocatable = AllocatableResources()  # of Kubernetes before 1.23
        checkpoint = await asyncio.to_thread(_read, self._root / DEVICES)
        memory = zone_memory(await asyncio.to_thread(_read, self._root / MEMORY))
        return node_devices(self._node, pods, allocatable, holders(checkpoint), at=at, memory=memory)


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size


def _read(path: Path) -> bytes:
    """Nothing where there is no such file, or one of a size that no kubelet writes: the uids of pods are not known then."""
    found = bytes_of(path, CHECKPOINT_BYTES + 1) or b""
    return found if len(found) <= CHECKPOINT_BYTES else b""
