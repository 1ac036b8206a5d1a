"""A namespace with more jobs that wait than it may have (`HBOX_PENDING_PER_NAMESPACE`), through all services: the rest is held back and told so, comes in as
others leave, also past a restart of job-controller; and another namespace is served as ever."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NAMESPACES, NODES, PODS, KubeClient

from ..waiting import until
from .platform_world import SLOWER, Up, placed, up
from .test_e2e_policy_actions import pod
from .traced_jobs import node

pytestmark = pytest.mark.e2e

MOST = 3
HELD = f"namespace flood has {MOST} jobs that wait for places, as many as it may have at a time"


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Up]:
    bounds = {"HBOX_PENDING_PER_NAMESPACE": str(MOST), "HBOX_PENDING_MIB_PER_NAMESPACE": "1"}
    with up(tmp_path / "state", env=bounds) as running:
        yield running


async def jobs_of(platform: Up, space: str) -> dict[str, Any]:
    """By name, why they wait; None where nobody said so."""
    found = await asyncio.to_thread(platform.json, "jobs")
    return {item["name"].partition("/")[2]: item["reason"] for item in found["items"] if item["name"].startswith(f"{space}/")}


async def test_a_flood_is_held_back_and_comes_in_as_others_leave(platform: Up) -> None:
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        await client.json("POST", NODES.path(), body=node("n0"))
        for space in ("flood", "other"):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
            await client.json("POST", NAMESPACES.path(), body=body)
        for i in range(6):
            await client.json("POST", PODS.path("flood"), body=pod(f"f{i}", cards=9))

        async def reasons_given() -> bool:
            reasons = await jobs_of(platform, "flood")
            return len(reasons) == 6 and all(reasons.values())

        await until(reasons_given, "all have a reason", timeout_s=20 * SLOWER)
        reasons = await jobs_of(platform, "flood")
        held = {name for name, why in reasons.items() if why.startswith(HELD)}
        assert len(held) == 3
        assert all("insufficient" in why.lower() for name, why in reasons.items() if name not in held), reasons
        why = await asyncio.to_thread(platform.hbox, "why", f"flood/{min(held)}")
        assert "HBOX_PENDING_PER_NAMESPACE of job-controller" in why.stdout

        # The pod itself says so, and another namespace is served as ever.
        async def condition() -> bool:
            listed = await client.json("GET", PODS.path("flood"))
            said = {
                one["metadata"]["name"]: one["status"].get("conditions", [{}])[0].get("message", "") for one in listed["items"]
            }
            return all(HELD in said[name] for name in held)

        await until(condition, "the pods are told", timeout_s=20 * SLOWER)
        await client.json("POST", PODS.path("other"), body=pod("one"))
        await until(lambda: _bound(client, "other", 1), "the other namespace's pod", timeout_s=20 * SLOWER)

        # A new job-controller holds as many back, and who leaves makes room for one that has places.
        os.kill(platform.pids()["job-controller"], signal.SIGKILL)
        await client.json("POST", PODS.path("flood"), body=pod("small"))

        async def again() -> bool:
            try:
                reasons = await jobs_of(platform, "flood")
            except AssertionError:
                return False  # nobody answers yet
            return len(reasons) == 7 and sum(str(why).startswith(HELD) for why in reasons.values()) == 4

        await until(again, "as many are held back", timeout_s=30 * SLOWER)
        for name, why in (await jobs_of(platform, "flood")).items():
            if name != "small" and not why.startswith(HELD):
                await client.json("DELETE", PODS.path("flood", name), params={"gracePeriodSeconds": "0"})
        for name in ("f3", "f4", "f5"):
            await client.json("DELETE", PODS.path("flood", name), params={"gracePeriodSeconds": "0"}, expect=(200, 404))
        await until(lambda: _bound(client, "flood", 1), "the one that fits comes in", timeout_s=20 * SLOWER)

        # Fewer are held back where each says much; what nobody reads costs nothing.
        await client.json("POST", NAMESPACES.path(), body={**body, "metadata": {"name": "wordy"}})
        for i in range(MOST):
            wordy = pod(f"w{i}", cards=9)
            wordy["metadata"]["labels"] = {f"example.com/{n}": 63 * "x" for n in range(7000)}
            wordy["metadata"]["annotations"] |= {"example.com/notes": 200_000 * "y"}
            await client.json("POST", PODS.path("wordy"), body=wordy, timeout_s=60)

        async def too_large() -> bool:
            reasons = await jobs_of(platform, "wordy")
            return len(reasons) == MOST and sum("whose pods say 1 MiB" in str(why) for why in reasons.values()) == 2

        await until(too_large, "two are held back for what they say", timeout_s=20 * SLOWER)
        (held_back, *_) = [name for name, why in (await jobs_of(platform, "wordy")).items() if "whose pods say 1 MiB" in why]
        why = await asyncio.to_thread(platform.hbox, "why", f"wordy/{held_back}")
        assert "HBOX_PENDING_MIB_PER_NAMESPACE of job-controller" in why.stdout


async def _bound(client: KubeClient, space: str, count: int) -> bool:
    return len(await placed(client, space)) == count
