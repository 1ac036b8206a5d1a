"""What tests of Kubernetes' own controllers beside the platform share: manifests, waiting, and what the ledger holds."""

from __future__ import annotations

import itertools
import sqlite3
from collections import Counter
from dataclasses import dataclass
from typing import Any

from hbox_cli.audit.reading import audit_platform, read_claims
from hbox_cli.platform.layout import Layout
from hbox_cli.session import bus_of
from hbox_common.kube import MERGE_PATCH, NODES, PODS, KubeClient, Resource
from hbox_common.model import Claim

from ..e2e.platform_world import Up
from ..waiting import until

Json = dict[str, Any]

KINDS = {
    "Namespace": Resource("", "v1", "namespaces", namespaced=False),
    "Node": NODES,
    "Pod": PODS,
    "PersistentVolume": Resource("", "v1", "persistentvolumes", namespaced=False),
    "PersistentVolumeClaim": Resource("", "v1", "persistentvolumeclaims", namespaced=True),
    "StorageClass": Resource("storage.k8s.io", "v1", "storageclasses", namespaced=False),
    "ResourceQuota": Resource("", "v1", "resourcequotas", namespaced=True),
    "RuntimeClass": Resource("node.k8s.io", "v1", "runtimeclasses", namespaced=False),
    "Job": Resource("batch", "v1", "jobs", namespaced=True),
    "Deployment": Resource("apps", "v1", "deployments", namespaced=True),
    "DaemonSet": Resource("apps", "v1", "daemonsets", namespaced=True),
    "ReplicaSet": Resource("apps", "v1", "replicasets", namespaced=True),
    "StatefulSet": Resource("apps", "v1", "statefulsets", namespaced=True),
    "PodDisruptionBudget": Resource("policy", "v1", "poddisruptionbudgets", namespaced=True),
    "PodGroup": Resource("scheduling.volcano.sh", "v1beta1", "podgroups", namespaced=True),
}

#: Nodes with this label have no kubelet: kwok leaves them and their pods alone.
NO_KUBELET = {"hbox.io/kubelet": "none"}
KWOK = {"manage-all-nodes": "false", "manage-nodes-with-label-selector": "hbox.io/kubelet!=none"}

_STRATEGIC = "application/strategic-merge-patch+json"
_spaces = itertools.count(1)


def container(*, cpu: str = "1", cards: int = 0, **more: Any) -> Json:
    limits = {"cpu": cpu} | ({"nvidia.com/gpu": str(cards)} if cards else {})
    return {"name": "main", "image": "busybox", "resources": {"limits": limits}, **more}


def spec(*containers: Json, **more: Any) -> Json:
    """Of a pod of ours. It leaves when its kubelet has said so, which kwok does soon."""
    return {
        "schedulerName": "hbox",
        "terminationGracePeriodSeconds": 5,
        "containers": list(containers or [container()]),
        **more,
    }


def template(app: str, *containers: Json, **more: Any) -> Json:
    return {"metadata": {"labels": {"app": app}}, "spec": spec(*containers, **more)}


def workload(kind: str, name: str, pod: Json, **more: Any) -> Json:
    """A Deployment, StatefulSet or DaemonSet of pods labelled with its name."""
    return {
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": pod, **more},
    }


def a_pod(name: str, *containers: Json, group: str = "", **more: Any) -> Json:
    notes = {"scheduling.k8s.io/group-name": group} if group else {}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name.partition("-")[0]}, "annotations": notes},
        "spec": spec(*containers, **more),
    }


def a_node(name: str, *, cards: int = 8, labels: dict[str, str] | None = None) -> Json:
    amounts = {"cpu": "32", "memory": "64Gi", "nvidia.com/gpu": str(cards), "pods": "110"}
    # Ready from the start: one that becomes so is out of use for as long as health-monitor's `recover_after_s`.
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": status,
    }


