"""PodGroups by definitions of others: without a status subresource, or with one that comes and goes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hbox_common.bus import Bus, EmbeddedServer
from hbox_common.errors import NotFound
from hbox_common.events import JobsPending, PolicyFollowed
from hbox_common.kube import CRDS, MERGE_PATCH, PODGROUPS, KubeClient, apply, wait_established
from hbox_jobs.adapters import paced
from hbox_jobs.app import run
from hbox_jobs.settings import JobControllerSettings

from ...volcano_definitions import SHAPES, Shape, pod_groups
from ...waiting import until
from .edge_world import Kube, listening, running

NAME = "podgroups.scheduling.volcano.sh"
GATED = PolicyFollowed(actions=("enqueue", "allocate"), plugins=("gang",), by_conf=True)


@pytest.fixture
async def bare(kubeconfig: Path) -> AsyncIterator[Kube]:
    """Without any definition."""
    async with KubeClient.connect(str(kubeconfig), user_agent="test") as client:
        yield Kube(client)


@pytest.fixture
def settings(kubeconfig: Path, nats: EmbeddedServer) -> Any:
    return JobControllerSettings(kubeconfig=str(kubeconfig), nats_url=nats.url, condition_delay_s=0.1)


async def define(kube: Kube, shape: Shape) -> None:
    await apply(kube.client, pod_groups(shape), field_manager="others")
    await wait_established(kube.client, NAME)


async def subresource(kube: Kube, there: bool) -> None:
    body = [{"op": "replace", "path": "/spec/versions/0/subresources", "value": {"status": {}} if there else {}}]
    await kube.client.json("PATCH", CRDS.path(name=NAME), body=body, content_type="application/json-patch+json")


async def status(kube: Kube, name: str) -> Any:
    try:
        return (await kube.client.json("GET", PODGROUPS.path("default", name))).get("status", {})
    except NotFound:
        return {}


async def reach(kube: Kube, name: str, phase: str) -> Any:
    async def reached() -> Any:
        found = await status(kube, name)
        return found if found.get("phase") == phase else None

    return await until(reached, f"{name} is {phase}")


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
async def test_a_podgroup_without_pods_becomes_inqueue_and_one_with_pods_runs(
    bare: Kube, bus: Bus, settings: Any, shape: Shape
) -> None:
    await define(bare, shape)
    await bus.publish(PolicyFollowed(actions=("allocate",), plugins=("gang",), by_conf=True), "0")
    async with running(run, settings):
        await bare.podgroup("empty", 2, minResources={"cpu": "2"})
        await bare.podgroup("gang", 1)
        await reach(bare, "empty", "Inqueue")
        await bare.pod("gang-0", group="gang")
        await bare.bind("gang-0", "n1")
        found = await reach(bare, "gang", "Running")
        assert {c["type"]: c["status"] for c in found["conditions"]} == {"Scheduled": "True"}


async def test_one_that_is_not_enqueued_is_told_so_too(bare: Kube, bus: Bus, settings: Any) -> None:
    await define(bare, SHAPES["current"])
    await bus.publish(GATED, "0")
    async with running(run, settings), listening(bus, JobsPending):
        await bare.podgroup("waits", 1, minResources={"cpu": "2"})
        await reach(bare, "waits", "Pending")


async def test_a_definition_that_changes_while_it_runs_is_followed(bare: Kube, bus: Bus, settings: Any) -> None:
    await define(bare, SHAPES["old"])
    async with running(run, settings):
        for number, there in enumerate((False, True, False)):
            await subresource(bare, there)
            await bare.podgroup(f"g{number}", 1)
            await reach(bare, f"g{number}", "Inqueue")


async def test_a_status_that_is_refused_is_written_when_it_no_longer_is(
    bare: Kube, bus: Bus, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a right that is missing, a webhook, or here a definition that does not know the phase."""
    monkeypatch.setattr(paced, "REFUSED_S", 0.2)
    await define(bare, SHAPES["current"])
    phase = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/phase/enum"
    body = [{"op": "replace", "path": phase, "value": ["Pending", "Running"]}]
    await bare.client.json("PATCH", CRDS.path(name=NAME), body=body, content_type="application/json-patch+json")
    async with running(run, settings) as health:
        await bare.podgroup("g", 1)
        await until(lambda: health.ready)
        body[0]["value"] = ["Pending", "Running", "Inqueue"]
        await bare.client.json("PATCH", CRDS.path(name=NAME), body=body, content_type="application/json-patch+json")
        await reach(bare, "g", "Inqueue")


async def test_another_podgroup_of_the_same_name_is_not_taken_for_it(bare: Kube, bus: Bus, settings: Any) -> None:
    """Deleted and made anew again and again: what stands in the end is of the last."""
    await define(bare, SHAPES["old"])
    async with running(run, settings):
        for _ in range(5):
            await bare.podgroup("g", 1)
            await bare.client.json(
                "PATCH", PODGROUPS.path("default", "g"), body={"spec": {"minMember": 2}}, content_type=MERGE_PATCH
            )
            await bare.client.json("DELETE", PODGROUPS.path("default", "g"))
        await bare.podgroup("g", 3)
        await reach(bare, "g", "Inqueue")
