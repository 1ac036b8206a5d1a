"""scheduler-core is killed between an eviction and the start of the one for whom others leave: the ledger remembers for whom the places are."""

import os
import signal
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, PODGROUPS, PODS, PRIORITYCLASSES, KubeClient

from ..policies import MOVING
from ..waiting import until
from .platform_world import Up, placed, queue, up
from .test_e2e_policy_actions import SPACE, pod
from .traced_jobs import node

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@contextmanager
def nobody_is_evicted(running: Up) -> Iterator[None]:
    """Who is to leave stays as long: whoever would see to it stands still."""
    pid = running.pids()["binder"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def counted(running: Up, rows: str) -> int:
    """Of the ledger's database."""
    with closing(sqlite3.connect(f"file:{running.state / 'ledger.db'}?mode=ro", uri=True)) as database:
        [(count,)] = database.execute(f"SELECT count(*) FROM {rows}")
    return int(count)


def nominated(running: Up) -> int:
    """How many nominations the ledger remembers."""
    return counted(running, "nominations")


def told_to_leave(running: Up) -> int:
    """How many claims: on each, one decision was made after that to bind its pod."""
    return counted(running, "claims WHERE generation > 1")


async def pods(client: KubeClient) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in (await client.json("GET", PODS.path(SPACE)))["items"]}


def said_why(client: KubeClient, name: str) -> Callable[[], Awaitable[bool]]:
    """Whether a scheduler has looked at the pod and found no place."""

    async def there() -> bool:
        conditions = (await pods(client))[name].get("status", {}).get("conditions", [])
        return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)

    return there


def at(client: KubeClient, **places: str) -> Callable[[], Awaitable[bool]]:
    async def there() -> bool:
        where = await placed(client, SPACE)
        return {name: where.get(name) for name in places} == places

    return there


def kill(running: Up) -> int:
    """Returns whom: another is started in its place."""
    pid = running.pids()["scheduler-core"]
    os.kill(pid, signal.SIGKILL)
    return pid


async def test_who_evicted_others_gets_their_places_from_the_next_scheduler(tmp_path: Path) -> None:
    """`high` wants the whole node. One of its two victims is gone when the next scheduler starts, and somebody waits whom those cards would do."""
    with up(tmp_path / "state") as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await client.json("POST", NODES.path(), body=node("n0"))
            high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
            await client.json("POST", PRIORITYCLASSES.path(), body=high)
            for name in ("low-0", "low-1"):
                await client.json("POST", PODS.path(SPACE), body=pod(name, cards=4))
            await until(at(client, **{"low-0": "n0", "low-1": "n0"}), "the node is full", timeout_s=60)
            body = pod("high", cards=8)
            body["spec"]["priorityClassName"] = "high"
            with nobody_is_evicted(running):
                await client.json("POST", PODS.path(SPACE), body=body)
                await until(lambda: nominated(running) == 1, "both are to leave", timeout_s=60)
                before = kill(running)
                await client.json("DELETE", PODS.path(SPACE, "low-0"))
                await client.json("POST", PODS.path(SPACE), body=pod("competitor", cards=4))
                await until(lambda: running.pids()["scheduler-core"] != before, "another scheduler-core", timeout_s=60)
                await until(said_why(client, "competitor"), "the competitor finds no place", timeout_s=60)
            await until(at(client, high="n0"), "who evicted them has the node", timeout_s=60)
            left = await pods(client)
            assert left.keys() == {"high", "competitor"}
            assert not left["competitor"]["spec"].get("nodeName")
            await until(lambda: nominated(running) == 0, "its places are taken")
            assert told_to_leave(running) == 2, "nobody else had to leave for it"
        assert running.json("audit")["faults"] == []
        assert running.json("audit", "--ledger")["faults"] == []


async def test_who_moved_gets_the_place_that_was_kept_from_the_next_scheduler(tmp_path: Path) -> None:
    """n0 has three cards idle, and so has n1; `wide` wants six. The gang g moves for it from n1 to n0. One scheduler dies when they are to leave, the next when
    they are gone and nobody has come in their place."""
    policy = tmp_path / "volcano-scheduler.conf"
    policy.write_text(MOVING)
    with up(tmp_path / "state", env={"HBOX_SCHEDULER_CONF": str(policy)}) as running:
        queue(running, "create", "listed", "--deserved", "nvidia.com/gpu=8", "--non-preemptible-classes", "*")
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            for name in ("n0", "n1"):
                await client.json("POST", NODES.path(), body=node(name))
            group = {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": "g"},
                "spec": {"minMember": 1},
            }
            await client.json("POST", PODGROUPS.path(SPACE), body=group)
            gang = [pod(f"g-{number}", "g") for number in range(3)]
            for bodies in ([pod("a", cards=5)], [pod("filler", cards=3)], [pod("b", cards=2, non_preemptible=True), *gang]):
                for one in bodies:
                    await client.json("POST", PODS.path(SPACE), body=one)
                where = dict.fromkeys((one["metadata"]["name"] for one in bodies), "n0" if len(bodies) == 1 else "n1")
                await until(at(client, **where), f"{len(bodies)} pods have places", timeout_s=60)
            await client.json("DELETE", PODS.path(SPACE, "filler"))
            with nobody_is_evicted(running):
                await client.json("POST", PODS.path(SPACE), body=pod("wide", cards=6))
                await until(lambda: nominated(running) == 1, "the three of the gang are to leave", timeout_s=60)
                first = kill(running)
                await client.json("POST", PODS.path(SPACE), body=pod("thief", cards=3))
                await until(lambda: running.pids()["scheduler-core"] != first, "a second scheduler-core", timeout_s=60)
                await until(said_why(client, "thief"), "three cards of n0 are idle, and kept", timeout_s=60)
            await until(at(client, wide="n1"), "the large one has its node", timeout_s=60)
            assert (await placed(client, SPACE)).keys() == {"a", "b", "wide"}

            second = kill(running)
            await until(lambda: running.pids()["scheduler-core"] not in (first, second), "a third", timeout_s=60)
            await client.json("POST", PODS.path(SPACE), body=pod("late", cards=3))
            await until(said_why(client, "late"), "nor has another a place", timeout_s=60)
            for number in range(3):
                await client.json("POST", PODS.path(SPACE), body=pod(f"next-{number}", "g"))
            await until(at(client, **{f"next-{n}": "n0" for n in range(3)}), "the gang is whole again", timeout_s=60)
            assert (await placed(client, SPACE)).keys() == {"a", "b", "wide", "next-0", "next-1", "next-2"}
            await until(lambda: nominated(running) == 0, "all places are taken")
            assert told_to_leave(running) == 3
        assert running.json("audit")["faults"] == []
        assert running.json("audit", "--ledger")["faults"] == []
