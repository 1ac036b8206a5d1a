"""Through all services: a queue gets its share back from one that borrowed it, and pods that want to be apart are."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import MERGE_PATCH, NAMESPACES, NODES, PODS, QUEUES, KubeClient

from ..waiting import until
from .platform_world import Up, placed, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, CARDS = "default", 16
HOST = "kubernetes.io/hostname"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Two nodes of eight cards; queues a and b that deserve eight each."""
    state = tmp_path_factory.mktemp("shares") / "state"
    with up(state) as running:
        asyncio.run(_furnish(state / "kubeconfig"))
        yield running


async def _furnish(kubeconfig: Path) -> None:
    async with KubeClient.connect(str(kubeconfig), user_agent="test") as client:
        for name in ("n0", "n1"):
            await client.json("POST", NODES.path(), body=node(name))
        for name in ("a", "b"):
            queue = {
                "metadata": {"name": name},
                "spec": {"weight": 1, "reclaimable": True, "deserved": {"nvidia.com/gpu": "8"}},
            }
            await client.json(
                "POST", QUEUES.path(), body={"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", **queue}
            )


@pytest.fixture
async def client(small: Up) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(str(small.state / "kubeconfig"), user_agent="test") as client:
        yield client


def pod(name: str, *, queue: str = "", cards: int = 0, affinity: dict[str, Any] | None = None) -> dict[str, Any]:
    notes = {"scheduling.volcano.sh/queue-name": queue} if queue else {}
    limits = {"nvidia.com/gpu": str(cards)} if cards else {}
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": notes, "labels": {"app": name.partition("-")[0]}},
        "spec": {
            "schedulerName": "hbox",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "affinity": affinity or {},
        },
    }


async def create(client: KubeClient, *pods: dict[str, Any]) -> None:
    for one in pods:
        await client.json("POST", PODS.path(SPACE), body=one)


async def test_a_queue_gets_what_it_deserves_back_and_the_borrower_keeps_its_own(client: KubeClient) -> None:
    """b fills all 16 cards, then a asks for 12: it gets 8, and b keeps 8."""
    await create(client, *(pod(f"b-{i}", queue="b", cards=1) for i in range(CARDS)))

    async def full() -> bool:
        return len(await placed(client, SPACE, "b-")) == CARDS

    await until(full, "b on all cards", timeout_s=60)
    await create(client, *(pod(f"a-{i}", queue="a", cards=1) for i in range(12)))

    async def shared() -> bool:
        return (len(await placed(client, SPACE, "a-")), len(await placed(client, SPACE, "b-"))) == (8, 8)

    await until(shared, "half and half", timeout_s=60)
    await asyncio.sleep(2.0)  # that it stays so: nobody is taken from any more
    assert (len(await placed(client, SPACE, "a-")), len(await placed(client, SPACE, "b-"))) == (8, 8)


async def test_pods_that_want_to_be_apart_are_also_for_a_scheduler_that_has_just_started(client: KubeClient, small: Up) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "shy"}}, "topologyKey": HOST}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    await create(client, pod("shy-0", affinity=apart))

    async def one() -> bool:
        return len(await placed(client, SPACE, "shy-")) == 1

    await until(one, "the first", timeout_s=60)
    os.kill(small.pids()["scheduler-core"], signal.SIGKILL)
    await create(client, pod("shy-1", affinity=apart), pod("shy-2", affinity=apart))

    async def two() -> bool:
        return len(await placed(client, SPACE, "shy-")) >= 2

    await until(two, "the second", timeout_s=60)

    async def told() -> bool:
        listed = await client.json("GET", PODS.path(SPACE))
        waiting = [p for p in listed["items"] if p["metadata"]["name"].startswith("shy-") and not p["spec"].get("nodeName")]
        messages = [c.get("message", "") for p in waiting for c in p.get("status", {}).get("conditions", ())]
        return len(waiting) == 1 and any("2 PodAntiAffinityMismatch" in message for message in messages)

    await until(told, "the third is told why it waits", timeout_s=60)
    assert Counter((await placed(client, SPACE, "shy-")).values()) == {"n0": 1, "n1": 1}


