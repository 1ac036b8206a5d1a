"""Jobs of health-monitor's checks on a real API server: the binder acts with its own account and the chart's right, Kubernetes' Job controller runs the Job."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hbox_binder.adapters.gatejobs import GateJobs
from hbox_cli.platform.assets import ControlPlane
from hbox_cli.platform.identities import NAMESPACE, Tokens, bring
from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.events import GateJobObserved, GateJobsDecided
from hbox_common.health.gatejob import GateJob, JobOutcome, manifest_of
from hbox_common.kube import JOBS, PODS, KubeClient, apply
from hbox_common.model import NodeName

from ..chart.rendered import CHART, helm
from ..waiting import until
from .control_plane import control_plane

pytestmark = pytest.mark.e2e

SPACE, NODE = "checks", NodeName("n1")
CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class World:
    admin: KubeClient
    binder: KubeClient
    bus: Bus
    monitor: Bus  #: health-monitor's

    @asynccontextmanager
    async def checks(self, namespace: str = SPACE) -> AsyncIterator[None]:
        running = asyncio.create_task(GateJobs(self.binder, self.bus, namespace=namespace).run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def decide(self, *jobs: GateJob) -> None:
        await self.monitor.publish(GateJobsDecided(node=NODE, jobs=jobs), NODE)

    async def end_of(self, job: GateJob) -> GateJobObserved:
        async def ended() -> GateJobObserved | None:
            found = [one.event for one in await self.bus.since(GateJobObserved, (NODE,), 0.0)]
            return next((one for one in found if isinstance(one, GateJobObserved) and _ends(one, job)), None)

        found = await until(ended, f"the end of {job.id}", timeout_s=60)
        assert isinstance(found, GateJobObserved)
        return found

    async def pods_of(self, job: GateJob) -> list[dict[str, Any]]:
        found = await self.admin.json("GET", PODS.path(SPACE), params={"labelSelector": f"job-name={job.name}"})
        return list(found["items"])


def _ends(event: GateJobObserved, job: GateJob) -> bool:
    return event.job == job.id and event.outcome is not JobOutcome.STARTED


def a_job(incident: str, *, run_s: int = 0, deadline_s: int = 60) -> GateJob:
    template: dict[str, Any] = {"spec": {"containers": [{"name": "test", "image": "registry.example/all-reduce:1"}]}}
    if run_s:
        template["metadata"] = {"annotations": {"hbox.io/run-seconds": str(run_s)}}
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template}}
    return GateJob(incident, 1, "gpu:GPU-a", ("GPU-a",), manifest_of(json.dumps(manifest)), deadline_s)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("gate")) as plane:
        yield plane


@pytest.fixture
async def world(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[World]:
    words = [
        helm(),
        "template",
        "hbox",
        str(CHART),
        "-n",
        NAMESPACE,
        "--set",
        f"gate.namespace={SPACE}",
        "-s",
        "templates/gate.yaml",
    ]
    rights = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=True)
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as admin:
        await bring(admin, lambda _: None)
        for name in (SPACE, "elsewhere"):
            await apply(admin, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, field_manager="test")
        for right in yaml.safe_load_all(rights.stdout):
            await apply(admin, right, field_manager="test")
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": NODE},
            "spec": {"unschedulable": True, "taints": [CORDONED]},
        }
        await apply(admin, node, field_manager="test")
        tokens = Tokens(tmp_path / "kube", plane.kubeconfig)
        kubeconfig = tokens.write_kubeconfigs()["binder"]
        await tokens.issue(admin)
        async with (
            EmbeddedServer(tmp_path / "nats") as nats,
            KubeClient.connect(kubeconfig, user_agent="hbox-binder") as binder,
            Bus.connect(nats.url, name="binder", instance="test") as bus,
            Bus.connect(nats.url, name="health-monitor", instance="test") as monitor,
        ):
            await bus.ensure_streams()
            yield World(admin, binder, bus, monitor)


async def test_a_job_runs_on_its_cordoned_node_and_its_success_is_reported(world: World) -> None:
    job = a_job("i1")
    async with world.checks():
        await world.decide(job)
        assert (await world.end_of(job)).outcome is JobOutcome.SUCCEEDED
    [pod] = await world.pods_of(job)
    assert (pod["spec"]["nodeName"], pod["status"]["phase"]) == (NODE, "Succeeded")


async def test_kubernetes_ends_a_job_at_its_deadline(world: World) -> None:
    job = a_job("i2", run_s=600, deadline_s=3)
    async with world.checks():
        await world.decide(job)
        found = await world.end_of(job)
    assert found.outcome is JobOutcome.FAILED
    assert "DeadlineExceeded" in found.message


async def test_a_job_that_is_withdrawn_ends_with_its_pod(world: World) -> None:
    job = a_job("i3", run_s=600)

    async def runs() -> bool:
        return [one["status"].get("phase") for one in await world.pods_of(job)] == ["Running"]

    async def gone() -> bool:
        return not await world.pods_of(job)

    async with world.checks():
        await world.decide(job)
        await until(runs, "the pod", timeout_s=60)
        await world.decide()
        await until(gone, "the end of the pod", timeout_s=60)


async def test_a_namespace_without_the_right_is_reported_as_a_refusal(world: World) -> None:
    job = a_job("i4")
    async with world.checks("elsewhere"):
        await world.decide(job)
        found = await world.end_of(job)
    assert found.outcome is JobOutcome.REFUSED
    assert "elsewhere" in found.message
    assert (await world.admin.json("GET", JOBS.path("elsewhere")))["items"] == []
