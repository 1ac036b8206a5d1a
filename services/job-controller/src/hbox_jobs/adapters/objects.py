"""Kubernetes objects as the core's values.

What a pod asks for is worked out once for all pods that write the same: a job's thousand pods share one `Shape`.
"""

import logging
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import replace
from hashlib import sha256

import msgspec

from hbox_common import kube
from hbox_common.errors import InvalidRequest
from hbox_common.kube.definitions import POD_GROUP
from hbox_common.kube.podgroups import name_of, rules_of
from hbox_common.kube.times import epoch_s
from hbox_common.kube.unknownfields import SpecFields
from hbox_common.model import (
    NO_CONSTRAINTS,
    SCHEDULER_NAME,
    VENDORS,
    CardSlice,
    HostPort,
    Match,
    MatchOperator,
    NodeName,
    NodeTerm,
    PodUid,
    PreferredTerm,
    Toleration,
    TolerationOperator,
    image_name,
    parse_slices,
)
from hbox_common.model.annotations import CARDS, offered
from hbox_common.model.bounds import (
    INT32_MAX,
    KEY_BYTES,
    SHAPE_BYTES,
    VALUE_BYTES,
    VOLUMES,
    is_name,
    is_plain,
    not_plain,
    oversized,
    sanitized,
)
from hbox_common.model.devices import number_in
from hbox_common.model.ranks import rank_key
from hbox_common.workloads import OwnerRef, Submitted, controller_of, group_ref_of
from hbox_common.workloads.owner import HIGHEST_TIER, MODE
from hbox_common.workloads.refs import COSCHEDULING_LABELS, GROVE_GANG, KUEUE_COUNT, KUEUE_GROUP

from .. import metrics
from ..core.cards import as_admitted
from ..core.refusals import refusal_of
from ..core.requests import Container
from ..core.spec import PodSpec, Shape, shape_of
from ..core.views import QUEUE_GATE, GroupCondition, GroupPhase, GroupStatus, GroupView, PodStatus, PodView
from ..core.volumes import VolumeUse
from .annotations import submitter_of, written_on
from .podconstraints import constraints_of
from .resized import Given, given_of

log = logging.getLogger(__name__)

#: The preemptionPolicy of pods and PriorityClasses that never preempt.
NEVER = "Never"

#: Of one pod, by which nodes are scored.
MAX_IMAGES = 16

#: Maximum length of a pod's annotations that allocate cards for device plugins, in characters. Each card of a container takes 60.
ALLOCATED_BYTES = 16 * 1024

#: Of a pod that is being deleted: maximum published finalizers, and bytes of each.
MOST_FINALIZERS, MOST_FINALIZER = 3, 128

#: Maximum distinct shapes in the cache, in addition to those of existing pods (a cluster's day has a few hundred), and their text in bytes; as objects they
#: take
#: several times as much.
MAX_SHAPES, MAX_SHAPES_BYTES = 10_000, 16 * 2**20


#: Labels by which a pod names a declared group.
_GROUP_LABELS = frozenset({*COSCHEDULING_LABELS, KUEUE_GROUP, GROVE_GANG})
#: Annotations of pods that rules for gangs read.
POD_ANNOTATIONS = frozenset({KUEUE_COUNT, MODE, HIGHEST_TIER})
#: Maximum owners of which equal references are shared.
MAX_CONTROLLERS = 20_000


def _names_group(labels: Mapping[str, str], spec: kube.PodSpec) -> bool:
    return bool(spec.scheduling_group.pod_group_name) or (bool(labels) and not _GROUP_LABELS.isdisjoint(labels))


