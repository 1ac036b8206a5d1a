"""Claims, volumes and storage classes into the core: three watches that are silent in most clusters."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import msgspec

from hbox_common import kube
from hbox_common.clock import monotonic_s
from hbox_common.kube import (
    BIND_COMPLETED,
    NO_PROVISIONER,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    SELECTED_NODE,
    STORAGECLASSES,
    Delta,
    Informer,
    KubeClient,
    demand_of,
    storage_class_of,
    supply_of,
)
from hbox_common.kube.objects import VolumeNodeAffinity
from hbox_common.model import Match, MatchOperator, NodeTerm
from hbox_common.model.bounds import NAME_BYTES, SHAPE_BYTES, sanitized

from ..core.feedback import Feedback
from ..core.jobs import Jobs
from ..core.staticvolumes import Reach
from ..core.volumes import Binding, ClaimView
from .objects import node_terms

#: Labels of volumes that say from which zone or region they can be reached, and what an old one is called now. A volume of several names them all.
_ZONE_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "",
    "topology.kubernetes.io/region": "",
}
_NEXT_ZONE = "__"
_ANYWHERE_UNZONED = NodeTerm(tuple(Match(key, MatchOperator.DOES_NOT_EXIST) for key in _ZONE_LABELS))

#: No node reaches it.
NOWHERE: Reach = ((),)

_ENCODER = msgspec.json.Encoder()

WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"


class VolumeWatch:
    """Keeps `jobs.volumes` as Kubernetes has it; `wake` is set when jobs may have changed, `behind` when there may be something for Kubernetes."""

    def __init__(
        self, client: KubeClient, jobs: Jobs, feedback: Feedback, *, wake: asyncio.Event, behind: asyncio.Event
    ) -> None:
        self._jobs, self._feedback, self._wake, self._behind = jobs, feedback, wake, behind
        self._claims = Informer(client, PERSISTENTVOLUMECLAIMS, kube.PersistentVolumeClaim)
        self._volumes = Informer(client, PERSISTENTVOLUMES, kube.PersistentVolume)
        self._classes = Informer(client, STORAGECLASSES, kube.StorageClass)
        self.informers: dict[str, Informer[Any]] = {
            "persistentvolumeclaims": self._claims,
            "persistentvolumes": self._volumes,
            "storageclasses": self._classes,
        }

        self._retry = asyncio.Event()

    def start(self, group: asyncio.TaskGroup) -> None:
        group.create_task(self._retry_nodes())
        group.create_task(self._claims.run(self._on_claims))
        group.create_task(self._volumes.run(self._on_volumes))
        group.create_task(self._classes.run(self._on_classes))

    async def _on_claims(self, deltas: Sequence[Delta[kube.PersistentVolumeClaim]]) -> None:
        for delta in deltas:
            thing = delta.new or delta.old
            assert thing is not None
            key = f"{thing.metadata.namespace}/{thing.metadata.name}"
            view = claim_view(delta.new) if delta.new is not None else None
            if node := self._jobs.volumes.rejected(key, view):
                now = monotonic_s()
                self._feedback.node_rejected(key, node, self._jobs.volumes.rejections.add(key, node, now), now)
                self._retry.set()
            self._changed(self._jobs.volumes.claim(key, view))

    async def _on_volumes(self, deltas: Sequence[Delta[kube.PersistentVolume]]) -> None:
        for delta in deltas:
            thing = delta.new or delta.old
            assert thing is not None
            if delta.new is None:
                self._changed(self._jobs.volumes.volume(thing.metadata.name, (), gone=True))
            else:
                self._changed(self._jobs.volumes.volume(thing.metadata.name, reach_of(thing), supply_of(thing)))

    async def _on_classes(self, deltas: Sequence[Delta[kube.StorageClass]]) -> None:
        for delta in deltas:
            thing = delta.new or delta.old
            assert thing is not None
            self._changed(self._jobs.volumes.storage_class(thing.metadata.name, binding_of(delta.new), reach_of_class(thing)))

    async def _retry_nodes(self) -> NoReturn:
        """Let pods try nodes again that provisioners rejected."""
        rejections = self._jobs.volumes.rejections
        while True:
            self._retry.clear()
            due = rejections.next_due()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if due is None else max(0.0, due - monotonic_s())):
                    await self._retry.wait()
            self._changed(rejections.expire(monotonic_s()))

    def _changed(self, claims: Sequence[str]) -> None:
        now = monotonic_s()
        if not claims:
            return
        self._jobs.volumes_changed(claims, now)
        self._feedback.claims_changed(claims, now)
        self._wake.set()
        self._behind.set()


def binding_of(found: kube.StorageClass | None) -> Binding | None:
    if found is None:
        return None
    if found.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
        return Binding.IMMEDIATE
    return Binding.STATIC if found.provisioner == NO_PROVISIONER else Binding.PLACED


def claim_view(claim: kube.PersistentVolumeClaim) -> ClaimView:
    """A PersistentVolumeClaim as the core's value."""
    meta, spec = claim.metadata, claim.spec
    owner = next((o for o in meta.owner_references if o.controller and o.kind == "Pod"), None)
    return ClaimView(
        volume=sanitized(spec.volume_name, NAME_BYTES),
        bound=bool(spec.volume_name) and BIND_COMPLETED in meta.annotations,
        lost=claim.status.phase == "Lost",
        single_pod=READ_WRITE_ONCE_POD in spec.access_modes,
        deleting=meta.deletion_timestamp is not None,
        storage_class=sanitized(storage_class_of(claim, spec.storage_class_name), NAME_BYTES),
        owner=owner.uid if owner is not None else "",
        selected=sanitized(meta.annotations.get(SELECTED_NODE, ""), NAME_BYTES),  # a name that no node has is reached from none
        uid=meta.uid,
        demand=None if spec.volume_name else demand_of(claim),
    )


