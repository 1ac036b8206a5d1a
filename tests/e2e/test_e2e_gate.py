"""A repaired card returns only after the operator's Job has passed on it: the first attempt fails, the second succeeds.

node-remedy resets and diagnoses by hooks. The test plays the Job controller: it creates the pod, which the emulated kubelet runs past every scheduler, and
ends the Job.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hbox_common.bus import EmbeddedServer
from hbox_common.kube import JOBS, MERGE_PATCH, NODES, PODS, KubeClient
from hbox_sandbox.kubelet.hardware import NodeHardware
from hbox_sandbox.trace import TraceNode
from hbox_sandbox.trace.manifests import node_manifest

from .. import forked, owners
from ..waiting import until
from .platform_world import Up, placed
from .traced_jobs import pod

pytestmark = pytest.mark.e2e

SPACE, NODE = "default", "n0"
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: loop-back}
spec:
  activeDeadlineSeconds: 300
  template:
    spec:
      containers: [{name: nccl, image: nccl-tests, command: [all_reduce_perf, -b, 1G]}]
"""


@contextmanager
def remedy(url: str, platform: Up, folder: Path) -> Iterator[Path]:
    """node-remedy of the node; yields the file in which its hooks record their calls."""
    executed, hook = folder / "executed", folder / "hook"
    log = folder / "remedy.log"
    executed.touch()
    log.touch()
    hook.write_text(f'#!/bin/sh\necho "$HBOX_VERB $HBOX_ENTITY" >> {executed}\n')
    hook.chmod(0o755)
    env = {
        "HBOX_NATS_URL": url, "HBOX_NODE_NAME": NODE, "HBOX_HEALTH_PORT": "0", "HBOX_STATE": str(folder / "journal"),
        "HBOX_HOST_ROOT": str(platform.state / "kubelets" / NODE / "host"), "PATH": os.environ["PATH"],
        "HBOX_VERBS": json.dumps({verb: {"hook": [str(hook)]} for verb in ("reset", "diagnose")}),
    }  # fmt: skip
    process = forked.service("hbox_remedy", env=env, out=log, err=log)
    try:
        yield executed
    finally:
        process.kill()


async def jobs(client: KubeClient) -> list[dict[str, Any]]:
    found = (await client.json("GET", JOBS.path(SPACE)))["items"]
    return sorted(found, key=lambda one: str(env_of(one)["HBOX_ATTEMPT"]))


def env_of(job: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in job["spec"]["template"]["spec"]["containers"][0]["env"]}


async def run_pod(client: KubeClient, job: dict[str, Any]) -> None:
    """The pod of the Job runs on the node, which takes no other work."""
    name = f"{job['metadata']['name']}-x"
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": SPACE}}
    await client.json("POST", PODS.path(SPACE), body=body | {"spec": job["spec"]["template"]["spec"]})

    async def runs() -> bool:
        found = await client.json("GET", PODS.path(SPACE, name))
        return bool(found["status"]["phase"] == "Running")

    await until(runs, "the Job's pod to run", timeout_s=60)
    await client.json("DELETE", PODS.path(SPACE, name), params={"gracePeriodSeconds": "0"})


async def end(client: KubeClient, job: dict[str, Any], condition: str, reason: str = "") -> None:
    status = {"conditions": [{"type": condition, "status": "True", "reason": reason}]}
    path = JOBS.path(SPACE, job["metadata"]["name"], "status")
    await client.json("PATCH", path, body={"status": status}, content_type=MERGE_PATCH)


async def test_a_repaired_card_returns_after_the_operators_job_has_passed(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "gate-job.yaml").write_text(JOB)
    env = {
        "HBOX_NVML_POLL_S": "0.5", "HBOX_VALIDATED_S": "1", "HBOX_REMEDIES": "reset,diagnose", "HBOX_GATE_NAMESPACE": SPACE,
        "HBOX_RULES_FOLDER": str(rules),
    }  # fmt: skip
    async with EmbeddedServer(tmp_path / "nats") as broker:
        platform = await asyncio.to_thread(Up, tmp_path / "state", "--nats-url", broker.url, env=env)
        try:
            async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
                await gate(tmp_path, broker, platform, client)
        finally:
            await asyncio.to_thread(platform.stop)


async def gate(folder: Path, broker: EmbeddedServer, platform: Up, client: KubeClient) -> None:
    await owners.install(client, "Job")
    box = TraceNode(NODE, cpu_milli=64_000, memory_mib=512 * 1024, cards=8, model="NVIDIA-H100-80GB-HBM3")
    await client.json("POST", NODES.path(), body=node_manifest(box, now="2026-01-01T00:00:00Z"))

    async def cards() -> list[str]:
        done = await asyncio.to_thread(platform.hbox, "-o", "json", "node", "show", NODE)
        return [] if done.returncode else [card["uuid"] for card in json.loads(done.stdout)["cards"]]

    async def show() -> str:
        return (await asyncio.to_thread(platform.hbox, "health", "show", NODE)).stdout

    uuids = await until(cards, "the node's cards", timeout_s=60)
    kubelet = platform.state / "kubelets" / NODE
    await until(kubelet.is_dir, "the kubelet", timeout_s=60)
    hardware, sick = NodeHardware(kubelet), uuids[3]
    hardware.cards({uuid: f"0000:{0x18 + place:02x}:00.0" for place, uuid in enumerate(uuids)})
    hardware.boot()
    with remedy(broker.url, platform, folder) as executed:
        hardware.card(sick, recovery_action=1)
        await until(lambda: f"reset gpu:{sick}" in executed.read_text(), "the reset", timeout_s=60)
        hardware.card(sick)
        whole = pod("whole")
        whole["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "8"
        await client.json("POST", PODS.path(SPACE), body=whole)
        [first] = await until(lambda: jobs(client), "the first Job", timeout_s=60)
        assert executed.read_text().splitlines() == [f"reset gpu:{sick}", f"diagnose gpu:{sick}"]
        assert (first["spec"]["template"]["spec"]["nodeName"], env_of(first)["HBOX_CARDS"]) == (NODE, sick)
        await run_pod(client, first)
        assert "job is running" in await show()
        await end(client, first, "Failed", "BackoffLimitExceeded")

        async def both() -> list[dict[str, Any]]:
            found = await jobs(client)
            return found if len(found) == 2 else []

        second = (await until(both, "the second Job", timeout_s=60))[1]
        shown = await show()
        assert "step: job, attempt 1, failed at" in shown
        assert "BackoffLimitExceeded" in shown
        assert "whole" not in await placed(client, SPACE), "the card may not be used yet"
        await run_pod(client, second)
        await end(client, second, "Complete")

        async def runs() -> bool:
            return "whole" in await placed(client, SPACE)

        await until(runs, "the pod on all eight cards", timeout_s=60)
        done = await asyncio.to_thread(platform.json, "health", "incidents", NODE, "--all")
        [incident] = done["items"]
        steps = [(step["name"], step["result"], step["attempt"]) for step in incident["steps"]]
        assert (incident["state"], incident["actionDone"]) == ("closed", "reset")
        assert steps == [("diagnostics", "passed", 1), ("job", "failed", 1), ("job", "passed", 2)]
        history = (await asyncio.to_thread(platform.hbox, "health", "history", NODE)).stdout
        assert "job, attempt 2, passed at" in history
