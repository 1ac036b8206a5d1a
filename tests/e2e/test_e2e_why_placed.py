"""Why a pod has its place, on a running platform: told by scheduler-core from the decision, and after it was killed by the record."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, KubeClient

from ..waiting import until
from .platform_world import Up, hbox, up
from .test_e2e_policy_actions import pod
from .test_e2e_record import FLUSHED_S, all_placed, submit
from .traced_jobs import node

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


def why(running: Up, job: str) -> dict[str, Any]:
    found: dict[str, Any] = running.json("why", "--placed", job)
    return found


async def test_a_place_is_explained_from_the_decision_and_after_a_restart_by_the_record(tmp_path: Path) -> None:
    records = tmp_path / "records"
    with up(tmp_path / "state", env={"HBOX_RECORD": str(records)}) as running:
        async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
            for name in ("n0", "n1"):
                await client.json("POST", NODES.path(), body=node(name))
            await submit(client, pod("first", cards=2))
            await all_placed(client, "first")
            await submit(client, pod("gang-0", "gang", cards=1), pod("gang-1", "gang", cards=1), group="gang", members=2)
            await all_placed(client, "gang-0", "gang-1")
            told = why(running, "gang")
            [decision] = told["decisions"]
            [on] = decision["nodes"]
            assert sorted(on["pods"]) == ["gang-0", "gang-1"]
            assert {on["node"], on["runner_up"]["node"]} == {"n0", "n1"}
            assert on["chosen"]["total"] > on["runner_up"]["total"]
            assert sum(on["chosen"]["terms"].values()) == pytest.approx(on["chosen"]["total"])
            assert "behind: least-waste -" in on["why"]
            shown = running.hbox("why", "--placed", "gang")
            assert f"plan {decision['plan']}" in shown.stdout
            assert f"runner-up  {on['runner_up']['node']}, " in shown.stdout

            # The cluster is another one afterwards, the answer is not.
            await submit(client, pod("large", cards=8))
            await all_placed(client, "large")
            assert why(running, "gang")["decisions"] == told["decisions"]

            await submit(client, pod("waits", cards=8))
            refused = running.hbox("why", "--placed", "waits")
            assert (refused.returncode, "has no places" in refused.stderr) == (3, True)

            await asyncio.sleep(FLUSHED_S)
            before = running.pids()["scheduler-core"]
            os.kill(before, signal.SIGKILL)

            def forgotten() -> bool:
                done = running.hbox("why", "--placed", "gang")
                return done.returncode == 3 and "hbox simulate replay RECORD --placed default/gang" in done.stderr

            async def back() -> bool:
                return running.pids().get("scheduler-core", before) != before and await asyncio.to_thread(forgotten)

            await until(back, "the new process says that it does not know, and who does", timeout_s=60)
        assert running.stop() == 0
    done = hbox("-o", "json", "simulate", "replay", str(min(records.iterdir())), "--placed", "gang")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["decisions"] == told["decisions"]
