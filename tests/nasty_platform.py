"""Puts nasty objects on a running platform, and sees to it that an innocent pod is bound all the same.

The emulated API and a real one alike: the platform is known by its state folder.
"""

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hbox_common.clock import monotonic_s
from hbox_common.errors import InvalidRequest
from hbox_common.kube import NAMESPACES, PERSISTENTVOLUMECLAIMS, PODGROUPS, PODS, KubeClient

from .e2e.platform_world import Up
from .nasty_objects import REFUSED_NOW, Json, Kind, pod
from .waiting import until

NAMESPACE = "nasty"
INNOCENT_S, AFTER_KILLS_S = 10.0, 25.0
#: A service that lived for less is started again after a growing pause: that is the supervisor's way with what crashes by itself.
WELL_S = 11.0
SERVICES = ("topology-collector", "job-controller", "quota-ledger", "scheduler-core", "binder", "health-monitor")
_RESOURCES = {"Pod": PODS, "PodGroup": PODGROUPS, "PersistentVolumeClaim": PERSISTENTVOLUMECLAIMS}


@dataclass
class Innocent:
    """Somebody who shares the cluster, and the longest that they had to wait, in seconds."""

    client: KubeClient
    count: int = 0
    waits: dict[str, float] = field(default_factory=dict)

    async def bound_within(self, limit_s: float, why: str) -> None:
        self.count += 1
        name = f"innocent-{self.count}"
        await self.client.json("POST", PODS.path("default"), body=pod(name))
        began = monotonic_s()

        async def has_a_node() -> bool:
            return bool((await self.client.json("GET", PODS.path("default", name)))["spec"].get("nodeName"))

        await until(has_a_node, f"{why}: an innocent pod is bound", timeout_s=limit_s)
        self.waits[why] = monotonic_s() - began
        await self.client.json("DELETE", PODS.path("default", name), body={"gracePeriodSeconds": 0})


async def apply(client: KubeClient, manifests: Sequence[Json]) -> None:
    for one in manifests:
        await client.json("POST", _RESOURCES[one["kind"]].path(NAMESPACE), body=one, timeout_s=30)


async def sweep(client: KubeClient, manifests: Sequence[Json]) -> None:
    for one in manifests:
        path = _RESOURCES[one["kind"]].path(NAMESPACE, one["metadata"]["name"])
        await client.request("DELETE", path, body={"gracePeriodSeconds": 0}, timeout_s=30)


async def told(client: KubeClient, manifests: Sequence[Json], words: str) -> None:
    """The first pod's condition says what is wrong with it."""
    name = next(one["metadata"]["name"] for one in manifests if one["kind"] == "Pod")

    async def says() -> Any:
        found = await client.json("GET", PODS.path(NAMESPACE, name))
        conditions = (found.get("status") or {}).get("conditions") or ()
        return next((c for c in conditions if c["type"] == "PodScheduled" and words in c.get("message", "")), None)

    await until(says, f"{name} is told of {words!r}", timeout_s=INNOCENT_S)


def kill_services(platform: Up) -> None:
    for name, pid in platform.pids().items():
        if name in SERVICES:
            os.kill(pid, signal.SIGKILL)


async def stand(platform: Up, kinds: Sequence[Kind], *, node: str, kills: bool) -> dict[str, float]:
    """Each kind, waiting and bound, one after the other; with `kills`, every service is killed after each. Returns how long the innocent waited."""
    async with KubeClient.connect(str(Path(platform.state) / "kubeconfig"), user_agent="hbox-test") as client:
        await client.request(
            "POST", NAMESPACES.path(), body={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )
        innocent = Innocent(client)
        await innocent.bound_within(AFTER_KILLS_S, "before")
        for number, kind in enumerate(kinds):
            waiting, bound = kind.waiting(f"w{number}"), kind.bound(f"b{number}", node)
            try:
                await apply(client, waiting)
            except InvalidRequest:
                if kind.name not in REFUSED_NOW:
                    raise
                continue
            await innocent.bound_within(INNOCENT_S, f"{kind.name}, waiting")
            if kind.told:
                await told(client, waiting, kind.told)
            await apply(client, bound)
            await innocent.bound_within(INNOCENT_S, f"{kind.name}, bound")
            if kills:
                kill_services(platform)
                await asyncio.sleep(0.5)
                await innocent.bound_within(AFTER_KILLS_S, f"{kind.name}, after every service was killed")
                await asyncio.sleep(WELL_S)
            await sweep(client, [*waiting, *bound])
        return innocent.waits
