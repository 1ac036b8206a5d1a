"""Volcano's classic policy through all services: queues have no amounts, and get their shares by weight back. `hbox simulate cycle` says the same.

light      weight 1, was there first
heavy      weight 3
late       weight 4, comes later
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, PODGROUPS, PODS, QUEUES, KubeClient

from .. import waiting
from .platform_world import Up, simulate_cycle, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, GPU, CARDS = "default", "nvidia.com/gpu", 16

#: Volcano's own default with reclaim.
POLICY = """\
actions: "enqueue, allocate, backfill, reclaim"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
  - {name: conformance}
- plugins:
  - {name: overcommit, arguments: {overcommit-factor: 10.0}}
  - {name: drf}
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
"""

QUEUE = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
GROUP = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}


def queue(name: str, weight: int, **spec: Any) -> dict[str, Any]:
    return {**QUEUE, "metadata": {"name": name}, "spec": {"weight": weight, "reclaimable": True, **spec}}


def gang(name: str, of: str, pods: int, *, members: int = 0) -> list[dict[str, Any]]:
    """Its PodGroup and pods, of one card each. members: that it needs, all where 0."""
    found: list[dict[str, Any]] = [
        {**GROUP, "metadata": {"name": name}, "spec": {"minMember": members or pods, "queue": of}},
    ]
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: "1"}}}
    for number in range(pods):
        notes = {"scheduling.k8s.io/group-name": name, "scheduling.volcano.sh/queue-name": of}
        found.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"{name}-{number}", "annotations": notes},
                "spec": {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [container]},
            }
        )
    return found


async def create(client: KubeClient, *objects: dict[str, Any]) -> None:
    paths = {"Pod": PODS.path(SPACE), "PodGroup": PODGROUPS.path(SPACE), "Queue": QUEUES.path()}
    for one in objects:
        await client.json("POST", paths[one["kind"]], body=one)


async def held(client: KubeClient) -> Counter[str]:
    """Pods with a node that do not leave, by queue."""
    listed = await client.json("GET", PODS.path(SPACE))
    return Counter(
        one["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"]
        for one in listed["items"]
        if one["spec"].get("nodeName") and "deletionTimestamp" not in one["metadata"]
    )


async def come_to_be(client: KubeClient, **wanted: int) -> None:
    """And stay so."""

    async def there() -> bool:
        return dict(await held(client)) == wanted

    await waiting.until(there, f"{wanted}", timeout_s=60)
    await asyncio.sleep(2.0)
    assert dict(await held(client)) == wanted


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("weights")
    (folder / "volcano-scheduler.conf").write_text(POLICY)
    with up(folder / "state", env={"HBOX_SCHEDULER_CONF": str(folder / "volcano-scheduler.conf")}) as running:
        yield running


async def test_queues_get_their_shares_by_weight_back(client: KubeClient, platform: Up, tmp_path: Path) -> None:
    """light has all 16; heavy asks for 16 and gets 12; late asks for 16, and what each has goes by 1 to 3 to 4."""
    for name in ("n0", "n1"):
        await client.json("POST", NODES.path(), body=node(name))
    first = [queue("light", 1), queue("heavy", 3), queue("late", 4)]
    light = [one for number in range(CARDS) for one in gang(f"light{number}", "light", 1)]
    await create(client, *first, *light)
    await come_to_be(client, light=16)
    heavy = [one for number in range(CARDS) for one in gang(f"heavy{number}", "heavy", 1)]
    await create(client, *heavy)
    await come_to_be(client, light=4, heavy=12)
    assert simulated(tmp_path, first, light, heavy) == {"light": 12}
    assert "light has 4 of nvidia.com/gpu: it deserves 4 by its weight of 1" in platform.hbox("share", "light").stdout
    late = [one for number in range(CARDS) for one in gang(f"late{number}", "late", 1)]
    await create(client, *late)
    await come_to_be(client, light=2, heavy=6, late=8)
    preview = platform.hbox("queue", "set", "late", "--weight", "1", "--dry-run").stdout
    assert "queue late may have to give back" in preview
    assert platform.json("audit")["faults"] == []


async def test_the_right_by_weight_ends_with_the_policy_that_gave_it(tmp_path: Path) -> None:
    """Half of the cores are on a node whose taint no pod here tolerates. By weight, a and b keep all their requests, since both halves count. After the
    policy changes to `capacity`, the owner reclaims its deserved amount from both, and neither falls below its own deserved amount."""
    policy = tmp_path / "volcano-scheduler.conf"
    policy.write_text(POLICY)
    with up(tmp_path / "state", env={"HBOX_SCHEDULER_CONF": str(policy)}) as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            tainted = {"taints": [{"key": "kept", "value": "away", "effect": "NoSchedule"}]}
            for body in (node("n0"), {**node("n1"), "spec": tainted}):
                await client.json("POST", NODES.path(), body=body)
            await create(
                client, *(queue(name, 1, deserved={"cpu": cpu}) for name, cpu in (("a", "15"), ("b", "15"), ("owner", "30")))
            )
            await create(
                client, *(one for of in ("a", "b") for number in range(2) for one in single(f"{of}{number}", of, "15"))
            )
            await come_to_be(client, a=2, b=2)
            await create(client, *single("owner0", "owner", "30"))
            await asyncio.sleep(3.0)
            await come_to_be(client, a=2, b=2)
            policy.write_text(POLICY.replace("proportion", "capacity"))
            await come_to_be(client, a=1, b=1, owner=1)
        assert running.json("audit")["faults"] == []


def single(name: str, of: str, cpu: str) -> list[dict[str, Any]]:
    """A gang of one pod without cards."""
    group, pod = gang(name, of, 1)
    pod["spec"]["containers"] = [asking(cpu)]
    return [group, pod]


def asking(cpu: str) -> dict[str, Any]:
    return {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}


def simulated(
    folder: Path, queues: list[dict[str, Any]], running: list[dict[str, Any]], waits: list[dict[str, Any]]
) -> Mapping[str, int]:
    """Whom `hbox simulate cycle` evicts, by queue."""
    nodes = [node(name) for name in ("n0", "n1")]
    pods = [one for one in running if one["kind"] == "Pod"]
    placed = [
        {**one, "spec": {**one["spec"], "nodeName": f"n{number // 8}"}, "status": {"phase": "Running"}}
        for number, one in enumerate(pods)
    ]
    groups = [{**one, "status": {"phase": "Running"}} for one in running if one["kind"] == "PodGroup"]
    pending = [{**one, "metadata": {**one["metadata"], "namespace": SPACE}} for one in waits]
    items = [*nodes, *queues, *groups, *placed, *pending]
    for one in items:
        if one["kind"] in ("Pod", "PodGroup"):
            one["metadata"].setdefault("namespace", SPACE)
    said = simulate_cycle(folder, items, policy=POLICY)
    of = {pod["metadata"]["name"]: pod["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"] for pod in pods}
    return Counter(of[one["pod"].partition("/")[2]] for one in said["evictions"])
