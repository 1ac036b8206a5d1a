"""Jobs of health-monitor's checks: created once on the node, followed to their end, deleted when withdrawn. The test plays Kubernetes' Job controller."""

import asyncio
from typing import Any

import pytest

from hbox_binder.adapters import gatejobs
from hbox_common.bus import Bus
from hbox_common.errors import NotFound
from hbox_common.events import GateJobObserved, GateJobsDecided
from hbox_common.health.gatejob import GateJob, JobOutcome, manifest_of, rendered
from hbox_common.kube import JOBS, MERGE_PATCH
from hbox_common.model import NodeName
from hbox_sandbox.api.faults import Rule

from ... import owners
from ...waiting import until
from .binder_world import BinderWorld

SPACE, NODE = "default", NodeName("n1")
MANIFEST = manifest_of(
    "{apiVersion: batch/v1, kind: Job, spec: {template: {spec: {containers: [{name: c, image: i, command: [all_reduce_perf]}]}}}}"
)


def a_job(attempt: int = 1, manifest: str = MANIFEST) -> GateJob:
    return GateJob("n1-7-1", attempt, "gpu:GPU-a", ("GPU-a",), manifest, 60)


async def decide(world: BinderWorld, *jobs: GateJob, node: NodeName = NODE) -> None:
    async with Bus.connect(world.nats.url, name="health-monitor", instance="test") as bus:
        await bus.publish(GateJobsDecided(node=node, jobs=jobs), node)


async def observed(world: BinderWorld, job: GateJob) -> list[GateJobObserved]:
    found = await world.bus.since(GateJobObserved, (NODE,), 0.0)
    return [one.event for one in found if isinstance(one.event, GateJobObserved) and one.event.job == job.id]


async def outcome(world: BinderWorld, job: GateJob, wanted: JobOutcome) -> GateJobObserved:
    async def there() -> GateJobObserved | None:
        return next((one for one in await observed(world, job) if one.outcome is wanted), None)

    found = await until(there, f"{job.id} {wanted}", timeout_s=30)
    assert isinstance(found, GateJobObserved)
    return found


async def the_job(world: BinderWorld, job: GateJob) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = await world.client.json("GET", JOBS.path(SPACE, job.name))
    except NotFound:
        return None
    return found


async def ready(world: BinderWorld, job: GateJob) -> None:
    """Its container runs, and the binder sees that."""
    path = JOBS.path(SPACE, job.name, "status")
    await world.client.json("PATCH", path, body={"status": {"active": 1, "ready": 1}}, content_type=MERGE_PATCH)
    await asyncio.sleep(10 * gatejobs.READ_S)


async def end(world: BinderWorld, job: GateJob, condition: str, reason: str = "") -> None:
    status = {"conditions": [{"type": condition, "status": "True", "reason": reason}]}
    path = JOBS.path(SPACE, job.name, "status")
    await world.client.json("PATCH", path, body={"status": status}, content_type=MERGE_PATCH)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gatejobs, "READ_S", 0.05)
    monkeypatch.setattr(gatejobs, "RETRY_S", 0.05)


@pytest.fixture(autouse=True)
async def jobs_served(world: BinderWorld) -> None:
    await owners.install(world.client, "Job")


async def test_a_decided_job_runs_on_the_node_and_its_success_is_published_once(world: BinderWorld) -> None:
    async with world.binder(gate_namespace=SPACE):
        await decide(world, a_job())
        await outcome(world, a_job(), JobOutcome.STARTED)
        found = await the_job(world, a_job())
        assert found is not None
        assert found["spec"]["template"]["spec"]["nodeName"] == NODE
        await end(world, a_job(), "Complete")
        await outcome(world, a_job(), JobOutcome.SUCCEEDED)
        await decide(world)
    async with world.binder(gate_namespace=SPACE):
        await decide(world, a_job(2))
        await outcome(world, a_job(2), JobOutcome.STARTED)
    assert [one.outcome for one in await observed(world, a_job())] == [JobOutcome.STARTED, JobOutcome.SUCCEEDED]
    assert await the_job(world, a_job()) is not None, "its log can be read"


