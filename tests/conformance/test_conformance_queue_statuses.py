"""The ledger's writer of statuses against either API server: the watch is often faster than the answer to a write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hbox_common.kube import CRDS, QUEUES, Informer, KubeClient, Queue, wait_established
from hbox_common.model import QueueName
from hbox_ledger import metrics
from hbox_ledger.adapters.statuses import StatusWriter

from ..volcano_definitions import queues
from ..waiting import until
from .kube_world import KubeApi

NAME = "queues.scheduling.volcano.sh"
CHANGES = 100


@pytest.fixture
async def client(kube_api: KubeApi) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(str(kube_api.kubeconfig), user_agent="conformance") as client:
        await client.json("POST", CRDS.path(), body=queues())
        await wait_established(client, NAME)
        yield client
        await client.json("DELETE", CRDS.path(name=NAME))


async def test_a_status_follows_what_is_used_and_its_own_writes_are_nobody_elses(client: KubeClient) -> None:
    body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "busy"}, "spec": {"weight": 1}}

    async def made() -> bool:
        answer = await client.request("POST", QUEUES.path(), body=body)
        return answer.status in (201, 409)

    await until(made, "the definition is served")
    informer, writer = Informer(client, QUEUES, Queue), StatusWriter(client, instance="test", per_s=1000.0, window_s=0.001)

    async def seen(deltas: Any) -> None:
        for delta in deltas:
            if delta.new is not None:
                writer.seen(delta.new)

    async def follows() -> bool:
        found = await client.json("GET", QUEUES.path(name="busy"))
        return bool(found.get("status", {}).get("allocated", {}).get("pods") == str(CHANGES))

    before = metrics.STATUSES.labels("contested")._value.get()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(informer.run(seen)), group.create_task(writer.run())]
        await informer.synced.wait()
        for pods in range(1, CHANGES + 1):
            writer.update(QueueName("busy"), {"pods": pods, "cpu": 1000 * pods}, faults="", stopped="")
            await asyncio.sleep(0.02)
        await until(follows, "the last amount")
        for task in tasks:
            task.cancel()
    assert metrics.STATUSES.labels("contested")._value.get() == before
