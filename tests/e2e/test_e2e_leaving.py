"""Whoever has to leave is told why: through all services, by Event, message and command.

owner       deserves 4 of the node's 8 cards
borrower    no amounts
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hbox_common.clock import wall_s
from hbox_common.kube import EVENTS, MERGE_PATCH, NODES, PODS, KubeClient, rfc3339

from .. import waiting
from .platform_world import foretold, placed, queue, saved, simulate_cycle, up
from .traced_jobs import node

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SPACE, GPU = "default", "nvidia.com/gpu"


def pod(name: str, of: str, *, cards: int = 1, **notes: str) -> dict[str, Any]:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m"}, "limits": {GPU: str(cards)}}}
    annotations = {"scheduling.volcano.sh/queue-name": of, **{f"hbox.io/{k.replace('_', '-')}": v for k, v in notes.items()}}
    spec = {"schedulerName": "hbox", "containers": [container]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE, "annotations": annotations},
        "spec": spec,
    }


async def events_of(client: KubeClient, name: str, reason: str) -> list[str]:
    found = (await client.json("GET", EVENTS.path(SPACE)))["items"]
    return [one["message"] for one in found if one["involvedObject"]["name"] == name and one["reason"] == reason]


async def test_who_is_reclaimed_from_is_told_for_whom_by_which_rule_and_when_it_may_come_back(tmp_path: Path) -> None:
    with up(tmp_path / "state") as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await client.json("POST", NODES.path(), body=node("n0"))
            queue(running, "create", "borrower")
            queue(running, "create", "owner", "--deserved", f"{GPU}=4")
            for number in range(8):
                await client.json("POST", PODS.path(SPACE), body=pod(f"lent-{number}", "borrower"))

            async def full() -> bool:
                return len(await placed(client, SPACE)) == 8

            await waiting.until(full, "the borrower has the node", timeout_s=60)
            [before] = simulate_cycle(tmp_path, [*await saved(client), pod("mine", "owner")])["evictions"]
            await client.json("POST", PODS.path(SPACE), body=pod("mine", "owner"))

            async def taken_back() -> bool:
                return "mine" in await placed(client, SPACE)

            await waiting.until(taken_back, "the owner has its card", timeout_s=60)
            [gone] = {f"lent-{n}" for n in range(8)} - (await placed(client, SPACE)).keys()
            said = running.json("why", "--evicted", gone)
            [receipt] = said["receipts"]
            foretold_of = (
                before["pod"].rpartition("-")[0],
                before["for"],
                before["reason"],
            )  # which of them: seconds do not say who was served last
            assert foretold_of == (f"{SPACE}/lent", f"{SPACE}/mine", "Reclaimed")
            assert (receipt["rule"], receipt["queue"]) == ("reclaim", "borrower")
            assert (receipt["for"]["namespace"], receipt["for"]["name"], receipt["for"]["queue"]) == (SPACE, "mine", "owner")
            assert [one["pod"] for one in receipt["pods"]] == [gone]
            assert f"queue owner uses 0 of {GPU} and deserves 4" in receipt["message"]
            assert f"queue borrower uses 8 of {GPU} and deserves no amount of it" in receipt["message"]
            text = running.hbox("why", "--evicted", f"{SPACE}/{gone}").stdout
            assert "reclaimed for default/mine of queue owner" in text
            assert "returns:  when the resources that it requests are idle" in text

            async def published() -> list[str]:
                return await events_of(client, gone, "Preempted")

            [event] = await waiting.until(published, "the pod's Event", timeout_s=20)
            assert "reclaimed for default/mine of queue owner" in event
            assert "(rule reclaim)" in event
            stayed = min((await placed(client, SPACE)).keys() - {"mine"})
            nobody = running.hbox("why", "--evicted", stayed)
            assert nobody.returncode == 3
            assert f"no eviction of {stayed} is on record" in nobody.stderr
            assert f"evicted {SPACE}/{gone}" in running.hbox("events").stdout


async def test_nobody_is_taken_from_before_its_queues_time_nor_twice_in_a_row(tmp_path: Path) -> None:
    """The borrower's pods are left alone for 8 s, and then one goes though nothing else happens; made anew it cools down, and another one goes."""
    with up(tmp_path / "state") as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await client.json("POST", NODES.path(), body=node("n0"))
            queue(running, "create", "borrower", "--min-run-time", "8s", "--cool-down", "60s")
            queue(running, "create", "owner", "--deserved", f"{GPU}=4")
            wrong = running.hbox("queue", "set", "borrower", "--cool-down", "soon")
            assert wrong.returncode == 5
            assert "hbox.io/cool-down is 'soon'" in wrong.stderr
            began = time.monotonic()
            for number in range(8):
                await client.json("POST", PODS.path(SPACE), body=pod(f"lent{number}", "borrower", min_run_time="9h"))

            async def full() -> bool:
                return len(await placed(client, SPACE)) == 8

            await waiting.until(full, "the borrower has the node", timeout_s=60)
            await client.json("POST", PODS.path(SPACE), body=pod("mine-0", "owner"))

            def has(name: str) -> Callable[[], Awaitable[bool]]:
                async def so() -> bool:
                    return name in await placed(client, SPACE)

                return so

            await waiting.until(has("mine-0"), "the owner has its card", timeout_s=60)
            assert time.monotonic() - began >= 8
            [gone] = {f"lent{n}" for n in range(8)} - (await placed(client, SPACE)).keys()

            async def left() -> bool:
                names = [one["metadata"]["name"] for one in (await client.json("GET", PODS.path(SPACE)))["items"]]
                return gone not in names

            await waiting.until(left, "the pod is gone", timeout_s=20)
            queue(running, "set", "borrower", "--min-run-time", "0s")
            await client.json("DELETE", PODS.path(SPACE, "mine-0"))
            await client.json("POST", PODS.path(SPACE), body=pod(gone, "borrower"))
            await waiting.until(has(gone), "the one that was evicted is back", timeout_s=30)
            await client.json("POST", PODS.path(SPACE), body=pod("mine-1", "owner"))
            await waiting.until(has("mine-1"), "the owner has its card again", timeout_s=30)
            there = await placed(client, SPACE)
            assert gone in there, "it was served last, and was evicted a moment ago"
            assert len(there) == 8
        assert running.json("audit")["faults"] == []


