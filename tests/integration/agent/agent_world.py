"""node-agent on a real broker, beside a kubelet's socket that the test answers at."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hbox_agent.app import run
from hbox_agent.settings import AgentSettings
from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.errors import Unavailable
from hbox_common.events import NodeDevicesChanged
from hbox_common.kubelet import (
    ALLOCATABLE,
    LIST,
    AllocatableResources,
    Call,
    ContainerDevices,
    ContainerResources,
    PodResources,
    encode_allocatable,
    encode_list,
    listening,
)
from hbox_common.model import NodeDevices
from hbox_common.runtime import Health

GPU = "nvidia.com/gpu"


@dataclass
class AgentWorld:
    nats: EmbeddedServer
    bus: Bus
    root: Path
    held: dict[str, tuple[str, ...]] = field(default_factory=dict)
    asked: int = 0

    async def list_pods(self, _: bytes) -> bytes:
        self.asked += 1
        return encode_list(
            [PodResources("team", n, (ContainerResources("main", (ContainerDevices(GPU, ids, (0,)),)),)) for n, ids in self.held.items()]
        )  # fmt: skip

    async def allocatable(self, _: bytes) -> bytes:
        return encode_allocatable(AllocatableResources((ContainerDevices(GPU, ("g0", "g1"), (0,)),)))

    @asynccontextmanager
    async def kubelet(self, *methods: str) -> AsyncIterator[None]:
        known: dict[str, Call] = {LIST: self.list_pods, ALLOCATABLE: self.allocatable}
        async with listening(self.root / "pod-resources" / "kubelet.sock", {m: known[m] for m in methods or known}):
            yield

    def give(self, pod: str, *ids: str) -> None:
        """As a kubelet does: the checkpoint is written."""
        self.held[pod] = ids
        entries = [{"PodUID": f"uid-{pod}", "ResourceName": GPU, "DeviceIDs": {"0": ids}} for pod, ids in self.held.items()]
        self.write("device-plugins/kubelet_internal_checkpoint", json.dumps({"Data": {"PodDeviceEntries": entries}}))

    def write(self, name: str, text: str | bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".new").write_bytes(text if isinstance(text, bytes) else text.encode())
        path.with_suffix(".new").replace(path)

    @asynccontextmanager
    async def agent(self, **settings: Any) -> AsyncIterator[Health]:
        health = Health("node-agent")
        given: dict[str, Any] = {"node_name": "n1", "kubelet_root": self.root, "poll_s": 0.05, "resync_s": 3600.0} | settings
        service = asyncio.create_task(run(AgentSettings(nats_url=self.nats.url, **given), health))
        try:
            yield health
        finally:
            service.cancel()
            with suppress(asyncio.CancelledError):
                await service

    async def said(self, node: str = "n1") -> NodeDevices | None:
        try:
            found = await self.bus.last(NodeDevicesChanged, [(node,)])
        except Unavailable:  # the stream is not made yet
            return None
        events = [one.event for one in found]
        return next((e.devices for e in events if isinstance(e, NodeDevicesChanged)), None)

    async def hears(self, *pods: str, node: str = "n1", problem: str = "") -> NodeDevices:
        async with asyncio.timeout(15):
            while True:
                said = await self.said(node)
                if said is not None and {one.pod for one in said.holds} == set(pods) and bool(problem) == bool(said.problem):
                    assert problem in said.problem
                    return said
                await asyncio.sleep(0.05)
