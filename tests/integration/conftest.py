"""What tests of several services start."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hbox_common.bus import EmbeddedServer


@pytest.fixture
async def nats(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    """A broker of the test's own."""
    async with EmbeddedServer(tmp_path / "nats") as server:
        yield server
