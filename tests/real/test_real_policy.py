"""Jobs as Volcano's controllers make them, by Volcano's default policy, on a real control plane whose nodes have no kubelets: pods stay until taken away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hbox_cli.platform.assets import KUBELETS, ControlPlane
from hbox_common.kube import NODES, KubeClient

from ..e2e.platform_world import Up, up
from ..e2e.policy_scenarios import LINGERING, POLICY, SCENARIOS, node
from .control_plane import control_plane
from .controllers_world import KWOK, NO_KUBELET

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("policy"), more={KUBELETS: KWOK}) as plane:
        yield plane


@pytest.fixture(scope="module")
def platform(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("platform")
    (folder / "volcano-scheduler.conf").write_text(POLICY)
    environment = {"HBOX_SCHEDULER_CONF": str(folder / "volcano-scheduler.conf")}
    with up(folder / "state", "--kubeconfig", str(plane.kubeconfig), env=environment) as running:
        yield running


@pytest.mark.parametrize("scenario", [*SCENARIOS, *LINGERING], ids=lambda one: one.__name__)
async def test_it_holds(scenario, plane: ControlPlane, platform: Up) -> None:  # type: ignore[no-untyped-def]
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as client:
        if not (await client.json("GET", NODES.path()))["items"]:
            await client.json("POST", NODES.path(), body=node("n0", NO_KUBELET))
        await scenario(client)
    assert platform.json("audit")["faults"] == []
