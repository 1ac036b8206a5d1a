"""Actions of a user's policy through all services. What they choose is compared with `hbox simulate cycle` here, and in tests/unit/hbox_scheduler."""

import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import CRDS, NODE_METRICS, NODES, PODGROUPS, PODS, KubeClient, wait_established

from ..node_metrics import NODE_METRICS_DEFINITION, measured
from ..policies import MOVING
from ..waiting import until
from .platform_world import foretold, placed, queue, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE = "default"
LENT = """\
actions: "allocate, backfill, shuffle"
tiers:
- plugins:
  - {name: gang}
  - {name: predicates}
  - {name: tdm, arguments: {tdm.revocable-zone.night: "%s", tdm.time-zone: Asia/Shanghai}}
"""


def pod(name: str, group: str = "", *, cards: int = 1, non_preemptible: bool = False) -> dict[str, Any]:
    notes = {"scheduling.volcano.sh/queue-name": "listed"} if non_preemptible else {"volcano.sh/preemptable": "true"}
    notes |= {"scheduling.k8s.io/group-name": group} if group else {}
    limits = {"nvidia.com/gpu": str(cards)}
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": notes},
        "spec": {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }


def closed() -> str:
    """A window of the day in which we are by UTC, and not in Shanghai."""
    now = datetime.now(UTC)
    return f"{now - timedelta(hours=1):%H:%M}-{now + timedelta(hours=1):%H:%M}"


async def test_pods_leave_a_node_whose_hour_is_over_and_their_successors_go_elsewhere(tmp_path: Path) -> None:
    """n0 is lent, by the hours of Shanghai; of the gang one may be away at a time. `hbox simulate cycle` foretells who goes first."""
    policy = tmp_path / "volcano-scheduler.conf"
    policy.write_text(LENT % "00:00-00:00")
    with up(tmp_path / "state", env={"HBOX_SCHEDULER_CONF": str(policy)}) as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            lent, own = node("n0"), node("n1")
            lent["metadata"]["labels"]["volcano.sh/revocable-zone"] = "night"
            for one in (lent, own):
                await client.json("POST", NODES.path(), body=one)
            group = {
                "metadata": {"name": "g", "annotations": {"volcano.sh/jdb-max-unavailable": "1"}},
                "spec": {"minMember": 1},
            }
            await client.json(
                "POST", PODGROUPS.path(SPACE), body={"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", **group}
            )
            for one in (pod("bare"), pod("g-0", "g"), pod("g-1", "g"), pod("g-2", "g")):
                await client.json("POST", PODS.path(SPACE), body=one)

            async def there() -> bool:
                pods = (await client.json("GET", PODS.path(SPACE)))["items"]
                run = all(one.get("status", {}).get("phase") == "Running" for one in pods)  # who does not yet is away already
                return run and await placed(client, SPACE) == dict.fromkeys(("bare", "g-0", "g-1", "g-2"), "n0")

            await until(there, "all on the node that is lent", timeout_s=60)
            over = LENT % closed()
            assert await foretold(client, tmp_path, policy=over) == {"bare": 1, "g": 1}
            policy.write_text(over)

            async def first() -> bool:
                left = await placed(client, SPACE)
                return "bare" not in left and len(left) == 2

            await until(first, "the bare pod and one of the gang are evicted", timeout_s=60)
            await asyncio.sleep(3.0)
            assert len(await placed(client, SPACE)) == 2, "the others wait for a successor"
            for number in range(3):
                await client.json("POST", PODS.path(SPACE), body=pod(f"next-{number}", "g"))

                async def moved(count: int = number + 1) -> bool:
                    where = await placed(client, SPACE)
                    return sum(node == "n1" for node in where.values()) == count and len(where) == max(3, count)

                async def emptier(left: int = max(2 - number - 1, 0)) -> bool:
                    return sum(node == "n0" for node in (await placed(client, SPACE)).values()) == left

                await until(moved if number == 2 else emptier, f"successor {number}", timeout_s=60)
            assert await placed(client, SPACE) == {f"next-{number}": "n1" for number in range(3)}
        assert running.json("audit")["faults"] == []