class PodReader:
    """Converts pods to `PodView`s. `schedulers`: the scheduler names of HBox's pods. `completes`: read pods as if the admission endpoint had completed them;
    otherwise
    incomplete pods are refused, because a container that names no devices gets none.
    """

    def __init__(self, schedulers: Collection[str] = (SCHEDULER_NAME,), *, completes: bool = False) -> None:
        self._completes = completes
        self._schedulers = frozenset(schedulers)
        self._shapes: OrderedDict[bytes, Shape] = OrderedDict()  #: by the digest of what is written
        self._bytes = 0  #: `Shape.written` of these
        self._controllers: dict[OwnerRef, OwnerRef] = {}

    def view(self, pod: kube.Pod, old: PodView | None = None) -> PodView:
        """The core's value of this version; `old` is that of the version before, so that a complaint is logged once. Never raises."""
        meta, spec, status = pod.metadata, pod.spec, pod.status
        written = written_on(meta.annotations, meta.labels)
        shape = self._shape(pod)
        constraints, problem = NO_CONSTRAINTS, written.problem
        if not shape.oversized:
            try:
                constraints = constraints_of(spec, meta.labels)
            except ValueError as e:
                problem = problem or f"{e}: not supported by HBox"
        volumes, missing = _volumes(pod)
        problem = shape.problem or problem or missing or _resource_claims(spec)
        slices = self._slices(pod, old)
        by_index = any(number_in(s.card) is not None for s in slices)  # an older binder wrote them
        unscheduled = next((c for c in status.conditions if c.type == "PodScheduled" and c.status == "False"), None)
        return PodView(
            uid=PodUid(meta.uid),
            namespace=meta.namespace,
            name=meta.name,
            resource_version=meta.resource_version,
            created_at=_seconds(meta.creation_timestamp),
            shape=shape if problem == shape.problem else replace(shape, problem=sanitized(problem)),
            node=NodeName(spec.node_name),
            status=_STATUS.get(status.phase, PodStatus.PENDING),
            deleting=meta.deletion_timestamp is not None,
            ends_at=_seconds(meta.deletion_timestamp),
            finalizers=_finalizers(meta) if meta.deletion_timestamp is not None else (),
            gated=bool(spec.scheduling_gates),
            queue_gate=bool(spec.scheduling_gates) and any(gate.name == QUEUE_GATE for gate in spec.scheduling_gates),
            ours=spec.scheduler_name in self._schedulers,
            group=written.group,
            submitted=self._submitted(pod) if meta.owner_references or _names_group(meta.labels, spec) else None,
            role=written.role,
            queue=written.queue,
            priority=max(-INT32_MAX, min(spec.priority or 0, INT32_MAX)),
            condition_message=unscheduled.message if unscheduled is not None else None,
            slices=slices,
            claim=written.claim,
            allocated=self._allocated(pod, old) if spec.node_name and (not written.claim or by_index) else _NO_LABELS,
            volumes=volumes,
            preemptable=offered(meta.labels, meta.annotations),
            priority_class=spec.priority_class_name if is_name(spec.priority_class_name) else "",
            labels=meta.labels,
            constraints=constraints,
            annotations=written.annotations,
            started_at=_seconds(status.start_time) or None if written.annotations else None,
            never_preempts=spec.preemption_policy == NEVER,
            rank_key=rank_key(meta.name, written.role, meta.labels, meta.annotations) if written.group else None,
            foreign_gang_label=""
            if written.group
            else next((label for label in COSCHEDULING_LABELS if meta.labels.get(label)), ""),
            written=_bytes_of(meta.labels) + _bytes_of(written.annotations),
            traceparent=submitter_of(meta.annotations),
            refusal=refusal_of(status.phase, status.reason, status.message),
            kubelet_at=_seconds(status.start_time),
            ready=bool(meta.owner_references) and any(c.type == "Ready" and c.status == "True" for c in status.conditions),
        )

    def _submitted(self, pod: kube.Pod) -> Submitted | None:
        meta, labels, annotations = pod.metadata, pod.metadata.labels, pod.metadata.annotations
        controller = controller_of(meta.owner_references)
        if controller is not None:  # the pods of one owner share one value
            controller = self._controllers.setdefault(controller, controller)
            if len(self._controllers) > MAX_CONTROLLERS:
                self._controllers.clear()
        group = group_ref_of(labels, annotations, scheduling_group=pod.spec.scheduling_group.pod_group_name)
        if controller is None and group is None:
            return None
        kept = {key: annotations[key] for key in annotations.keys() & POD_ANNOTATIONS}
        return Submitted(
            meta.uid,
            meta.namespace,
            meta.name,
            controller,
            labels,
            kept or _NO_LABELS,
            group,
            _seconds(meta.creation_timestamp),
        )

    def _allocated(self, pod: kube.Pod, old: PodView | None) -> Mapping[str, str]:
        """By kind of card, the annotations by which another scheduler allocated cards; empty if they exceed `ALLOCATED_BYTES` or are no plain text."""
        found = VENDORS.allocated(pod.metadata.annotations)
        if sum(map(len, found.values())) <= ALLOCATED_BYTES and all(is_plain(text, ALLOCATED_BYTES) for text in found.values()):
            return found or _NO_LABELS
        if old is None or old.node != pod.spec.node_name:
            metrics.MALFORMED.inc()
            log.warning(
                "pod %s/%s: the annotation that allocates its %s cards is too long or no plain text, and is ignored",
                pod.metadata.namespace,
                pod.metadata.name,
                ", ".join(found),
            )
        return _NO_LABELS

    def _slices(self, pod: kube.Pod, old: PodView | None) -> tuple[CardSlice, ...]:
        text = pod.metadata.annotations.get(CARDS, "")
        if not text:
            return ()
        try:
            return parse_slices(text)
        except (ValueError, TypeError):
            if old is None or old.node != pod.spec.node_name:
                metrics.MALFORMED.inc()
                log.warning(
                    "pod %s/%s: annotation %s is malformed and ignored: %.100r",
                    pod.metadata.namespace,
                    pod.metadata.name,
                    CARDS,
                    text,
                )
            return ()

    def _shape(self, pod: kube.Pod) -> Shape:
        spec, annotations = pod.spec, pod.metadata.annotations
        unsupported = [name for name in VENDORS.unsupported if annotations.get(name) or pod.metadata.labels.get(name)]
        written_wishes = {name: text for name in annotations.keys() & VENDORS.pod_annotations if (text := annotations[name])}
        given = given_of(pod)
        # Names of containers stay in: they stand in the text of a problem.
        written = _ENCODER.encode(
            (
                [(c.name, c.resources) for c in spec.containers],
                [(c.name, c.resources, c.restart_policy) for c in spec.init_containers],
                spec.resources,
                spec.overhead,
                spec.node_selector,
                spec.affinity,
                spec.tolerations,
                _ports(spec),
                written_wishes,
                unsupported,
                *([("images", images)] if (images := _images(spec)) else []),
                *([given] if given else []),
                *([("privileged", privileged)] if (privileged := _privileged(spec)) else []),
            )
        )
        bytes_ = len(written) + (len(_ENCODER.encode(spread)) if (spread := spec.topology_spread_constraints) else 0)
        digest = sha256(written if bytes_ <= SHAPE_BYTES else written + b"+").digest()
        shape = self._shapes.get(digest)
        if shape is None:
            shape = _read_shape(
                digest.hex()[:16],
                pod,
                written_wishes,
                frozenset(unsupported),
                bytes_=bytes_,
                given=given,
                completes=self._completes,
            )
            self._shapes[digest] = shape
            self._bytes += shape.written
            while len(self._shapes) > MAX_SHAPES or (self._bytes > MAX_SHAPES_BYTES and len(self._shapes) > 1):
                _, oldest = self._shapes.popitem(last=False)
                self._bytes -= oldest.written
        return shape