def reach_of(volume: kube.PersistentVolume) -> Reach:
    """The nodes from which a volume can be reached: by its node affinity, and by the labels that say its zone and region. What cannot be read is reached
    from none."""
    return (*_affinity(volume.spec.node_affinity), *_zones(volume.metadata.labels))


def reach_of_class(found: kube.StorageClass) -> Reach:
    """The nodes from which volumes can be reached that are made for a class: `allowedTopologies`. A term of it without expressions allows none."""
    if not found.allowed_topologies:
        return ()
    if len(_ENCODER.encode(found.allowed_topologies)) > SHAPE_BYTES:
        return NOWHERE
    return (
        tuple(
            NodeTerm(tuple(Match(one.key, MatchOperator.IN, one.values) for one in term.match_label_expressions))
            for term in found.allowed_topologies
        ),
    )


def _affinity(affinity: VolumeNodeAffinity | None) -> Reach:
    if affinity is None or affinity.required is None:
        return ()
    if len(_ENCODER.encode(affinity)) > SHAPE_BYTES:
        return NOWHERE
    operators = {r.operator for t in affinity.required.node_selector_terms for r in (*t.match_expressions, *t.match_fields)}
    try:
        return (node_terms(affinity.required),) if operators <= set(MatchOperator) else NOWHERE
    except ValueError:
        return NOWHERE


def _zones(labels: Mapping[str, str]) -> Reach:
    """kube-scheduler's VolumeZone: a node with any of the labels has to have those of the volume; an old name is met by the new one too."""
    reach = []
    for key, newer in _ZONE_LABELS.items():
        zones = tuple(sorted({zone.strip() for zone in labels.get(key, "").split(_NEXT_ZONE)}))
        if key not in labels or not all(zones):
            continue
        terms = [_ANYWHERE_UNZONED, NodeTerm((Match(key, MatchOperator.IN, zones),))]
        if newer:
            terms.append(NodeTerm((Match(key, MatchOperator.DOES_NOT_EXIST), Match(newer, MatchOperator.IN, zones))))
        reach.append(tuple(terms))
    return tuple(reach)
