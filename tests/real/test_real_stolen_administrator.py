"""Threat T16: somebody has the token of who administers queues. On a real API server with the chart's objects that token changes queues and nothing else; each
of its acts, done or refused, stands in the audit log with its name. What it does to queues needs neither a second person nor a reason."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hbox_cli.platform.assets import ControlPlane
from hbox_common.errors import InvalidRequest
from hbox_common.kube import LEASES, MERGE_PATCH, NODES, PODS, QUEUES, SECRETS, KubeClient, Resource, apply

from ..chart.rendered import NAMESPACE
from ..waiting import until
from .admission_world import RBAC, Audited, account, audited, grant, install, pod, service_account
from .control_plane import control_plane

pytestmark = [pytest.mark.timeout(300)]

SPACE, STAFF = "staff", "system:serviceaccount:staff:queues"
GROUP = "scheduling.volcano.sh"
#: As the guide of queues has it: an administrator of queues.
RULES = [{"apiGroups": [GROUP], "resources": ["queues"], "verbs": ["*"]}]

ROLES = Resource(RBAC, "v1", "clusterroles", namespaced=False)
BINDINGS = Resource(RBAC, "v1", "clusterrolebindings", namespaced=False)
POLICIES = Resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", namespaced=False)
CONFIGMAPS = Resource("", "v1", "configmaps", namespaced=True)
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "prey"}}
BINDING = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "prey"}, "target": {"kind": "Node", "name": "n"}}
MORE = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "stolen"},
    "rules": [{"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}],
}
ITSELF = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "mine"},
    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [service_account(SPACE, "queues")],
}

#: What it tries, method, path, body.
TRIES: tuple[tuple[str, str, str, dict[str, Any] | None], ...] = (
    ("place a pod", "POST", PODS.path(SPACE, "prey", "binding"), BINDING),
    ("evict a pod", "POST", PODS.path(SPACE, "prey", "eviction"), EVICTION),
    ("delete a pod", "DELETE", PODS.path(SPACE, "prey"), None),
    ("free a pod's cards in the books", "PATCH", PODS.path(SPACE, "prey", "status"), {"metadata": {"annotations": {"hbox.io/claim": None}}}),
    ("go into the ledger", "POST", PODS.path(NAMESPACE, "quota-ledger-0", "exec"), {}),
    ("close a node", "PATCH", NODES.path("", "n"), {"spec": {"unschedulable": True}}),
    ("read the settings", "GET", CONFIGMAPS.path(NAMESPACE, "hbox-settings"), None),
    ("read a service's key to the broker", "GET", SECRETS.path(NAMESPACE, "hbox-bus-quota-ledger"), None),
    ("have a token of a service", "POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/binder/token", {"spec": {}}),
    ("be leader in a service's place", "PATCH", LEASES.path(NAMESPACE, "quota-ledger"), {"spec": {"holderIdentity": "mine"}}),
    ("make a role of more rights", "POST", ROLES.path(), MORE),
    ("give itself a role", "POST", BINDINGS.path(), ITSELF),
    ("take a policy away", "DELETE", POLICIES.path("", "hbox-allocations"), None),
)  # fmt: skip


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("administrator"), programs=()) as plane:
        yield plane


@pytest.fixture
async def stolen(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[KubeClient]:
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(KubeClient.connect(str(plane.kubeconfig), user_agent="test"))
        await install(admin, "default", SPACE, NAMESPACE)
        await apply(admin, pod("prey") | {"metadata": {"name": "prey", "namespace": SPACE}}, field_manager="test")
        await grant(admin, "staff-queues", "administers-queues", service_account(SPACE, "queues"), RULES)
        path = await account(admin, plane.kubeconfig, tmp_path, SPACE, "queues")
        client = await stack.enter_async_context(KubeClient.connect(str(path), user_agent="stolen"))

        async def administers() -> bool:
            try:
                await client.json("GET", QUEUES.path())
            except InvalidRequest:
                return False
            return True

        await until(administers, "what it is given is known")
        yield client


@pytest.mark.parametrize(("what", "method", "path", "body"), TRIES, ids=[what for what, *_ in TRIES])
async def test_it_reaches_nothing_but_queues(
    stolen: KubeClient, plane: ControlPlane, what: str, method: str, path: str, body: dict[str, Any] | None
) -> None:
    kind = MERGE_PATCH if method == "PATCH" else "application/json"
    with pytest.raises(InvalidRequest, match="403"):
        await stolen.json(method, path, body=body, content_type=kind)
    line = await audited(
        plane.audit_log, lambda one: one.user == STAFF and one.uri.partition("?")[0] == path and one.code == 403
    )
    assert line.annotations["authorization.k8s.io/decision"] == "forbid", what


async def test_what_it_does_to_queues_is_named_in_the_audit_log(stolen: KubeClient, plane: ControlPlane) -> None:
    queue = {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "q"},
        "spec": {"deserved": {"nvidia.com/gpu": "8"}},
    }
    path = QUEUES.path("", "q")
    await stolen.json("POST", QUEUES.path(), body=queue)
    await stolen.json("PATCH", path, body={"spec": {"deserved": {"nvidia.com/gpu": "0"}}}, content_type=MERGE_PATCH)
    released = {"metadata": {"annotations": {"hbox.io/evictions-released": "2026-11-23T12:00:00Z"}}}
    await stolen.json("PATCH", path, body=released, content_type=MERGE_PATCH)
    await stolen.json("DELETE", path)
    for verb, uri in (("create", QUEUES.path()), ("patch", path), ("delete", path)):
        line = await audited(plane.audit_log, partial(_was_done, verb, uri))
        assert line.code in (200, 201), verb


def _was_done(verb: str, uri: str, one: Audited) -> bool:
    return (one.user, one.verb, one.uri) == (STAFF, verb, uri)
