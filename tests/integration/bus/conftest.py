from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hbox_common.bus import Bus, EmbeddedServer


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def bus(server: EmbeddedServer) -> AsyncIterator[Bus]:
    async with Bus.connect(server.url, name="test", instance="1") as bus:
        yield bus
