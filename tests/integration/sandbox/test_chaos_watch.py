"""The judge of `make chaos` sees every change of pods, although its watches end."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NAMESPACES, PODS, KubeClient
from hbox_sandbox.api import ApiServer
from hbox_sandbox.trace import TracePod, pod_manifest

from ...chaos.observer import Missed, Observer
from ...waiting import until

PATH = PODS.path("ml")


def _fail_watches(server: ApiServer, **fault: Any) -> None:
    server.faults.load(json.dumps({"rules": [{"verb": "watch", "resource": "pods", **fault}]}).encode())


async def _create_pods(client: KubeClient, first: int, count: int) -> None:
    for number in range(first, first + count):
        await client.json("POST", PATH, body=pod_manifest(TracePod(f"p{number}", 1000, 1024), namespace="ml"))


@pytest.mark.parametrize("forgotten", [False, True])
async def test_the_observer_continues_ended_watches_and_fails_if_changes_are_gone(tmp_path: Path, forgotten: bool) -> None:
    async with ApiServer(seed=1, history=20) as server:
        config = server.kubeconfig(tmp_path / "kubeconfig")
        async with KubeClient.connect(str(config), user_agent="hbox-test/1", timeout_s=5.0) as client:
            await client.json("POST", NAMESPACES.path(), body={"metadata": {"name": "ml"}})
            observer = Observer({})
            _fail_watches(server, watch_end_s=0.05)
            watching = asyncio.create_task(observer.watch(client))
            await until(lambda: observer.live)
            await _create_pods(client, 0, 10)
            await until(lambda: len(observer.pods) == 10)
            if forgotten:
                _fail_watches(server, watch_gone="stream")
                with pytest.raises(Missed, match="too old"):
                    await asyncio.wait_for(watching, 30)
                return
            await client.json("DELETE", PODS.path("ml", "p3"), body={"gracePeriodSeconds": 0})
            await until(lambda: len(observer.pods) == 9)
            watching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await watching
