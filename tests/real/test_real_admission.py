"""The chart's admission policies, on a real API server: what a tenant writes on its pods in HBox's name is refused, and a job stays in its queue."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from hbox_cli.platform.assets import ControlPlane
from hbox_common.errors import InvalidRequest
from hbox_common.kube import MERGE_PATCH, NODES, PODGROUPS, PODS, KubeClient, apply

from ..chart.rendered import NAMESPACE
from .admission_world import FAILURE, QUEUE, RBAC, Audited, account, audited, grant, in_force, install, pod, service_account
from .control_plane import control_plane

pytestmark = [pytest.mark.timeout(300)]

SPACE = "default"
OURS = (
    "hbox.io/claim",
    "hbox.io/claim-gen",
    "hbox.io/cards",
    "hbox.io/rank",
    "hbox.io/eviction-deadline",
    "hbox.io/eviction-reason",
)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("admission"), programs=()) as plane:
        yield plane


@pytest.fixture
async def accounts(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[dict[str, KubeClient]]:
    """Binder and a tenant, who have all rights here: what is refused is refused by the policies, which are in force."""
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(KubeClient.connect(str(plane.kubeconfig), user_agent="test"))
        await install(admin, "default", NAMESPACE)
        found = {}
        for space, name in ((NAMESPACE, "binder"), (SPACE, "tenant")):
            path = await account(admin, plane.kubeconfig, tmp_path, space, name)
            await grant(admin, f"test-{name}", "cluster-admin", service_account(space, name))
            found[name] = await stack.enter_async_context(KubeClient.connect(str(path), user_agent=name))
        await in_force(found["tenant"], SPACE, pod("probe", {OURS[0]: "x"}), "written by HBox alone")
        await in_force(found["tenant"], SPACE, pod("probe", nodeName="n"), "HBox chooses the node")
        yield found


@pytest.mark.parametrize("key", OURS)
async def test_a_tenant_writes_nothing_in_hboxs_name(accounts: dict[str, KubeClient], key: str) -> None:
    tenant, binder = accounts["tenant"], accounts["binder"]
    name = key.replace("/", "-").replace(".", "-")
    with pytest.raises(InvalidRequest, match=f"annotations {key} are written by HBox alone"):
        await tenant.json("POST", PODS.path(SPACE), body=pod(name, {key: "0"}))
    await tenant.json("POST", PODS.path(SPACE), body=pod(name, {"hbox.io/checkpoint-interval": "5m"}))
    note = {"metadata": {"annotations": {key: "0"}}}
    for path in (PODS.path(SPACE, name), PODS.path(SPACE, name, "status")):
        with pytest.raises(InvalidRequest, match="written by HBox alone"):
            await tenant.json("PATCH", path, body=note, content_type=MERGE_PATCH)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": {key: "0"}},
        "target": {"kind": "Node", "name": "n"},
    }
    with pytest.raises(InvalidRequest, match="written by HBox alone"):
        await tenant.json("POST", PODS.path(SPACE, name, "binding"), body=binding)

    await binder.json("PATCH", PODS.path(SPACE, name, "status"), body=note, content_type=MERGE_PATCH)
    for value in ("1", None):
        with pytest.raises(InvalidRequest, match="written by HBox alone"):
            await tenant.json(
                "PATCH", PODS.path(SPACE, name), body={"metadata": {"annotations": {key: value}}}, content_type=MERGE_PATCH
            )
    await tenant.json(
        "PATCH", PODS.path(SPACE, name), body={"metadata": {"annotations": {"mine": "1"}}}, content_type=MERGE_PATCH
    )
    await binder.json(
        "PATCH", PODS.path(SPACE, name, "status"), body={"metadata": {"annotations": {key: None}}}, content_type=MERGE_PATCH
    )


DEVICES = (
    "hami.io/vgpu-devices-to-allocate",
    "hami.io/vgpu-devices-allocated",
    "hami.io/bind-phase",
    "hami.io/bind-time",
    "hami.io/vgpu-node",
    "huawei.com/Ascend910B3-devices-to-allocate",
    "volcano.sh/devices-to-allocate",
    "volcano.sh/vgpu-time",
)


async def test_cards_that_plugins_hand_over_are_written_by_those_who_may_write_on_nodes(
    accounts: dict[str, KubeClient], plane: ControlPlane, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(KubeClient.connect(str(plane.kubeconfig), user_agent="test"))
        found = {}
        for name, role, rules in (
            ("editor", "test-pods", [{"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["*"]}]),
            ("plugin", "hami-plugin", [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "patch"]}]),
        ):
            path = await account(admin, plane.kubeconfig, tmp_path, SPACE, name)
            await grant(admin, f"test-{name}", role, service_account(SPACE, name), rules)
            found[name] = await stack.enter_async_context(KubeClient.connect(str(path), user_agent=name))
        editor, plugin = found["editor"], found["plugin"]
        await in_force(editor, SPACE, pod("probe", {DEVICES[0]: "x"}), "by HBox and by device plugins alone")
        await editor.json(
            "POST",
            PODS.path(SPACE),
            body=pod("devices", {"nvidia.com/use-gputype": "A100", "hami.io/gpu-scheduler-policy": "spread"}),
        )
        for key in DEVICES:
            note = {"metadata": {"annotations": {key: "0"}}}
            with pytest.raises(InvalidRequest, match=f"annotations {key} are written by HBox and by device plugins alone"):
                await editor.json("PATCH", PODS.path(SPACE, "devices"), body=note, content_type=MERGE_PATCH)
            await plugin.json("PATCH", PODS.path(SPACE, "devices"), body=note, content_type=MERGE_PATCH)
            gone = {"metadata": {"annotations": {key: None}}}
            with pytest.raises(InvalidRequest, match="by HBox and by device plugins alone"):
                await editor.json("PATCH", PODS.path(SPACE, "devices"), body=gone, content_type=MERGE_PATCH)
        await editor.json(
            "PATCH", PODS.path(SPACE, "devices"), body={"metadata": {"labels": {"a": "b"}}}, content_type=MERGE_PATCH
        )


#: Of makers whose plugins write on pods of all namespaces, and perhaps not on nodes.
OTHERS = (
    "mthreads.com/gpu-index",
    "NEURON_ALLOCATED",
    "enflame.com/gcu-assigned-id",
    "huawei.com/Ascend910B3",
    "predicate-time",
)


async def test_what_other_makers_plugins_read_is_kept_from_who_has_one_namespace(
    accounts: dict[str, KubeClient], plane: ControlPlane, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(KubeClient.connect(str(plane.kubeconfig), user_agent="test"))
        rules = [{"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["*"]}]
        found = {}
        for name in ("tenant-of-one", "plugin-of-all"):
            path = await account(admin, plane.kubeconfig, tmp_path, SPACE, name)
            found[name] = await stack.enter_async_context(KubeClient.connect(str(path), user_agent=name))
        await grant(admin, "test-plugin-of-all", "test-pods-of-all", service_account(SPACE, "plugin-of-all"), rules)
        binding = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "tenant-of-one", "namespace": SPACE},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "test-pods-of-all"},
            "subjects": [service_account(SPACE, "tenant-of-one")],
        }
        await apply(admin, binding, field_manager="test")
        tenant, plugin = found["tenant-of-one"], found["plugin-of-all"]
        await in_force(tenant, SPACE, pod("probe", {OTHERS[0]: "x"}), "by HBox and by device plugins alone")
        await tenant.json("POST", PODS.path(SPACE), body=pod("others"))
        for key in OTHERS:
            note = {"metadata": {"annotations": {key: "0"}}}
            with pytest.raises(InvalidRequest, match=f"annotations {key} are written by HBox and by device plugins alone"):
                await tenant.json("PATCH", PODS.path(SPACE, "others"), body=note, content_type=MERGE_PATCH)
            await plugin.json("PATCH", PODS.path(SPACE, "others"), body=note, content_type=MERGE_PATCH)


async def test_of_a_nodes_annotations_binder_writes_the_lock_and_its_own(accounts: dict[str, KubeClient]) -> None:
    binder = accounts["binder"]
    await accounts["tenant"].json(
        "POST",
        NODES.path(),
        body={"apiVersion": "v1", "kind": "Node", "metadata": {"name": "locked", "annotations": {"other": "1"}}},
    )
    locks = product(("hami.io/mutex.lock", "hamivgpu"), ("2026-01-01T00:00:00Z,default,a", None))
    for name, value in locks:
        body = {"metadata": {"annotations": {name: value}}}
        await binder.json("PATCH", NODES.path(name="locked"), body=body, content_type=MERGE_PATCH)
    for key in ("other", "hami.io/node-nvidia-register"):
        body = {"metadata": {"annotations": {key: "2"}}}
        with pytest.raises(InvalidRequest, match="the lock of a node in allocation alone"):
            await binder.json("PATCH", NODES.path(name="locked"), body=body, content_type=MERGE_PATCH)


async def test_a_job_stays_in_the_queue_that_it_was_made_in(accounts: dict[str, KubeClient]) -> None:
    tenant = accounts["tenant"]
    body = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"minMember": 1, "queue": "research"},
    }
    await tenant.json("POST", PODGROUPS.path(SPACE), body=body)
    with pytest.raises(InvalidRequest, match="it is in queue research and stays there; make it anew in vision"):
        await tenant.json("PATCH", PODGROUPS.path(SPACE, "g"), body={"spec": {"queue": "vision"}}, content_type=MERGE_PATCH)
    await tenant.json("PATCH", PODGROUPS.path(SPACE, "g"), body={"spec": {"minMember": 2}}, content_type=MERGE_PATCH)

    by_annotation, by_label = pod("by-annotation", {QUEUE: "research"}), pod("by-label")
    by_label["metadata"]["labels"] = {QUEUE: "research"}
    for name, where, body in (("by-annotation", "annotations", by_annotation), ("by-label", "labels", by_label)):
        await tenant.json("POST", PODS.path(SPACE), body=body)
        for value in ("vision", None):
            change = {"metadata": {where: {QUEUE: value}}}
            for path in (PODS.path(SPACE, name), PODS.path(SPACE, name, "status")):
                with pytest.raises(InvalidRequest, match="it is in queue research and stays there"):
                    await tenant.json("PATCH", path, body=change, content_type=MERGE_PATCH)
    # The annotation counts before the label.
    change = {"metadata": {"annotations": {QUEUE: "vision"}}}
    with pytest.raises(InvalidRequest, match="it is in queue research and stays there; make it anew in vision"):
        await tenant.json("PATCH", PODS.path(SPACE, "by-label"), body=change, content_type=MERGE_PATCH)

    # What says no queue yet may be given one, as controllers do.
    await tenant.json("POST", PODS.path(SPACE), body=pod("none"))
    given = {"metadata": {"annotations": {QUEUE: "research"}}}
    await tenant.json("PATCH", PODS.path(SPACE, "none"), body=given, content_type=MERGE_PATCH)


async def test_a_tenant_chooses_no_node_for_a_pod_of_hboxs(accounts: dict[str, KubeClient]) -> None:
    """It would have its cards without a queue that pays for them. Of other schedulers' pods that is theirs to say."""
    tenant = accounts["tenant"]
    with pytest.raises(InvalidRequest, match=r"HBox chooses the node of its pods; leave spec\.nodeName out"):
        await tenant.json("POST", PODS.path(SPACE), body=pod("placed", nodeName="n"))
    await tenant.json("POST", PODS.path(SPACE), body=pod("theirs", nodeName="n", schedulerName="default-scheduler"))


