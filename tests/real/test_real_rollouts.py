"""Rolling updates by Kubernetes' own Deployment controller on a full cluster, with other work that waits for each place."""

from collections.abc import AsyncIterator, Iterator

import pytest

from hbox_cli.platform.assets import ControlPlane
from hbox_common.kube import EVENTS, KubeClient

from ..e2e.platform_world import Up, up
from ..waiting import until
from .control_plane import control_plane
from .controllers_world import World, a_node, container, template, workload

pytestmark = pytest.mark.e2e

CARDS, REPLICAS, TIMES = 8, 4, 3


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("rollouts")) as plane:
        yield plane


@pytest.fixture(scope="module")
def platform(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("platform") / "state", "--kubeconfig", str(plane.kubeconfig)) as running:
        yield running


@pytest.fixture
async def world(plane: ControlPlane, platform: Up) -> AsyncIterator[World]:
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as client:
        world = await World.enter(client, platform)
        if not (await client.json("GET", world.path("Node")))["items"]:
            await world.make(a_node("n1", cards=CARDS))
        yield world
        await world.leave()


async def full(world: World, *, surge: int, unavailable: int) -> None:
    """A Deployment that runs, and another one that takes the rest of the cards and waits for as many again."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    web, rival = (template(name, container(cards=1)) for name in ("web", "rival"))
    await world.make(workload("Deployment", "web", web, replicas=REPLICAS, strategy=strategy))
    await world.running("web", REPLICAS)
    await world.make(workload("Deployment", "rival", rival, replicas=CARDS))
    await world.running("rival", CARDS - REPLICAS)


async def begin(world: World, number: int) -> None:
    await world.change("Deployment", "web", {"spec": {"template": {"metadata": {"annotations": {"revision": str(number)}}}}})


async def rolled_over(world: World) -> None:
    async def done() -> bool:
        web = await world.get("Deployment", "web")
        status = web["status"]
        counts = (status.get("updatedReplicas"), status.get("readyReplicas"), status.get("replicas"))
        return bool(counts == (REPLICAS,) * 3 and status["observedGeneration"] == web["metadata"]["generation"])

    await until(done, "all pods of the newest revision", timeout_s=90)


@pytest.mark.parametrize("surge", [0, 1])
async def test_a_deployment_rolls_over_while_others_wait_for_its_places(world: World, surge: int) -> None:
    await full(world, surge=surge, unavailable=1)
    for number in range(TIMES):
        await begin(world, number)
        await rolled_over(world)
    await world.running("rival", CARDS - REPLICAS)


async def test_a_deployment_whose_surge_has_no_place_names_the_setting_that_helps(world: World) -> None:
    await full(world, surge=1, unavailable=0)
    await begin(world, 1)

    async def notes() -> list[str]:
        found = (await world.client.json("GET", EVENTS.path(world.space)))["items"]
        about = [one for one in found if one["involvedObject"]["kind"] == "Deployment" and one["reason"] == "RolloutWaits"]
        return [str(one["message"]) for one in about]

    [note] = await until(notes, "an Event", timeout_s=60)
    assert "set spec.strategy.rollingUpdate.maxSurge to 0" in note
    await world.change("Deployment", "web", {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}})
    await rolled_over(world)
