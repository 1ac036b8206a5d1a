"""HBox's definitions of Queue, PodGroup and HyperNode on a real API server, as kubectl meets them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from hbox_cli.platform import crds
from hbox_cli.platform.assets import ControlPlane
from hbox_common.kube import MERGE_PATCH, PODGROUPS, QUEUES, KubeClient, apply, patch_status, wait_established
from hbox_common.kube.definitions import DEFINITIONS, FIELD_MANAGER, schema_of

from ..volcano_objects import (
    HYPER_NODE_STATUS,
    HYPER_NODES,
    MISSPELT_POD_GROUPS,
    MISSPELT_QUEUES,
    POD_GROUP,
    QUEUE,
    QUEUE_STATUS,
    Json,
)
from ..waiting import until
from .control_plane import control_plane
from .kubectl import PROGRAM

pytestmark = [pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("definitions"), programs=()) as plane:
        yield plane


@pytest.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as client:
        yield client


def kubectl(plane: ControlPlane, *words: str, manifest: Json) -> subprocess.CompletedProcess[str]:
    cache = plane.kubeconfig.with_name("kubectl")
    command = [str(PROGRAM), f"--kubeconfig={plane.kubeconfig}", f"--cache-dir={cache}", *words, "-f", "-"]
    return subprocess.run(command, input=json.dumps(manifest), capture_output=True, text=True, timeout=60, check=False)


def output(plane: ControlPlane, *arguments: str) -> str:
    command = [str(PROGRAM), f"--kubeconfig={plane.kubeconfig}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout


async def test_stray_fields_of_earlier_definitions_leave_objects_readable(admin: KubeClient) -> None:
    """Earlier versions of HBox installed definitions that kept unknown fields."""
    for definition in DEFINITIONS:
        older: Any = json.loads(json.dumps(definition))
        for part in schema_of(older)["properties"].values():
            part["x-kubernetes-preserve-unknown-fields"] = True
        await apply(admin, older, field_manager=FIELD_MANAGER)
    for definition in DEFINITIONS:
        await wait_established(admin, definition["metadata"]["name"])
    stray = {"metadata": {"name": "stray"}, "spec": {"guaranteed": {"cpu": "2"}}}

    async def made() -> bool:
        return (await admin.request("POST", QUEUES.path(), body=QUEUE | stray)).status in (201, 409)

    await until(made, timeout_s=60)
    assert "guaranteed" in (await admin.json("GET", QUEUES.path(name="stray")))["spec"]
    await crds.bring(admin, lambda _: None)

    async def closed() -> bool:
        return "guaranteed" not in (await admin.json("GET", QUEUES.path(name="stray")))["spec"]

    await until(closed, timeout_s=60)
    patch = {"spec": {"weight": 5}}
    changed = await admin.json("PATCH", QUEUES.path(name="stray"), body=patch, content_type=MERGE_PATCH)
    assert changed["spec"]["weight"] == 5


async def test_volcanos_objects_are_kept_whole(admin: KubeClient, plane: ControlPlane) -> None:
    await crds.bring(admin, lambda _: None)
    for body in (QUEUE, POD_GROUP, *HYPER_NODES):
        done = kubectl(plane, "apply", "-o", "json", manifest=body)
        assert done.returncode == 0, done.stderr
        kept = json.loads(done.stdout)
        assert (kept["spec"], kept.get("status")) == (body["spec"], body.get("status")), done.stderr
    stored = await patch_status(admin, QUEUES, namespace=None, name="whole", status=QUEUE_STATUS)
    assert stored["status"] == QUEUE_STATUS
    done = kubectl(
        plane, "replace", "--subresource", "status", "-o", "json", manifest={**HYPER_NODES[0], "status": HYPER_NODE_STATUS}
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == HYPER_NODE_STATUS


async def test_kubectl_refuses_misspelt_fields_and_names_them(admin: KubeClient, plane: ControlPlane) -> None:
    await crds.bring(admin, lambda _: None)
    cases = [(QUEUE, *case) for case in MISSPELT_QUEUES] + [(POD_GROUP, *case) for case in MISSPELT_POD_GROUPS]
    for manifest, part, path in cases:
        done = kubectl(plane, "apply", manifest=manifest | {"metadata": {"name": "misspelt"}, "spec": part})
        assert (done.returncode, f'unknown field "{path}"' in done.stderr) == (1, True), done.stderr
    names = [
        one["metadata"]["name"]
        for path in (QUEUES.path(), PODGROUPS.path("default"))
        for one in (await admin.json("GET", path))["items"]
    ]
    assert "misspelt" not in names


async def test_clients_without_validation_get_a_warning_that_names_the_field(admin: KubeClient, plane: ControlPlane) -> None:
    await crds.bring(admin, lambda _: None)
    done = kubectl(plane, "create", "--validate=warn", manifest=QUEUE | {"metadata": {"name": "warned"}, "spec": {"wieght": 3}})
    assert (done.returncode, 'unknown field "spec.wieght"' in done.stderr) == (0, True), done.stderr


async def test_kubectl_explains_fields_and_prints_columns(admin: KubeClient, plane: ControlPlane) -> None:
    await crds.bring(admin, lambda _: None)
    done = kubectl(plane, "apply", manifest=POD_GROUP)
    assert done.returncode == 0, done.stderr
    condition = {
        "type": "Unschedulable",
        "status": "True",
        "message": "change: GangTooLarge: the gang is larger than the cluster",
    }
    path = PODGROUPS.path("default", POD_GROUP["metadata"]["name"])
    await admin.json("PATCH", path, body={"status": {"phase": "Inqueue", "conditions": [condition]}}, content_type=MERGE_PATCH)

    async def printed() -> bool:
        shown = output(plane, "get", "podgroups", "-o", "wide")
        return "PHASE" in shown and "GangTooLarge: the gang is larger" in shown

    await until(printed, timeout_s=60)

    async def explained() -> bool:
        return "Number of pods that have to start together." in output(plane, "explain", "podgroup.spec.minMember")

    await until(explained, timeout_s=60)
