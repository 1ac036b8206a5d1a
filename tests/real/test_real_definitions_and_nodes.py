"""What administrators do to a real cluster under a running platform: nodes deleted and made again under pods that run, and definitions taken away and
installed again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import CRDS, NODES, PODGROUPS, PODS, QUEUES, KubeClient

from ..e2e.platform_world import Up, placed, up
from ..e2e.traced_jobs import node, pod
from ..waiting import until

pytestmark = pytest.mark.e2e

WITHIN_S = 60.0
#: So long nothing may be bound that there is no room for.
STAYS_S = 5.0


def asking(name: str, cards: int, group: str = "") -> dict[str, Any]:
    made = pod(name, group)
    made["spec"]["terminationGracePeriodSeconds"] = 0
    made["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = str(cards)
    return made


async def create(client: KubeClient, *pods: dict[str, Any]) -> None:
    for one in pods:
        await client.json("POST", PODS.path("default"), body=one, expect=(201,))


async def bound(client: KubeClient, prefix: str, count: int) -> dict[str, str]:
    async def there() -> dict[str, str] | None:
        found = await placed(client, "default", prefix)
        return found if len(found) == count else None

    found: dict[str, str] = await until(there, f"{count} {prefix} bound", timeout_s=WITHIN_S)
    return found


def sound(platform: Up) -> None:
    audit = platform.json("audit")
    assert (audit["faults"], audit["notes"]) == ([], [])


async def test_cards_of_a_node_that_is_made_again_stay_with_their_pods(tmp_path: Path) -> None:
    with up(tmp_path / "state", "--api", "assets") as platform:
        async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test", timeout_s=30) as client:
            await client.json("POST", NODES.path(), body=node("n0"))
            await create(client, *(asking(f"first-{i}", 1) for i in range(6)))
            await bound(client, "first", 6)
            before = (await client.json("GET", NODES.path(name="n0")))["metadata"]["uid"]
            await client.json("DELETE", NODES.path(name="n0"))
            made = await client.json("POST", NODES.path(), body=node("n0"))
            assert made["metadata"]["uid"] != before
            await create(client, *(asking(f"second-{i}", 1) for i in range(4)))
            await bound(client, "second", 2)
            await asyncio.sleep(STAYS_S)
            assert len(await placed(client, "default")) == 8
            sound(platform)
            await client.json("DELETE", PODS.path("default"), params={"gracePeriodSeconds": "0"})
            await create(client, asking("whole", 8))
            await bound(client, "whole", 1)
            sound(platform)


async def test_work_goes_on_while_definitions_are_away_and_after(tmp_path: Path) -> None:
    with up(tmp_path / "state", "--api", "assets") as platform:
        async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test", timeout_s=30) as client:
            await client.json("POST", NODES.path(), body=node("n0"))
            await create(client, asking("before", 1))
            await bound(client, "before", 1)
            for resource in (QUEUES, PODGROUPS):
                path = CRDS.path(name=f"{resource.plural}.{resource.group}")
                spec = (await client.json("GET", path))["spec"]
                await client.json("DELETE", path)
                await create(client, asking(f"during-{resource.plural}", 1))
                await bound(client, f"during-{resource.plural}", 1)
                again = {
                    "apiVersion": "apiextensions.k8s.io/v1",
                    "kind": "CustomResourceDefinition",
                    "metadata": {"name": f"{resource.plural}.{resource.group}"},
                    "spec": spec,
                }

                async def installed(again: dict[str, Any] = again) -> bool:
                    return (await client.request("POST", CRDS.path(), body=again)).status == 201

                await until(installed, timeout_s=WITHIN_S)
            group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "gang"}}

            async def taken() -> bool:
                return (
                    await client.request("POST", PODGROUPS.path("default"), body=group | {"spec": {"minMember": 3}})
                ).status == 201

            await until(taken, timeout_s=WITHIN_S)
            await create(client, asking("gang-0", 1, "gang"), asking("gang-1", 1, "gang"))
            await asyncio.sleep(STAYS_S)
            assert await placed(client, "default", "gang") == {}, "two of three are no gang: the PodGroup is seen again"
            await create(client, asking("gang-2", 1, "gang"))
            await bound(client, "gang", 3)
            sound(platform)
            assert "there is no Queue default" in platform.hbox("check").stdout, "objects go with their definition"
            applied = platform.hbox("definitions", "apply", "--kubeconfig", str(platform.state / "kubeconfig"))
            assert applied.returncode == 0, applied.stderr
            assert "there is no Queue" not in platform.hbox("check").stdout
            assert {"root", "default"} <= {
                one["metadata"]["name"] for one in (await client.json("GET", QUEUES.path()))["items"]
            }
