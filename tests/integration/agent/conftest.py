"""A broker of its own for each test of node-agent."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hbox_common.bus import Bus, EmbeddedServer

from .agent_world import AgentWorld


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    # A path of a socket has 107 bytes at most; pytest's folders are named after the tests.
    with tempfile.TemporaryDirectory(prefix="hbox") as folder:
        async with (
            EmbeddedServer(tmp_path / "nats") as nats,
            Bus.connect(nats.url, name="test", instance="test") as bus,
        ):
            yield AgentWorld(nats, bus, Path(folder) / "kubelet")
