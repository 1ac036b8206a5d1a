"""The chart's admission policies on a real API server, and users whose every right is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hbox_cli.platform import crds
from hbox_cli.platform.identities import cluster_of
from hbox_common.errors import HBoxError
from hbox_common.kube import PODS, KubeClient, Resource, apply

from ..chart.rendered import objects
from ..waiting import until

ACCOUNTS = Resource("", "v1", "serviceaccounts", namespaced=True)
RBAC = "rbac.authorization.k8s.io"
QUEUE = "scheduling.volcano.sh/queue-name"
FAILURE = "validation.policy.admission.k8s.io/validation_failure"  #: of an audited request: which policies refused it, and with which words


#: ClusterRoles for users, and the binding of the last one.
USER_ROLES = ("hbox-view", "hbox-edit", "hbox-queue-reader")


async def install(admin: KubeClient, values: str, *spaces: str) -> None:
    """HBox's definitions, the policies and the roles of tenants of one installation of the chart's MATRIX, and namespaces."""
    await crds.bring(admin, lambda _: None)
    for one in objects(values):
        if one["kind"].startswith("ValidatingAdmissionPolicy") or one["metadata"]["name"] in USER_ROLES:
            await apply(admin, one, field_manager="test")
    for space in spaces:
        await apply(admin, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}, field_manager="test")


async def account(admin: KubeClient, kubeconfig: Path, folder: Path, space: str, name: str) -> Path:
    """The kubeconfig of a service account."""
    made = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": space}}
    await apply(admin, made, field_manager="test")
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = await admin.json("POST", ACCOUNTS.path(space, name, "token"), body=asked)
    path = folder / f"{name}.kubeconfig"
    path.write_text(json.dumps(_config(kubeconfig, token["status"]["token"])))
    return path


async def grant(admin: KubeClient, name: str, role: str, subject: dict[str, str], rules: Sequence[dict[str, Any]] = ()) -> None:
    """`subject` has the ClusterRole `role`, made of `rules` where there are some."""
    if rules:
        made = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": role}, "rules": list(rules)}
        await apply(admin, made, field_manager="test")
    binding = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name}}
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    await apply(admin, {**binding, "roleRef": reference, "subjects": [subject]}, field_manager="test")


def service_account(space: str, name: str) -> dict[str, str]:
    return {"kind": "ServiceAccount", "name": name, "namespace": space}


async def in_force(client: KubeClient, space: str, body: dict[str, Any], words: str) -> None:
    """Returns once `body`, a pod that policies refuse, is refused with these words: the API server takes a moment to know a policy."""

    said = "it was let in"

    async def refused() -> bool:
        nonlocal said
        try:
            await client.json("POST", PODS.path(space), params={"dryRun": "All"}, body=body)
        except HBoxError as e:
            said = str(e)
        return words in said

    try:
        await until(refused, "the policies are in force", timeout_s=60)
    except AssertionError as e:
        raise AssertionError(f"{e}; the last answer: {said}") from None


@dataclass(frozen=True, slots=True)
class Audited:
    """A line of the audit log."""

    user: str
    verb: str
    resource: str
    uri: str
    code: int
    annotations: dict[str, str]


async def audited(log: Path, condition: Callable[[Audited], bool]) -> Audited:
    """The first line that is so; it is written a moment after the answer."""

    def found() -> Audited | None:
        for line in log.read_text().rpartition("\n")[0].splitlines():
            event = json.loads(line)
            one = Audited(
                event["user"]["username"],
                event["verb"],
                (event.get("objectRef") or {}).get("resource", ""),
                event["requestURI"],
                event.get("responseStatus", {}).get("code", 0),
                event.get("annotations", {}),
            )
            if condition(one):
                return one
        return None

    line: Audited = await until(found, "the audit log", timeout_s=30)
    return line


def pod(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"schedulerName": "hbox", "containers": [{"name": "main", "image": "pause"}], **spec},
    }


def _config(kubeconfig: Path, token: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster_of(kubeconfig)}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
