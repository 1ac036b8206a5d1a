"""node-agent as a process, with nvidia-ml-py and NVIDIA's library without cards, on a real broker."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.errors import Unavailable
from hbox_common.events import NodeDevicesChanged, NodeNumaChanged
from hbox_common.kubelet import (
    ALLOCATABLE,
    LIST,
    AllocatableResources,
    ContainerDevices,
    encode_allocatable,
    encode_list,
    listening,
)
from hbox_common.model import MigInstance, NodeNvml

from ... import forked
from .fake_nvml import FakeNvml, build, environment, with_compiler

pytestmark = with_compiler

#: A machine on which much else runs takes seconds to start the reader.
POLL_S, TIMEOUT_S = 0.3, 8.0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    return build(tmp_path_factory.mktemp("nvml"))


@dataclass
class NvmlWorld:
    nats: EmbeddedServer
    bus: Bus
    root: Path
    fake: FakeNvml
    process: forked.Service | None = None

    async def last(self, kind: type[Any]) -> Any:
        try:
            found = await self.bus.last(kind, [("n1",)])
        except Unavailable:
            return None
        return found[0].event if found else None

    async def hears(self, right: Callable[[NodeNvml], bool]) -> NodeNvml:
        said: NodeNvml | None = None
        try:
            async with asyncio.timeout(60):
                while True:
                    event = await self.last(NodeNumaChanged)
                    said = event.numa.nvml if isinstance(event, NodeNumaChanged) else None
                    if said is not None and right(said):
                        return said
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"it says {said}") from None

    async def devices(self) -> int:
        event = await self.last(NodeDevicesChanged)
        return (
            len(event.devices.allocatable[0].ids) if isinstance(event, NodeDevicesChanged) and event.devices.allocatable else 0
        )


@asynccontextmanager
async def agent(world: NvmlWorld, *, cards: int = 2, library: bool = True) -> AsyncIterator[None]:
    settings = {
        "HBOX_NATS_URL": world.nats.url,
        "HBOX_NODE_NAME": "n1",
        "HBOX_KUBELET_ROOT": str(world.root),
        "HBOX_POLL_S": "0.05",
    }
    settings |= {"HBOX_HOST_ROOT": str(world.root), "HBOX_NVML": "true", "HBOX_RESYNC_S": "0.2", "HBOX_HEALTH_PORT": "0"}
    settings |= {"HBOX_NVML_POLL_S": str(POLL_S), "HBOX_NVML_TIMEOUT_S": str(TIMEOUT_S)}
    if library:
        settings["HBOX_NVML_LIBRARY"] = str(world.fake.folder)
    with environment(world.fake, cards=cards) as variables:
        world.process = forked.service("hbox_agent", env=variables | settings)
    try:
        yield
        assert world.process.returncode is None, "it is still there"
    finally:
        if world.process.returncode is None:
            world.process.terminate()
            async with asyncio.timeout(20):
                await world.process.wait()


@pytest.fixture
async def world(tmp_path: Path, library: FakeNvml) -> AsyncIterator[NvmlWorld]:
    library.says()
    given = ["g0"]

    async def nothing(_: bytes) -> bytes:
        return encode_list([])

    async def allocatable(_: bytes) -> bytes:
        given.append(f"g{len(given)}")  # another answer each time: whoever listens sees that the kubelet is asked
        return encode_allocatable(AllocatableResources((ContainerDevices("nvidia.com/gpu", tuple(given[:64]), (0,)),)))

    async with (
        EmbeddedServer(tmp_path / "nats") as nats,
        Bus.connect(nats.url, name="test", instance="test") as bus,
        listening(tmp_path / "kubelet" / "pod-resources" / "kubelet.sock", {LIST: nothing, ALLOCATABLE: allocatable}),
    ):
        yield NvmlWorld(nats, bus, tmp_path / "kubelet", library)


async def test_what_the_library_says_is_told_and_told_anew_when_it_differs(world: NvmlWorld) -> None:
    world.fake.says(
        "nvmlDeviceGetNvLinkState 0 3 =0",
        "nvmlDeviceGetNvLinkState * * =1",
        "nvmlDeviceGetNvLinkRemoteDeviceType 1 0 =0",
        "nvmlDeviceGetNvLinkRemotePciInfo_v2 1 0 =0",
        "nvmlDeviceGetGpuFabricInfoV * * =7",
        "nvmlDeviceGetRemappedRows 0 * =1",
        "mig 1 * =0:0,2:4",
    )
    async with agent(world):
        said = await world.hears(lambda nvml: len(nvml.cards) == 2)
        first, second = said.cards
        assert (said.driver, said.problem) == ("550.54.15", "")
        assert (first.uuid, first.address, first.model) == (
            "GPU-00000000-0000-4000-8000-000000000000", "0000:01:00.0", "NVIDIA A100-SXM4-40GB",
        )  # fmt: skip
        assert (first.memory_mib, first.numa, second.numa, first.ecc) == (40_960, 0, 1, "on")
        assert (first.links, first.links_down) == ({"switch": 11}, (3,))
        assert second.links == {"0000:01:00.0": 1, "switch": 11}
        assert first.clique == "abababab-abab-abab-abab-abababababab.7"
        assert (first.remap_pending, second.remap_pending, first.mig, second.mig) == (True, False, "off", "on")
        assert second.instances == (
            MigInstance("MIG-00000001-0000-4000-8000-000000000000", "1g.5gb"),
            MigInstance("MIG-00000001-0002-4000-8000-000000000004", "3g.20gb"),
        )
        world.fake.says("nvmlDeviceGetUUID 1 * 15")
        said = await world.hears(lambda nvml: len(nvml.cards) == 2 and nvml.cards[1].lost)
        assert (said.cards[0].lost, said.cards[0].clique) == (False, "")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nvmlInit_v2 * * 9", "NVML does not start: .*(code 9)"),
        ("nvmlInit_v2 * * hang", "no answer within"),
        ("nvmlDeviceGetName 1 * hang", "no answer within 8 s, asked for card 1"),
        ("nvmlDeviceGetMemoryInfo 1 * crash", "signal 11"),
        ("nvmlDeviceGetCount_v2 * * 999", "does not count its cards"),
    ],
    ids=["no driver", "hangs", "hangs at a card", "crashes", "counts nothing"],
)  # fmt: skip
async def test_a_library_that_fails_is_told_with_its_last_words_and_stops_nothing_else(
    world: NvmlWorld, line: str, why: str
) -> None:
    async with agent(world):
        await world.hears(lambda nvml: len(nvml.cards) == 2 and not nvml.problem)
        world.fake.says(line)
        said = await world.hears(lambda nvml: nvml.problem != "")
        for word in why.split(".*"):
            assert word in said.problem, said.problem
        assert [card.index for card in said.cards] == [0, 1]
        before = await world.devices()
        await asyncio.sleep(1.0)
        assert await world.devices() > before, "the kubelet is asked and told on"
        world.fake.says()
        await world.hears(lambda nvml: not nvml.problem)


async def test_errors_of_one_call_and_words_that_are_no_text_leave_the_rest(world: NvmlWorld) -> None:
    world.fake.says(
        b"nvmlDeviceGetName 0 * =NVIDIA \xff\xfe\x1b[31m H200", "nvmlDeviceGetMemoryInfo 1 * 999", "nvmlDeviceGetMigMode * * 3"
    )
    async with agent(world):
        said = await world.hears(lambda nvml: len(nvml.cards) == 2)
        assert said.cards[0].model == "NVIDIA ���[31m H200"
        assert (said.cards[1].memory_mib, said.cards[1].mig, said.cards[1].uuid[:4]) == (0, "", "GPU-")
        assert ["memory" in problem and "999" in problem for problem in said.cards[1].problems] == [True]


async def test_where_there_is_no_library_it_is_said_so(world: NvmlWorld) -> None:
    async with agent(world, library=False):
        said = await world.hears(lambda nvml: nvml.problem != "")
        assert (said.cards, "code 12" in said.problem or "Not Found" in said.problem) == ((), True)
        assert await world.devices() > 0


def test_the_reader_says_that_the_binding_is_not_installed() -> None:
    """As in an image that was built without the extra `nvml`."""
    program = "import sys; sys.modules['pynvml'] = None\nfrom hbox_agent.adapters.nvml_reader import main\nsys.exit(main())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, json.loads(done.stdout)) == (1, {"problem": "nvidia-ml-py is not installed"})
