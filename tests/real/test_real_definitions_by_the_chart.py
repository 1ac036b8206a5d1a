"""The objects that the chart's job applies on a real API server, with only the rights that the chart grants it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from hbox_cli.platform.assets import ControlPlane
from hbox_common.kube import PRIORITYCLASSES, QUEUES, KubeClient, apply

from ..chart.rendered import NAMESPACE, of
from ..e2e.platform_world import hbox
from ..waiting import until
from .admission_world import account, grant, service_account
from .control_plane import control_plane

pytestmark = [pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("definitions"), programs=()) as plane:
        yield plane


async def test_definitions_job_creates_the_queue_default_with_a_class_list(plane: ControlPlane, tmp_path: Path) -> None:
    [role] = [one for one in of("default", "ClusterRole") if one["metadata"]["name"] == "hbox:definitions"]
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as admin:
        usual = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "usual"}, "value": 50}
        await admin.json("POST", PRIORITYCLASSES.path(), body={**usual, "globalDefault": True})
        await apply(admin, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, field_manager="test")
        path = await account(admin, plane.kubeconfig, tmp_path, NAMESPACE, "hbox-definitions")
        await grant(admin, "definitions", "hbox:definitions", service_account(NAMESPACE, "hbox-definitions"), role["rules"])

        [job] = [one for one in of("default", "Job") if one["metadata"]["name"] == "hbox-definitions"]
        command = job["spec"]["template"]["spec"]["containers"][0]["command"][1:]

        async def applied() -> bool:
            done = await asyncio.to_thread(hbox, *command, "--kubeconfig", str(path))
            return done.returncode == 0

        await until(applied, "the definitions, once the authorizer knows the rights", timeout_s=60)
        default = await admin.json("GET", QUEUES.path(name="default"))
        assert default["metadata"]["annotations"]["hbox.io/priority-classes"] == "~none, usual, medium, low, offline"
        for _ in range(2):  # the second run creates nothing
            assert await applied()
