"""`enqueue` through all services: PodGroups with a minimum of resources wait, with pods or without, until the policy lets them in."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hbox_common.kube import NODES, PODGROUPS, PODS, RESOURCEQUOTAS, KubeClient

from ..waiting import until
from .platform_world import SLOWER, Up, up
from .test_e2e_policy_actions import pod
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE = "default"
POLICY = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
  - {name: predicates}
  - {name: resourcequota}
  - {name: overcommit, arguments: {overcommit-factor: 1.0}}
"""


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Up]:
    policy = tmp_path / "volcano-scheduler.conf"
    policy.write_text(POLICY)
    with up(tmp_path / "state", env={"HBOX_SCHEDULER_CONF": str(policy)}) as running:
        yield running


@pytest.fixture
async def kube(platform: Up) -> AsyncIterator[KubeClient]:
    """A node of eight cards."""
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        await client.json("POST", NODES.path(), body=node("n0"))
        yield client


async def submit(client: KubeClient, name: str, *, cards: int, pods: int = 0) -> None:
    """A PodGroup that asks for so many cards in all, of which so many pods exist."""
    await client.json(
        "POST",
        PODGROUPS.path(SPACE),
        body={
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"minMember": cards, "minResources": {"nvidia.com/gpu": str(cards)}},
        },
    )
    await add_pods(client, name, pods)


async def add_pods(client: KubeClient, name: str, pods: int) -> None:
    for number in range(pods):
        await client.json("POST", PODS.path(SPACE), body=pod(f"{name}-{number}", name))


async def end(client: KubeClient, name: str, *, pods: int) -> None:
    for number in range(pods):
        await client.json("DELETE", PODS.path(SPACE, f"{name}-{number}"))
    await client.json("DELETE", PODGROUPS.path(SPACE, name))


async def phases(client: KubeClient) -> dict[str, str]:
    listed = await client.json("GET", PODGROUPS.path(SPACE))
    return {one["metadata"]["name"]: one.get("status", {}).get("phase", "") for one in listed["items"]}


async def reach(client: KubeClient, **wanted: str) -> None:
    async def reached() -> bool:
        return await phases(client) == wanted

    try:
        await until(reached, f"phases {wanted}", timeout_s=30.0)
    except AssertionError as e:
        raise AssertionError(f"{e}: {await phases(client)}") from None


async def nodes(client: KubeClient) -> dict[str, str]:
    listed = await client.json("GET", PODS.path(SPACE))
    return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in listed["items"]}


async def why(client: KubeClient, name: str) -> str:
    """The PodGroup's condition that says why it waits."""
    group: dict[str, Any] = await client.json("GET", PODGROUPS.path(SPACE, name))
    said = [
        one
        for one in group.get("status", {}).get("conditions", [])
        if (one["type"], one["status"]) == ("Unschedulable", "True")
    ]
    return said[0]["message"] if said else ""


async def test_who_does_not_fit_waits_outside_with_a_reason_until_another_ends(platform: Up, kube: KubeClient) -> None:
    """a and b fit beside each other; a's pods exist, b's come when it is let in; c's exist and wait."""
    await submit(kube, "a", cards=3, pods=3)
    await reach(kube, a="Running")
    await submit(kube, "b", cards=4)
    await reach(kube, a="Running", b="Inqueue")
    await submit(kube, "c", cards=2, pods=2)

    async def said() -> bool:
        return bool(await why(kube, "c"))

    await until(said, "c is told why it waits", timeout_s=60)
    assert await why(kube, "c") == (
        "wait: NotEnqueued: the PodGroup is not admitted yet: overcommit: "
        "2 nvidia.com/gpu asked for, 4 promised to others that wait, of 5 left (1 times what there is)"
    )
    await reach(kube, a="Running", b="Inqueue", c="Pending")
    await submit(kube, "bare", cards=3)
    await reach(kube, a="Running", b="Inqueue", bare="Pending", c="Pending")

    async def listed() -> bool:
        return {item["name"]: item["state"] for item in platform.json("jobs")["items"]}.get("default/bare") == "WAITING"

    await until(listed, "a PodGroup without pods is a job that waits", timeout_s=60)
    assert platform.json("why", "bare")["reason"].startswith("NotEnqueued: overcommit: 3 nvidia.com/gpu asked for")
    await kube.json("DELETE", PODGROUPS.path(SPACE, "bare"))
    await add_pods(kube, "b", 4)
    await reach(kube, a="Running", b="Running", c="Pending")
    assert {name for name, where in (await nodes(kube)).items() if not where} == {"c-0", "c-1"}
    await end(kube, "a", pods=3)
    await reach(kube, b="Running", c="Running")
    assert await why(kube, "c") == ""
    assert platform.json("audit")["faults"] == []


