"""`hbox check --pre` on a real API server: a cluster that is fit, and each fault planted in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hbox_cli.check.install import DEPLOYMENTS, Install, Level, Line, lines
from hbox_cli.platform.assets import ControlPlane
from hbox_common.kube import CRDS, LEASES, NODES, STORAGECLASSES, KubeClient, apply

from ..precheck_faults import old_queues, role, scheduler, storage_class, webhook
from ..waiting import until
from .admission_world import account, grant, service_account
from .control_plane import control_plane

pytestmark = [pytest.mark.timeout(300)]

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("precheck"), programs=()) as plane:
        yield plane


@pytest.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    """Of a cluster that has a node with cards, a default storage class, and a namespace for us."""
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as client:
        await apply(client, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}, field_manager="test")
        status = {
            "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await client.json(
            "PATCH",
            NODES.path(name="n", subresource="status"),
            body={"status": status},
            content_type="application/merge-patch+json",
        )
        await apply(client, storage_class("fast", default=True), field_manager="test")
        for space in ("hbox-system", "volcano-system"):
            await apply(client, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}, field_manager="test")
        yield client


async def looked(client: KubeClient) -> dict[str, Line]:
    return {line.name: line for line in await lines(client, Install())}


async def bad(client: KubeClient) -> dict[str, Line]:
    """What is not ok."""
    return {name: line for name, line in (await looked(client)).items() if line.level is not Level.OK}


async def test_a_cluster_that_is_fit_has_neither_fault_nor_warning(admin: KubeClient) -> None:
    found = await looked(admin)
    assert {name: line for name, line in found.items() if line.level is not Level.OK} == {}
    assert "may be made, changed and deleted in hbox-system" in found["rights"].message
    assert "1 of 1 nodes are ready; allocatable: 8 nvidia.com/gpu" in found["nodes"].message


async def test_who_may_not_install_is_told_what_is_missing(admin: KubeClient, plane: ControlPlane, tmp_path: Path) -> None:
    path = await account(admin, plane.kubeconfig, tmp_path, "default", "viewer")
    await grant(admin, "test-view", "view", service_account("default", "viewer"))
    async with KubeClient.connect(str(path), user_agent="test") as viewer:
        found = await bad(viewer)
    assert found["rights"].level is Level.FAULT
    assert found["rights"].message.startswith("the current user may not create configmaps, patch configmaps")
    assert found["release"].message.startswith("cannot be asked"), "a warning, not silence"


async def test_who_may_make_roles_but_not_give_rights_is_warned(admin: KubeClient, plane: ControlPlane, tmp_path: Path) -> None:
    path = await account(admin, plane.kubeconfig, tmp_path, "default", "installer")
    groups = [
        "",
        "apps",
        "batch",
        "coordination.k8s.io",
        "networking.k8s.io",
        "policy",
        "apiextensions.k8s.io",
        "storage.k8s.io",
    ]
    groups += ["rbac.authorization.k8s.io", "admissionregistration.k8s.io", "scheduling.k8s.io"]
    rule = {"apiGroups": groups, "resources": ["*"], "verbs": ["get", "list", "create", "patch", "delete"]}
    await grant(admin, "test-installer", "test-installer", service_account("default", "installer"), [rule])
    async with KubeClient.connect(str(path), user_agent="test") as installer:
        found = await bad(installer)
    assert found.keys() == {"rights"}
    assert (found["rights"].level, "only with rights of its own" in found["rights"].message) == (Level.WARNING, True)


async def test_another_scheduler_of_the_same_name_is_a_fault(admin: KubeClient) -> None:
    path = DEPLOYMENTS.path("volcano-system")
    await admin.json("POST", path, body=scheduler("volcano-system", "own", image="docker.io/volcanosh/vc-scheduler:v1.12.0"))
    beside = (await looked(admin))["schedulers"]
    assert (beside.level, "other schedulers: volcano-system/own (volcano)" in beside.message) == (Level.OK, True)
    [taken] = [line for line in await lines(admin, Install(scheduler_names=("hbox", "volcano"))) if line.name == "schedulers"]
    assert taken.level is Level.FAULT
    await admin.json("POST", path, body=scheduler("volcano-system", "ours", "--scheduler-name=hbox"))
    found = (await looked(admin))["schedulers"]
    assert (found.level, "volcano-system/ours (hbox)" in found.message) == (Level.FAULT, True)
    for name in ("own", "ours"):
        await admin.json("DELETE", DEPLOYMENTS.path("volcano-system", name))
    assert not await bad(admin)


async def test_a_definition_of_another_version_and_its_owner_are_told(admin: KubeClient) -> None:
    await admin.json("POST", CRDS.path(), body=old_queues())
    found = await bad(admin)
    await admin.json("DELETE", CRDS.path(name="queues.scheduling.volcano.sh"))

    async def gone() -> bool:
        return not await bad(admin)

    await until(gone, "the definition is gone")
    assert found.keys() == {"crd/queues"}
    assert "Helm release volcano-system/volcano" in found["crd/queues"].message


async def test_what_would_stand_in_the_way_is_told(admin: KubeClient) -> None:
    later = (datetime.now(UTC) + timedelta(seconds=90)).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    await apply(admin, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-node-lease"}}, field_manager="test")
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n", "namespace": "kube-node-lease"}}
    await admin.json("POST", LEASES.path("kube-node-lease"), body={**lease, "spec": {"renewTime": later}})
    await admin.json("POST", STORAGECLASSES.path(), body=storage_class("second", default=True))
    await admin.json("POST", WEBHOOKS, body=webhook("strict"))
    await admin.json("POST", ROLES, body=role("hbox:binder"))
    found = await bad(admin)
    for path in (
        LEASES.path("kube-node-lease", "n"),
        STORAGECLASSES.path(name="second"),
        f"{WEBHOOKS}/strict",
        f"{ROLES}/hbox:binder",
    ):
        await admin.json("DELETE", path)
    assert {name: line.level.value for name, line in found.items()} == {
        "namespace": "warning",
        "node-clocks": "warning",
        "release": "fault",
        "storage": "warning",
        "webhooks": "warning",
    }
    assert "strict.example.com" in found["namespace"].message  # no pod can be made, not even by a dry run
    assert "n by 8" in found["node-clocks"].message or "n by 9" in found["node-clocks"].message
    assert not await bad(admin)
