"""Rollouts on a cluster without an idle card, while jobs of the same queue and priority wait: each new pod gets the place that an old one left.

Controllers of `tests/owner_controllers.py` replace the pods. The jobs that wait are older than every new pod.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hbox_common.kube import EVENTS, NODES, PODS, KubeClient

from .. import waiting
from ..owner_controllers import Controllers, is_ready
from ..owners import MIN_MEMBER, Json, create, deployment, install, leader_worker_set, patch, placed_of, stateful_set
from .platform_world import Up, up
from .traced_jobs import node, pod

pytestmark = pytest.mark.e2e

SPACE = "default"
CARDS = 8
#: Jobs that wait for a card.
WAITING = 3
#: Rollouts of each kind of workload and strategy. HBOX_ROLLOUTS=20: a longer run.
TIMES = int(os.environ.get("HBOX_ROLLOUTS", "3"))
#: A rolling update of four pods takes a second here, if nothing waits.
ROLLED_S = 60.0


@asynccontextmanager
async def cluster(tmp_path: Path, *, max_unavailable: bool = False) -> AsyncIterator[tuple[Up, KubeClient]]:
    """The platform, one node of CARDS cards, and the controllers. `max_unavailable`: of StatefulSets, see `Controllers`."""
    with up(tmp_path / "state") as running:
        async with (
            KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client,
            asyncio.TaskGroup() as group,
        ):
            await install(client, "Deployment", "ReplicaSet", "StatefulSet", "LeaderWorkerSet")
            await client.json("POST", NODES.path(), body=node("n0"))
            kinds = ("LeaderWorkerSet", "Deployment", "ReplicaSet", "StatefulSet")
            task = group.create_task(Controllers(client, SPACE, kinds, max_unavailable=max_unavailable).run())
            try:
                yield running, client
            finally:
                task.cancel()
        assert running.json("audit")["faults"] == []


async def fill(client: KubeClient, name: str, pods: int) -> None:
    """The workload runs, other pods have all other cards, and WAITING more wait."""

    async def placed(prefix: str, count: int) -> None:
        async def there() -> bool:
            return len(await placed_of(client, SPACE, prefix)) == count

        await waiting.until(there, f"{count} placed pods of {prefix}", timeout_s=60)

    await placed(name, pods)
    for number in range(CARDS - pods + WAITING):
        await client.json("POST", PODS.path(SPACE), body=pod(f"rival-{number}"))
    await placed("rival", CARDS - pods)


async def roll(client: KubeClient, kind: str, name: str, pods: int, number: int) -> None:
    """A new revision; returns when all pods are of it and ready."""
    await begin(client, kind, name, number)
    await rolled_over(client, name, pods, number)


async def begin(client: KubeClient, kind: str, name: str, number: int) -> None:
    template = {"metadata": {"annotations": {"revision": str(number)}}}
    body = {"leaderWorkerTemplate": {"workerTemplate": template}} if kind == "LeaderWorkerSet" else {"template": template}
    await patch(client, kind, SPACE, name, {"spec": body})


async def rolled_over(client: KubeClient, name: str, pods: int, number: int) -> None:
    async def rolled() -> bool:
        found: list[Json] = (await client.json("GET", PODS.path(SPACE)))["items"]
        mine = [one for one in found if one["metadata"]["name"].startswith(f"{name}-")]
        return len(mine) == pods and all(
            one["metadata"].get("annotations", {}).get("revision") == str(number) and is_ready(one) for one in mine
        )

    try:
        await waiting.until(rolled, f"rollout {number} of {name}", timeout_s=ROLLED_S)
    except AssertionError as e:
        found = (await client.json("GET", PODS.path(SPACE)))["items"]
        lines = [
            f"{one['metadata']['name']} {one['spec'].get('nodeName', '-')} {one['metadata'].get('annotations', {}).get('revision')}"
            for one in found
        ]
        raise AssertionError(f"{e}: {lines}") from None


ROLLOUTS = {
    "without-surge": {"maxSurge": 0, "maxUnavailable": 1},
    "with-surge": {"maxSurge": 1, "maxUnavailable": 1},
}


@pytest.mark.parametrize("rollout", ROLLOUTS.values(), ids=ROLLOUTS)
@pytest.mark.parametrize("gang", [True, False], ids=["gang", "single-pods"])
async def test_deployment_rolls_over_on_a_full_queue(tmp_path: Path, rollout: Json, gang: bool) -> None:
    async with cluster(tmp_path) as (_, client):
        notes = {MIN_MEMBER: "4"} if gang else None
        top = deployment("web", 4, notes=notes, strategy={"type": "RollingUpdate", "rollingUpdate": rollout}).top
        await create(client, SPACE, [top])
        await fill(client, "web", 4)
        for number in range(TIMES):
            await roll(client, "Deployment", "web", 4, number)
        assert len(await placed_of(client, SPACE, "rival")) == CARDS - 4


@pytest.mark.parametrize("rollout", ROLLOUTS.values(), ids=ROLLOUTS)
async def test_leader_worker_set_rolls_over_on_a_full_queue(tmp_path: Path, rollout: Json) -> None:
    # Without this feature gate the StatefulSet of the leaders deletes no leader as long as the surge replica waits.
    async with cluster(tmp_path, max_unavailable=rollout["maxSurge"] > 0) as (_, client):
        await create(client, SPACE, [leader_worker_set("llm", 2, 2, rollout=rollout).top])
        await fill(client, "llm", 4)
        for number in range(TIMES):
            await roll(client, "LeaderWorkerSet", "llm", 4, number)
        assert len(await placed_of(client, SPACE, "rival")) == CARDS - 4


async def event_of(client: KubeClient, kind: str) -> str:
    """The Event about the rollout that waits."""

    async def written() -> str:
        notes = [
            one["message"]
            for one in (await client.json("GET", EVENTS.path(SPACE)))["items"]
            if one["involvedObject"]["kind"] == kind and one["reason"] == "RolloutWaits"
        ]
        assert len(notes) <= 1
        return notes[0] if notes else ""

    return str(await waiting.until(written, f"the Event of the {kind}", timeout_s=60))


async def test_deployment_without_room_for_its_surge_gets_an_event_with_the_remedy(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, client):
        rollout = {"maxSurge": 1, "maxUnavailable": 0}
        await create(client, SPACE, [deployment("web", 4, strategy={"type": "RollingUpdate", "rollingUpdate": rollout}).top])
        await fill(client, "web", 4)
        await begin(client, "Deployment", "web", 0)
        note = await event_of(client, "Deployment")
        assert note == (
            "1 new pod of the rollout waits for a place beyond those of its 4 ready pods, none of which ends before: set "
            "spec.strategy.rollingUpdate.maxSurge to 0 and spec.strategy.rollingUpdate.maxUnavailable to at least 1, and new pods take the places of "
            "old ones"
        )
        body = {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}}
        await patch(client, "Deployment", SPACE, "web", body)
        await rolled_over(client, "web", 4, 0)
        assert len(await placed_of(client, SPACE, "rival")) == CARDS - 4


async def test_leader_worker_set_without_room_for_its_surge_gets_an_event_with_the_remedy(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, client):
        await create(client, SPACE, [leader_worker_set("llm", 2, 2, rollout=ROLLOUTS["with-surge"]).top])
        await fill(client, "llm", 4)
        await begin(client, "LeaderWorkerSet", "llm", 0)
        assert "set spec.rolloutStrategy.rollingUpdateConfiguration.maxSurge to 0" in await event_of(client, "LeaderWorkerSet")
        body = {"spec": {"rolloutStrategy": {"rollingUpdateConfiguration": ROLLOUTS["without-surge"]}}}
        await patch(client, "LeaderWorkerSet", SPACE, "llm", body)
        await rolled_over(client, "llm", 4, 0)
        assert len(await placed_of(client, SPACE, "rival")) == CARDS - 4


async def test_stateful_set_rolls_over_on_a_full_queue(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, client):
        await create(client, SPACE, [stateful_set("db", 3, notes={MIN_MEMBER: "3"}, podManagementPolicy="Parallel").top])
        await fill(client, "db", 3)
        for number in range(TIMES):
            await roll(client, "StatefulSet", "db", 3, number)