async def test_pods_move_together_so_that_a_larger_one_gets_a_node_in_one_piece(tmp_path: Path) -> None:
    """n0 has three cards idle, and so has n1; `wide` wants six. The gang g moves, and its new pods find their places kept, though others come first."""
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

            async def runs(*pods: dict[str, Any]) -> None:
                for one in pods:
                    await client.json("POST", PODS.path(SPACE), body=one)

                async def there() -> bool:
                    return {one["metadata"]["name"] for one in pods} <= (await placed(client, SPACE)).keys()

                await until(there, f"{len(pods)} pods have places", timeout_s=60)

            await runs(pod("a", cards=5))
            await runs(pod("filler", cards=3))
            await runs(pod("b", cards=2, non_preemptible=True), pod("g-0", "g"), pod("g-1", "g"), pod("g-2", "g"))
            await client.json("DELETE", PODS.path(SPACE, "filler"))
            before = await placed(client, SPACE)
            assert {name: where for name, where in before.items() if name != "filler"} == {
                "a": "n0", "b": "n1", "g-0": "n1", "g-1": "n1", "g-2": "n1",
            }  # fmt: skip
            await client.json("POST", PODS.path(SPACE), body=pod("wide", cards=6))

            async def gone() -> bool:
                left = await placed(client, SPACE)
                return not any(name.startswith("g-") for name in left)

            await until(gone, "the three of the gang are evicted", timeout_s=60)
            await client.json("POST", PODS.path(SPACE), body=pod("thief", cards=3))

            async def in_one_piece() -> bool:
                return (await placed(client, SPACE)).get("wide") == "n1"

            await until(in_one_piece, "the large one has its node", timeout_s=60)
            for number in range(3):
                await client.json("POST", PODS.path(SPACE), body=pod(f"next-{number}", "g"))

            async def back() -> bool:
                where = await placed(client, SPACE)
                return {name: where.get(name) for name in ("next-0", "next-1", "next-2")} == dict.fromkeys(
                    ("next-0", "next-1", "next-2"), "n0"
                )

            await until(back, "the gang is whole again", timeout_s=60)
            assert (await placed(client, SPACE)).keys() == {"a", "b", "wide", "next-0", "next-1", "next-2"}
        assert running.json("audit")["faults"] == []


SPREADING = """\
actions: "allocate, shuffle"
tiers:
- plugins:
  - {name: gang}
  - {name: predicates}
  - {name: usage, arguments: {thresholds: {cpu: 50, mem: 50}}}
  - name: rescheduling
    arguments:
      interval: 1s
      strategies:
      - {name: lowNodeUtilization, params: {thresholds: {cpu: 20, memory: 20}, targetThresholds: {cpu: 50, memory: 50}}}
"""


async def test_pods_leave_a_node_that_is_really_busy_for_one_that_is_not(tmp_path: Path) -> None:
    """n0 runs at 53 % of its cores, as metrics-server has it. Who may be taken leaves, and the successors go where little runs."""
    policy = tmp_path / "volcano-scheduler.conf"
    policy.write_text(SPREADING)
    with up(tmp_path / "state", env={"HBOX_SCHEDULER_CONF": str(policy)}) as running:
        queue(running, "create", "listed", "--deserved", "nvidia.com/gpu=8", "--non-preemptible-classes", "*")
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await client.json("POST", CRDS.path(), body=NODE_METRICS_DEFINITION)
            await wait_established(client, "nodes.metrics.k8s.io")
            os.kill(
                running.pids()["topology-collector"], signal.SIGKILL
            )  # whoever starts looks at once whether anybody measures
            await client.json("POST", NODES.path(), body=node("n0"))
            for one in (pod("a"), pod("firm", non_preemptible=True), pod("b")):
                await client.json("POST", PODS.path(SPACE), body=one)

            async def there() -> bool:
                return await placed(client, SPACE) == dict.fromkeys(("a", "firm", "b"), "n0")

            await until(there, "all on the only node", timeout_s=60)
            await client.json("POST", NODES.path(), body=node("n1"))
            for name, cpu in (("n0", "34"), ("n1", "1")):
                await client.json("POST", NODE_METRICS.path(), body=measured(name, cpu, "1Gi", at=datetime.now(UTC)))

            async def left() -> bool:
                return await placed(client, SPACE) == {"firm": "n0"}

            await until(left, "those that may be taken are gone", timeout_s=60)
            for name in ("next-0", "next-1"):
                await client.json("POST", PODS.path(SPACE), body=pod(name))

            async def back() -> bool:
                return await placed(client, SPACE) == {"firm": "n0", "next-0": "n1", "next-1": "n1"}

            await until(back, "their successors have places", timeout_s=60)
            await asyncio.sleep(3.0)
            assert await back(), "nobody leaves again"
        assert running.json("audit")["faults"] == []
