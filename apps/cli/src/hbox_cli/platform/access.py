"""How clients of a cluster find the HTTP API: ConfigMap `hbox-access` in `kube-public`, readable by all authenticated users, as the chart has it."""

from hbox_common.kube import KubeClient, apply
from hbox_common.kube.definitions import FIELD_MANAGER

NAME, NAMESPACE = "hbox-access", "kube-public"

_RBAC = "rbac.authorization.k8s.io"
_LABELS = {"app.kubernetes.io/managed-by": "hbox", "app.kubernetes.io/part-of": "hbox"}


async def publish(client: KubeClient, *, url: str, ca: str = "") -> None:
    """`ca`: PEM; empty for an address without TLS. Raises InvalidRequest, Unavailable."""
    metadata = {"name": NAME, "namespace": NAMESPACE, "labels": _LABELS}
    readers = {"apiGroup": _RBAC, "kind": "Group", "name": "system:authenticated"}
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [NAME], "verbs": ["get"]}
    for manifest in (
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"url": url, "ca.crt": ca}},
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": NAME},
            "subjects": [readers],
        },
    ):
        await apply(client, manifest, field_manager=FIELD_MANAGER)
