"""Changes by users and operators that no scheduler decides: nasty objects, pods resized in place, nodes that shrink.

Each is reverted after a while. The observer counts the changed sizes: pods bound meanwhile must fit.
"""

import asyncio
from typing import Any

from hbox_common.errors import NotFound
from hbox_common.kube import MERGE_PATCH, NAMESPACES, NODES, PERSISTENTVOLUMECLAIMS, PODGROUPS, PODS

from ..nasty_objects import KINDS, REFUSED_NOW, Json
from .load import NAMESPACE, Load
from .observer import STRANGERS

#: Requests of a resized pod; three of them fill any node of a campaign.
GROWN = {"cpu": "60", "memory": "100Gi"}
#: Allocatable CPU of a node that shrank; no pod of the load fits.
SMALL = {"cpu": "50m"}

_RESOURCES = {"Pod": PODS, "PodGroup": PODGROUPS, "PersistentVolumeClaim": PERSISTENTVOLUMECLAIMS}


async def put_nasty(load: Load, kinds: int, hold_s: float) -> None:
    """Create nasty objects of `kinds` kinds at the same time, each pending and bound; delete them after `hold_s` seconds."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": STRANGERS}}
    await load.insist("POST", NAMESPACES.path(), body=space)
    objects: list[Json] = []
    for kind in load.rng.sample([one for one in KINDS if one.name not in REFUSED_NOW], kinds):
        tag, node = f"n{load.rng.getrandbits(40)}", f"node-{load.rng.randrange(load.nodes):04}"
        objects += [*kind.waiting(f"{tag}-w"), *kind.bound(f"{tag}-b", node)]
    for one in objects:
        await load.insist("POST", _RESOURCES[one["kind"]].path(STRANGERS), body=one)
    await asyncio.sleep(hold_s)
    for one in objects:
        path = _RESOURCES[one["kind"]].path(STRANGERS, one["metadata"]["name"])
        await load.insist("DELETE", path, body={"gracePeriodSeconds": 0})


async def resize(load: Load, pods: int, hold_s: float) -> None:
    """Set the allocated resources of running pods to GROWN, whether the node has them or not; revert it after `hold_s` seconds."""
    listed = await load.client.json("GET", PODS.path(NAMESPACE))
    running = [one for one in listed["items"] if one["status"].get("phase") == "Running"]
    chosen = load.rng.sample(running, min(pods, len(running)))
    for one in chosen:
        await _say_given(load, one, {"requests": GROWN, "limits": GROWN})
    await asyncio.sleep(hold_s)
    for one in chosen:
        await _say_given(load, one, None)


async def _say_given(load: Load, pod: Json, resources: dict[str, Any] | None) -> None:
    statuses = [{**one, "resources": resources} if resources else one for one in pod["status"]["containerStatuses"]]
    path = f"{PODS.path(NAMESPACE, pod['metadata']['name'])}/status"
    body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"containerStatuses": statuses}}
    try:
        await load.insist("PATCH", path, body=body, content_type=MERGE_PATCH)
    except NotFound:
        return  # its user deleted it


async def shrink(load: Load, nodes: int, hold_s: float) -> None:
    """Shrink nodes to SMALL, and restore them after `hold_s` seconds."""
    names = [f"node-{number:04}" for number in load.rng.sample(range(load.nodes), nodes)]
    whole = [await load.client.json("GET", NODES.path(name=name)) for name in names]
    for node in whole:
        await _has(load, node, SMALL)
        status = {**node["status"], "allocatable": node["status"]["allocatable"] | SMALL}
        load.observer.node_is({**node, "status": status})
    await asyncio.sleep(hold_s)
    for node in whole:
        load.observer.node_is(node)
        await _has(load, node, {name: node["status"]["allocatable"][name] for name in SMALL})


async def _has(load: Load, node: Json, amounts: dict[str, str]) -> None:
    path = f"{NODES.path(name=node['metadata']['name'])}/status"
    await load.insist("PATCH", path, body={"status": {"allocatable": amounts}}, content_type=MERGE_PATCH)
