"""An upgrade on a broker with the streams of an earlier version."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hbox_common.brokerkeys import keep
from hbox_common.bus import Access, Bus, EmbeddedServer
from hbox_common.bus.users import ADMIN, AGENT, users
from hbox_common.errors import HBoxError
from hbox_common.events import HealthReport, Stream
from hbox_common.model import NodeName


async def test_heartbeats_are_stored_after_the_charts_command_changed_the_streams(tmp_path: Path) -> None:
    seeds = tmp_path / "users"
    heartbeat = HealthReport(node=NodeName("n1"), boot_id="b", agent="a", facts=(), seq=1)

    def access(user: str) -> Access:
        return Access(seed=seeds / f"{user}.nk")

    async with EmbeddedServer(tmp_path / "nats", keys=keep(seeds, users())) as server:
        async with Bus.connect(server.url, name=ADMIN, instance="1", access=access(ADMIN)) as admin:
            client = admin._connection
            config = (await client.api(f"STREAM.INFO.{Stream.REPORTS}"))["config"]
            await client.api(f"STREAM.DELETE.{Stream.REPORTS}")
            config = {name: value for name, value in config.items() if name != "allow_msg_ttl"}
            await client.request(f"$JS.API.STREAM.CREATE.{Stream.REPORTS}", json.dumps(config).encode(), timeout_s=5)
        async with Bus.connect(server.url, name="health-monitor", instance="1", access=access("health-monitor")):
            pass  # it may not change the stream
        async with Bus.connect(server.url, name=AGENT, instance="1", access=access(AGENT), ensure=False) as agent:
            with pytest.raises(HBoxError, match="TTL"):
                await agent.publish(heartbeat, "n1", timeout_s=1)
            environment = {**os.environ, "HBOX_NATS_URL": server.url, "HBOX_NATS_SEED": str(seeds / f"{ADMIN}.nk")}
            command = [str(Path(sys.executable).with_name("hbox")), "bus", "streams"]
            done = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, timeout=60, text=True)
            assert done.returncode == 0, done.stderr
            await agent.publish(heartbeat, "n1", timeout_s=5)
