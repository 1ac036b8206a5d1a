"""Where can this pod go? Asked of kube-scheduler, of HBox's filters on the saved cluster, and of the running platform.

kube-scheduler tells all nodes at once: its extender is ours, which is asked with those that passed every filter and takes none of them, so that nothing is
bound. A pod that never came to the extender has no node. The filters of `hbox simulate` tell all nodes too. The platform binds, or says that it cannot.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from hbox_cli.platform.assets import ControlPlane
from hbox_cli.simulate.cluster_file import cluster_of
from hbox_cli.simulate.documents import Document
from hbox_common.errors import Conflict, HBoxError, NotFound
from hbox_common.kube import (
    BIND_COMPLETED,
    MERGE_PATCH,
    NAMESPACES,
    NODES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODS,
    PRIORITYCLASSES,
    SELECTED_NODE,
    STORAGECLASSES,
    KubeClient,
)
from hbox_common.kube.resources import Resource
from hbox_scheduler.core.cluster.entities import HOLDING, Status
from hbox_scheduler.core.framework import Placing, Session
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.policy.registry import plugins_of

from ..waiting import until
from .control_plane import kube_scheduler
from .worlds import HOST, PATIENT, RUNTIME_CLASSES, Json, World, reached

PEER, OURS = "default-scheduler", "hbox"
RUNTIMES = Resource("node.k8s.io", "v1", "runtimeclasses", namespaced=False)
CONF = default_conf()
SCHEDULER_CONF = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
clientConnection: {{kubeconfig: {kubeconfig}, qps: 2000, burst: 2000}}
percentageOfNodesToScore: 100
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
extenders:
- urlPrefix: http://127.0.0.1:{port}
  filterVerb: filter
  nodeCacheCapable: true
  httpTimeout: 20s
profiles:
- schedulerName: default-scheduler
  plugins: {{postFilter: {{disabled: [{{name: "*"}}]}}}}
"""
#: Marks the pods that are asked about, by whom.
ASKED = "example.com/asked"
#: Where many tests share the cores, an answer of the API server may take half a minute.
WITHIN_S = 120.0


@dataclass(slots=True)
class Peer:
    """kube-scheduler's answers by the pod's uid, as its extender hears them."""

    feasible: dict[str, frozenset[str]] = field(default_factory=dict)

    async def filter(self, request: web.Request) -> web.Response:
        asked = await request.json()
        nodes = asked["NodeNames"] or []
        self.feasible[asked["Pod"]["metadata"]["uid"]] = frozenset(nodes)
        return web.json_response({"NodeNames": [], "FailedNodes": dict.fromkeys(nodes, "asked")})


@asynccontextmanager
async def peer(plane: ControlPlane, folder: Path) -> AsyncIterator[Peer]:
    """kube-scheduler with the extender."""
    told = Peer()
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/filter", told.filter)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        with kube_scheduler(plane, folder, SCHEDULER_CONF.format(kubeconfig=plane.kubeconfig, port=port)):
            yield told
    finally:
        await runner.cleanup()


@dataclass(slots=True)
class Verdict:
    """Nodes that take the pod, and what is said where there are none. `gated`: nobody is asked."""

    nodes: frozenset[str] = frozenset()
    why: str = ""
    gated: bool = False