@dataclass(frozen=True, slots=True)
class World:
    """The cluster as its administrator sees it, one namespace of a test's own, and the platform."""

    client: KubeClient
    platform: Up
    space: str

    @classmethod
    async def enter(cls, client: KubeClient, platform: Up) -> World:
        world = cls(client, platform, f"space-{next(_spaces)}")
        await world.make({"kind": "Namespace", "metadata": {"name": world.space}})
        return world

    def path(self, kind: str, name: str | None = None, subresource: str | None = None) -> str:
        resource = KINDS[kind]
        return resource.path(self.space if resource.namespaced else None, name, subresource)

    async def make(self, *manifests: Json) -> None:
        for manifest in manifests:
            resource = KINDS[manifest["kind"]]
            version = f"{resource.group}/{resource.version}" if resource.group else resource.version
            await self.client.json("POST", self.path(manifest["kind"]), body={"apiVersion": version, **manifest})

    async def get(self, kind: str, name: str) -> Json:
        found: Json = await self.client.json("GET", self.path(kind, name))
        return found

    async def change(self, kind: str, name: str, patch: Json, subresource: str | None = None) -> None:
        await self.client.json("PATCH", self.path(kind, name, subresource), body=patch, content_type=MERGE_PATCH)

    async def remove(self, kind: str, name: str, **params: str) -> None:
        await self.client.json("DELETE", self.path(kind, name), params=params or None)

    async def pods(self, app: str = "") -> list[Json]:
        """The pods of the namespace that have this label, or all; by name."""
        params = {"labelSelector": f"app={app}"} if app else None
        listed = await self.client.json("GET", self.path("Pod"), params=params)
        return sorted(listed["items"], key=lambda pod: pod["metadata"]["name"])

    async def nodes_of(self, app: str = "") -> dict[str, str]:
        """Where pods are that are neither waiting nor leaving, by name."""
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"]
            for pod in await self.pods(app)
            if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
        }

    async def bound(self, app: str, count: int, timeout_s: float = 60.0) -> dict[str, str]:
        async def all_bound() -> dict[str, str]:
            nodes = await self.nodes_of(app)
            return nodes if len(nodes) >= count else {}

        nodes: dict[str, str] = await until(all_bound, f"{count} pods of {app} with a node", timeout_s=timeout_s)
        return nodes

    async def running(self, app: str, count: int) -> None:
        async def all_running() -> bool:
            phases = [pod["status"].get("phase") for pod in await self.pods(app)]
            return phases.count("Running") >= count

        await until(all_running, f"{count} running pods of {app}", timeout_s=60)

    async def told(self, pod: str) -> str:
        """What its condition PodScheduled=False says; empty while there is none."""
        conditions = (await self.get("Pod", pod))["status"].get("conditions", ())
        return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "")

    async def waits(self, pod: str, reason: str) -> None:
        """Until the pod is told this; it may have been told something else before."""
        heard: set[str] = set()

        async def said() -> bool:
            message = await self.told(pod)
            heard.add(message)
            return reason in message

        try:
            await until(said, f"{pod} waits: {reason}", timeout_s=60)
        except AssertionError:
            raise AssertionError(f"{pod} was told {sorted(heard)}, not {reason!r}") from None
        assert "nodeName" not in (await self.get("Pod", pod))["spec"]

    async def kubelet_dies(self, node: str) -> None:
        """Nobody looks after the node and its pods any more, and it is reported as not ready."""
        await self.change("Node", node, {"metadata": {"labels": NO_KUBELET}})

        async def down() -> bool:
            # kwok may have a write under way.
            body = {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Test"}]}}
            await self.client.json("PATCH", NODES.path(name=node, subresource="status"), body=body, content_type=_STRATEGIC)
            return "node.kubernetes.io/not-ready" in {taint["key"] for taint in await self._taints(node)}

        await until(down, f"the taint of {node}", timeout_s=60)

    async def _taints(self, node: str) -> list[Json]:
        taints: list[Json] = (await self.get("Node", node))["spec"].get("taints", [])
        return [taint for taint in taints if taint["effect"] == "NoExecute"]

    async def claims(self) -> dict[str, Claim]:
        """The ledger's live claims of pods in the namespace, by pod."""
        async with bus_of(Layout(self.platform.state).running()) as bus:
            _, claims = await read_claims(bus)
        return {claim.pod: claim for claim in claims if claim.namespace == self.space}

    async def no_claims(self) -> None:
        async def none() -> bool:
            return not await self.claims()

        await until(none, "the end of all claims", timeout_s=60)

    def claims_made(self) -> Counter[tuple[str, str]]:
        """Claims that the ledger's database has, live or void, by pod uid and state."""
        with sqlite3.connect(f"file:{Layout(self.platform.state).database}?mode=ro", uri=True, timeout=30) as database:
            return Counter(
                (str(uid), str(state))
                for uid, state in database.execute("SELECT pod_uid, state FROM claims WHERE namespace = ?", (self.space,))
            )

    async def clean(self) -> None:
        """The platform's own audit, once all is at rest."""
        async with bus_of(Layout(self.platform.state).running()) as bus:
            result, _ = await audit_platform(self.client, bus, patience_s=60)
        assert result.faults == []

    async def leave(self) -> None:
        """Deletes what the test made. The namespace stays: in one that is being deleted a binding under way is forbidden."""
        for kind in ("Deployment", "StatefulSet", "DaemonSet", "Job", "PodDisruptionBudget"):
            await self.client.json("DELETE", self.path(kind))
        await self.client.json("DELETE", self.path("Pod"), params={"gracePeriodSeconds": "0"})
