"""Collects from an installed chart through the API server alone, with the caller's rights (pods, their logs and proxy, events, Deployments)."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hbox_common.bus import Access
from hbox_common.bus.inspection import look
from hbox_common.bus.users import ADMIN
from hbox_common.errors import NotFound
from hbox_common.kube import CONFIGMAPS, EVENTS, LEASES, PERSISTENTVOLUMECLAIMS, PODS, QUEUES, KubeClient, Resource

from .archive import Files, Step
from .versions import versions

LOG_BYTES = 2 * 2**20
PORT = 8080
_SELECTOR = {"labelSelector": "app.kubernetes.io/name=hbox"}

_KINDS: Sequence[Resource] = (
    Resource("apps", "v1", "deployments", namespaced=True),
    Resource("apps", "v1", "statefulsets", namespaced=True),
    PERSISTENTVOLUMECLAIMS,
)


async def steps(client: KubeClient, namespace: str, *, nats_url: str = "", access: Access = Access()) -> list[Step]:  # noqa: B008  frozen
    """One for each pod, and those of the whole. Raises Unavailable, NotFound where no pod of HBox is in the namespace."""
    pods = (await client.json("GET", PODS.path(namespace), params=_SELECTOR))["items"]
    if not pods:
        raise NotFound(f"no pod of HBox is in namespace {namespace}", hint="name it with --namespace")
    found = [
        Step("versions", versions),
        Step("objects", lambda: _objects(client, namespace, pods)),
        Step("settings", lambda: _settings(client, namespace)),
        Step("events", lambda: _events(client, namespace)),
        Step("queues", lambda: _queues(client)),
        *(Step(f"log of {name(pod)}", lambda pod=pod: _log(client, namespace, pod)) for pod in pods),  # type: ignore[misc]
        *(Step(f"metrics of {name(pod)}", lambda pod=pod: _metrics(client, namespace, pod)) for pod in pods if _serves(pod)),  # type: ignore[misc]
    ]
    if nats_url:
        found.append(Step("broker", lambda: _broker(nats_url, access)))
    return found


def name(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def _serves(pod: Mapping[str, Any]) -> bool:
    ports = [port for c in pod["spec"]["containers"] for port in c.get("ports") or ()]
    return any(port.get("name") == "health" for port in ports)


def bare(found: Mapping[str, Any]) -> dict[str, Any]:
    """Without managedFields, and without values of variables that are not ours to show."""
    made: dict[str, Any] = json.loads(json.dumps(found))
    made["metadata"].pop("managedFields", None)
    pod = made["spec"].get("template", made)["spec"] if "spec" in made else {}
    for container in (*(pod.get("containers") or ()), *(pod.get("initContainers") or ())):
        for variable in container.get("env") or ():
            if "value" in variable and not str(variable.get("name", "")).startswith("HBOX_"):
                variable["value"] = "***"
    return made


async def _objects(client: KubeClient, namespace: str, pods: Sequence[Mapping[str, Any]]) -> Files:
    files: dict[str, Any] = {"kubernetes/pods.json": [bare(pod) for pod in pods]}
    files["kubernetes/version.json"] = await client.json("GET", "/version")
    for kind in _KINDS:
        found = (await client.json("GET", kind.path(namespace), params=_SELECTOR))["items"]
        files[f"kubernetes/{kind.plural}.json"] = [bare(one) for one in found]
    leases = (await client.json("GET", LEASES.path(namespace)))["items"]
    files["kubernetes/leases.json"] = [{"name": name(one), "spec": one.get("spec")} for one in leases]
    return files


async def _settings(client: KubeClient, namespace: str) -> Files:
    found = (await client.json("GET", CONFIGMAPS.path(namespace), params=_SELECTOR))["items"]
    return {
        f"settings/{name(one)}/{key}": text
        for one in found
        if not name(one).endswith("-dashboard")
        for key, text in (one.get("data") or {}).items()
    }


async def _events(client: KubeClient, namespace: str) -> Files:
    found = (await client.json("GET", EVENTS.path(namespace), params={"limit": "1000"}))["items"]
    kept = ("type", "reason", "message", "count", "firstTimestamp", "lastTimestamp", "involvedObject")
    return {"kubernetes/events.json": [{key: one.get(key) for key in kept} for one in found]}


async def _queues(client: KubeClient) -> Files:
    found = (await client.json("GET", QUEUES.path()))["items"]
    return {"queues.json": [{"name": name(one), "spec": one.get("spec"), "status": one.get("status")} for one in found]}


async def _log(client: KubeClient, namespace: str, pod: Mapping[str, Any]) -> Files:
    """Of each container its end, and that of the one before it where it was started anew. Raises what the API server refuses it with."""
    files = {}
    restarts = {s["name"]: s.get("restartCount", 0) for s in (pod.get("status") or {}).get("containerStatuses") or ()}
    for container in (c["name"] for c in pod["spec"]["containers"]):
        for before in (False, True):
            if before and not restarts.get(container):
                continue
            params = {
                "container": container,
                "tailLines": "20000",
                "limitBytes": str(LOG_BYTES),
                "previous": str(before).lower(),
            }
            answer = await client.expected("GET", PODS.path(namespace, name(pod), "log"), params=params)
            files[f"logs/{name(pod)}.{container}{'.previous' * before}.log"] = answer.body.decode("utf-8", "replace")
    return files


async def _metrics(client: KubeClient, namespace: str, pod: Mapping[str, Any]) -> Files:
    path = f"{PODS.path(namespace, name(pod))}:{PORT}/proxy"
    ready = await client.request("GET", f"{path}/readyz")
    metrics = await client.expected("GET", f"{path}/metrics")
    return {
        f"ready/{name(pod)}.json": ready.body.decode("utf-8", "replace"),
        f"metrics/{name(pod)}.txt": metrics.body.decode("utf-8", "replace"),
    }


async def _broker(url: str, access: Access) -> Files:
    found = await look(url, user=ADMIN, access=access)
    return {
        "bus/broker.json": {"version": found.version, "max_payload": found.max_payload, "account": found.account},
        "bus/streams.json": found.streams,
        "bus/consumers.json": found.consumers,
    }
