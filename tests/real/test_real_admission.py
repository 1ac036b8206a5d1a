"""The chart's admission policies, on a real API server: what a tenant writes on its pods in HBox's name is refused, and a job stays in its queue."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from hbox_cli.platform import crds
from hbox_cli.platform.identities import cluster_of
from hbox_common.errors import HBoxError, InvalidRequest
from hbox_common.kube import MERGE_PATCH, PODGROUPS, PODS, KubeClient, Resource, apply

from ..chart.rendered import NAMESPACE, objects
from ..waiting import until
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
ACCOUNTS = Resource("", "v1", "serviceaccounts", namespaced=True)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with control_plane(tmp_path_factory.mktemp("admission"), programs=()) as plane:
        yield plane.kubeconfig


@pytest.fixture
async def accounts(kubeconfig: Path, tmp_path: Path) -> AsyncIterator[dict[str, KubeClient]]:
    """Binder and a tenant, who have all rights here: what is refused is refused by the policies, which are in force."""
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(KubeClient.connect(str(kubeconfig), user_agent="test"))
        await crds.bring(admin, lambda _: None)
        for one in objects("default"):
            if one["kind"].startswith("ValidatingAdmissionPolicy"):
                await apply(admin, one, field_manager="test")
        await apply(admin, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, field_manager="test")
        found = {}
        for space, name in ((NAMESPACE, "binder"), (SPACE, "tenant")):
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": space}}
            await apply(admin, account, field_manager="test")
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
            subject = {"kind": "ServiceAccount", "name": name, "namespace": space}
            binding = {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"test-{name}"},
            }
            await apply(admin, {**binding, "roleRef": role, "subjects": [subject]}, field_manager="test")
            asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
            token = await admin.json("POST", ACCOUNTS.path(space, name, "token"), body=asked)
            path = tmp_path / f"{name}.kubeconfig"
            path.write_text(json.dumps(config_of(kubeconfig, token["status"]["token"])))
            found[name] = await stack.enter_async_context(KubeClient.connect(str(path), user_agent=name))

        async def refused() -> bool:
            try:
                await found["tenant"].json(
                    "POST", PODS.path(SPACE), params={"dryRun": "All"}, body=pod("probe", {OURS[0]: "x"})
                )
            except HBoxError as e:
                return "written by HBox alone" in str(e)
            return False

        await until(refused, "the policies are in force", timeout_s=60)
        yield found


def config_of(kubeconfig: Path, token: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster_of(kubeconfig)}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def pod(name: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    spec = {"schedulerName": "hbox", "containers": [{"name": "main", "image": "pause"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations or {}}, "spec": spec}


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

    note = "scheduling.volcano.sh/queue-name"
    await tenant.json("POST", PODS.path(SPACE), body=pod("q", {note: "research"}))
    for value in ("vision", None):
        with pytest.raises(InvalidRequest, match="it is in queue research and stays there"):
            await tenant.json(
                "PATCH", PODS.path(SPACE, "q"), body={"metadata": {"annotations": {note: value}}}, content_type=MERGE_PATCH
            )

    # What says no queue yet may be given one, as controllers do.
    await tenant.json("POST", PODS.path(SPACE), body=pod("none"))
    given = {"metadata": {"annotations": {note: "research"}}}
    await tenant.json("PATCH", PODS.path(SPACE, "none"), body=given, content_type=MERGE_PATCH)
