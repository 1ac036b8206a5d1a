"""What queues say to plugins of the policy reaches the running scheduler: groups of nodes, and annotations."""

from typing import Any

import pytest

from hbox_common.kube import MERGE_PATCH, NODES, QUEUES, KubeClient

from ..waiting import until
from .platform_world import up
from .policy_scenarios import group, node, nodes_of, pods, why

pytestmark = pytest.mark.e2e

POLICY = """\
actions: "allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}]
- plugins: [{name: nodegroup, arguments: {enablePreferredOrder: true}}]
"""
GROUP = "volcano.sh/nodegroup-name"


async def test_nodegroup_places_by_the_affinity_of_the_queue(tmp_path: Any) -> None:
    conf = tmp_path / "volcano-scheduler.conf"
    conf.write_text(POLICY)
    near = {"requiredDuringSchedulingIgnoredDuringExecution": ["g2"]}
    with up(tmp_path / "state", env={"HBOX_SCHEDULER_CONF": str(conf)}) as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            for name in ("g1", "g2"):
                await client.json("POST", NODES.path(), body=node(name, {GROUP: name}))
            await group(client, "one", members=1)
            await pods(client, "one", 1, cores=1)

            async def refused() -> bool:
                return "2 NodeGroupMismatch" in await why(client, "one")

            await until(refused, "a queue without groups may use no node", timeout_s=30.0)
            limit = {"volcano.sh/nodegroup-resource-limits": '{"g2": {"cpu": "1"}}'}
            change = {"metadata": {"annotations": limit}, "spec": {"affinity": {"nodeGroupAffinity": near}}}
            await client.json("PATCH", QUEUES.path(name="default"), body=change, content_type=MERGE_PATCH)

            async def placed() -> bool:
                return await nodes_of(client, "one") == ["g2"]

            await until(placed, "the pod on a node of its queue's group", timeout_s=30.0)
            await group(client, "two", members=1)
            await pods(client, "two", 1, cores=1)

            async def limited() -> bool:
                return "1 NodeGroupLimitExceeded, 1 NodeGroupMismatch" in await why(client, "two")

            await until(limited, "no more than the limit of the group", timeout_s=30.0)
