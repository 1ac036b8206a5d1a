from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.kube import KubeClient

from .edge_world import Kube, sandbox


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    with sandbox(tmp_path) as path:
        yield path


@pytest.fixture
async def kube(kubeconfig: Path) -> AsyncIterator[Kube]:
    async with KubeClient.connect(str(kubeconfig), user_agent="test") as client:
        world = Kube(client)
        await world.install()
        yield world


@pytest.fixture
async def bus(nats: EmbeddedServer) -> AsyncIterator[Bus]:
    async with Bus.connect(nats.url, name="test", instance="test") as connected:
        yield connected
