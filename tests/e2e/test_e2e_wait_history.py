"""`hbox why --history`: a job's waiting by code, from its creation on, also over a crash of job-controller; and its metric by queue."""

import json
import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from hbox_cli.exits import Exit
from hbox_cli.platform.layout import Layout
from hbox_common.kube import NODES, PODGROUPS, PODS, KubeClient

from .. import waiting
from .charged_waits import until_published
from .platform_world import Up, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, GPU = "default", "nvidia.com/gpu"


def pod(name: str, group: str, cards: int) -> dict[str, Any]:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: str(cards)}}}
    notes = {"scheduling.k8s.io/group-name": group}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE, "annotations": notes},
        "spec": {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }


def group(name: str, members: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {"minMember": members},
    }


def history(running: Up, job: str) -> dict[str, float]:
    done = running.hbox("-o", "json", "why", "--history", job)
    if done.returncode == Exit.NOT_FOUND:  # the HTTP API has not read the job yet
        return {}
    assert done.returncode == 0, done.stderr
    return {one["code"]: one["seconds"] for one in json.loads(done.stdout)["items"]}


async def test_waiting_is_charged_by_code_and_survives_a_crash(tmp_path: Path) -> None:
    with up(tmp_path / "state") as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await client.json("POST", NODES.path(), body=node("n0"))
            for name, members, pods in (("first", 1, ("first-0",)), ("second", 2, ("second-0",))):
                await client.json("POST", PODGROUPS.path(SPACE), body=group(name, members))
                for one in pods:
                    await client.json("POST", PODS.path(SPACE), body=pod(one, name, 8))

            async def incomplete() -> bool:
                return history(running, "second").get("GangIncomplete", 0.0) >= 1.0

            await waiting.until(incomplete, "the gang waits for its second pod", timeout_s=60)
            await client.json("POST", PODS.path(SPACE), body=pod("second-1", "second", 8))

            async def in_use() -> bool:
                found = history(running, "second")
                return any(spent >= 1.0 for code, spent in found.items() if code not in ("GangIncomplete", "NotTriedYet"))

            await waiting.until(in_use, "the gang waits for cards", timeout_s=60)
            job = running.json("why", "--history", "second")["items"][0]["id"]
            await until_published(running, job, ended="GangIncomplete")
            estimate = running.json("when", "second")
            assert (estimate["kind"], estimate["name"], estimate["p50Seconds"]) == ("StartEstimate", "default/second", None)
            assert "no estimate: " in running.hbox("when", "second").stdout
            assert "it waits for nothing" in running.hbox("when", "first").stdout
            before = history(running, "second")
            os.kill(running.pids()["job-controller"], signal.SIGKILL)

            async def again() -> bool:
                found = running.hbox("-o", "json", "why", "--history", "second")
                return found.returncode == 0 and sum(history(running, "second").values()) > sum(before.values())

            await waiting.until(again, "job-controller is back", timeout_s=60)
            after = history(running, "second")
            assert after["GangIncomplete"] == before["GangIncomplete"]
            text = running.hbox("why", "--history", "second").stdout.splitlines()[1]
            assert text.startswith("  waited ")
            assert "s GangIncomplete + " in text
            address = Layout(running.state).running().health["job-controller"]

            async def counted() -> bool:
                with urllib.request.urlopen(f"{address}/metrics/queues", timeout=10) as page:  # noqa: ASYNC210  the test waits for it alone
                    return 'hbox_job_wait_seconds_total{queue="default",code="' in page.read().decode()

            await waiting.until(counted, "the metric counts", timeout_s=60)