async def test_pods_of_namespaces_with_a_label_are_kept_away_also_when_the_label_comes_later(client: KubeClient) -> None:
    """`loud` pods run in a namespace on one node; who wants no pods of noisy namespaces near goes to the other, or waits while both have such."""
    await client.json("POST", NAMESPACES.path(), body={"metadata": {"name": "band", "labels": {"noise": "yes"}}})
    for number, name in enumerate(("n0", "n1")):
        loud = pod(f"loud-{number}")
        loud["spec"]["nodeSelector"] = {HOST: name}
        await client.json("POST", PODS.path("band" if number == 0 else "default"), body=loud)
    term = {"labelSelector": {}, "namespaceSelector": {"matchLabels": {"noise": "yes"}}, "topologyKey": HOST}
    quiet = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    async def loud_ones() -> bool:
        listed = await client.json("GET", PODS.path("band"))
        return len(await placed(client, SPACE, "loud-")) == 1 and all(one["spec"].get("nodeName") for one in listed["items"])

    await until(loud_ones, "the loud ones", timeout_s=60)
    await create(client, pod("quiet-0", affinity=quiet))

    async def first() -> bool:
        return await placed(client, SPACE, "quiet-") == {"quiet-0": "n1"}

    await until(first, "the quiet one is away from the band", timeout_s=60)
    await client.json("DELETE", PODS.path(SPACE, "quiet-0"))
    await client.json(
        "PATCH", NAMESPACES.path(None, SPACE), body={"metadata": {"labels": {"noise": "yes"}}}, content_type=MERGE_PATCH
    )
    await create(client, pod("quiet-1", affinity=quiet))

    async def told() -> bool:
        found = await client.json("GET", PODS.path(SPACE, "quiet-1"))
        return any("2 PodAntiAffinityMismatch" in c.get("message", "") for c in found.get("status", {}).get("conditions", ()))

    await until(told, "now both nodes have pods of noisy namespaces", timeout_s=60)
    await client.json(
        "PATCH", NAMESPACES.path(None, SPACE), body={"metadata": {"labels": {"noise": None}}}, content_type=MERGE_PATCH
    )

    async def second() -> bool:
        return await placed(client, SPACE, "quiet-") == {"quiet-1": "n1"}

    await until(second, "the label is gone, and the pod that waited has a place", timeout_s=60)


async def test_with_a_policy_of_the_users_every_pod_goes_where_it_says(tmp_path: Path) -> None:
    """Ten cards on two nodes: HBox's own packs them, this policy spreads them; and it is followed when it changes."""
    policy = tmp_path / "volcano-scheduler.conf"
    written = """\
actions: "allocate, backfill"
tiers:
- plugins:
  - {name: gang}
  - {name: predicates}
  - {name: nodeorder, arguments: {leastrequested.weight: 10, balancedresource.weight: 0}}
"""
    policy.write_text(written)
    with up(tmp_path / "state", env={"HBOX_SCHEDULER_CONF": str(policy)}) as running:
        await _furnish(running.state / "kubeconfig")
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            for number in range(4):
                await create(client, pod(f"wide-{number}", cards=1))

                async def there(count: int = number + 1) -> bool:
                    return len(await placed(client, SPACE, "wide-")) == count

                await until(there, f"pod {number}", timeout_s=60)
            assert Counter((await placed(client, SPACE, "wide-")).values()) == {"n0": 2, "n1": 2}
            policy.write_text(written.replace("leastrequested", "mostrequested"))
            await asyncio.sleep(2.0)  # looked at twice a second
            await create(client, *(pod(f"packed-{number}", cards=1) for number in range(4)))

            async def packed() -> bool:
                return len(await placed(client, SPACE, "packed-")) == 4

            await until(packed, "the second four", timeout_s=60)
            assert len(set((await placed(client, SPACE, "packed-")).values())) == 1
