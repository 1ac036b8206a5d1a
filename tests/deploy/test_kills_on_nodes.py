"""Binder killed (-9) at every step of a handshake with HAMi's own device plugin, and Volcano's, under a real kubelet: no lock is left, no slice is lost, no pod
waits for ever.

HBox runs from the checkout beside the cluster (`hbox up --kubeconfig`), so that its process can be killed; only the plugin and the pods are on the node. The
steps are seen from outside, and a kill comes some milliseconds later: a round may catch the next step.

HBOX_DEPLOY_BASE: an image with a shell and glibc that the nodes have.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hbox_common.errors import Unavailable
from hbox_common.kube import NODES, PODS, KubeClient

from .. import waiting
from ..e2e.platform_world import Up, up
from .cluster import GPU, NAMESPACE, TENANT, Cluster
from .conftest import needed
from .test_device_plugins_on_nodes import CORES, LOCK, MEM, PHASE, VOLCANOS_LOCK, World, hami, hamis_own, volcano, volcanos_own

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1200)]

IMAGE = os.environ.get("HBOX_DEPLOY_BASE", "python:3.11-slim")
ROUNDS = 5

#: When binder is killed: what of the round's pods is the first to show.
STEPS = ("created", "locked", "bound", "allocated")
VOLCANOS_PHASE = "volcano.sh/bind-phase"


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    cluster = Cluster(
        Path(needed("HBOX_DEPLOY_KUBECONFIG", "the kubeconfig of a cluster whose nodes run pods, and that is for tests"))
    )
    cluster.clear()
    cluster.make_namespaces()
    cluster.kubectl("label", "namespace", TENANT, "pod-security.kubernetes.io/enforce=privileged", "--overwrite")
    cluster.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=privileged", "--overwrite")
    name: str = cluster.get("nodes")["items"][0]["metadata"]["name"]
    yield World(cluster, name)
    cluster.kubectl("delete", "clusterrole,clusterrolebinding", "test-device-plugin", "--ignore-not-found")
    # Of `hbox up`: what Helm has not made it does not take over.
    cluster.kubectl("delete", "clusterrole,clusterrolebinding", "-l", "app.kubernetes.io/managed-by=hbox")
    cluster.clear()


@pytest.fixture(autouse=True)
def cleared(world: World) -> Iterator[None]:
    yield
    world.cluster.kubectl("delete", "pods", "--all", "-n", TENANT, "--grace-period=1", timeout_s=120)
    world.end_plugin()


@pytest.fixture
def platform(world: World, tmp_path: Path) -> Iterator[Up]:
    with up(tmp_path / "state", "--kubeconfig", str(world.cluster.kubeconfig)) as running:
        yield running
        running.stop()


def a_pod(name: str, limits: dict[str, str]) -> dict[str, Any]:
    container = {
        "name": "c0", "image": IMAGE, "command": ["sleep", "600"], "resources": {"limits": {"cpu": "10m", "memory": "16Mi"} | limits},
    }  # fmt: skip
    spec = {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": TENANT}, "spec": spec}


class Witness:
    """What of a round's pods and of their node is there, as soon as it is."""

    def __init__(self, client: KubeClient, node: str) -> None:
        self._client, self._node = client, node

    async def pods(self, prefix: str) -> list[dict[str, Any]]:
        items = (await self._get(PODS.path(TENANT)))["items"]
        return [pod for pod in items if pod["metadata"]["name"].startswith(prefix)]

    async def locks(self) -> str:
        notes = (await self._get(NODES.path(name=self._node)))["metadata"].get("annotations", {})
        return str(notes.get(LOCK, "") + notes.get(VOLCANOS_LOCK, ""))

    async def _get(self, path: str) -> dict[str, Any]:
        """From an API server that may be busy for longer than its clients wait."""
        while True:
            with suppress(Unavailable):
                return dict(await self._client.json("GET", path))

    async def seen(self, prefix: str) -> str:
        """The last step that one of the pods has come to."""
        pods = await self.pods(prefix)
        notes = [pod["metadata"].get("annotations", {}) for pod in pods]
        if any("success" in (one.get(PHASE), one.get(VOLCANOS_PHASE)) for one in notes):
            return "allocated"
        if any(pod["spec"].get("nodeName") for pod in pods):
            return "bound"
        if f",{TENANT},{prefix}" in await self.locks():
            return "locked"
        return "created" if pods else ""


async def kills(platform: Up, world: World, limits: list[dict[str, str]]) -> Counter[str]:
    """Rounds of pods, one of each of these limits, binder killed at each step. Returns what the kills met."""
    met: Counter[str] = Counter()
    async with KubeClient.connect(str(world.cluster.kubeconfig), user_agent="test") as client:
        witness = Witness(client, world.node)
        for number in range(ROUNDS * len(STEPS)):
            step, prefix = STEPS[number % len(STEPS)], f"k{number}-"
            own = [a_pod(f"{prefix}{i}", one) for i, one in enumerate(limits)]
            binder = platform.pids()["binder"]
            await asyncio.gather(*(client.json("POST", PODS.path(TENANT), body=pod) for pod in own))
            async with asyncio.timeout(120):
                while (found := await witness.seen(prefix)) not in STEPS[STEPS.index(step) :]:
                    pass
            os.kill(binder, signal.SIGKILL)
            met[found] += 1

            async def good(prefix: str = prefix, binder: int = binder) -> bool:
                pods = await witness.pods(prefix)
                assert all(pod["status"]["phase"] in ("Pending", "Running") for pod in pods), [pod["status"] for pod in pods]
                alive = platform.pids().get("binder", binder) != binder
                return alive and all(pod["status"]["phase"] == "Running" for pod in pods) and not await witness.locks()

            await waiting.until(good, f"{prefix}: all run, and no lock is left", timeout_s=120)
            for pod in own:
                await client.json("DELETE", PODS.path(TENANT, pod["metadata"]["name"]))
    return met


def nothing_is_lost(platform: Up, world: World, everything: dict[str, str]) -> None:
    """All cards can be had at once, and the books are sound."""
    world.cluster.apply(a_pod("everything", everything))
    world.runs("everything")
    audit = platform.hbox("audit")
    assert audit.returncode == 0, audit.stdout + audit.stderr


@hami
def test_killed_at_every_step_under_hamis_own_plugin(platform: Up, world: World) -> None:
    hamis_own(world, "hami-core", prefers=False, image=IMAGE)
    met = asyncio.run(kills(platform, world, [{GPU: "1", MEM: "4000", CORES: "30"}, {GPU: "2", MEM: "3000"}]))
    print("killed when the pods were", dict(met))
    assert {"created", "bound"} <= met.keys(), met
    nothing_is_lost(platform, world, {GPU: "4"})


@volcano
def test_killed_at_every_step_under_volcanos_plugin(platform: Up, world: World) -> None:
    volcanos_own(world, image=IMAGE)
    slices = [
        {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": str(n), "volcano.sh/vgpu-cores": "10"} for n in (2000, 2500)
    ]
    met = asyncio.run(kills(platform, world, slices))
    print("killed when the pods were", dict(met))
    assert {"created", "bound"} <= met.keys(), met
    nothing_is_lost(platform, world, {"volcano.sh/vgpu-number": "1"})
