"""HBox on a cluster that has definitions of the shape of Volcano's own, with Queues and PodGroups that were there before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from hbox_cli.platform.assets import ControlPlane
from hbox_common.kube import CRDS, PODGROUPS, QUEUES, KubeClient, wait_established

from ..e2e.platform_world import Up, up
from ..volcano_definitions import SHAPES, Json, Shape, pod_groups, queues
from ..waiting import until
from .control_plane import control_plane
from .controllers_world import KWOK, World, a_node, a_pod
from .rbac_world import requests

pytestmark = pytest.mark.e2e

DEFINITIONS = ("podgroups.scheduling.volcano.sh", "queues.scheduling.volcano.sh")


@pytest.fixture(scope="module", params=SHAPES)
def shape(request: pytest.FixtureRequest) -> Shape:
    return SHAPES[request.param]


@pytest.fixture(scope="module")
def plane(shape: Shape, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("coming"), more={"kwok": KWOK}) as plane:
        yield plane


@pytest.fixture(scope="module")
def defined(plane: ControlPlane, shape: Shape) -> dict[str, Json]:
    """The definitions that were there first, as they stood then."""
    return asyncio.run(_define(plane, pod_groups(shape), queues(parent=shape.topology)))


async def _define(plane: ControlPlane, *definitions: Json) -> dict[str, Json]:
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as client:
        for body in definitions:
            await client.json("POST", CRDS.path(), body=body)
        for name in DEFINITIONS:
            await wait_established(client, name)
        return {name: await client.json("GET", CRDS.path(name=name)) for name in DEFINITIONS}


@pytest.fixture(scope="module")
def platform(plane: ControlPlane, defined: dict[str, Json], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("platform") / "state"
    with up(folder, "--kubeconfig", str(plane.kubeconfig), "--scheduler-names", "hbox,volcano") as running:
        yield running


@pytest.fixture
async def world(plane: ControlPlane, platform: Up) -> AsyncIterator[World]:
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as client:
        world = await World.enter(client, platform)
        yield world
        await world.leave()


async def reach(world: World, name: str, phase: str) -> Json:
    async def reached() -> Json | None:
        status: Json = (await world.get("PodGroup", name)).get("status", {})
        return status if status.get("phase") == phase else None

    found: Json = await until(reached, f"{name} is {phase}", timeout_s=40)
    return found


async def test_podgroups_are_let_in_run_and_complete(world: World, plane: ControlPlane) -> None:
    await world.make(
        {"kind": "PodGroup", "metadata": {"name": "empty"}, "spec": {"minMember": 2, "minResources": {"cpu": "2"}}}
    )
    await reach(world, "empty", "Inqueue")
    await world.make(a_node(f"{world.space}-n1"))
    await world.make({"kind": "PodGroup", "metadata": {"name": "gang"}, "spec": {"minMember": 2}})
    await world.make(*(a_pod(f"gang-{number}", group="gang") for number in range(2)))
    await world.bound("gang", 2)

    async def all_run() -> bool:
        return (await reach(world, "gang", "Running")).get("running") == 2

    await until(all_run, "both are counted as running", timeout_s=40)
    refused = [r for r in requests(plane.audit_log) if r.code == 403 or (r.code == 404 and r.resource.startswith("podgroups"))]
    assert refused == []


async def test_definitions_that_were_there_are_used_as_they_are(world: World, defined: dict[str, Json]) -> None:
    for name, before in defined.items():
        now = await world.client.json("GET", CRDS.path(name=name))
        assert now["spec"] == before["spec"]
        assert {f["manager"] for f in now["metadata"]["managedFields"]} == {
            f["manager"] for f in before["metadata"]["managedFields"]
        }
    assert "podgroups/status" not in [
        entry["name"] for entry in (await world.client.json("GET", PODGROUPS.list_of_kinds))["resources"]
    ]


async def test_the_queues_that_volcanos_controllers_expect_exist(world: World) -> None:
    """Its queue controller asks for the parent of every queue, and says an error each time where there is none."""

    async def open_() -> bool:
        found = [await world.client.json("GET", QUEUES.path(name=name)) for name in ("root", "default")]
        return [queue.get("status", {}).get("state") for queue in found] == ["Open", "Open"]

    await until(open_, "both are open", timeout_s=40)
    root = await world.client.json("GET", QUEUES.path(name="root"))
    assert (root["spec"]["weight"], root["spec"]["reclaimable"]) == (1, False)
    await world.make({"kind": "PodGroup", "metadata": {"name": "top"}, "spec": {"minMember": 1, "queue": "root"}})
    await world.make(a_pod("top-0", group="top"))
    await world.waits("top-0", "queue root is the root of all queues and accepts no jobs")


async def test_pods_of_volcanos_scheduler_are_placed_too(world: World) -> None:
    await world.make(a_node(f"{world.space}-n1"))
    await world.make(a_pod("theirs-0", schedulerName="volcano"), a_pod("ours-0"))
    await world.bound("theirs", 1)
    await world.bound("ours", 1)
