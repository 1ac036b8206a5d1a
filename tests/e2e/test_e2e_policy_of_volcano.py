"""Jobs as Volcano's controllers make them, by Volcano's default policy, through all services."""

from collections.abc import Iterator

import pytest

from hbox_common.kube import NODES, KubeClient

from .platform_world import Up, up
from .policy_scenarios import POLICY, SCENARIOS, node

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("policy")
    (folder / "volcano-scheduler.conf").write_text(POLICY)
    with up(folder / "state", env={"HBOX_SCHEDULER_CONF": str(folder / "volcano-scheduler.conf")}) as running:
        yield running


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
async def test_it_holds(scenario, platform: Up) -> None:  # type: ignore[no-untyped-def]
    async with KubeClient.connect(str(platform.state / "kubeconfig"), user_agent="test") as client:
        if not (await client.json("GET", NODES.path()))["items"]:
            await client.json("POST", NODES.path(), body=node("n0"))
        await scenario(client)
    assert platform.json("audit")["faults"] == []
