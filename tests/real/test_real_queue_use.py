"""The verb `use` on queues (`admission.use.required`), on a real API server: a queue is named by whom it is granted to, and the audit log has it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from hbox_cli.platform.assets import API_SERVER, CONTROLLERS, ETCD, ControlPlane
from hbox_common.errors import InvalidRequest
from hbox_common.kube import MERGE_PATCH, PODGROUPS, PODS, KubeClient, Resource, apply, wait_established

from ..waiting import until
from .admission_world import FAILURE, QUEUE, account, audited, grant, in_force, install, pod, service_account
from .control_plane import control_plane

pytestmark = [pytest.mark.timeout(300)]

SPACE, ALICE, BOB = "team-a", "system:serviceaccount:team-a:alice", "system:serviceaccount:team-a:bob"
VCJOBS = Resource("batch.volcano.sh", "v1alpha1", "jobs", namespaced=True)
APPS = ("deployments", "replicasets", "statefulsets", "daemonsets")
#: What a tenant may do in its namespaces; `use` of queues is not among it.
TENANT = (
    {"apiGroups": [""], "resources": ["pods", "pods/status", "replicationcontrollers"], "verbs": ["create", "get", "list", "patch", "delete"]},
    {"apiGroups": ["apps"], "resources": list(APPS), "verbs": ["create", "get", "patch"]},
    {"apiGroups": ["batch", "batch.volcano.sh"], "resources": ["jobs", "cronjobs"], "verbs": ["create", "get", "patch"]},
    {"apiGroups": ["scheduling.volcano.sh"], "resources": ["podgroups"], "verbs": ["create", "get", "patch"]},
)  # fmt: skip


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("use"), programs=(ETCD, API_SERVER, CONTROLLERS)) as plane:
        yield plane


@pytest.fixture
async def people(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[dict[str, KubeClient]]:
    """alice, who may use the queue `research`; bob and, of another namespace, carol, who may use none; all make what they like. And the administrator."""
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(KubeClient.connect(str(plane.kubeconfig), user_agent="test"))
        await install(admin, "use of queues", SPACE, "team-b")
        await apply(admin, _volcano_jobs(), field_manager="test")
        await wait_established(admin, "jobs.batch.volcano.sh")
        use = {"apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "resourceNames": ["research"], "verbs": ["use"]}
        found = {"admin": admin}
        for name, space in {"alice": SPACE, "bob": SPACE, "carol": "team-b"}.items():
            path = await account(admin, plane.kubeconfig, tmp_path, space, name)
            await grant(admin, f"tenant-{name}", "tenant", service_account(space, name), TENANT)
            found[name] = await stack.enter_async_context(KubeClient.connect(str(path), user_agent=name))
        await grant(admin, "alice-uses-research", "use-research", service_account(SPACE, "alice"), [use])
        await in_force(found["bob"], SPACE, pod("probe", {QUEUE: "research"}), "may use it")
        yield found


def template(queue: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    spec = {"schedulerName": "hbox", "containers": [{"name": "main", "image": "pause"}]}
    return {"metadata": {"labels": {"app": "x"} | (labels or {}), "annotations": {QUEUE: queue} if queue else {}}, "spec": spec}


def _never(template: dict[str, Any]) -> dict[str, Any]:
    return template | {"spec": template["spec"] | {"restartPolicy": "Never"}}


def made(kind: str, queue: str) -> tuple[Resource, dict[str, Any]]:
    """Something of that kind which names the queue."""
    selector = {"matchLabels": {"app": "x"}}
    match kind:
        case "pod":
            return PODS, pod("x", {QUEUE: queue})
        case "pod by label":
            body = pod("x")
            body["metadata"]["labels"] = {QUEUE: queue}
            return PODS, body
        case "podgroup":
            head = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "x"}}
            return PODGROUPS, {**head, "spec": {"minMember": 1, "queue": queue}}
        case "deployments" | "replicasets" | "statefulsets" | "daemonsets":
            names = {
                "deployments": "Deployment",
                "replicasets": "ReplicaSet",
                "statefulsets": "StatefulSet",
                "daemonsets": "DaemonSet",
            }
            spec = {"selector": selector, "template": template(queue)} | (
                {"serviceName": "x"} if kind == "statefulsets" else {}
            )
            return Resource("apps", "v1", kind, namespaced=True), _object("apps/v1", names[kind], spec)
        case "replicationcontrollers":
            spec = {"selector": {"app": "x"}, "template": template(queue)}
            return Resource("", "v1", kind, namespaced=True), _object("v1", "ReplicationController", spec)
        case "jobs":
            return Resource("batch", "v1", kind, namespaced=True), _object(
                "batch/v1", "Job", {"template": _never(template(queue))}
            )
        case "cronjobs":
            spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": _never(template(queue))}}}
            return Resource("batch", "v1", kind, namespaced=True), _object("batch/v1", "CronJob", spec)
        case "volcano job":
            return VCJOBS, _object("batch.volcano.sh/v1alpha1", "Job", {"queue": queue, "tasks": [{"template": template("")}]})
        case _:
            assert kind == "task of a volcano job"
            return VCJOBS, _object(
                "batch.volcano.sh/v1alpha1", "Job", {"queue": "default", "tasks": [{"template": template(queue)}]}
            )


def _object(version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}


@pytest.mark.parametrize(
    "kind",
    [
        "pod",
        "pod by label",
        "podgroup",
        *APPS,
        "replicationcontrollers",
        "jobs",
        "cronjobs",
        "volcano job",
        "task of a volcano job",
    ],
)
async def test_a_queue_is_named_by_whom_it_was_granted_to(people: dict[str, KubeClient], kind: str) -> None:
    resource, body = made(kind, "research")
    dry = {"dryRun": "All"}
    refusal = f"queue research: neither {BOB} nor the service account default of {SPACE} may use it"
    with pytest.raises(InvalidRequest, match=refusal):
        await people["bob"].json("POST", resource.path(SPACE), params=dry, body=body)
    await people["alice"].json("POST", resource.path(SPACE), params=dry, body=body)
    # Of another queue than was granted, and of the one that is everybody's.
    other = made(kind, "vision")[1]
    with pytest.raises(InvalidRequest, match=f"queue vision: neither {ALICE}"):
        await people["alice"].json("POST", resource.path(SPACE), params=dry, body=other)
    await people["bob"].json("POST", resource.path(SPACE), params=dry, body=made(kind, "default")[1])


async def test_a_grant_to_a_namespace_counts_for_all_that_runs_in_it(people: dict[str, KubeClient]) -> None:
    """By the accounts that its pods run as, whoever makes them: carol, of another namespace, may use nothing herself."""
    carol, admin = people["carol"], people["admin"]
    use = {"apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "resourceNames": ["batch"], "verbs": ["use"]}
    subject = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": f"system:serviceaccounts:{SPACE}"}
    await grant(admin, "team-a-uses-batch", "use-batch", subject, [use])
    dry = {"dryRun": "All"}

    async def let_in() -> bool:
        body = pod("x", {QUEUE: "batch"}, serviceAccountName="trainer")
        try:
            await carol.json("POST", PODS.path(SPACE), params=dry, body=body)
        except InvalidRequest:
            return False
        return True

    await until(let_in, "the grant is known")
    for kind in ("pod", "podgroup", "deployments", "jobs", "cronjobs", "volcano job"):
        resource, body = made(kind, "batch")
        await carol.json("POST", resource.path(SPACE), params=dry, body=body)
        with pytest.raises(
            InvalidRequest,
            match="queue batch: neither system:serviceaccount:team-b:carol nor the service account default of team-b",
        ):
            await carol.json("POST", resource.path("team-b"), params=dry, body=body)


async def test_a_queue_that_is_named_later_is_judged_then(people: dict[str, KubeClient]) -> None:
    bob, alice = people["bob"], people["alice"]
    await bob.json("POST", PODS.path(SPACE), body=pod("later"))
    for where in ("annotations", "labels"):
        note = {"metadata": {where: {QUEUE: "research"}}}
        for path in (PODS.path(SPACE, "later"), PODS.path(SPACE, "later", "status")):
            with pytest.raises(InvalidRequest, match=f"queue research: neither {BOB}"):
                await bob.json("PATCH", path, body=note, content_type=MERGE_PATCH)
    await alice.json(
        "PATCH", PODS.path(SPACE, "later"), body={"metadata": {"annotations": {QUEUE: "research"}}}, content_type=MERGE_PATCH
    )
    # Whoever may change the pod may go on changing the rest of it.
    await bob.json("PATCH", PODS.path(SPACE, "later"), body={"metadata": {"labels": {"mine": "1"}}}, content_type=MERGE_PATCH)

    deployment, whole = made("deployments", "")
    await bob.json("POST", deployment.path(SPACE), body=whole | {"metadata": {"name": "later"}})
    change = {"spec": {"template": {"metadata": {"annotations": {QUEUE: "research"}}}}}
    with pytest.raises(InvalidRequest, match=f"queue research: neither {BOB}"):
        await bob.json("PATCH", deployment.path(SPACE, "later"), body=change, content_type=MERGE_PATCH)


async def test_controllers_make_pods_of_what_was_judged(people: dict[str, KubeClient]) -> None:
    """Kubernetes' own, who may use no queue: alice's Deployment gets its pods; and nobody gets past by saying that a controller owns a pod."""
    alice, bob, admin = people["alice"], people["bob"], people["admin"]
    deployment, body = made("deployments", "research")
    await alice.json("POST", deployment.path(SPACE), body=body | {"metadata": {"name": "judged"}})

    async def there() -> list[dict[str, Any]]:
        listed = await admin.json("GET", PODS.path(SPACE), params={"labelSelector": "app=x"})
        return [one for one in listed["items"] if one["metadata"]["name"].startswith("judged-")]

    (one,) = await until(there, "the pod of the Deployment", timeout_s=60)
    assert one["metadata"]["annotations"][QUEUE] == "research"
    forged = pod("forged", {QUEUE: "research"})
    forged["metadata"]["ownerReferences"] = one["metadata"]["ownerReferences"]
    with pytest.raises(InvalidRequest, match=f"queue research: neither {BOB}"):
        await bob.json("POST", PODS.path(SPACE), body=forged)


async def test_what_is_refused_and_what_is_used_is_in_the_audit_log(people: dict[str, KubeClient], plane: ControlPlane) -> None:
    with pytest.raises(InvalidRequest):
        await people["bob"].json("POST", PODS.path(SPACE), body=pod("audited", {QUEUE: "vision"}))
    await people["alice"].json("POST", PODS.path(SPACE), body=pod("used", {QUEUE: "research"}))
    refused = await audited(
        plane.audit_log, lambda one: one.user == BOB and one.code == 403 and "queue vision" in one.annotations.get(FAILURE, "")
    )
    assert refused.resource == "pods"
    used = await audited(
        plane.audit_log,
        lambda one: (
            one.user == ALICE and one.code == 201 and one.annotations.get("hbox-use-of-queues-pods/queues") == "research"
        ),
    )
    assert used.resource == "pods"


def _volcano_jobs() -> dict[str, Any]:
    """A definition of Volcano's Jobs that keeps whatever is said."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Job", "listKind": "JobList", "plural": "jobs", "singular": "job"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "jobs.batch.volcano.sh"},
        "spec": {"group": "batch.volcano.sh", "scope": "Namespaced", "names": names, "versions": [version]},
    }
