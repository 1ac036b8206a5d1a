from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.kube import KubeClient
from hbox_sandbox.api import ApiServer

from .edge_world import Kube


@pytest.fixture
async def kubeconfig(tmp_path: Path) -> AsyncIterator[Path]:
    """Of the emulator, without kubelets."""
    async with ApiServer() as api:
        yield api.kubeconfig(tmp_path / "kubeconfig")


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
