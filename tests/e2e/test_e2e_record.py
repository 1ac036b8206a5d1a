"""What a running scheduler-core was told, replayed: the same decisions bit by bit, also of one that was killed."""

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hbox_common.kube import NODES, PODGROUPS, PODS, PRIORITYCLASSES, KubeClient

from ..waiting import until
from .platform_world import SLOWER, Up, hbox, placed, up
from .test_e2e_policy_actions import pod
from .traced_jobs import node

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

SPACE = "default"

#: Nobody has to leave for anybody.
PATIENT = """\
actions: "allocate"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
- plugins:
  - {name: predicates}
  - {name: binpack}
"""

#: What is recorded reaches the disk four times a second; on a busy machine later.
FLUSHED_S = 1.5 * SLOWER


async def submit(client: KubeClient, *pods: dict[str, Any], group: str = "", members: int = 1) -> None:
    if group:
        body = {"metadata": {"name": group}, "spec": {"minMember": members}}
        await client.json(
            "POST", PODGROUPS.path(SPACE), body={"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", **body}
        )
    for one in pods:
        await client.json("POST", PODS.path(SPACE), body=one)


async def all_placed(client: KubeClient, *names: str) -> None:
    async def there() -> bool:
        return set(names) <= (await placed(client, SPACE)).keys()

    await until(there, f"{', '.join(names)} have places", timeout_s=60)


def high(one: dict[str, Any]) -> dict[str, Any]:
    one["spec"]["priorityClassName"] = "high"
    return one


def replayed(record: Path, *, hash_seed: int) -> Mapping[str, Any]:
    done = hbox("-o", "json", "simulate", "replay", str(record), env={"PYTHONHASHSEED": str(hash_seed)})
    assert done.returncode == 0, done.stdout + done.stderr
    found: Mapping[str, Any] = json.loads(done.stdout)
    return found


def what_if(record: Path, policy: str | Path) -> Mapping[str, Any]:
    done = hbox("-o", "json", "simulate", "replay", str(record), "--policy", str(policy))
    assert done.returncode == 0, done.stdout + done.stderr
    found: Mapping[str, Any] = json.loads(done.stdout)
    return found


async def work(running: Up) -> None:
    """A gang starts, a gang of higher priority takes its place, scheduler-core is killed, and one more job comes."""
    async with KubeClient.connect(str(running.state / "kubeconfig"), user_agent="test") as client:
        await client.json("POST", NODES.path(), body=node("n0"))
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
        await client.json("POST", PRIORITYCLASSES.path(), body=body)
        await submit(client, pod("low-0", "low", cards=4), pod("low-1", "low", cards=4), group="low", members=2)
        await all_placed(client, "low-0", "low-1")
        await submit(client, *(high(pod(f"top-{n}", "top", cards=3)) for n in range(2)), group="top", members=2)
        await all_placed(client, "top-0", "top-1")
        await asyncio.sleep(FLUSHED_S)
        before = running.pids()["scheduler-core"]
        os.kill(before, signal.SIGKILL)

        async def back() -> bool:
            return running.pids().get("scheduler-core", before) != before

        await until(back, "scheduler-core runs again", timeout_s=60)
        await submit(client, pod("late", cards=1))
        await all_placed(client, "late")


def killed_record(records: Path) -> Path:
    """That of the process that was killed: the older one."""
    return min(records.iterdir())


async def test_records_of_a_running_platform_replay_bit_by_bit(tmp_path: Path) -> None:
    records = tmp_path / "records"
    with up(tmp_path / "state", env={"HBOX_RECORD": str(records)}) as running:
        await work(running)
        assert running.stop() == 0
    killed, stopped = (replayed(record, hash_seed=seed) for seed, record in enumerate(sorted(records.iterdir()), 1))
    assert (killed["end"], stopped["end"]) == ("", "the service was stopped")
    assert killed["differences"] == stopped["differences"] == 0
    assert killed["victims"] in range(2, 20, 2), "the same two each time; the ledger may refuse a plan while they start"
    assert killed["placements"] >= 2, "what came in its last quarter of a second may be missing"
    assert stopped["placements"] == 1
    own = what_if(killed_record(records), "recorded")
    assert own["evictions"] == {"recorded": 2, "other": 2}
    assert own["pods"]["elsewhere"] == own["pods"]["byRecordAlone"] == own["pods"]["byOtherAlone"] == 0
    patient = tmp_path / "patient.conf"
    patient.write_text(PATIENT)
    other = what_if(killed_record(records), patient)
    assert other["evictions"] == {"recorded": 2, "other": 0}
    assert other["jobs"] == {"byRecordAlone": [f"{SPACE}/top"], "byOtherAlone": []}
    assert other["queues"]["default"]["other"]["waiting"] == 1
