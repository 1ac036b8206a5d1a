"""A workload of another controller starts whole or not at all, without a PodGroup, and is known by its owner's name."""

import asyncio
from pathlib import Path

import pytest

from hbox_common.kube import EVENTS, NODES, PODS, KubeClient

from .. import owners, waiting
from .platform_world import placed, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE = "default"


async def test_pytorchjob_starts_whole_and_is_known_by_its_name(tmp_path: Path) -> None:
    tree = owners.training_job("train", {"Master": 1, "Worker": 8})
    with up(tmp_path / "state") as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await owners.install(client, "PyTorchJob")
            await client.json("POST", NODES.path(), body=node("n0"))
            await owners.create(client, SPACE, tree.objects)

            async def explained() -> bool:
                jobs = running.json("jobs")["items"]
                return [(job["name"], job["pods"]["min"]) for job in jobs] == [("default/pytorchjob/train", 9)] and bool(
                    jobs[0]["reason"]
                )

            await waiting.until(explained, "the gang waits with a reason", timeout_s=30)
            await asyncio.sleep(3)
            assert await placed(client, SPACE, "train-") == {}
            assert running.json("why", "pytorchjob/train")["id"] == running.json("why", "train")["id"]

            async def event_of_owner() -> bool:
                events = (await client.json("GET", EVENTS.path(SPACE)))["items"]
                return any(
                    one["involvedObject"]["kind"] == "PyTorchJob" and one["reason"] == "FailedScheduling" for one in events
                )

            await waiting.until(event_of_owner, "the Event on the PyTorchJob", timeout_s=30)
            await client.json("POST", NODES.path(), body=node("n1"))

            async def whole() -> bool:
                return len(await placed(client, SPACE, "train-")) == 9

            await waiting.until(whole, "the gang is whole", timeout_s=30)
            for one in tree.pods:
                await client.json("DELETE", PODS.path(SPACE, one["metadata"]["name"]), body={"gracePeriodSeconds": 0})
        assert running.json("audit")["faults"] == []


async def test_pods_of_an_unreadable_kind_start_alone_with_a_reason(tmp_path: Path) -> None:
    tree = owners.training_job("train", {"Worker": 9})
    with up(tmp_path / "state") as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await client.json("POST", NODES.path(), body=node("n0"))
            started = asyncio.get_running_loop().time()
            await owners.create(client, SPACE, tree.pods)

            async def most() -> bool:
                return len(await placed(client, SPACE, "train-")) == 8

            await waiting.until(most, "all that fit have places", timeout_s=20)
            assert asyncio.get_running_loop().time() - started < 6

            async def explained() -> bool:
                pods = (await client.json("GET", PODS.path(SPACE)))["items"]
                conditions = [one for pod in pods for one in pod.get("status", {}).get("conditions", ())]
                return any("OwnerNotReadable" in one.get("message", "") for one in conditions)

            await waiting.until(explained, "the reason names the kind", timeout_s=20)
