"""A gang that has its minimum takes back for the rest of its pods what its queue deserves, and breaks no other gang for it.

owner       deserves 4 of the node's 8 cards
borrower    has no amounts: one single pod, an elastic gang of 3 that needs 2, and a gang of 3 that needs all
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, PODGROUPS, PODS, QUEUES, KubeClient

from .. import waiting
from .platform_world import placed, queue, simulate_cycle, up
from .traced_jobs import node

pytestmark = pytest.mark.e2e

SPACE, GPU = "default", "nvidia.com/gpu"


def gang(name: str, of: str, pods: int, needs: int) -> list[dict[str, Any]]:
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {"minMember": needs, "queue": of},
    }
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: "1"}}}
    notes = {"scheduling.volcano.sh/queue-name": of, "scheduling.k8s.io/group-name": name}
    return [
        group,
        *(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"{name}-{number}", "namespace": SPACE, "annotations": dict(notes)},
                "spec": {"schedulerName": "hbox", "terminationGracePeriodSeconds": 1, "containers": [dict(container)]},
            }
            for number in range(pods)
        ),
    ]


LENT = (("single", 1, 1), ("elastic", 3, 2), ("whole", 3, 3))


async def test_pods_beyond_the_minimum_take_back_what_is_their_queues(tmp_path: Path) -> None:
    with up(tmp_path / "state") as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await client.json("POST", NODES.path(), body=node("n0"))
            queue(running, "create", "borrower")
            queue(running, "create", "owner", "--deserved", f"{GPU}=4")

            async def submit(name: str, of: str, pods: int, needs: int, expected: int) -> None:
                for one in gang(name, of, pods, needs):
                    await client.json("POST", (PODS if one["kind"] == "Pod" else PODGROUPS).path(SPACE), body=one)

                async def so() -> bool:
                    return len(await placed(client, SPACE, f"{name}-")) == expected

                await waiting.until(so, f"{expected} of {name}", timeout_s=60)

            for name, pods, needs in LENT:
                await submit(name, "borrower", pods, needs, pods)
            await submit("own", "owner", 6, 1, 3)  # one card is free, and two are taken back; the fourth would break `whole`

            async def left() -> bool:
                there = Counter(name.rpartition("-")[0] for name in await placed(client, SPACE))
                return there == {"elastic": 2, "own": 3, "whole": 3}

            await waiting.until(left, "the single pod and one that the elastic gang can spare have left", timeout_s=60)
        assert running.json("audit")["faults"] == []


def test_the_same_in_simulate_cycle(tmp_path: Path) -> None:
    items: list[dict[str, Any]] = [node("n0")]
    for name, spec in (("borrower", {}), ("owner", {"deserved": {GPU: "4"}})):
        items.append(
            {"apiVersion": f"{QUEUES.group}/{QUEUES.version}", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        )
    running = [one for name, pods, needs in LENT for one in gang(name, "borrower", pods, needs)]
    own = gang("own", "owner", 6, 1)
    for one in [one for one in (*running, *own[:2]) if one["kind"] == "Pod"]:
        one["spec"]["nodeName"] = "n0"
        one["status"] = {"phase": "Running"}
    found = simulate_cycle(tmp_path, [*items, *running, *own])
    assert sorted(one["pod"] for one in found["evictions"]) == [f"{SPACE}/elastic-2", f"{SPACE}/single-0"]
