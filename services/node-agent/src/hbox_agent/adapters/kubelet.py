"""One node's kubelet: its socket is asked, and its checkpoints say by their times when that is worth it."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from hbox_common.clock import monotonic_s, wall_s
from hbox_common.errors import HBoxError, InvalidRequest
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
from hbox_common.model import NodeDevices, NodeName, ZoneMemory

from .. import metrics
from ..core import holders, node_devices
from ..core.facts import CHECKPOINT_BYTES, STATE_BYTES, zone_memory
from .host import whole

SOCKET = Path("pod-resources/kubelet.sock")
DEVICES = Path("device-plugins/kubelet_internal_checkpoint")
MEMORY = Path("memory_manager_state")
#: Written whenever a container is given something of its own, or gives it back.
CHECKPOINTS = (DEVICES, Path("cpu_manager_state"), MEMORY)

#: For one answer.
ANSWER_S = 10.0

Stamp: TypeAlias = tuple[tuple[int, int, int], ...]


class Kubelet:
    def __init__(self, node: NodeName, root: Path) -> None:
        self._node, self._root = node, root
        self._memory: tuple[ZoneMemory, ...] = ()
        self._allocatable: AllocatableResources | None = None

    def stamp(self) -> Stamp:
        """Something that differs when a checkpoint, or the kubelet's socket, was made anew."""
        return tuple(_stamp(self._root / path) for path in (SOCKET, *CHECKPOINTS))

    async def ask(self) -> NodeDevices:
        """Query the kubelet. Raises HBoxError."""
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
        listed = await call(socket, LIST, timeout_s=ANSWER_S)
        given: bytes | InvalidRequest
        try:
            given = await call(socket, ALLOCATABLE, timeout_s=ANSWER_S)
        except InvalidRequest as e:
            given = e
        except Refused as e:
            if e.code != GrpcCode.UNIMPLEMENTED:
                raise
            given = b""  # of Kubernetes before 1.23
        return await asyncio.to_thread(self._read, listed, given, at)

    def _read(self, listed: bytes, given: bytes | InvalidRequest, at: float) -> NodeDevices:
        """Decode the answers and the checkpoints. Takes milliseconds; seconds for malicious content. Raises InvalidRequest if the list of pods is malformed;
        other unreadable parts are listed as problems. Then memory of NUMA nodes and allocatable devices keep their last values, and the owners of devices are
        unknown, because the devices may have new owners."""
        pods = decode_list(listed)
        problems: list[str] = []
        try:
            if isinstance(given, InvalidRequest):
                raise given
            self._allocatable = decode_allocatable(given)
        except InvalidRequest as e:
            problems.append(f"{ALLOCATABLE.rpartition('/')[2]}: {e.message}")
        uids: dict[tuple[str, str], str] = {}
        try:
            uids = holders(found) if (found := whole(self._root / DEVICES, CHECKPOINT_BYTES)) is not None else {}
        except InvalidRequest as e:
            problems.append(f"{DEVICES.name}: {e.message}")
        try:
            self._memory = zone_memory(found) if (found := whole(self._root / MEMORY, STATE_BYTES)) is not None else ()
        except InvalidRequest as e:
            problems.append(f"{MEMORY.name}: {e.message}")
        allocatable = self._allocatable or AllocatableResources()
        devices = node_devices(self._node, pods, allocatable, uids, at=at, memory=self._memory, problems=tuple(problems))
        return devices if self._allocatable is not None else replace(devices, left_out=devices.left_out + 1)


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size
