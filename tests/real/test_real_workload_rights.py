"""`hbox check` on a real API server: kinds of workloads that the cluster has and job-controller may not read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from copy import deepcopy
from typing import Any

import pytest

from hbox_cli.check.workloads import ROLE, Answer, found
from hbox_cli.platform.assets import ControlPlane
from hbox_cli.platform.identities import identities
from hbox_common.kube import CRDS, KubeClient, apply

from ..owners import definition
from ..waiting import until
from .admission_world import account, grant, service_account
from .control_plane import control_plane

pytestmark = [pytest.mark.timeout(300)]

ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("rights"), programs=()) as plane:
        yield plane


@pytest.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    """Of a cluster with job-controller's rights as the chart gives them, and with PyTorchJobs."""
    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as client:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hbox-system"}}
        await apply(client, namespace, field_manager="test")
        [own] = [one for one in identities() if one.service == "job-controller"]
        for manifest in own.manifests:
            await apply(client, dict(manifest), field_manager="test")
        await client.json("POST", CRDS.path(), body=definition("PyTorchJob"), expect=(201, 409))
        yield client


async def answered(client: KubeClient, words: str) -> Answer:
    """The answer with these words: discovery and the authorizer follow a change after a moment."""

    async def now() -> Answer | None:
        answer = await found(client)
        return answer if words in answer.message else None

    answer: Answer = await until(now, words, timeout_s=30)
    return answer


async def test_kinds_that_the_cluster_has_and_hbox_may_not_read_are_named_with_the_remedy(
    admin: KubeClient, plane: ControlPlane, tmp_path: Any
) -> None:
    fit = await answered(admin, "and job-controller may read them")
    assert not fit.unreadable
    role = await admin.json("GET", f"{ROLES}/{ROLE}")
    less = deepcopy(role)
    less["rules"] = [rule for rule in role["rules"] if "kubeflow.org" not in rule["apiGroups"]]
    await admin.json("PUT", f"{ROLES}/{ROLE}", body=less)
    wrong = await answered(admin, "may not read")
    assert wrong.message == (
        "the cluster has kinds that job-controller may not read: PyTorchJob (get/list/watch of pytorchjobs.kubeflow.org); "
        "their pods are single pods, not gangs"
    )
    assert wrong.remedy.endswith("add to ClusterRole hbox:job-controller: pytorchjobs.kubeflow.org: get, list, watch")
    # A kind that the cluster does not have is no fault.
    await admin.json("DELETE", CRDS.path(name="pytorchjobs.kubeflow.org"))
    await answered(admin, "and job-controller may read them")
    # A user who may read roles' bindings and not ask about others' rights.
    path = await account(admin, plane.kubeconfig, tmp_path, "hbox-system", "reader")
    rule = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterrolebindings"], "verbs": ["get"]}
    await grant(admin, "reader", "reader", service_account("hbox-system", "reader"), [rule])
    async with KubeClient.connect(str(path), user_agent="test") as reader:
        await answered(reader, "this user may not ask what job-controller may read")