class Place:
    """A world as it stands in the cluster."""

    def __init__(self, client: KubeClient, world: World) -> None:
        self.client, self.world = client, world
        self.documents: list[Json] = []  #: as the API server keeps them
        self._made: list[tuple[str, dict[str, str]]] = []
        self.refused: list[str] = []
        self._number = 0

    async def make(self) -> None:
        world = self.world
        for one in world.namespaces:
            await self._post(NAMESPACES.path(), one)
        for one in world.nodes:
            await self._node(one)
        for resource, objects in (
            (STORAGECLASSES, world.classes),
            (PERSISTENTVOLUMES, world.volumes),
            (PERSISTENTVOLUMECLAIMS, world.claims),
        ):
            for one in objects:
                await self._post(resource.path(one["metadata"].get("namespace")), one)
        for one in world.running:
            if await self._post(PODS.path(one["metadata"]["namespace"]), one) is None:
                continue
            path, _ = self._made[-1]
            if one["status"]:
                self.documents[-1] = await self.client.json(
                    "PATCH", f"{path}/status", body={"status": one["status"]}, content_type=MERGE_PATCH
                )
            if one["metadata"]["name"] in world.leaving:
                await self.client.json("DELETE", path, params={"gracePeriodSeconds": "600"})
                self.documents[-1] = await self.client.json("GET", path)

    async def leave(self) -> None:
        for path, params in reversed(self._made):
            await self.client.json("DELETE", path, params=params, expect=(200, 202, 404))

    async def _post(self, path: str, body: Json) -> Json | None:
        try:
            made: Json = await self.client.json("POST", path, body=body, expect=(201,))
        except HBoxError as e:
            self.refused.append(f"{path}: {e}")
            return None
        self._made.append((f"{path}/{made['metadata']['name']}", {"gracePeriodSeconds": "0"} if path.endswith("/pods") else {}))
        self.documents.append(made)
        return made

    async def _node(self, body: Json) -> None:
        made = await self._post(NODES.path(), body)
        assert made is not None, self.refused
        # Admission has put a taint there that the node controller would take away.
        patch = {"spec": {"taints": body["spec"]["taints"] or None}}
        self.documents[-1] = await self.client.json("PATCH", self._made[-1][0], body=patch, content_type=MERGE_PATCH)

    async def ask(self, pod: Json, scheduler: str) -> Json | None:
        """A copy of it, for this scheduler; None where the API server takes no such pod."""
        self._number += 1
        meta = pod["metadata"]
        body = {
            **pod,
            "metadata": {**meta, "name": f"{meta['name']}-{self._number}", "annotations": {ASKED: scheduler}},
            "spec": {**pod["spec"], "schedulerName": scheduler},
        }
        try:
            made: Json = await self.client.json("POST", PODS.path(meta["namespace"]), body=body, expect=(201,))
        except HBoxError as e:
            self.refused.append(str(e))
            return None
        return made

    async def forget(self, pod: Json) -> None:
        meta = pod["metadata"]
        await self.client.json(
            "DELETE", PODS.path(meta["namespace"], meta["name"]), params={"gracePeriodSeconds": "0"}, expect=(200, 404)
        )


