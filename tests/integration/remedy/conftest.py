"""A broker and a node of its own for each test of node-remedy."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hbox_common.bus import Bus, EmbeddedServer

from .remedy_world import RemedyWorld


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[RemedyWorld]:
    async with (
        EmbeddedServer(tmp_path / "nats") as nats,
        Bus.connect(nats.url, name="health-monitor", instance="test") as bus,
    ):
        yield RemedyWorld(nats, bus, tmp_path / "node")
