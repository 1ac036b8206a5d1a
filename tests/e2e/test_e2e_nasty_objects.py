"""What one tenant writes costs nobody else: every kind of nasty object, waiting and bound, and the services killed with all of them there."""

import asyncio
import os
from pathlib import Path

import pytest

from hbox_common.kube import KubeClient

from ..nasty_objects import KINDS
from ..nasty_platform import AFTER_KILLS_S, NAMESPACE, Innocent, apply, kill_services, stand
from .platform_world import up

pytestmark = pytest.mark.e2e

#: All services are killed after each kind, not once: half an hour.
EACH = bool(os.environ.get("HBOX_NASTY_KILLS"))


def test_there_are_three_times_as_many_kinds_as_were_found() -> None:
    assert len(KINDS) >= 33
    assert len({kind.name for kind in KINDS}) == len(KINDS)


@pytest.mark.timeout(3600 if EACH else 600)
async def test_an_innocent_pod_is_bound_beside_every_kind_of_nasty_object(tmp_path: Path) -> None:
    with up(tmp_path / "state", "--nodes", "4x8") as platform:
        before = platform.pids()
        waits = await stand(platform, KINDS, node="node-0003", kills=EACH)
        print("\n".join(f"{wait:6.2f} s  {occasion}" for occasion, wait in sorted(waits.items(), key=lambda one: -one[1])[:12]))
        if not EACH:
            assert platform.pids() == before  # nobody died of it
        async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="hbox-test") as client:
            for number, kind in enumerate(KINDS):
                await apply(client, kind.waiting(f"x{number}"))
                await apply(client, kind.bound(f"y{number}", "node-0003"))
            innocent = Innocent(client, count=10_000)
            await innocent.bound_within(AFTER_KILLS_S, f"{len(KINDS)} kinds at once in {NAMESPACE}")
            for _ in range(2):
                kill_services(platform)
                await asyncio.sleep(0.5)
                await innocent.bound_within(AFTER_KILLS_S, "all kinds at once, after every service was killed")
