"""A cluster with the platform on it whose services act as themselves, and what the API server's audit log says of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hbox_cli.platform.identities import NAMESPACE
from hbox_common.kube import (
    NODES,
    PODGROUPS,
    PODS,
    KubeClient,
    Resource,
    apply,
)

ACCOUNTS = f"system:serviceaccount:{NAMESPACE}:"
SPACE = "team"

_AMOUNTS = {"cpu": "32", "memory": "64Gi", "nvidia.com/gpu": "8", "pods": "110"}
_STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class Request:
    """One line of the audit log, of an account of ours."""

    service: str
    agent: str
    verb: str
    resource: str  #: "pods/binding"
    name: str
    uri: str  #: path and query
    code: int
    message: str  #: of an error
    decision: str  #: of the authorizer
    token: str  #: the id of the token that it bore


def requests(log: Path) -> list[Request]:
    found = []
    # The last line may be half written.
    for line in log.read_text().splitlines()[:-1]:
        event = json.loads(line)
        user = event["user"]["username"]
        if not user.startswith(ACCOUNTS):
            continue
        about = event.get("objectRef") or {}
        resource = about.get("resource", event["requestURI"])
        found.append(
            Request(
                service=user.removeprefix(ACCOUNTS),
                agent=event.get("userAgent", ""),
                verb=event["verb"],
                resource=f"{resource}/{about['subresource']}" if about.get("subresource") else resource,
                name=about.get("name", ""),
                uri=event["requestURI"],
                code=event.get("responseStatus", {}).get("code", 0),
                message=event.get("responseStatus", {}).get("message", ""),
                decision=event["annotations"].get("authorization.k8s.io/decision", ""),
                token="".join(event["user"].get("extra", {}).get("authentication.kubernetes.io/credential-id", [])),
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class Cluster:
    """As its administrator."""

    client: KubeClient

    async def add_nodes(self, *names: str) -> None:
        await apply(self.client, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}, field_manager="test")
        # Ready from the start: one that becomes so is out of use for as long as health-monitor's `recover_after_s`.
        status = {"capacity": _AMOUNTS, "allocatable": _AMOUNTS, "conditions": [{"type": "Ready", "status": "True"}]}
        for name in names:
            # Labelled as kubelets do it: of an object that is created with a status alone the API server keeps no managedFields.
            metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
            await self._create(NODES, None, {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})

    async def add_pods(self, prefix: str, count: int, *, gang: bool = False) -> None:
        """Of one card each."""
        if gang:
            group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": prefix}}
            await self._create(PODGROUPS, SPACE, group | {"spec": {"minMember": count}})
        notes = {"scheduling.k8s.io/group-name": prefix} if gang else {}
        container = {"name": "main", "image": "busybox", "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "1"}}}
        spec = {"schedulerName": "hbox", "terminationGracePeriodSeconds": 0, "containers": [container]}
        for i in range(count):
            metadata = {"name": f"{prefix}-{i}", "labels": {"set": prefix}, "annotations": notes}
            await self._create(PODS, SPACE, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    async def pods(self, prefix: str) -> list[Any]:
        listed = await self.client.json("GET", PODS.path(SPACE), params={"labelSelector": f"set={prefix}"})
        items: list[Any] = listed["items"]
        return items

    async def bound(self, prefix: str) -> int:
        return sum(
            bool(pod["spec"].get("nodeName")) and "deletionTimestamp" not in pod["metadata"] for pod in await self.pods(prefix)
        )

    async def report_fault(self, node: str, *, faulty: bool) -> None:
        """The condition that a node problem detector would set."""
        condition = {"type": "GpuUnhealthy", "status": str(faulty), "reason": "Test", "message": ""}
        body = {"status": {"conditions": [condition]}}
        await self.client.json("PATCH", NODES.path(name=node, subresource="status"), body=body, content_type=_STRATEGIC)

    async def node(self, name: str) -> Any:
        return await self.client.json("GET", NODES.path(name=name))

    async def clear(self) -> None:
        """Deletes all pods."""
        await self.client.json("DELETE", PODS.path(SPACE), params={"gracePeriodSeconds": "0"})

    async def _create(self, resource: Resource, namespace: str | None, body: Any) -> None:
        await self.client.json("POST", resource.path(namespace), body=body)