async def test_who_loses_least_since_its_last_checkpoint_goes_first(tmp_path: Path) -> None:
    """Of the borrower's pods that came first, one writes a checkpoint each second and one says that it has written one; the others lose all of their run."""
    with up(tmp_path / "state") as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await client.json("POST", NODES.path(), body=node("n0"))
            queue(running, "create", "borrower")
            queue(running, "create", "owner", "--deserved", f"{GPU}=4")

            async def there(*names: str) -> None:
                async def so() -> bool:
                    return (await placed(client, SPACE)).keys() == set(names)

                await waiting.until(so, f"{', '.join(names)} run", timeout_s=60)

            lent = [f"lent-{number}" for number in range(6)]
            first = [pod("told-0", "borrower"), pod("every-0", "borrower", checkpoint_interval="1s")]
            for one in (*first, *(pod(name, "borrower") for name in lent)):
                await client.json("POST", PODS.path(SPACE), body=one)
            await there("told-0", "every-0", *lent)
            await asyncio.sleep(3)
            said = {"metadata": {"annotations": {"hbox.io/checkpointed-at": rfc3339(wall_s())}}}
            await client.json("PATCH", PODS.path(SPACE, "told-0"), body=said, content_type=MERGE_PATCH)
            mine = [pod(f"mine-{number}", "owner") for number in range(2)]
            assert await foretold(client, tmp_path, *mine) == {"told": 1, "every": 1}
            for one in mine:
                await client.json("POST", PODS.path(SPACE), body=one)
            await there("mine-0", "mine-1", *lent)
        assert running.json("audit")["faults"] == []


async def test_why_names_the_rule_by_which_a_place_is_not_taken_yet_whose_it_is_and_until_when(tmp_path: Path) -> None:
    """The borrower's pod was evicted a moment ago: made anew it has its place for a minute, for which the owner waits."""
    with up(tmp_path / "state") as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            await client.json("POST", NODES.path(), body=node("n0"))
            queue(running, "create", "borrower", "--min-run-time", "1h")
            queue(running, "create", "owner", "--deserved", f"{GPU}=8")

            async def start(name: str, of: str) -> None:
                await client.json("POST", PODS.path(SPACE), body=pod(name, of, cards=8))

            async def has(name: str) -> None:
                async def so() -> bool:
                    return name in await placed(client, SPACE)

                await waiting.until(so, f"{name} has the node", timeout_s=60)

            async def why_says(name: str, what: str) -> None:
                async def so() -> bool:
                    return what in running.hbox("why", name).stdout

                await waiting.until(so, f"{name} is told: {what}", timeout_s=20)

            await start("lent", "borrower")
            await has("lent")
            await start("mine-0", "owner")
            await why_says("mine-0", "pods that are not evictable yet: 1 of queue borrower in minimum run time until 20")
            await client.json("DELETE", PODS.path(SPACE, "lent"))
            await has("mine-0")
            queue(running, "set", "borrower", "--min-run-time", "0s")
            await client.json("DELETE", PODS.path(SPACE, "mine-0"))
            await start("lent", "borrower")
            await has("lent")
            await start("mine-1", "owner")
            await has("mine-1")
            await client.json("DELETE", PODS.path(SPACE, "mine-1"))
            await start("lent", "borrower")
            await has("lent")
            await start("mine-2", "owner")
            await why_says(
                "mine-2",
                "pods that are not evictable yet: 1 of queue borrower in cool-down (their jobs were evicted recently) until 20",
            )
