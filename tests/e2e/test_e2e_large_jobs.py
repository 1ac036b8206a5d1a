"""Large gangs on a running platform, by HBox's own policy: they start beside work that never ends coming, and what ends in time goes on meanwhile.

4 nodes of 8 cards. The policy is `hbox policy show`'s, with 2 s to wait in place of two minutes.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hbox_common.errors import Conflict
from hbox_common.kube import HYPERNODES, NODES, PODGROUPS, PODS, KubeClient
from hbox_scheduler.app import LEARNED_S
from hbox_scheduler.core.policy.default import DEFAULT_CONF

from .. import waiting
from .platform_world import SLOWER, Up, emptied, placed, queue, simulate_cycle, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, GPU = "default", "nvidia.com/gpu"
NODES_THERE = ("n0", "n1", "n2", "n3")


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("large")
    policy = folder / "volcano-scheduler.conf"
    assert "after: 2m" in DEFAULT_CONF
    policy.write_text(DEFAULT_CONF.replace("after: 2m", "after: 2s"))
    with up(folder / "state", env={"HBOX_SCHEDULER_CONF": str(policy)}) as running:
        yield running


@pytest.fixture
async def client(platform: Up) -> AsyncIterator[KubeClient]:
    """An empty cluster before and after each test, also after one that failed."""
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        for name in NODES_THERE:
            with suppress(Conflict):  # made for the first of these tests
                await client.json("POST", NODES.path(), body=node(name))
        yield client
        for one in (await client.json("GET", HYPERNODES.path()))["items"]:
            await client.json("DELETE", HYPERNODES.path(name=one["metadata"]["name"]))
        await emptied(platform, client, SPACE)


def pod(
    name: str, *, cards: int = 1, group: str = "", notes: Mapping[str, str] | None = None, of: str = "default"
) -> dict[str, Any]:
    annotations = {"scheduling.volcano.sh/queue-name": of, **(notes or {})}
    annotations |= {"scheduling.k8s.io/group-name": group} if group else {}
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: str(cards)}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE, "annotations": annotations},
        "spec": {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }


def gang(name: str, shapes: list[tuple[int, int]], notes: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """`shapes`: pods, and cards of each."""
    members = [cards for count, cards in shapes for _ in range(count)]
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {"minMember": len(members), "queue": "default"},
    }
    return [group, *(pod(f"{name}-{i}", cards=cards, group=name, notes=notes) for i, cards in enumerate(members))]


async def create(client: KubeClient, objects: list[dict[str, Any]]) -> None:
    for one in objects:
        await client.json("POST", (PODS if one["kind"] == "Pod" else PODGROUPS).path(SPACE), body=one)


async def here(client: KubeClient, prefix: str, count: int, timeout_s: float) -> None:
    async def so() -> bool:
        return sum(name.startswith(prefix) for name in await placed(client, SPACE)) == count

    await waiting.until(so, f"{count} of {prefix}", timeout_s=timeout_s * SLOWER)


async def said(running: Up, job: str, *words: str, timeout_s: float = 30) -> None:
    why = ""

    async def so() -> bool:
        nonlocal why
        why = " ".join((await asyncio.to_thread(running.hbox, "why", job)).stdout.split())
        return all(word in why for word in words)

    try:
        await waiting.until(so, f"{job} is told {words}", timeout_s=timeout_s * SLOWER)
    except AssertionError as e:
        e.add_note(why)
        raise


async def remove(client: KubeClient, *prefixes: str) -> None:
    for kind in (PODS, PODGROUPS):
        for one in (await client.json("GET", kind.path(SPACE)))["items"]:
            if one["metadata"]["name"].startswith(prefixes):
                await client.json("DELETE", kind.path(SPACE, one["metadata"]["name"]))


async def test_a_gang_starts_beside_a_stream_of_small_pods_and_both_sides_are_told(platform: Up, client: KubeClient) -> None:
    """56 small pods are always there for 32 cards; nothing says how long they run. The gang has pods of two shapes, 16 cards in all: half of the cluster stays
    set aside also where nobody knows any more when small pods end, as of those that run longer than others did on a busy machine."""
    made = 0

    async def stream() -> None:
        nonlocal made
        while True:
            items = (await client.json("GET", PODS.path(SPACE)))["items"]
            live = [one for one in items if one.get("status", {}).get("phase") not in ("Succeeded", "Failed")]
            small = sum(one["metadata"]["name"].startswith("s") for one in live)
            for _ in range(56 - small):
                await create(client, [pod(f"s{made}", notes={"hbox.io/run-seconds": str(16 + made % 9)})])
                made += 1
            await asyncio.sleep(0.3)

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(stream())
        await here(client, "s", 32, 60)
        await create(client, gang("big", [(1, 8), (2, 4)]))
        await said(platform, "big", "reserved for it: n", "of queue default")
        await create(client, [pod("small")])
        await said(platform, "small", "ReservedForLargeJob", "set aside for a gang of queue default (3 pods)")
        await here(client, "big", 3, 130)
        running.cancel()


async def test_what_ends_before_the_start_goes_on_and_what_does_not_waits(platform: Up, client: KubeClient) -> None:
    """`long` holds 6 cards of each node for five minutes, as it says; `big` needs all nodes then. In between only those go in who say that they end."""
    queue(platform, "create", "others")
    await create(client, gang("long", [(4, 6)], {"hbox.io/walltime": "5m"}))
    await here(client, "long", 4, 30)
    await create(client, gang("big", [(4, 8)]))
    await said(platform, "big", "reserved for it: n0, n1, n2, n3", "expected to start at", "4 of queue default")
    await create(client, [pod(f"endless-{i}", of="others") for i in range(2)])
    brief = {"hbox.io/walltime": "20s", "hbox.io/run-seconds": "3"}
    await create(client, [pod(f"brief-{i}", of="others", notes=brief) for i in range(4)])
    await here(client, "brief", 4, 30)
    await said(platform, "endless-0", "4 set aside for a gang of queue default (4 pods), expected to start at")
    assert not any(name.startswith("endless") for name in await placed(client, SPACE))
    await here(client, "brief", 0, 30)
    await remove(client, "long")  # sooner than they said
    await here(client, "big", 4, 30)
    await remove(client, "big")
    await here(client, "endless", 2, 30)
    assert platform.json("audit")["faults"] == []


LEAVES = {"s0": ("n0", "n1"), "s1": ("n2", "n3")}

#: For so long each node's first 6 cards are taken, as their pods say: n0 and n2 come free first, and are of two leaves.
TAKEN_FOR = {"n0": "3m", "n1": "60m", "n2": "5m", "n3": "8m"}


def hypernode(name: str) -> dict[str, Any]:
    members = [{"type": "Node", "selector": {"exactMatch": {"name": one}}} for one in LEAVES[name]]
    spec = {"tier": 1, "members": members}
    return {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": name}, "spec": spec}


def near() -> list[dict[str, Any]]:
    group, *pods = gang("near", [(2, 8)])
    group["spec"]["networkTopology"] = {"mode": "hard", "highestTierAllowed": 1}
    return [group, *pods]


def taken() -> list[dict[str, Any]]:
    found = []
    for name, walltime in TAKEN_FOR.items():
        one = pod(f"taken-{name}", cards=6, notes={"hbox.io/walltime": walltime})
        one["spec"]["nodeSelector"] = {"kubernetes.io/hostname": name}
        found.append(one)
    return found


async def test_a_gang_of_one_leaf_has_nodes_of_one_leaf_set_aside(platform: Up, client: KubeClient) -> None:
    for name in LEAVES:
        await client.json("POST", HYPERNODES.path(), body=hypernode(name))
    await create(client, taken())
    await here(client, "taken", 4, 30)
    await create(client, near())
    await said(platform, "near", "reserved for it: n2, n3", "expected to start at", "2 of queue default")
    queue(platform, "create", "unknown")  # of which nobody has learned how long its pods run, as of the others by now
    await create(client, [pod(f"endless-{i}", of="unknown") for i in range(6)])
    await here(client, "endless", 4, 30)
    await said(platform, "endless-5", "2 set aside for a gang of queue default (2 pods), expected to start at")
    assert {node for name, node in (await placed(client, SPACE)).items() if name.startswith("endless")} == {"n0", "n1"}
    await remove(client, "taken-n2", "taken-n3")
    await here(client, "near", 2, 30)
    assert platform.json("audit")["faults"] == []


def test_the_same_of_a_gang_of_one_leaf_in_simulate_cycle(tmp_path: Path) -> None:
    running, gang_of_one_leaf = taken(), near()
    for one in running:
        one["spec"]["nodeName"] = one["metadata"]["name"].removeprefix("taken-")
        one["status"] = {"phase": "Running", "startTime": ago(10)}
    for one in gang_of_one_leaf:
        one["metadata"]["creationTimestamp"] = ago(200)
    endless = [pod(f"endless-{i}") for i in range(6)]
    items = [*map(node, NODES_THERE), *map(hypernode, LEAVES), *running, *gang_of_one_leaf, *endless]
    found = simulate_cycle(tmp_path, items)
    assert {one["node"] for one in found["bindings"]} == {"n0", "n1"}
    assert len(found["bindings"]) == 4
    assert "reserved for it: n2, n3; expected to start at" in found["pending"][f"{SPACE}/near-0"]["message"]


async def test_what_was_learned_of_run_times_is_known_after_a_scheduler_was_killed(platform: Up, client: KubeClient) -> None:
    """Nobody says how long the pods of queue `known` run; 20 of them ran for a second or two. So one more may use what is set aside for `big` in five
    minutes; none of queue `strange` may, of which nobody knows anything."""
    queue(platform, "create", "known")
    queue(platform, "create", "strange")
    await create(client, [pod(f"ran-{i}", of="known", notes={"hbox.io/run-seconds": "1"}) for i in range(20)])
    await here(client, "ran", 0, 60)
    await asyncio.sleep(LEARNED_S + 2)
    before = platform.pids()["scheduler-core"]
    os.kill(before, signal.SIGKILL)
    await waiting.until(lambda: platform.pids()["scheduler-core"] != before, "a scheduler-core started again")
    await create(client, gang("long", [(4, 6)], {"hbox.io/walltime": "5m"}))
    await here(client, "long", 4, 30)
    await create(client, gang("big", [(4, 8)]))
    await said(platform, "big", "reserved for it: n", "expected to start at", "4 of queue default")
    await create(client, [pod("stranger", of="strange"), pod("known", of="known")])
    await here(client, "known", 1, 30)
    await said(platform, "stranger", "set aside for a gang of queue default (4 pods), expected to start at")
    assert platform.json("audit")["faults"] == []


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_the_same_in_simulate_cycle(tmp_path: Path) -> None:
    long, big = gang("long", [(4, 6)], {"hbox.io/walltime": "5m"}), gang("big", [(4, 8)])
    for number, one in enumerate(long[1:]):
        one["spec"]["nodeName"] = NODES_THERE[number]
        one["status"] = {"phase": "Running", "startTime": ago(10)}
    for one in big:
        one["metadata"]["creationTimestamp"] = ago(200)
    endless = [pod(f"endless-{i}") for i in range(2)]
    brief = [pod(f"brief-{i}", notes={"hbox.io/walltime": "20s"}) for i in range(4)]
    items = [*map(node, NODES_THERE), *long, *big, *endless, *brief]
    found = simulate_cycle(tmp_path, items)
    assert sorted(one["pod"] for one in found["bindings"]) == [f"{SPACE}/brief-{i}" for i in range(4)]
    assert "reserved for it: n0, n1, n2, n3; expected to start at" in found["pending"][f"{SPACE}/big-0"]["message"]
    assert found["pending"][f"{SPACE}/endless-0"]["reasons"] == {"ReservedForLargeJob": 4}
