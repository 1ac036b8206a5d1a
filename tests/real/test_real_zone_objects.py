"""NodeResourceTopology objects on a real control plane, by exporters and by strangers who write anything into them."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import CRDS, EVENTS, NODES, PODS, KubeClient, wait_established
from hbox_common.kube.zones import NODE_RESOURCE_TOPOLOGIES

from ..e2e.platform_world import placed, up
from ..e2e.traced_jobs import node, pod
from ..integration.topology.test_zone_objects import HOSTILE, definition, put, topology
from ..waiting import until

pytestmark = pytest.mark.e2e

WITHIN_S = 90.0
STAYS_S = 5.0


def guaranteed(name: str, cpu: int) -> dict[str, Any]:
    made = pod(name)
    amounts = {"cpu": str(cpu), "memory": "64Mi"}
    made["spec"] |= {"terminationGracePeriodSeconds": 0}
    made["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return made


async def test_pods_go_by_the_last_good_object_whatever_strangers_write(tmp_path: Path) -> None:
    with up(tmp_path / "state", "--api", "assets") as platform:
        async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test", timeout_s=30) as client:
            resource, kind = NODE_RESOURCE_TOPOLOGIES, "NodeResourceTopology"
            body = definition(resource.group, resource.version, kind, resource.plural)
            await client.json("POST", CRDS.path(), body=body)
            await wait_established(client, body["metadata"]["name"])
            await client.json("POST", NODES.path(), body=node("n0"))
            await client.json("POST", resource.path(), body=topology("n0", "5", "2"))
            for i in range(200):
                await client.json("POST", resource.path(), body=topology(f"ghost-{i}", "8"))

            def check_names(node: str, *words: str) -> bool:
                said = platform.hbox("check", "node", node)
                return all(word in said.stdout for word in words)

            await until(lambda: check_names("n0", "2 NUMA nodes by NodeResourceTopology: restricted"), timeout_s=WITHIN_S)
            assert platform.hbox("check", "node", "ghost-7").returncode == 3, "there is no such node"
            await client.json("POST", PODS.path("default"), body=guaranteed("small", 4))
            await client.json("POST", PODS.path("default"), body=guaranteed("large", 7))

            async def there() -> dict[str, str]:
                return await placed(client, "default")

            await until(there, "small is bound", timeout_s=WITHIN_S)
            for fields in HOSTILE.values():
                await put(client, topology("n0", "8", "8") | fields)
                await until(lambda: check_names("n0", "2 NUMA nodes from its earlier messages are used"), timeout_s=WITHIN_S)
            os.kill(platform.pids()["topology-collector"], signal.SIGKILL)
            await put(client, topology("n0", "8", "8") | {"zones": 7})
            await asyncio.sleep(STAYS_S)
            assert (await there()).keys() == {"small"}, "7 CPUs are in no NUMA node of the last good object"
            assert "TopologyAffinityError" in platform.hbox("why", "default/large").stdout

            async def event() -> list[str]:
                items = (await client.json("GET", EVENTS.path("default")))["items"]
                return [one["message"] for one in items if one["reason"] == "NodeZonesProblem"]

            [message] = await until(event, "an Event of the object", timeout_s=WITHIN_S)
            assert "its previous content remains in use" in message
            await client.json("DELETE", PODS.path("default", "small"), params={"gracePeriodSeconds": "0"})
            await put(client, topology("n0", "8", "8"))
            await until(lambda: check_names("n0", "2 NUMA nodes by NodeResourceTopology: restricted"), timeout_s=WITHIN_S)

            async def large() -> bool:
                return "large" in await there()

            await until(large, "its zone is free", timeout_s=WITHIN_S)
            assert platform.json("audit")["faults"] == []