def _bytes_of(texts: Mapping[str, str]) -> int:
    """Of UTF-8, at least: each character of theirs counts for one."""
    return sum(map(len, texts)) + sum(map(len, texts.values()))


_ENCODER = msgspec.json.Encoder(order="deterministic")

_STATUS = {
    "Pending": PodStatus.PENDING,
    "Running": PodStatus.RUNNING,
    "Unknown": PodStatus.RUNNING,
    "Succeeded": PodStatus.SUCCEEDED,
    "Failed": PodStatus.FAILED,
}


def _read_shape(
    key: str,
    pod: kube.Pod,
    device_annotations: Mapping[str, str],
    unsupported: frozenset[str],
    *,
    bytes_: int,
    given: Given,
    completes: bool,
) -> Shape:
    spec = pod.spec
    problem = ""
    affinity: tuple[NodeTerm, ...] | None = None
    preferred: tuple[PreferredTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    large = bytes_ > SHAPE_BYTES
    if large:
        problem = (
            f"what it asks for, and where, has {bytes_} bytes, at most {SHAPE_BYTES} are taken: "
            "name nodes by labels that they share rather than one by one"
        )
    try:
        if not large:
            affinity, preferred = _affinity(spec.affinity)
            tolerations = tuple(
                Toleration(t.key, TolerationOperator(t.operator or "Equal"), t.value, t.effect) for t in spec.tolerations
            )
    except ValueError as e:
        problem = f"{e}: not supported by HBox"

    def read(c: kube.Container) -> Container:
        container = _container(c, given)
        return as_admitted(container, device_annotations) if completes else container

    return shape_of(
        key,
        PodSpec(
            containers=tuple(read(c) for c in spec.containers),
            init_containers=tuple(read(c) for c in spec.init_containers),
            overhead=spec.overhead,
            pod_requests={**spec.resources.limits, **spec.resources.requests} if spec.resources else {},
            node_selector=spec.node_selector if not large else {},
            affinity=affinity,
            preferred=preferred,
            tolerations=tolerations,
            ports=_ports(spec),
            device_annotations=device_annotations,
            images=_images(spec),
            unsupported=unsupported,
        ),
        problem=problem,
        oversized=large,
        written=0 if large else bytes_,
    )


def _container(c: kube.Container, given: Given) -> Container:
    own, infeasible = given.get(c.name, ({}, False))
    return Container(
        c.name,
        c.resources.requests,
        c.resources.limits,
        sidecar=c.restart_policy == "Always",
        given=own,
        infeasible=infeasible,
        privileged=c.security_context is not None and c.security_context.privileged,
    )


def _privileged(spec: kube.PodSpec) -> list[str]:
    return [
        c.name
        for c in (*spec.init_containers, *spec.containers)
        if c.security_context is not None and c.security_context.privileged
    ]


def _images(spec: kube.PodSpec) -> tuple[str, ...]:
    """Of its containers; those that cannot be passed on are left out: they say where a pod starts sooner, and no more."""
    return tuple(image_name(c.image) for c in spec.containers[:MAX_IMAGES] if c.image and is_plain(c.image, KEY_BYTES))


def _ports(spec: kube.PodSpec) -> tuple[HostPort, ...]:
    ports = [p for c in spec.containers for p in c.ports if p.host_port]
    ports += [p for c in spec.init_containers if c.restart_policy == "Always" for p in c.ports if p.host_port]
    return tuple(HostPort(p.host_port, p.protocol, p.host_ip) for p in ports)


def _volumes(pod: kube.Pod) -> tuple[tuple[VolumeUse, ...], str]:
    """Claims of its volumes, and what is wrong with one of them: nothing but that it is not empty is looked at by the API server."""
    if not pod.spec.volumes:
        return (), ""
    uses, problem = [], ""
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            name, wrong = name_of("persistentVolumeClaim.claimName", volume.persistent_volume_claim.claim_name)
            problem = problem or wrong
            if name:
                uses.append(VolumeUse(name))
        elif volume.ephemeral is not None:
            uses.append(VolumeUse(f"{pod.metadata.name}-{volume.name}", own=True))
    if len(uses) > VOLUMES:
        problem = problem or oversized("claims on volumes", len(uses), VOLUMES)
    return tuple(uses[:VOLUMES]), problem


def _resource_claims(spec: kube.PodSpec) -> str:
    """What is wrong with a pod that names ResourceClaims: its scheduler has to allocate and reserve them, else its kubelet waits with cards booked."""
    if not spec.resource_claims:
        return ""
    return (
        f"spec.resourceClaims: {spec.resource_claims[0].name}: HBox does not allocate ResourceClaims (dynamic resource allocation): "
        "ask for devices by resources of its containers, or leave the pod to another scheduler by its schedulerName"
    )


def _affinity(affinity: kube.Affinity | None) -> tuple[tuple[NodeTerm, ...] | None, tuple[PreferredTerm, ...]]:
    node = affinity.node_affinity if affinity is not None else None
    if node is None:
        return None, ()
    required = node_terms(node.required) if node.required is not None else None
    return required, tuple(PreferredTerm(p.weight, _term(p.preference)) for p in node.preferred)


def node_terms(selector: kube.NodeSelector) -> tuple[NodeTerm, ...]:
    """Raises ValueError for an operator that Kubernetes does not have."""
    return tuple(_term(t) for t in selector.node_selector_terms)


def _term(term: kube.NodeSelectorTerm) -> NodeTerm:
    for r in (*term.match_expressions, *term.match_fields):
        for value in r.values:
            if not is_plain(value, VALUE_BYTES):
                raise ValueError(not_plain(f"a value of {sanitized(r.key, 64)}", value, VALUE_BYTES))
    return NodeTerm(
        tuple(Match(r.key, MatchOperator(r.operator), r.values) for r in term.match_expressions),
        tuple(Match(r.key, MatchOperator(r.operator), r.values) for r in term.match_fields),
    )


_NO_LABELS: dict[str, str] = {}
_NO_SPEC, _NO_STATUS = kube.PodSpec(), kube.PodStatus()


def identity(pod: kube.Pod) -> kube.Pod:
    """The part of a pod that is kept in addition to its `PodView`: identity and version. The rest takes three quarters of a pod's memory."""
    meta = pod.metadata
    slim = kube.Metadata(
        name=meta.name, uid=meta.uid, namespace=meta.namespace, resource_version=meta.resource_version, labels=_NO_LABELS, annotations=_NO_LABELS
    )  # fmt: skip
    return kube.Pod(metadata=slim, spec=_NO_SPEC, status=_NO_STATUS)


GROUP_FIELDS = SpecFields(POD_GROUP)


def group_view(group: kube.PodGroup) -> GroupView:
    """A PodGroup as the core's value."""
    meta, spec, status = group.metadata, group.spec, group.status
    try:
        phase = GroupPhase(status.phase)
    except ValueError:
        phase = GroupPhase.NEW
    rules = rules_of(group)
    return GroupView(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        created_at=_seconds(meta.creation_timestamp),
        min_member=rules.min_member,
        queue=rules.queue,
        priority_class=rules.priority_class,
        preemptable=offered(meta.labels, meta.annotations),
        min_task_member=rules.min_task_member,
        min_resources=rules.min_resources,
        topology=rules.topology,
        annotations=rules.annotations,
        sub_gangs=rules.sub_gangs,
        problem=rules.problem,
        unknown_fields=group.unknown_fields,
        written=len(_ENCODER.encode(spec)) + _bytes_of(rules.annotations),
        traceparent=submitter_of(meta.annotations),
        version=int(meta.resource_version) if meta.resource_version.isdecimal() else 0,
        status=GroupStatus(
            phase,
            status.running,
            status.succeeded,
            status.failed,
            tuple(
                GroupCondition(c.type, c.status, c.reason, c.message, c.last_transition_time or "") for c in status.conditions
            ),
        ),
    )


def _finalizers(meta: kube.Metadata) -> tuple[str, ...]:
    return tuple(sanitized(name, MOST_FINALIZER) for name in meta.finalizers[:MOST_FINALIZERS])


def _seconds(timestamp: str | None) -> float:
    if not timestamp:
        return 0.0
    try:
        return epoch_s(timestamp)
    except InvalidRequest:
        return 0.0
