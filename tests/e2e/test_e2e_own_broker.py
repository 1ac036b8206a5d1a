"""A broker of the operator's own, closed by the keys that `hbox bus users` makes."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hbox_common.brokerkeys import keep
from hbox_common.bus import EmbeddedServer
from hbox_common.bus.users import users
from hbox_common.kube import NODES, KubeClient
from hbox_sandbox.kubelet.deviceplugin import PLUGIN_FAILS

from .platform_world import Up, hbox, up
from .test_e2e_device_plugins import SLICE, a_pod, create, ended, registered

pytestmark = pytest.mark.e2e


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(tmp_path / "nats", keys=keep(tmp_path / "users", users())) as running:
        yield running


async def _a_plugin_fails(platform: Up) -> None:
    """Seldom said, and by binder alone: what nobody else may say has to be let through too."""
    body = registered("bad", cards=2)
    body["metadata"]["annotations"][PLUGIN_FAILS] = "no NVML here"

    def pinned(name: str) -> dict[str, Any]:
        pod = a_pod(name, SLICE)
        return pod | {"spec": pod["spec"] | {"nodeSelector": {"kubernetes.io/hostname": "bad"}}}

    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        await client.json("POST", NODES.path(), body=body)
        for number in range(3):
            await create(client, pinned(f"fails-{number}"))
            [pod] = await ended(client, f"fails-{number}", 1)
            assert pod["status"]["reason"] == "UnexpectedAdmissionError"

        def is_reported(pod: str) -> bool:
            [node] = [item for item in platform.json("nodes")["items"] if item["name"] == "bad"]
            return bool(node["devicePlugin"]) and "NodeDevicePluginFails" in platform.hbox("why", pod).stdout

        for number in range(30):  # the node rests for 2 s, 4 s, ...; at the end of each rest one of those that wait is tried
            await create(client, pinned(f"waits-{number}"))
            await asyncio.sleep(0.5)
            if await asyncio.to_thread(is_reported, f"waits-{number}"):
                return
    raise AssertionError("the rest of the node is not reported by `hbox nodes` and `hbox why`")


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
            asyncio.run(_a_plugin_fails(platform))
            assert platform.json("audit")["faults"] == []

    await asyncio.to_thread(story)
    log = (tmp_path / "nats" / "nats-server.log").read_text()
    assert "Authorization Violation" in log or "authentication error" in log
    assert "Publish Violation" not in log
    assert "Subscription Violation" not in log
