"""Claims on volumes are bound before their pod, as by kube-scheduler's VolumeBinding: the provisioner is given the node, and the pod waits for the volume.

Every call begins with a consistent read of the claims, and writes on the version that it read: it may be repeated, and broken off, at any point.
"""

from collections.abc import Sequence

from hbox_common.errors import Conflict, HBoxError, NotFound, Unavailable
from hbox_common.events import Bind
from hbox_common.kube import (
    BIND_COMPLETED,
    MERGE_PATCH,
    NODES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    SELECTED_NODE,
    KubeClient,
    KubeObject,
    NotAllowed,
    PersistentVolume,
    PersistentVolumeClaim,
    reaches,
)

from ..core import Answer, Finding, Need, VolumeClaim, need_of


async def bind_volumes(client: KubeClient, bind: Bind, *, late: bool, waiting: bool) -> Answer:
    """READY where every claim of the bind has a volume that its node reaches. `late`: the time for that is over; `waiting`: see `need_of`.

    Raises nothing but Bug.
    """
    try:
        return await _bind_volumes(client, bind, late=late, waiting=waiting)
    except Conflict as e:  # another wrote on a claim: the next call reads it
        return Answer(Finding.NOT_YET, str(e))
    except HBoxError as e:
        wait_s = e.retry_after_s if isinstance(e, Unavailable) else None
        return Answer(Finding.UNCLEAR, str(e), retry_after_s=wait_s, not_allowed=isinstance(e, NotAllowed))


async def _bind_volumes(client: KubeClient, bind: Bind, *, late: bool, waiting: bool) -> Answer:
    claims = [await _read(client, bind.namespace, name) for name in bind.volume_claims]
    needs = [(claim, *need_of(claim, waiting=waiting)) for claim in claims]
    if why := next((why for _, need, why in needs if need is Need.ANOTHER_NODE), ""):
        return Answer(Finding.REFUSED, f"node {bind.node}: {why}")
    if late and (pending := [(claim, why) for claim, need, why in needs if need is not Need.NOTHING]):
        for claim, _ in pending:
            if claim.selected == bind.node and not claim.volume:
                await _select(client, bind.namespace, claim, None)
        return Answer(Finding.REFUSED, f"node {bind.node}: {pending[0][1]}, and the time for that is over")
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
    return VolumeClaim(name, meta.resource_version, volume, bound, meta.annotations.get(SELECTED_NODE, ""), problem)


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
        if labels is None:
            try:
                labels = dict((await client.expected("GET", NODES.path(name=node))).decode(KubeObject).metadata.labels)
            except NotFound:
                return f"there is no node {node}"
        if not reaches(volume, node, labels):
            return f"volume {claim.volume} of persistentvolumeclaim {claim.name} cannot be reached from node {node}"
    return ""