async def test_a_quota_of_the_namespace_keeps_out_what_its_pods_would_be_refused(platform: Up, kube: KubeClient) -> None:
    quota: dict[str, Any] = {"metadata": {"name": "cards"}, "spec": {"hard": {"requests.nvidia.com/gpu": "4"}}}
    await kube.json("POST", RESOURCEQUOTAS.path(SPACE), body={"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    await asyncio.sleep(1.0)
    await submit(kube, "a", cards=5)

    async def said() -> bool:
        return bool(await why(kube, "a"))

    await until(said, "a is told why it waits", timeout_s=60)
    assert await why(kube, "a") == (
        "wait: NotEnqueued: the PodGroup is not admitted yet: resourcequota: 5 nvidia.com/gpu asked for, and ResourceQuota cards has 0 taken of 4"
    )
    change = {"spec": {"hard": {"requests.nvidia.com/gpu": "5"}}, "status": {"hard": {"requests.nvidia.com/gpu": "5"}}}
    for part in (None, "status"):
        path = RESOURCEQUOTAS.path(SPACE, "cards", part)
        await kube.json("PATCH", path, body=change, content_type="application/merge-patch+json")
    await reach(kube, a="Inqueue")
    assert platform.json("audit")["faults"] == []


async def test_what_was_let_in_stays_in_and_nothing_more_is_let_in_when_services_are_killed(
    platform: Up, kube: KubeClient
) -> None:
    """One of the two, the other, and both at once; each time somebody waits outside."""
    await submit(kube, "a", cards=5)
    await reach(kube, a="Inqueue")
    await submit(kube, "b", cards=5, pods=5)
    await asyncio.sleep(1.1)  # ages are in whole seconds
    for killed in (["scheduler-core"], ["job-controller"], ["scheduler-core", "job-controller"]):
        for name in killed:
            os.kill(platform.pids()[name], signal.SIGKILL)
        late = f"late-{len(killed)}-{killed[0][0]}"
        await submit(kube, late, cards=5)

        async def said(late: str = late) -> bool:
            return bool(await why(kube, late))

        await until(said, f"{late} is told why it waits, by a scheduler that has judged all of them", timeout_s=60)
        assert [name for name, phase in (await phases(kube)).items() if phase == "Inqueue"] == ["a"], killed
    assert not any((await nodes(kube)).values())
    await add_pods(kube, "a", 5)

    async def runs() -> bool:
        return (await phases(kube))["a"] == "Running"

    await until(runs, "a runs", timeout_s=60)
    assert not any(where for name, where in (await nodes(kube)).items() if name.startswith("b-"))
    await end(kube, "a", pods=5)

    async def entered() -> bool:
        return (await phases(kube))["b"] == "Running"

    await until(entered, "b is let in, as the oldest, and runs", timeout_s=60)
    assert list((await phases(kube)).values()).count("Pending") == 3


async def test_under_kills_at_any_moment_no_more_is_inside_than_there_is(platform: Up, kube: KubeClient) -> None:
    """PodGroups come and end, half of them without pods at first; scheduler-core and job-controller are killed at moments of a seed."""
    rng, inside, ended = Random(7), set[str](), set[str]()

    async def watch() -> None:
        while True:
            listed = await kube.json("GET", PODGROUPS.path(SPACE))
            now = {
                one["metadata"]["name"]: int(one["spec"]["minResources"]["nvidia.com/gpu"])
                for one in listed["items"]
                if one.get("status", {}).get("phase") in ("Inqueue", "Running")
            }
            assert sum(now.values()) <= 8, now
            left = {one["metadata"]["name"] for one in listed["items"]} & inside - now.keys() - ended
            assert not left, f"{left} were let in, and are not in any more"
            inside.update(now)
            await asyncio.sleep(0.02)

    async def kill() -> None:
        while True:
            await asyncio.sleep(rng.uniform(0.3, 2.5) * SLOWER)  # a service has to live for a moment to decide anything
            for name in rng.choice((["scheduler-core"], ["job-controller"], ["scheduler-core", "job-controller"])):
                with suppress(ProcessLookupError):
                    os.kill(platform.pids()[name], signal.SIGKILL)

    async def use() -> None:
        for number in range(120):
            if number >= 30 and len(inside) >= 3:
                return
            cards = rng.randint(2, 6)
            with_pods = rng.random() < 0.5
            await submit(kube, f"g{number}", cards=cards, pods=cards if with_pods else 0)
            await asyncio.sleep(rng.uniform(0.1, 1.0))
            for name in [name for name, phase in (await phases(kube)).items() if phase == "Running" and rng.random() < 0.5]:
                ended.add(name)  # it ends pod by pod, and in between is Unknown
                pods = [pod for pod in await nodes(kube) if pod.startswith(f"{name}-")]
                await end(kube, name, pods=len(pods))
            for name, phase in (await phases(kube)).items():
                if (
                    phase == "Inqueue"
                    and rng.random() < 0.3
                    and not any(pod.startswith(f"{name}-") for pod in await nodes(kube))
                ):
                    group = await kube.json("GET", PODGROUPS.path(SPACE, name))
                    await add_pods(kube, name, group["spec"]["minMember"])

    watching, killing = asyncio.create_task(watch()), asyncio.create_task(kill())
    try:
        await use()
    finally:
        killing.cancel()
        watching.cancel()
    results = await asyncio.gather(watching, killing, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results), results
    assert len(inside) >= 3
    await reach_room(kube)


async def reach_room(client: KubeClient) -> None:
    """After all that, whoever fits is let in: the sums are right again."""

    async def settled() -> bool:
        groups = (await client.json("GET", PODGROUPS.path(SPACE)))["items"]
        cards = {one["metadata"]["name"]: int(one["spec"]["minResources"]["nvidia.com/gpu"]) for one in groups}
        outside = [name for name, phase in (await phases(client)).items() if phase == "Pending"]
        taken = sum(cards[name] for name in cards.keys() - outside)
        return all(taken + cards[name] > 8 for name in outside)

    await until(settled, "nobody who fits is outside", timeout_s=40.0)
