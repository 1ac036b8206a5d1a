"""A broker of the operator's own, closed by the keys that `hbox bus users` makes."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hbox_common.bus import EmbeddedServer
from hbox_common.bus.keys import keep
from hbox_common.bus.users import users

from .platform_world import hbox, up

pytestmark = pytest.mark.e2e


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(tmp_path / "nats", keys=keep(tmp_path / "users", users())) as running:
        yield running


async def test_the_platform_runs_on_it_with_the_keys_and_not_without(tmp_path: Path, server: EmbeddedServer) -> None:
    def story() -> None:
        refused = hbox("up", "--state", str(tmp_path / "none"), "--nats-url", server.url)
        assert refused.returncode == 5, refused.stderr
        assert "refuses us" in refused.stderr
        assert "--nats-users" in refused.stderr
        words = ("--nats-url", server.url, "--nats-users", str(tmp_path / "users"))
        with up(tmp_path / "state", "--nodes", "1x8", *words) as platform:
            assert json.loads((platform.state / "platform.json").read_text())["nats_users"] == str(tmp_path / "users")
            assert not (platform.state / "nats-users").exists()
            assert len(platform.json("nodes")["items"]) == 1
            assert platform.json("audit")["faults"] == []

    await asyncio.to_thread(story)
    log = (tmp_path / "nats" / "nats-server.log").read_text()
    assert "Authorization Violation" in log or "authentication error" in log
    assert "Publish Violation" not in log
    assert "Subscription Violation" not in log
