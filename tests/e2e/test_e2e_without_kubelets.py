"""Faults on a cluster without kubelets, with one platform for all tests: victims that never end, restarts of device plugins, foreign pods, PodGroups whose pods
are deleted, and unplaceable PodGroups."""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from hbox_common.kube import NODES, PODGROUPS, QUEUES, KubeClient
from hbox_common.kube.transport import MERGE_PATCH

from ..waiting import until
from .platform_world import Up, own_policy, placed
from .without_kubelets import SPACE, Cluster, dark_cluster, group, node, pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("dark")
    (folder / "policy.conf").write_text(own_policy())
    with dark_cluster(folder, "--shares", "policy", env={"HBOX_SCHEDULER_CONF": str(folder / "policy.conf")}) as running:
        yield running


WEIGHTS = """\
actions: "allocate, backfill, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
"""

ADMISSION = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: overcommit}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""


def follow(running: Up, policy: str) -> None:
    """Replaces the policy of the platform."""
    (running.state.parent / "policy.conf").write_text(policy)


def kubeconfig(running: Up) -> Path:
    return running.state.parent / "kubeconfig"


def at(client: KubeClient, **places: str) -> Callable[[], Awaitable[bool]]:
    async def there() -> bool:
        where = await placed(client, SPACE)
        return {name: where.get(name) for name in places} == places

    return there


async def test_preemptor_takes_a_freed_card_and_then_another_victim(platform: Up) -> None:
    """n1 is dead, so its victim never ends. `hi` takes n2 when n2 becomes free, before `late` of lower priority, and n1 is not reserved any more."""
    async with KubeClient.connect(str(kubeconfig(platform)), user_agent="test") as client:
        cluster = Cluster(client)
        await cluster.levels(low=100, high=300)
        await cluster.nodes(node("n1"), node("n2"))
        await cluster.submit(pod("v1", level="low", at="n1"), pod("k2", level="high", at="n2"))
        await until(at(client, v1="n1", k2="n2"), "both nodes are full", timeout_s=60)
        for name in ("v1", "k2"):
            await cluster.runs(name)
        await cluster.submit(pod("hi", level="high"))
        await until(lambda: _leaving(cluster, "v1"), "v1 is to leave", timeout_s=60)
        await cluster.delete("k2")
        await cluster.submit(pod("late", level="low"))
        await until(at(client, hi="n2"), "the free card is taken by the preemptor", timeout_s=30)
        await cluster.runs("hi")

        await cluster.nodes(node("n3"))
        await until(at(client, late="n3"), "the next node is for the other", timeout_s=30)
        await cluster.runs("late")
        await cluster.submit(pod("top", level="high"))
        await until(lambda: _leaving(cluster, "late"), "v1 is overdue: another victim leaves", timeout_s=90)
        assert await cluster.leaving() == {"v1", "late"}
        await cluster.delete("late")
        await until(at(client, top="n3"), "its card is the preemptor's", timeout_s=30)
    assert platform.json("audit")["faults"] == []


async def _leaving(cluster: Cluster, name: str) -> bool:
    return name in await cluster.leaving()


async def test_idle_nodes_are_used_while_a_device_plugin_is_restarted(platform: Up) -> None:
    """n1 has no allocatable cards; the queue that holds its two cards gets two more on n2."""
    async with KubeClient.connect(str(kubeconfig(platform)), user_agent="test") as client:
        cluster = Cluster(client)
        await cluster.cleared()
        follow(platform, own_policy())
        await cluster.nodes(node("n1", cards=2))
        await cluster.submit(pod("old", cards=2))
        await until(at(client, old="n1"), "the first has its cards", timeout_s=60)
        await cluster.runs("old")
        gone = {"status": {"allocatable": {"nvidia.com/gpu": "0"}}}
        await client.json("PATCH", NODES.path(None, "n1", "status"), body=gone, content_type=MERGE_PATCH)
        await cluster.nodes(node("n2", cards=2))
        await cluster.submit(pod("new", cards=2))
        await until(at(client, new="n2"), "the idle node is used", timeout_s=30)


async def test_queues_reclaim_their_shares_with_foreign_pods(platform: Up) -> None:
    """Volcano's Reclaim Case 10: pods of another scheduler hold 12 of 16 cores. Four queues share the other four cores."""
    async with KubeClient.connect(str(kubeconfig(platform)), user_agent="test") as client:
        cluster = Cluster(client)
        await cluster.cleared()
        follow(platform, WEIGHTS)
        for name in ("qa", "qb", "qc", "qd"):
            body = {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "Queue",
                "metadata": {"name": name},
                "spec": {"weight": 1},
            }
            await client.json("POST", QUEUES.path(), body=body)
        for number in range(4):
            await cluster.nodes(node(f"c{number}", cards=0, cpu=4))
            foreign = pod(f"foreign-{number}", cards=0, cpu="3", scheduler="another")
            foreign["spec"]["nodeName"] = f"c{number}"
            await cluster.submit(foreign)
        for name in ("qa", "qb"):
            await cluster.submit(group(name, cards=0, queue=name))
            await cluster.submit(*(pod(f"{name}-{number}", cards=0, group=name) for number in range(2)))

        async def running() -> bool:
            return len(await placed(client, SPACE, "q")) == 4

        await until(running, "two queues use all", timeout_s=60)
        for name in ("qc", "qd"):
            await cluster.submit(pod(f"{name}-0", cards=0, queue=name))

        async def shared() -> bool:
            for name in await cluster.leaving():
                await cluster.delete(name)
            where = await placed(client, SPACE, "q")
            return {name: sum(pod.startswith(name) for pod in where) for name in ("qa", "qb", "qc", "qd")} == dict.fromkeys(
                ("qa", "qb", "qc", "qd"), 1
            )

        await until(shared, "each queue has a core", timeout_s=60)


async def test_reservation_of_an_admitted_podgroup_ends_with_its_pods(platform: Up) -> None:
    """Four PodGroups whose pods were deleted still exist, and reserve no card."""
    async with KubeClient.connect(str(kubeconfig(platform)), user_agent="test") as client:
        cluster = Cluster(client)
        await cluster.cleared()
        follow(platform, ADMISSION)
        await cluster.nodes(node("n1", cards=4))
        for number in range(4):
            await cluster.submit(group(f"g{number}"), pod(f"p{number}", group=f"g{number}"))
        await until(at(client, **{f"p{number}": "n1" for number in range(4)}), "all are placed", timeout_s=60)
        for number in range(4):
            await cluster.delete(f"p{number}")
        await cluster.submit(group("new"), pod("n", group="new"))
        await until(at(client, n="n1"), "the new one is let in", timeout_s=30)
        assert len((await client.json("GET", PODGROUPS.path(SPACE)))["items"]) == 5


async def test_unplaceable_podgroup_reserves_no_cards(platform: Up) -> None:
    async with KubeClient.connect(str(kubeconfig(platform)), user_agent="test") as client:
        cluster = Cluster(client)
        await cluster.cleared()
        follow(platform, ADMISSION)
        await cluster.nodes(node("n1"), node("n2"))
        await cluster.submit(group("imp", cards=2), pod("i", cards=2, group="imp"))

        async def let_in() -> bool:
            phase = (await client.json("GET", PODGROUPS.path(SPACE, "imp"))).get("status", {}).get("phase")
            return bool(phase == "Inqueue")

        await until(let_in, "it is let in, by sums", timeout_s=60)
        await cluster.submit(group("ok"), pod("o", group="ok"))

        async def there() -> bool:
            return "o" in await placed(client, SPACE)

        await until(there, "the one that fits is placed", timeout_s=30)
