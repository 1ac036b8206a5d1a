"""The life of a workload whose controller is not HBox: suspended, scaled, resumed, restarted, deleted and created again, its minimum raised, its pods elastic.

The controllers of `tests/owner_controllers.py` create and delete the pods; one node has eight cards, and each pod asks for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, PODS, KubeClient

from .. import waiting
from ..owner_controllers import Controllers
from ..owners import Json, create, install, patch, path, placed_of, training_job, training_pods
from .platform_world import Up, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE = "default"
#: Longer than job-controller takes for an owner that cannot be read, after which its pods would start one by one.
NEVER_S = 4.0


class World:
    def __init__(self, running: Up, client: KubeClient, controllers: Controllers) -> None:
        self.running, self.client, self.controllers = running, client, controllers

    async def job(self, name: str, workers: int, **spec: Any) -> Json:
        job = training_job(name, {"Master": 1, "Worker": workers}, **spec).top
        await create(self.client, SPACE, [job])
        return job

    async def places(self, count: int, prefix: str) -> dict[str, str]:
        async def there() -> dict[str, str] | None:
            found = await placed_of(self.client, SPACE, prefix)
            return found if len(found) == count else None

        found: dict[str, str] = await waiting.until(there, f"{count} placed pods of {prefix}", timeout_s=60)
        return found

    async def starts_none(self, prefix: str) -> None:
        """Its pods exist, and none has a node, for longer than an unreadable owner would need."""
        for _ in range(int(NEVER_S / 0.2)):
            assert await placed_of(self.client, SPACE, prefix) == {}
            await asyncio.sleep(0.2)
        pods = (await self.client.json("GET", PODS.path(SPACE)))["items"]
        assert any(pod["metadata"]["name"].startswith(prefix) for pod in pods)

    async def gone(self, prefix: str) -> None:
        async def none() -> bool:
            pods = (await self.client.json("GET", PODS.path(SPACE)))["items"]
            return not any(pod["metadata"]["name"].startswith(prefix) for pod in pods)

        await waiting.until(none, f"the end of {prefix}", timeout_s=60)

    async def change(self, name: str, body: Json) -> None:
        await patch(self.client, "PyTorchJob", SPACE, name, {"spec": body})

    async def scale(self, name: str, workers: int) -> None:
        await self.change(name, {"pytorchReplicaSpecs": {"Worker": {"replicas": workers}}})

    async def delete(self, name: str) -> None:
        await self.client.json("DELETE", path("PyTorchJob", SPACE, name))
        await self.gone(name)


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncIterator[World]:
    with up(tmp_path / "state") as running:
        async with (
            KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client,
            asyncio.TaskGroup() as group,
        ):
            await install(client, "PyTorchJob")
            await client.json("POST", NODES.path(), body=node("n0"))
            controllers = Controllers(client, SPACE, kinds=("PyTorchJob",))
            task = group.create_task(controllers.run())
            try:
                yield World(running, client, controllers)
            finally:
                task.cancel()
        assert running.json("audit")["faults"] == []


async def test_job_is_suspended_scaled_resumed_restarted_deleted_and_created_again(tmp_path: Path) -> None:
    async with world(tmp_path) as on:
        await on.job("filler", 3)  # 4 of 8 cards
        await on.places(4, "filler")
        await on.job("train", 3)
        await on.places(4, "train")
        # Suspended: its pods go, and its cards with them.
        await on.change("train", {"runPolicy": {"suspend": True}})
        await on.gone("train")
        # Scaled while it is suspended, then resumed: five pods do not fit on four cards, and none starts.
        await on.scale("train", 4)
        await on.change("train", {"runPolicy": {"suspend": False}})
        await on.starts_none("train")
        # Scaled to what fits: the gang follows the newest version of its owner.
        await on.scale("train", 3)
        before = await on.places(4, "train")
        # Restarted: a worker fails, its controller replaces it, and the gang is whole again.
        path_of = PODS.path(SPACE, "train-worker-1", "status")
        body = {"status": {"phase": "Failed"}}
        await on.client.json("PATCH", path_of, body=body, content_type="application/merge-patch+json")

        async def replaced() -> bool:
            return on.controllers.creations["train-worker-1"] == 3

        await waiting.until(replaced, "the second worker", timeout_s=30)
        assert set(await on.places(4, "train")) == set(before)
        # Deleted, and created again under its name, larger: the new object decides.
        await on.delete("train")
        await on.job("train", 4)
        await on.starts_none("train")
        await on.delete("filler")
        await on.places(5, "train")


async def test_minimum_raised_while_pods_arrive_binds_no_part(tmp_path: Path) -> None:
    """Volcano #6010: the raise and the pods come together; no pod starts by the old minimum."""
    async with world(tmp_path) as on:
        on.controllers.kinds = ()  # the pods are created here, at once
        for number in range(5):
            name = f"raised-{number}"
            job = training_job(name, {"Worker": 2}, runPolicy={"schedulingPolicy": {"minAvailable": 2}}).top
            uids = await create(on.client, SPACE, [job])
            stored = await on.client.json("GET", path("PyTorchJob", SPACE, name))
            pods = training_pods(stored | {"apiVersion": job["apiVersion"], "kind": job["kind"]})
            await create(on.client, SPACE, pods[:1], uids)
            await on.change(
                name,
                {
                    "runPolicy": {"schedulingPolicy": {"minAvailable": 9}},
                    "pytorchReplicaSpecs": {"Worker": {"replicas": 9}},
                },
            )
            stored = await on.client.json("GET", path("PyTorchJob", SPACE, name))
            pods = training_pods(stored | {"apiVersion": job["apiVersion"], "kind": job["kind"]})
            await create(on.client, SPACE, pods[1:], uids)  # nine pods, eight cards
            await on.starts_none(name)
            await on.delete(name)


async def test_elastic_job_grows_while_no_other_waits_and_gives_back_first(tmp_path: Path) -> None:
    async with world(tmp_path) as on:
        await on.job("elastic", 7, elasticPolicy={"minReplicas": 3})
        await on.places(8, "elastic")
        await on.job("other", 3)
        await on.starts_none("other")  # equal priority takes nothing
        # Its controller shrinks it: the cards go to the job that waits.
        await on.scale("elastic", 3)
        await on.places(4, "elastic")
        await on.places(4, "other")
        await on.scale("elastic", 7)  # the minimum runs; the rest waits for room
        await asyncio.sleep(NEVER_S)
        assert len(await placed_of(on.client, SPACE, "elastic")) == 4
        await on.delete("other")
        await on.places(8, "elastic")
