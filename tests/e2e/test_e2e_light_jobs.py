"""`hbox jobs` reads the HTTP API of `hbox up`, or the broker's endpoint, without the broker's client; and asks the broker if the API does not answer."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hbox_cli.access.brokersource import BrokerSource
from hbox_cli.access.localjobs import local_jobs
from hbox_cli.access.source import Wanted
from hbox_cli.platform.layout import Layout
from hbox_common.kube import NODES, PODS, KubeClient

from .platform_world import until, up
from .traced_jobs import node, pod

pytestmark = pytest.mark.e2e

#: What a short command does not import: 0.1 to 0.4 s each.
HEAVY = {"asyncio", "aiohttp", "nats", "pydantic", "hbox_common.model", "hbox_common.events", "hbox_common.bus", "yaml"}


def comparable(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what changes with time."""
    return [{name: value for name, value in item.items() if name not in ("ageSeconds", "waitSeconds")} for item in items]


async def submit(kubeconfig: Path) -> None:
    async with KubeClient.connect(str(kubeconfig), user_agent="test") as client:
        await client.json("POST", NODES.path(), body=node("n0"))
        for name in ("a", "b", "c"):
            await client.json("POST", PODS.path("default"), body=pod(name))


def test_jobs_are_listed_without_the_brokers_client(tmp_path: Path) -> None:
    with up(tmp_path / "state") as running:
        asyncio.run(submit(running.state / "kubeconfig"))
        platform = Layout(running.state).running()
        broker = BrokerSource(platform)

        def listed() -> bool:
            found, of_broker = local_jobs(platform, Wanted()), broker.jobs(Wanted())
            placed = len(of_broker) == 3 and all(item["state"] == "RUNNING" for item in of_broker)
            return placed and found is not None and comparable(found) == comparable(of_broker)

        until(listed, timeout_s=60, what="the same jobs from the API and the broker")
        seed = platform.nats_seed("hbox-cli")
        through_the_broker = ["--nats-url", platform.nats_url, *(["--nats-seed", str(seed)] if seed else [])]
        for access in (["--state", str(running.state)], through_the_broker):
            command = [sys.executable, "-X", "importtime", "-m", "hbox_cli", *access, "-o", "json", "jobs"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
            assert comparable(json.loads(done.stdout)["items"]) == comparable(broker.jobs(Wanted()))
            imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
            assert sorted(imported & HEAVY) == []
        os.kill(running.pids()["console"], signal.SIGSTOP)
        try:
            assert len(running.json("jobs")["items"]) == 3, "from the broker"
        finally:
            os.kill(running.pids()["console"], signal.SIGCONT)
