"""A cluster of three brokers under the whole platform: one is killed, another loses its disk, and all die at once."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from hbox_common.kube import PODS, KubeClient

from .. import waiting
from .platform_world import Up, placed, up
from .traced_jobs import pod

pytestmark = pytest.mark.e2e

BROKERS = [f"nats-server-{n}" for n in (1, 2, 3)]

#: For leaders to be chosen again, on a busy machine.
SOON_S = 90.0


def pids(platform: Up) -> list[int]:
    found = json.loads((platform.state / "pids.json").read_text())
    return [found[name] for name in BROKERS]


async def test_work_goes_on_with_two_of_three_and_after_none_was_there(tmp_path: Path) -> None:
    with up(tmp_path / "state", "--nodes", "2x8", "--brokers", "3") as platform:
        async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
            count = 0

            async def work() -> None:
                nonlocal count
                for _ in range(3):
                    await client.json("POST", PODS.path("default"), body=pod(f"job-{count}"))
                    count += 1

                async def bound() -> bool:
                    return len(await placed(client, "default")) == count

                await waiting.until(bound, f"{count} pods have nodes", timeout_s=SOON_S)

            await work()
            os.kill(pids(platform)[0], signal.SIGKILL)
            await work()
            shutil.rmtree(platform.state / "nats-2" / "store")
            os.kill(pids(platform)[1], signal.SIGKILL)
            await work()
            for pid in pids(platform):
                os.kill(pid, signal.SIGKILL)
            await work()
        assert platform.json("audit")["faults"] == []
