"""What a tenant with Kubernetes' own role `edit` in its namespace tries against allocations, queues, priorities, keys, memory and quotas (threats T1 to T8), on
a real API server with the chart's objects: each is refused, and the audit log names who it was. What the policies refuse beyond RBAC is in
test_real_admission.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from hbox_cli.platform.assets import CONTROLLERS, ControlPlane
from hbox_common.errors import InvalidRequest
from hbox_common.kube import (
    LEASES,
    MERGE_PATCH,
    NODES,
    PODGROUPS,
    PODS,
    PRIORITYCLASSES,
    QUEUES,
    RESOURCEQUOTAS,
    SECRETS,
    KubeClient,
    Resource,
    apply,
)

from ..chart.rendered import NAMESPACE
from ..waiting import until
from .admission_world import RBAC, account, audited, install, pod, service_account
from .control_plane import control_plane

pytestmark = [pytest.mark.timeout(300)]

SPACE, MALLORY = "team-a", "system:serviceaccount:team-a:mallory"
ROLES = Resource(RBAC, "v1", "clusterroles", namespaced=False)
BINDINGS = Resource(RBAC, "v1", "clusterrolebindings", namespaced=False)
POLICIES = Resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", namespaced=False)
POLICY_BINDINGS = Resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", namespaced=False)
DEPLOYMENTS = Resource("apps", "v1", "deployments", namespaced=True)

BINDING = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "mine"}, "target": {"kind": "Node", "name": "n"}}
QUEUE_OBJECT = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "mine"}, "spec": {}}
USE = {"apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "verbs": ["use"]}
ROLE = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "mine"}, "rules": [USE]}
ROLE_BINDING = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "mine"},
    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [service_account(SPACE, "mallory")],
}
CLASS = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "mine"}, "value": 1_000_000}

GANG = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "allowed"},
    "spec": {"minMember": 2, "queue": "default"},
}

#: Threat, what it tries, method, path, body.
TRIES: tuple[tuple[str, str, str, str, dict[str, Any] | None], ...] = (
    ("T1", "bind a pod of its own", "POST", PODS.path(SPACE, "mine", "binding"), BINDING),
    ("T1", "write what a pod was given, with its status", "PATCH", PODS.path(SPACE, "mine", "status"), {"metadata": {"annotations": {"hbox.io/cards": "0"}}}),
    ("T1", "add cards to a node", "PATCH", NODES.path("", "n", "status"), {"status": {"capacity": {"nvidia.com/gpu": "64"}}}),
    ("T1", "free a node of its taint", "PATCH", NODES.path("", "n"), {"spec": {"taints": None}}),
    ("T2", "make a queue", "POST", QUEUES.path(), QUEUE_OBJECT),
    ("T2", "let itself into a queue", "PATCH", QUEUES.path("", "research"), {"metadata": {"annotations": {"hbox.io/namespaces": SPACE}}}),
    ("T2", "raise what a queue deserves", "PATCH", QUEUES.path("", "research"), {"spec": {"deserved": {"nvidia.com/gpu": "999"}}}),
    ("T2", "take a queue away", "DELETE", QUEUES.path("", "research"), None),
    ("T2", "write a PodGroup's status", "PATCH", PODGROUPS.path(SPACE, "mine", "status"), {"status": {"phase": "Running"}}),
    ("T2", "list the PodGroups of another tenant", "GET", PODGROUPS.path("team-b"), None),
    ("T2", "write a queue's status", "PATCH", QUEUES.path("", "research", "status"), {"status": {"state": "Open"}}),
    ("T2", "make a role that may use all queues", "POST", ROLES.path(), ROLE),
    ("T2", "give itself a role", "POST", BINDINGS.path(), ROLE_BINDING),
    ("T2", "take a policy away", "DELETE", POLICIES.path("", "hbox-queues-of-pods"), None),
    ("T2", "take a policy out of force", "DELETE", POLICY_BINDINGS.path("", "hbox-allocations"), None),
    ("T3", "make a PriorityClass", "POST", PRIORITYCLASSES.path(), CLASS),
    ("T4", "stop a service", "DELETE", DEPLOYMENTS.path(NAMESPACE, "binder"), None),
    ("T4", "make a pod beside the services", "POST", PODS.path(NAMESPACE), pod("mine")),
    ("T5", "read a service's key to the broker", "GET", SECRETS.path(NAMESPACE, "hbox-bus-binder"), None),
    ("T5", "have a token of a service", "POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/binder/token", {"spec": {}}),
    ("T6", "be leader in a service's place", "PATCH", LEASES.path(NAMESPACE, "scheduler-core"), {"spec": {"holderIdentity": "mine"}}),
    ("T8", "take its quota away", "DELETE", RESOURCEQUOTAS.path(SPACE, "cards"), None),
    ("T8", "raise its quota", "PATCH", RESOURCEQUOTAS.path(SPACE, "cards"), {"spec": {"hard": {"pods": "1000000"}}}),
)  # fmt: skip


CARDS = {"requests.nvidia.com/gpu": "8"}
NINE_CARDS = {"name": "main", "image": "pause", "resources": {"limits": {"nvidia.com/gpu": "9"}}}
PODS_OF_ITS_OWN = PODS.path(SPACE)

#: Threat, what it tries within its rights, body of a POST of a pod; with which status the API server refuses it, and how.
TOO_MUCH: tuple[tuple[str, str, dict[str, Any], int, str], ...] = (
    ("T7", "say more of a pod than is kept", pod("long", {"note": "x" * 300_000}), 422, "metadata.annotations"),
    ("T7", "send more than a request may be", pod("huge", {"note": "x" * 4_000_000}), 413, ""),
    ("T8", "have more cards than its quota", pod("more", containers=[NINE_CARDS]), 403, "exceeded quota: cards"),
)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("tenant"), programs=(CONTROLLERS,)) as plane:
        yield plane


@pytest.fixture
async def mallory(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[KubeClient]:
    """`edit` in a namespace: what teams are given."""
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(KubeClient.connect(str(plane.kubeconfig), user_agent="test"))
        await install(admin, "default", SPACE, NAMESPACE)
        binding = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "mallory-edits", "namespace": SPACE},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"},
            "subjects": [service_account(SPACE, "mallory")],
        }
        await apply(admin, binding, field_manager="test")
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cards", "namespace": SPACE}}
        await apply(admin, {**quota, "spec": {"hard": CARDS}}, field_manager="test")
        path = await account(admin, plane.kubeconfig, tmp_path, SPACE, "mallory")
        client = await stack.enter_async_context(KubeClient.connect(str(path), user_agent="mallory"))

        async def edits() -> bool:
            try:
                await client.json("POST", PODS.path(SPACE), params={"dryRun": "All"}, body=pod("allowed"))
                await client.json("POST", PODGROUPS.path(SPACE), params={"dryRun": "All"}, body=GANG)
            except InvalidRequest:
                return False
            return True

        await until(edits, "what it is given is known")
        yield client


@pytest.mark.parametrize(
    ("threat", "what", "method", "path", "body"), TRIES, ids=[f"{threat}: {what}" for threat, what, *_ in TRIES]
)
async def test_it_is_refused_and_the_audit_log_names_who_tried(
    mallory: KubeClient, plane: ControlPlane, threat: str, what: str, method: str, path: str, body: dict[str, Any] | None
) -> None:
    kind = MERGE_PATCH if method == "PATCH" else "application/json"
    with pytest.raises(InvalidRequest, match="403"):
        await mallory.json(method, path, body=body, content_type=kind)
    line = await audited(
        plane.audit_log, lambda one: one.user == MALLORY and one.uri.partition("?")[0] == path and one.code == 403
    )
    assert line.annotations["authorization.k8s.io/decision"] == "forbid", (threat, what)


@pytest.mark.parametrize(
    ("body", "code", "said"), [one[2:] for one in TOO_MUCH], ids=[f"{one[0]}: {one[1]}" for one in TOO_MUCH]
)
async def test_what_is_too_much_is_refused_and_the_audit_log_names_who_tried(
    mallory: KubeClient, plane: ControlPlane, body: dict[str, Any], code: int, said: str
) -> None:
    with pytest.raises(InvalidRequest, match=str(code)) as refused:
        await mallory.json("POST", PODS_OF_ITS_OWN, body=body)
    assert said in str(refused.value)
    await audited(
        plane.audit_log,
        lambda one: (one.user, one.verb, one.uri, one.code) == (MALLORY, "create", PODS_OF_ITS_OWN, code),
    )


async def test_role_edit_creates_a_gang_and_reads_queues(mallory: KubeClient) -> None:
    """Kubernetes' role `edit` includes the chart's `hbox-edit` and `hbox-view`; all authenticated users read queues."""
    name = "first"
    await mallory.json("POST", PODGROUPS.path(SPACE), body={**GANG, "metadata": {"name": name}})
    await mallory.json("POST", PODS.path(SPACE), body=pod(f"{name}-0", {"scheduling.k8s.io/group-name": name}))
    assert [one["metadata"]["name"] for one in (await mallory.json("GET", PODGROUPS.path(SPACE)))["items"]] == [name]
    labels = {"metadata": {"labels": {"team": "a"}}}
    await mallory.json("PATCH", PODGROUPS.path(SPACE, name), body=labels, content_type=MERGE_PATCH)
    queues = (await mallory.json("GET", QUEUES.path()))["items"]
    assert {"root", "default"} <= {one["metadata"]["name"] for one in queues}
    await mallory.json("DELETE", PODGROUPS.path(SPACE, name))
