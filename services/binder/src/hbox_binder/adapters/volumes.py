"""Claims on volumes are bound before their pod, as by kube-scheduler's VolumeBinding: the provisioner is given the node, and the pod waits for the volume.
Of a class without a provisioner one of the volumes that the node reaches is reserved for the claim, and the volume controller binds the two.

Every call begins with a consistent read of the claims, and writes on the version that it read: it may be repeated, and broken off, at any point.
"""

from collections.abc import Sequence

import msgspec

from hbox_common.errors import Conflict, HBoxError, NotFound, Unavailable
from hbox_common.events import Bind
from hbox_common.kube import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    MERGE_PATCH,
    NO_PROVISIONER,
    NODES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    SELECTED_NODE,
    STORAGECLASSES,
    KubeClient,
    KubeObject,
    NotAllowed,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    demand_of,
    reaches,
    storage_class_of,
    supply_of,
)
from hbox_common.model import VolumeDemand, assign, reserved

from ..core import Answer, Finding, Need, VolumeClaim, need_of


class _Volumes(msgspec.Struct):
    items: list[PersistentVolume]


async def bind_volumes(client: KubeClient, bind: Bind, *, expired: bool, waiting: bool) -> Answer:
    """READY where every claim of the bind has a volume that its node reaches. `expired`: the time for that is over; `waiting`: see `need_of`.

    Raises nothing but Bug.
    """
    try:
        return await _bind_volumes(client, bind, expired=expired, waiting=waiting)
    except Conflict as e:  # another wrote on a claim: the next call reads it
        return Answer(Finding.NOT_YET, str(e))
    except HBoxError as e:
        wait_s = e.retry_after_s if isinstance(e, Unavailable) else None
        return Answer(Finding.UNCLEAR, str(e), retry_after_s=wait_s, not_allowed=isinstance(e, NotAllowed))


async def _bind_volumes(client: KubeClient, bind: Bind, *, expired: bool, waiting: bool) -> Answer:
    claims = [await _read(client, bind.namespace, name) for name in bind.volume_claims]
    needs = [(claim, *need_of(claim, waiting=waiting)) for claim in claims]
    why = next((why for _, need, why in needs if need is Need.ANOTHER_NODE), "")
    if not why and expired and (pending := [why for _, need, why in needs if need is not Need.NOTHING]):
        why = f"{pending[0]}, and the time for that is over"
    if not why and (static := [claim for claim, need, _ in needs if need is Need.VOLUME]):
        why = await _reserve(client, bind, static)
    if why:
        for claim in claims:  # one that keeps its node would keep the pod on it
            if claim.selected == bind.node and not claim.volume:
                await _select(client, bind.namespace, claim, None)
        return Answer(Finding.REFUSED, f"node {bind.node}: {why}")
    for claim, need, _ in needs:
        if need is Need.NODE:
            await _select(client, bind.namespace, claim, bind.node)
    if why := next((why for _, need, why in needs if need is not Need.NOTHING), ""):
        return Answer(Finding.WAITING, f"node {bind.node}: {why}")
    unreached = await _unreached(client, bind.node, claims)
    return Answer(Finding.REFUSED, unreached) if unreached else Answer(Finding.READY)


async def _read(client: KubeClient, namespace: str, name: str) -> VolumeClaim:
    try:
        found = (await client.expected("GET", PERSISTENTVOLUMECLAIMS.path(namespace, name))).decode(PersistentVolumeClaim)
    except NotFound:
        return VolumeClaim(name, "", problem="is gone")
    meta, volume = found.metadata, found.spec.volume_name
    problem = "is being deleted" if meta.deletion_timestamp is not None else ""
    if found.status.phase == "Lost":
        problem = "has lost its volume"
    bound = bool(volume) and BIND_COMPLETED in meta.annotations
    selected, demand, static_class = meta.annotations.get(SELECTED_NODE, ""), demand_of(found), ""
    if demand is None:
        problem = problem or "cannot be read"
    if not (problem or volume or selected):
        static_class = await _static_class(client, storage_class_of(found, found.spec.storage_class_name))
    return VolumeClaim(
        name, meta.resource_version, volume, bound, selected, problem, meta.uid, demand or VolumeDemand(), static_class
    )