async def test_a_failed_job_is_published_with_its_reason(world: BinderWorld) -> None:
    async with world.binder(gate_namespace=SPACE):
        await decide(world, a_job())
        await outcome(world, a_job(), JobOutcome.STARTED)
        await ready(world, a_job())
        await end(world, a_job(), "Failed", "DeadlineExceeded")
        assert (await outcome(world, a_job(), JobOutcome.FAILED)).message == "DeadlineExceeded"


async def test_a_job_whose_pod_never_ran_states_nothing_about_the_hardware(world: BinderWorld) -> None:
    """As with an image that cannot be pulled."""
    async with world.binder(gate_namespace=SPACE):
        await decide(world, a_job())
        await outcome(world, a_job(), JobOutcome.STARTED)
        await end(world, a_job(), "Failed", "DeadlineExceeded")
        assert "did not run before the deadline" in (await outcome(world, a_job(), JobOutcome.REFUSED)).message


async def test_a_restarted_binder_creates_no_second_job_and_publishes_what_ended_meanwhile(world: BinderWorld) -> None:
    async with world.binder(gate_namespace=SPACE):
        await decide(world, a_job())
        await outcome(world, a_job(), JobOutcome.STARTED)
    before = await the_job(world, a_job())
    await end(world, a_job(), "Complete")
    async with world.binder(gate_namespace=SPACE):
        await outcome(world, a_job(), JobOutcome.SUCCEEDED)
    after = await the_job(world, a_job())
    assert before is not None
    assert after is not None
    assert before["metadata"]["uid"] == after["metadata"]["uid"]


async def test_a_withdrawn_job_is_deleted_while_it_runs(world: BinderWorld) -> None:
    async with world.binder(gate_namespace=SPACE):
        await decide(world, a_job())
        await outcome(world, a_job(), JobOutcome.STARTED)
        await decide(world, a_job(2))

        async def gone() -> bool:
            return await the_job(world, a_job()) is None

        await until(gone, "the end of the withdrawn Job")
        await outcome(world, a_job(2), JobOutcome.STARTED)
    assert [one.outcome for one in await observed(world, a_job())] == [JobOutcome.STARTED]


async def test_a_job_that_is_deleted_by_hand_states_nothing_about_the_hardware(world: BinderWorld) -> None:
    async with world.binder(gate_namespace=SPACE):
        await decide(world, a_job())
        await outcome(world, a_job(), JobOutcome.STARTED)
        await world.client.json("DELETE", JOBS.path(SPACE, a_job().name))
        assert (await outcome(world, a_job(), JobOutcome.REFUSED)).message == "the Job was deleted"


async def test_without_a_namespace_or_the_right_nothing_is_created_and_the_reason_is_published(world: BinderWorld) -> None:
    async with world.binder():
        await decide(world, a_job())
        assert "gate_namespace" in (await outcome(world, a_job(), JobOutcome.REFUSED)).message
    world.faults(Rule(verb="create", resource="jobs", status=403))
    async with world.binder(gate_namespace=SPACE):
        await decide(world, a_job(2))
        assert (await outcome(world, a_job(2), JobOutcome.REFUSED)).message
    assert await the_job(world, a_job(2)) is None


@pytest.mark.parametrize("difference", ["node", "incident", "program", "all"])
async def test_a_job_of_another_owner_under_the_name_decides_nothing(world: BinderWorld, difference: str) -> None:
    body = rendered(a_job(), node="n2" if difference == "node" else NODE, namespace=SPACE)
    if difference == "incident":
        body["metadata"]["annotations"]["hbox.io/incident"] = "another"
    elif difference == "program":
        body["spec"]["template"]["spec"]["containers"][0]["command"] = ["true"]
    elif difference == "all":
        del body["metadata"]["annotations"]
        body["spec"]["template"]["spec"]["containers"] = [{"name": "other", "image": "other"}]
    body["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    await world.client.json("POST", JOBS.path(SPACE), body=body)
    async with world.binder(gate_namespace=SPACE):
        await decide(world, a_job())
        assert "not the one that was decided" in (await outcome(world, a_job(), JobOutcome.REFUSED)).message


async def test_an_api_server_that_does_not_answer_is_no_result(world: BinderWorld) -> None:
    world.faults(Rule(verb="create", resource="jobs", status=503, limit=3))
    async with world.binder(gate_namespace=SPACE):
        await decide(world, a_job())
        await outcome(world, a_job(), JobOutcome.STARTED)
    assert [one.outcome for one in await observed(world, a_job())] == [JobOutcome.STARTED]
