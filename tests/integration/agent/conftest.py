"""A broker of its own for each test of node-agent."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hbox_common.bus import Bus, EmbeddedServer

from .agent_world import AgentWorld


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    async with (
        EmbeddedServer(tmp_path / "nats") as nats,
        Bus.connect(nats.url, name="test", instance="test") as bus,
    ):
        yield AgentWorld(nats, bus, tmp_path / "kubelet")
