"""Guarantees on a running platform: lent to those who can be made to leave, taken back, and nobody leaves for a pod that is not there any more. What
`hbox simulate cycle` says of the cluster as it is saved is what happens. tests/real/test_real_shares.py has these stories on a real control plane.

kept     guaranteed 2 of the node's 8 cards
open     no amounts, and no cool-down
stern    gives nothing back
listed   deserves 2; nobody takes from its classes
owner    deserves 4
gangs    deserves 4
picky    takes jobs of PriorityClass normal alone
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hbox_cli.platform.layout import Layout
from hbox_common.errors import NotFound
from hbox_common.events import EvictDecided
from hbox_common.kube import MERGE_PATCH, NODES, PODGROUPS, PODS, PRIORITYCLASSES, KubeClient

from ..broker import admin_bus
from .platform_world import Up, foretold, queue, saved, simulate_cycle, until, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, GPU = "default", "nvidia.com/gpu"
PDBS = f"/apis/policy/v1/namespaces/{SPACE}/poddisruptionbudgets"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("guarantees") / "state") as running:
        prepare(running, running.state / "kubeconfig")
        yield running


def prepare(running: Up, kubeconfig: Path) -> None:
    """The node and the queues."""
    asyncio.run(_node(kubeconfig))
    for words in (
        ("open", "--cool-down", "0s"),  # its pods are taken from twice, those of one name
        ("stern", "--no-reclaimable"),
        ("listed", "--deserved", f"{GPU}=2", "--non-preemptible-classes", "*"),
        ("owner", "--deserved", f"{GPU}=4"),
        ("picky", "--priority-classes", "normal"),
        ("gangs", "--deserved", f"{GPU}=4"),
        ("kept", "--guarantee", f"{GPU}=2", "--deserved", f"{GPU}=2"),
    ):
        queue(running, "create", *words)


async def _node(kubeconfig: Path) -> None:
    async with KubeClient.connect(str(kubeconfig), user_agent="test") as client:
        await client.json("POST", NODES.path(), body=node("n0"))


def bodies(queue: str, count: int, *, preemptable: str = "", group: str = "") -> list[dict[str, Any]]:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: "1"}}}
    notes = {"scheduling.volcano.sh/queue-name": queue} | ({"volcano.sh/preemptable": preemptable} if preemptable else {})
    notes |= {"scheduling.k8s.io/group-name": group} if group else {}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{queue}-{group or preemptable or 'plain'}-{number}",
                "namespace": SPACE,
                "annotations": notes,
                "labels": {"of": queue},
            },
            "spec": {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]},
        }
        for number in range(count)
    ]


async def submit(client: KubeClient, queue: str, count: int, *, preemptable: str = "", group: str = "") -> list[str]:
    made = bodies(queue, count, preemptable=preemptable, group=group)
    for body in made:
        await client.json("POST", PODS.path(SPACE), body=body)
    return [body["metadata"]["name"] for body in made]


async def delete(client: KubeClient, *names: str) -> None:
    for name in names:
        await client.json("DELETE", PODS.path(SPACE, name), body={"gracePeriodSeconds": 0})


async def has(platform: Up, queue: str, cards: int) -> None:
    def used() -> dict[str, int]:
        return {item["name"]: item["used"].get(GPU, 0) for item in platform.json("queue", "ls")["items"]}

    await asyncio.to_thread(until, lambda: used()[queue] == cards, timeout_s=40, what=f"{cards} cards of {queue}")


async def test_a_queue_that_gives_nothing_back_leaves_what_others_are_guaranteed(
    platform: Up, client: KubeClient, tmp_path: Path
) -> None:
    """And `hbox simulate cycle` says so beforehand, of the same objects."""
    stern = await submit(client, "stern", 8)
    there = [one for one in await saved(client) if one["kind"] != "Pod"]
    before = simulate_cycle(tmp_path, [*there, *bodies("stern", 8)])
    assert len(before["bindings"]) == 6
    await has(platform, "stern", 6)

    def reasons() -> list[str]:
        jobs: list[dict[str, Any]] = platform.json("jobs", "-q", "stern", "--state-is", "waiting")["items"]
        return [str(job["reason"]) for job in jobs]

    said = f"QueueGuaranteedToOthers: 2 of {GPU} are guaranteed to queues that do not hold them, 2 are free"
    await asyncio.to_thread(until, lambda: [r for r in reasons() if r.startswith(said)], timeout_s=20, what="the reason")
    soft = await submit(client, "open", 2)  # who gives way has the rest
    await has(platform, "open", 2)
    kept = await submit(client, "kept", 2)
    await has(platform, "kept", 2)
    await has(platform, "open", 0)
    await delete(client, *stern, *kept)
    for name in soft:
        with pytest.raises(NotFound):
            await client.json("GET", PODS.path(SPACE, name))
    await has(platform, "stern", 0)
    assert platform.json("audit")["faults"] == []
    assert {pending["message"].partition(" could be")[0] for pending in before["pending"].values()} == {f"{said} or"}


async def test_no_tenant_keeps_what_it_borrowed(platform: Up, client: KubeClient, tmp_path: Path) -> None:
    """Its word that nobody may take from its pods is no right: the owner gets what it deserves."""
    borrowers = await submit(client, "open", 8, preemptable="false")
    await has(platform, "open", 8)
    assert await foretold(client, tmp_path, *bodies("owner", 4)) == {"open": 4}
    owners = await submit(client, "owner", 4)
    await has(platform, "owner", 4)
    await has(platform, "open", 4)
    await delete(client, *owners)
    for name in borrowers:
        with suppress(NotFound):
            await delete(client, name)
    await has(platform, "open", 0)
    await has(platform, "owner", 0)


async def test_nobody_takes_from_listed_classes_within_what_their_queue_deserves(
    platform: Up, client: KubeClient, tmp_path: Path
) -> None:
    """Eight run, of which two are deserved; the owners of the other six get them back, and an offer is taken up."""
    pods = await submit(client, "listed", 2)
    await has(platform, "listed", 2)
    await submit(client, "listed", 6, preemptable="false")
    await has(platform, "listed", 8)
    assert await foretold(client, tmp_path, *bodies("owner", 4), *bodies("kept", 2)) == {"listed": 6}
    owners = [*await submit(client, "owner", 4), *await submit(client, "kept", 2)]
    await has(platform, "owner", 4)
    await has(platform, "kept", 2)
    await has(platform, "listed", 2)
    for name in pods:
        assert "deletionTimestamp" not in (await client.json("GET", PODS.path(SPACE, name)))["metadata"]
    await delete(client, *owners, *pods)
    await has(platform, "owner", 0)
    assert platform.json("audit")["faults"] == []


@pytest.mark.parametrize(("least", "left"), [(8, 0), (2, 4)])
async def test_a_gang_across_the_line_gives_what_it_can_spare_or_goes_whole(
    platform: Up, client: KubeClient, tmp_path: Path, least: int, left: int
) -> None:
    """Eight of one gang run, of which four are deserved; the owner of the other four gets them."""
    name = f"needs-{least}"
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": least, "queue": "gangs"},
    }
    await client.json("POST", PODGROUPS.path(SPACE), body=group)
    gang = await submit(client, "gangs", 8, group=name)
    await has(platform, "gangs", 8)
    assert await foretold(client, tmp_path, *bodies("owner", 4)) == {"gangs": 8 - left}
    owners = await submit(client, "owner", 4)
    await has(platform, "owner", 4)
    await has(platform, "gangs", left)
    await delete(client, *owners)
    for pod in gang:
        with suppress(NotFound):
            await delete(client, pod)
    await has(platform, "gangs", 0)
    await has(platform, "owner", 0)
    assert platform.json("audit")["faults"] == []


async def test_a_class_that_the_queue_does_not_take_evicts_nobody(platform: Up, client: KubeClient, tmp_path: Path) -> None:
    """And what is put right starts, where there is room."""
    for name, value in (("normal", 0), ("urgent", 1000)):
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        await client.json("POST", PRIORITYCLASSES.path(), body=body)
    for name, priority_class in (("tenants", "normal"), ("forged", "urgent")):
        spec = {"minMember": 1, "queue": "picky", "priorityClassName": priority_class}
        group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
        await client.json("POST", PODGROUPS.path(SPACE), body=group)
    tenants = await submit(client, "picky", 8, group="tenants")
    await has(platform, "picky", 8)
    forged = await submit(client, "picky", 2, group="forged")

    def reason() -> str:
        jobs: list[dict[str, Any]] = platform.json("jobs", "-q", "picky", "--state-is", "waiting")["items"]
        return " ".join(str(job["reason"]) for job in jobs)

    said = "QueueNotForPriorityClass: queue picky takes jobs of PriorityClass normal, not of urgent"
    await asyncio.to_thread(until, lambda: reason().startswith(said), timeout_s=20, what="the reason")
    simulated = simulate_cycle(tmp_path, await saved(client))
    assert simulated["evictions"] == []
    assert {one["message"].startswith(said) for one in simulated["pending"].values()} == {True}
    for name in tenants:
        assert "deletionTimestamp" not in (await client.json("GET", PODS.path(SPACE, name)))["metadata"]
    change = {"spec": {"priorityClassName": "normal"}}
    await client.json("PATCH", PODGROUPS.path(SPACE, "forged"), body=change, content_type=MERGE_PATCH)
    await asyncio.to_thread(until, lambda: said not in reason(), timeout_s=20, what="another reason")
    await delete(client, *tenants)
    await has(platform, "picky", 2)
    await delete(client, *forged)
    await has(platform, "picky", 0)


async def test_nobody_is_told_to_go_whom_a_budget_protects_nor_later_in_vain(platform: Up, client: KubeClient) -> None:
    soft = await submit(client, "open", 8)
    await has(platform, "open", 8)
    uids = {(await client.json("GET", PODS.path(SPACE, name)))["metadata"]["uid"] for name in soft}
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"of": "open"}}}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": SPACE},
        "spec": spec,
    }
    await client.json("POST", PDBS, body=budget)
    async with admin_bus(asdict(Layout(platform.state).running())) as bus:

        async def told_to_go() -> list[str]:
            last = [d.event for d in await bus.last(EvictDecided, [("0",)])]
            return [
                one.pod for event in last if isinstance(event, EvictDecided) for one in event.evictions if one.pod_uid in uids
            ]

        [wanting] = await submit(client, "kept", 1)

        def waits() -> bool:
            return any(job["reason"] for job in platform.json("jobs", "-q", "kept", "--state-is", "waiting")["items"])

        await asyncio.to_thread(until, waits, timeout_s=20, what="why it waits")
        await asyncio.sleep(2.0)  # the scheduler looks for victims several times
        assert await told_to_go() == []
        await delete(client, wanting)
    await client.json("PATCH", f"{PDBS}/all", body={"spec": {"maxUnavailable": 8}}, content_type=MERGE_PATCH)
    await asyncio.sleep(3.0)  # the budget allows it now, and nobody wants it any more
    for name in soft:
        assert "deletionTimestamp" not in (await client.json("GET", PODS.path(SPACE, name)))["metadata"]
    await submit(client, "kept", 2)  # pods that are there get it
    await has(platform, "kept", 2)
