"""Pods that are resized in place on a real API server, and nodes that shrink, are booked as they are: what is left of a node is not given out twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import MERGE_PATCH, NODES, PODS, KubeClient

from ..e2e.platform_world import Up, up
from ..e2e.traced_jobs import node
from ..waiting import until
from .control_plane import control_plane

pytestmark = pytest.mark.e2e

STRATEGIC = "application/strategic-merge-patch+json"
WITHIN_S = 30.0
#: So long nothing may be bound that there is no room for.
STAYS_S = 5.0


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[tuple[Up, Path]]:
    with (
        control_plane(tmp_path / "plane") as plane,
        up(tmp_path / "state", "--kubeconfig", str(plane.kubeconfig)) as running,
    ):
        yield running, plane.kubeconfig


def pod(name: str, cpu: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    container = {"name": "main", "image": "pause", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": "hbox", "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


async def test_what_a_pod_grew_to_and_what_a_node_shrank_by_is_not_given_to_others(platform: tuple[Up, Path]) -> None:
    running, kubeconfig = platform
    async with KubeClient.connect(str(kubeconfig), user_agent="test", timeout_s=30) as client:
        pods, size = PODS.path("default"), {"cpu": "8", "memory": "64Gi", "pods": "110"}
        body = node("n0") | {
            "status": {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]}
        }
        await client.json("POST", NODES.path(), body=body)

        async def bound(name: str) -> bool:
            return bool((await client.json("GET", f"{pods}/{name}"))["spec"].get("nodeName"))

        async def create(name: str, cpu: str) -> None:
            await client.json("POST", pods, body=pod(name, cpu), expect=(201,))

        await create("grows", "1")
        await until(lambda: bound("grows"), timeout_s=WITHIN_S)

        async def running_with() -> list[dict[str, Any]]:
            found = (await client.json("GET", f"{pods}/grows"))["status"].get("containerStatuses") or []
            return [{**one, "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}} for one in found]

        # kwok says nothing of it, and the API server takes a node that does not for one that cannot resize.
        kept = {"status": {"containerStatuses": await until(running_with, timeout_s=WITHIN_S)}}
        await client.json("PATCH", f"{pods}/grows/status", body=kept, content_type=MERGE_PATCH)
        grown = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "7"}, "limits": {"cpu": "7"}}}]}}
        await client.json("PATCH", f"{pods}/grows/resize", body=grown, content_type=STRATEGIC)
        await asyncio.sleep(2.0)
        await create("waits", "4")
        await asyncio.sleep(STAYS_S)
        assert not await bound("waits"), "7 and 4 of 8 cores are booked"
        await create("fits", "1")
        await until(lambda: bound("fits"), timeout_s=WITHIN_S)
        small = {"status": {"allocatable": {"cpu": "2"}, "capacity": {"cpu": "2"}}}
        await client.json("PATCH", f"{NODES.path(name='n0')}/status", body=small, content_type=MERGE_PATCH)
        await until(
            lambda: "node n0 is over-booked" in (running.state / "logs" / "quota-ledger.log").read_text(), timeout_s=WITHIN_S
        )
        for name in ("grows", "fits"):
            await client.json("DELETE", f"{pods}/{name}", expect=(200, 202))
        await asyncio.sleep(STAYS_S)
        assert not await bound("waits"), "4 of 2 cores are booked"
