"""`hbox up --time-scale`: one clock for the cluster, its pods and all services, and what is written in seconds is counted by it.

owner       deserves 4 of the node's 8 cards
borrower    fills the node; nobody takes from its pods for their first five minutes
"""

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, PODS, KubeClient

from .. import waiting
from .platform_world import placed, queue, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, GPU, SCALE = "default", "nvidia.com/gpu", 60


def pod(name: str, of: str, run_s: int) -> dict[str, Any]:
    notes = {"scheduling.volcano.sh/queue-name": of, "hbox.io/run-seconds": str(run_s)}
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE, "annotations": notes},
        "spec": {"schedulerName": "hbox", "containers": [container]},
    }


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


async def test_run_times_and_minimum_run_times_go_by_the_clusters_faster_clock(tmp_path: Path) -> None:
    with up(tmp_path / "state", "--time-scale", str(SCALE)) as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await client.json("POST", NODES.path(), body=node("n0"))
            queue(running, "create", "borrower", "--min-run-time", "5m")
            queue(running, "create", "owner", "--deserved", f"{GPU}=4")

            async def come_to_be(prefix: str, count: int) -> None:
                async def so() -> bool:
                    return len(await placed(client, SPACE, prefix)) == count

                await waiting.until(so, f"{count} of {prefix}", timeout_s=40)

            async def started(name: str) -> dict[str, Any]:
                """The pod, once its kubelet says since when it runs: that comes after its place."""

                async def so() -> dict[str, Any] | None:
                    found: dict[str, Any] = await client.json("GET", PODS.path(SPACE, name))
                    return found if "startTime" in found["status"] else None

                found: dict[str, Any] = await waiting.until(so, f"{name} runs", timeout_s=40)
                return found

            for number in range(8):
                await client.json("POST", PODS.path(SPACE), body=pod(f"lent-{number}", "borrower", 7200))
            await come_to_be("lent", 8)
            lent = await started("lent-0")
            began = time.monotonic()
            for number in range(4):
                await client.json("POST", PODS.path(SPACE), body=pod(f"own-{number}", "owner", 900))
            await come_to_be("own", 4)
            took_s = time.monotonic() - began
            own = await started("own-0")
            asked, placed_at = moment(own["metadata"]["creationTimestamp"]), moment(own["status"]["startTime"])
            assert placed_at - moment(lent["status"]["startTime"]) >= 290, "five minutes of the cluster's"
            assert placed_at - asked <= SCALE * (took_s + 1), "which are five seconds of the machine's"
            assert len(await placed(client, SPACE, "lent")) == 4

            async def ended() -> bool:
                found = await client.json("GET", PODS.path(SPACE, "own-0"))
                return bool(found["status"]["phase"] == "Succeeded")

            await waiting.until(ended, "a quarter of an hour is over", timeout_s=60)
            state = (await client.json("GET", PODS.path(SPACE, "own-0")))["status"]["containerStatuses"][0]["state"]
            ran = moment(state["terminated"]["finishedAt"]) - moment(state["terminated"]["startedAt"])
            assert 890 <= ran <= 1200
        assert running.json("audit")["faults"] == []
