"""Disruption budgets through all services: who is under one is no victim, and a gang that may not be unwound is completed, its user told meanwhile."""

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from hbox_common.kube import MERGE_PATCH, NODES, PODDISRUPTIONBUDGETS, PODGROUPS, PODS, PRIORITYCLASSES, KubeClient

from ..waiting import until
from .platform_world import placed, up
from .test_e2e_policy_actions import SPACE
from .test_e2e_policy_actions import pod as one_card
from .traced_jobs import node

pytestmark = pytest.mark.e2e

BUDGET = PODDISRUPTIONBUDGETS.path(SPACE)


def pod(name: str, app: str = "", group: str = "", **spec: Any) -> dict[str, Any]:
    made = one_card(name, group)
    made["metadata"]["labels"] = {"app": app} if app else {}
    made["spec"] |= spec
    return made


async def guard(client: KubeClient, app: str, **rule: Any) -> None:
    spec = {"selector": {"matchLabels": {"app": app}}, **rule}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app}, "spec": spec}
    await client.json("POST", BUDGET, body=body)


async def test_who_is_under_a_budget_that_is_used_up_stays_and_leaves_when_it_allows_that(tmp_path: Path) -> None:
    with up(tmp_path / "state") as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await client.json("POST", NODES.path(), body=node("n0"))
            classes = {"high": {}, "meek": {"preemptionPolicy": "Never"}}
            for name, policy in classes.items():
                body = {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": name},
                    "value": 1000,
                }
                await client.json("POST", PRIORITYCLASSES.path(), body=body | policy)
            await guard(client, "web", maxUnavailable=0)
            low = [pod(f"web-{n}", "web") for n in range(6)] + [pod(f"batch-{n}") for n in range(2)]
            for one in low:
                await client.json("POST", PODS.path(SPACE), body=one)

            async def full() -> bool:
                return len(await placed(client, SPACE)) == 8

            await until(full, "the node is full", timeout_s=60)
            await client.json("POST", PODS.path(SPACE), body=pod("meek", priorityClassName="meek"))
            for number in range(3):
                await client.json("POST", PODS.path(SPACE), body=pod(f"high-{number}", priorityClassName="high"))

            async def two() -> bool:
                return sum(name.startswith("high") for name in await placed(client, SPACE)) == 2

            await until(two, "two of three have taken places of those who may leave", timeout_s=20)
            await asyncio.sleep(3.0)
            there = await placed(client, SPACE)
            assert sorted(name for name in there if name.startswith("web")) == [f"web-{n}" for n in range(6)]
            assert "meek" not in there
            await client.json("PATCH", f"{BUDGET}/web", body={"spec": {"maxUnavailable": 1}}, content_type=MERGE_PATCH)

            async def three() -> bool:
                return sum(name.startswith("high") for name in await placed(client, SPACE)) == 3

            await until(three, "the budget allows one", timeout_s=20)
            assert sum(name.startswith("web") for name in await placed(client, SPACE)) == 5
        assert running.json("audit")["faults"] == []


async def test_a_gang_that_may_not_be_unwound_is_completed_and_its_user_told_until_then(tmp_path: Path) -> None:
    """Of three one cannot be bound for a while, and a budget keeps the two others from leaving."""
    with up(tmp_path / "state", env={"HBOX_GANG_DEADLINE_S": "5"}) as running:
        kubeconfig = json.loads((running.state / "platform.json").read_text())["kubeconfig"]
        async with KubeClient.connect(kubeconfig, user_agent="test") as client:

            async def faults(*rules: dict[str, Any]) -> None:
                def send() -> None:
                    data = json.dumps({"rules": rules}).encode()
                    with urlopen(Request(f"{client.base}/_sandbox/faults", data=data, method="PUT"), timeout=10):
                        pass

                await asyncio.to_thread(send)

            await client.json("POST", NODES.path(), body=node("n0"))
            await guard(client, "train", maxUnavailable=0)
            await faults({"verb": "create", "resource": "pods/binding", "name": "g-2", "status": 503})
            group = {"metadata": {"name": "g"}, "spec": {"minMember": 3}}
            await client.json(
                "POST", PODGROUPS.path(SPACE), body={"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", **group}
            )
            for number in range(3):
                await client.json("POST", PODS.path(SPACE), body=pod(f"g-{number}", "train", "g"))

            async def told() -> bool:
                status = (await client.json("GET", PODGROUPS.path(SPACE, "g"))).get("status") or {}
                messages = [c.get("message", "") for c in status.get("conditions") or () if c["status"] == "True"]
                return any("EvictionBlocked" in m and "default/train allows 0 disruptions" in m for m in messages)

            await until(told, "the user is told of the budget", timeout_s=60)
            assert set(await placed(client, SPACE)) == {"g-0", "g-1"}
            await faults()

            async def whole() -> bool:
                return set(await placed(client, SPACE)) == {"g-0", "g-1", "g-2"}

            await until(whole, "the gang is completed", timeout_s=40)

            async def told_no_more() -> bool:
                return not await told()

            await until(told_no_more, "the user is told of the budget no more", timeout_s=40)
            assert await whole(), "nobody is taken back"
        assert running.json("audit")["faults"] == []
