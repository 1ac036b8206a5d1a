"""What the chart renders, given to a real API server: it takes every object of every installation, and knows every field of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hbox_cli.platform.assets import ControlPlane
from hbox_common.errors import InvalidRequest
from hbox_common.kube import CONFIGMAPS, KubeClient, apply, resource_of

from ..chart.rendered import MATRIX, NAMESPACE, objects
from .control_plane import control_plane

pytestmark = [pytest.mark.timeout(300)]

#: Of other projects' operators, whose definitions this cluster does not have.
OF_OTHERS = ("monitoring.coreos.com/", "cert-manager.io/")
STRICTLY = {"dryRun": "All", "fieldValidation": "Strict"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("chart"), programs=()) as plane:
        yield plane


@pytest.mark.parametrize("name", MATRIX)
async def test_the_api_server_takes_what_is_rendered_and_knows_every_field(plane: ControlPlane, name: str) -> None:
    """Pods by themselves need an account that is there, which a dry run does not make."""
    items = [f for f in objects(name) if f["kind"] != "Pod" and not f["apiVersion"].startswith(OF_OTHERS)]
    assert len(items) > 20
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as client:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await apply(client, space, field_manager="test")
        kinds = {(one["apiVersion"], one["kind"]) for one in items}
        known = {(api, kind): await resource_of(client, api_version=api, kind=kind) for api, kind in kinds}
        for one in items:
            path = known[one["apiVersion"], one["kind"]].path(one["metadata"].get("namespace"))
            await client.json("POST", path, params=STRICTLY, body=one)


async def test_a_field_that_it_does_not_know_is_refused(plane: ControlPlane) -> None:
    """So that what is above says something."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "wrong"}, "datas": {}}
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as client:
        with pytest.raises(InvalidRequest, match='unknown field "datas"'):
            await client.json("POST", CONFIGMAPS.path("default"), params=STRICTLY, body=body)