class Watched:
    """All pods, as one list a moment has them; and the provisioner of their volumes, since the platform binds no pod before its volumes."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.pods: dict[str, Json] = {}

    async def run(self) -> None:
        while True:
            found = await self._client.json("GET", PODS.path())
            self.pods = {one["metadata"]["uid"]: one for one in found["items"]}
            used = {
                (one["metadata"]["namespace"], volume["persistentVolumeClaim"]["claimName"])
                for one in found["items"]
                if one["spec"].get("schedulerName") == OURS and not one["spec"].get("nodeName")
                for volume in one["spec"].get("volumes", ())
                if "persistentVolumeClaim" in volume
            }
            for namespace, name in used:
                with suppress(NotFound, Conflict):
                    await self._provide(namespace, name)
            await asyncio.sleep(0.1)

    async def _provide(self, namespace: str, name: str) -> None:
        """Make the volume of a claim with a node, within reach of that node alone: as few nodes as before can have the pods of the claim."""
        claim = await self._client.json("GET", PERSISTENTVOLUMECLAIMS.path(namespace, name))
        meta, spec = claim["metadata"], claim["spec"]
        node = meta.get("annotations", {}).get(SELECTED_NODE)
        if not node or spec.get("volumeName"):
            return
        volume = f"made-{meta['uid']}"
        body = {
            "metadata": {"name": volume},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": spec["storageClassName"],
                "hostPath": {"path": "/tmp/volume"}, "claimRef": {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": name},
                "nodeAffinity": reached(HOST, [node]),
            },
        }  # fmt: skip
        with suppress(Conflict):
            await self._client.json("POST", PERSISTENTVOLUMES.path(), body=body, expect=(201,))
        patch = {
            "metadata": {"resourceVersion": meta["resourceVersion"], "annotations": {BIND_COMPLETED: "yes"}},
            "spec": {"volumeName": volume},
        }
        path = PERSISTENTVOLUMECLAIMS.path(namespace, name)
        await self._client.json("PATCH", path, body=patch, content_type=MERGE_PATCH)

    def said(self, uid: str) -> Verdict | None:
        """Where the pod was put, or why not."""
        pod = self.pods.get(uid)
        if pod is None:
            return None
        if node := pod["spec"].get("nodeName"):
            return Verdict(frozenset((node,)))
        for one in pod.get("status", {}).get("conditions", ()):
            if one["type"] == "PodScheduled" and one["status"] == "False":
                return Verdict(why=one.get("message", "") or one["reason"], gated=one["reason"] == "SchedulingGated")
        return None


async def theirs(place: Place, peer: Peer, watched: Watched, pod: Json) -> Verdict | None:
    """kube-scheduler's; None where no such pod can be."""
    made = await place.ask(pod, PEER)
    if made is None:
        return None
    uid = made["metadata"]["uid"]

    def heard() -> Verdict | None:
        return Verdict(peer.feasible[uid]) if uid in peer.feasible else watched.said(uid)

    try:
        found: Verdict = await until(heard, f"kube-scheduler on {made['metadata']}", timeout_s=WITHIN_S)
    finally:
        await place.forget(made)
    return found


async def ours(place: Place, watched: Watched, pod: Json) -> Verdict:
    """The platform's: one node, or none."""
    made = await place.ask(pod, OURS)
    assert made is not None, place.refused[-1]
    uid = made["metadata"]["uid"]
    try:
        found: Verdict = await until(lambda: watched.said(uid), f"the platform on {made['metadata']}", timeout_s=WITHIN_S)
    finally:
        await place.forget(made)
    return found


async def simulated(place: Place, pod: Json) -> Verdict:
    """All nodes that our filters leave the pod, in the cluster as it would be saved."""
    body = {**pod, "spec": {**pod["spec"], "schedulerName": OURS}}
    path = PODS.path(pod["metadata"]["namespace"])
    made: Json = await place.client.json("POST", path, body=body, params={"dryRun": "All"}, expect=(201,))
    return filtered(place.documents, made)


def filtered(documents: Sequence[Json], pod: Json) -> Verdict:
    found = [Document(number, content) for number, content in enumerate([*documents, pod], 1)]
    saved = cluster_of(found, schedulers=[OURS], now=0.0)
    for gang in saved.cluster.gangs:
        for member in gang.members:
            if member.status in (*HOLDING, Status.RELEASING):
                saved.columns.book(member.row, member.task.requests, member.slices)
    session = Session(columns=saved.columns, cluster=saved.cluster, conf=CONF, tiers=plugins_of(CONF))
    member = next(m for gang in session.gangs for m in gang.members if m.uid == pod["metadata"]["uid"])
    if member.gang.problem:
        return Verdict(why=member.gang.problem)
    placing = Placing(session)
    fits = placing.allowed(member, saved.columns) & placing.fits(member, saved.columns)
    nodes = frozenset(str(saved.columns.names[row]) for row in range(saved.columns.size) if fits[row])
    return Verdict(nodes, why=", ".join(str(one) for one in placing.reasons(member).counts.items()))


async def prepare(client: KubeClient) -> None:
    """What worlds share."""
    patient: Json = {"metadata": {"name": PATIENT}, "value": 0, "preemptionPolicy": "Never"}
    await client.json("POST", PRIORITYCLASSES.path(), body=patient, expect=(201,))
    for one in RUNTIME_CLASSES:
        await client.json("POST", RUNTIMES.path(), body={**one, "handler": one["metadata"]["name"]}, expect=(201,))