async def test_a_tenant_says_no_priority_but_by_a_class(accounts: dict[str, KubeClient]) -> None:
    """By Kubernetes' own admission; which classes a queue takes is the ledger's to judge (`hbox.io/priority-classes`)."""
    with pytest.raises(InvalidRequest, match=r"the integer value of priority .* must not be provided in pod spec"):
        await accounts["tenant"].json("POST", PODS.path(SPACE), body=pod("forged", priority=1_000_000))
    with pytest.raises(InvalidRequest, match="no PriorityClass with name none-such was found"):
        await accounts["tenant"].json("POST", PODS.path(SPACE), body=pod("forged", priorityClassName="none-such"))


@pytest.mark.parametrize(
    ("body", "policy"),
    [
        (pod("claimed", {"hbox.io/claim": "0"}), "hbox-allocations"),
        (pod("placed", nodeName="n"), "hbox-nodes-of-pods"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_is_refused_is_in_the_audit_log(
    accounts: dict[str, KubeClient], plane: ControlPlane, body: dict[str, Any], policy: str
) -> None:
    with pytest.raises(InvalidRequest):
        await accounts["tenant"].json("POST", PODS.path(SPACE), body=body)
    line = await audited(plane.audit_log, lambda one: one.code == 403 and policy in one.annotations.get(FAILURE, ""))
    assert (line.user, line.verb, line.resource) == (f"system:serviceaccount:{SPACE}:tenant", "create", "pods")


async def test_a_move_to_another_queue_is_in_the_audit_log(accounts: dict[str, KubeClient], plane: ControlPlane) -> None:
    tenant = accounts["tenant"]
    head = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "mover"}}
    await tenant.json("POST", PODGROUPS.path(SPACE), body=head | {"spec": {"minMember": 1, "queue": "research"}})
    await tenant.json("POST", PODS.path(SPACE), body=pod("mover", {QUEUE: "research"}))
    for path, change, policy in (
        (PODGROUPS.path(SPACE, "mover"), {"spec": {"queue": "vision"}}, "hbox-queues-of-podgroups"),
        (PODS.path(SPACE, "mover"), {"metadata": {"annotations": {QUEUE: "vision"}}}, "hbox-queues-of-pods"),
    ):
        with pytest.raises(InvalidRequest):
            await tenant.json("PATCH", path, body=change, content_type=MERGE_PATCH)

        def is_it(one: Audited, policy: str = policy) -> bool:
            return one.verb == "patch" and policy in one.annotations.get(FAILURE, "")

        assert (await audited(plane.audit_log, is_it)).user == f"system:serviceaccount:{SPACE}:tenant"


async def test_pods_with_cards_of_another_scheduler_are_rejected_outside_listed_namespaces(plane: ControlPlane) -> None:
    def asks(name: str, resource: str, scheduler: str, part: str = "containers") -> dict[str, Any]:
        made = {"name": name, "image": "pause", "resources": {"limits": {resource: "1"}}}
        plain = {"name": "main", "image": "pause"}
        body = pod(name, containers=[plain])
        body["spec"][part] = [made, *([plain] if part == "containers" else [])]
        return {**body, "spec": {**body["spec"], "schedulerName": scheduler}}

    async with KubeClient.connect(str(plane.kubeconfig), user_agent="test") as admin:
        await install(admin, "cards need HBox", SPACE, NAMESPACE, "gpu-operator")
        await in_force(admin, SPACE, asks("probe", "nvidia.com/gpu", "default-scheduler"), "HBox schedules all pods with cards")
        for resource in ("nvidia.com/gpumem", "nvidia.com/mig-1g.5gb", "huawei.com/Ascend910B3", "amd.com/gpu"):
            for part in ("containers", "initContainers"):
                with pytest.raises(InvalidRequest, match="HBox schedules all pods with cards"):
                    await admin.json("POST", PODS.path(SPACE), body=asks("refused", resource, "volcano", part))
        for space, name, resource, scheduler in (
            (SPACE, "own", "nvidia.com/gpu", "hbox"),
            (SPACE, "plain", "example.com/disk", "default-scheduler"),
            ("gpu-operator", "operator", "nvidia.com/gpu", "default-scheduler"),
        ):
            await admin.json("POST", PODS.path(space), params={"dryRun": "All"}, body=asks(name, resource, scheduler))