async def _static_class(client: KubeClient, name: str) -> str:
    """The class, if it makes no volumes; empty otherwise."""
    try:
        found = (await client.expected("GET", STORAGECLASSES.path(name=name))).decode(StorageClass)
    except NotFound:
        return ""
    return name if found.provisioner == NO_PROVISIONER else ""


async def _reserve(client: KubeClient, bind: Bind, claims: Sequence[VolumeClaim]) -> str:
    """Reserve a volume that the node reaches for each of these claims, or for none and say why. A claim finds its reservation again. Raises Conflict, NotFound
    among others."""
    labels = await _labels(client, bind.node)
    if labels is None:
        return f"there is no node {bind.node}"
    listed = (await client.expected("GET", PERSISTENTVOLUMES.path())).decode(_Volumes).items
    versions = {volume.metadata.name: volume.metadata.resource_version for volume in listed}
    within = {volume.metadata.name for volume in listed if reaches(volume, bind.node, labels)}
    supplies = [supply for volume in listed if (supply := supply_of(volume)) is not None]
    open_claims: dict[str, dict[str, VolumeClaim]] = {}  # by class and name
    for claim in claims:
        found = reserved(supplies, f"{bind.namespace}/{claim.name}", claim.uid, claim.demand)
        if found is None:
            open_claims.setdefault(claim.static_class, {})[claim.name] = claim
        elif found.name not in within:
            return f"volume {found.name} of persistentvolumeclaim {claim.name} cannot be reached"
    chosen: list[tuple[VolumeClaim, str]] = []
    for storage_class, unserved in open_claims.items():
        free = [s for s in supplies if s.storage_class == storage_class and s.name in within]
        volumes = assign({name: claim.demand for name, claim in unserved.items()}, free)
        if missing := sorted(unserved.keys() - volumes.keys()):
            return f"no available persistent volume of StorageClass {storage_class} fits persistentvolumeclaim {missing[0]}"
        chosen += [(unserved[name], volume.name) for name, volume in volumes.items()]
    for claim, volume in chosen:
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": bind.namespace,
            "name": claim.name,
            "uid": claim.uid,
        }
        body = {
            "metadata": {"resourceVersion": versions[volume], "annotations": {BOUND_BY_CONTROLLER: "yes"}},
            "spec": {"claimRef": reference},
        }
        await client.expected("PATCH", PERSISTENTVOLUMES.path(name=volume), body=body, content_type=MERGE_PATCH)
    return ""


async def _labels(client: KubeClient, node: str) -> dict[str, str] | None:
    """The labels of a node; None = there is no such node."""
    try:
        return dict((await client.expected("GET", NODES.path(name=node))).decode(KubeObject).metadata.labels)
    except NotFound:
        return None


async def _select(client: KubeClient, namespace: str, claim: VolumeClaim, node: str | None) -> None:
    """Give the provisioner of a claim the node, or (None) take it back, if the claim is still as it was read. Raises Conflict, NotFound among others."""
    body = {"metadata": {"resourceVersion": claim.resource_version, "annotations": {SELECTED_NODE: node}}}
    await client.expected("PATCH", PERSISTENTVOLUMECLAIMS.path(namespace, claim.name), body=body, content_type=MERGE_PATCH)


async def _unreached(client: KubeClient, node: str, claims: Sequence[VolumeClaim]) -> str:
    """Why the node reaches not all volumes of the claims; empty if it does. A volume may have been made for the pod of another node."""
    labels: dict[str, str] | None = None
    for claim in claims:
        try:
            volume = (await client.expected("GET", PERSISTENTVOLUMES.path(name=claim.volume))).decode(PersistentVolume)
        except NotFound:
            return f"persistentvolumeclaim {claim.name} has lost its volume"
        if volume.spec.node_affinity is None:
            continue
        labels = labels if labels is not None else await _labels(client, node)
        if labels is None:
            return f"there is no node {node}"
        if not reaches(volume, node, labels):
            return f"volume {claim.volume} of persistentvolumeclaim {claim.name} cannot be reached from node {node}"
    return ""
