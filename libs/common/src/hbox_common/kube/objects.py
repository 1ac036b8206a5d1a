"""Slim views of Kubernetes objects: the fields that scheduling needs, decoded straight from bytes.

Fields that are not declared (managedFields above all) are skipped while decoding, so they cost neither memory nor garbage collection: 10,000 pods decode in
0.05 s, against 5.5 s for the official client's models (measured; sources: kubernetes-client). Field names are Kubernetes', in snake case. Quantities stay
unparsed (`hbox_common.model.resources` reads them), times stay RFC 3339 (`times.epoch_s`).
"""

from typing import TypeAlias

import msgspec

from hbox_common.model.queue import NODE_GROUP_RULES

Quantities: TypeAlias = dict[str, str | int | float]


class _Slim(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    pass


class OwnerReference(_Slim, frozen=True, gc=False):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Metadata(_Slim, frozen=True, gc=False):
    name: str
    uid: str
    namespace: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class KubeObject(_Slim, frozen=True, gc=False):
    """What every kind has, and all that a DELETED line is read for."""

    metadata: Metadata


class Condition(_Slim, frozen=True, gc=False):
    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


# --- pods


class ContainerPort(_Slim, frozen=True, gc=False):
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Needs(_Slim, frozen=True, gc=False):
    requests: Quantities = {}
    limits: Quantities = {}


class SecurityContext(_Slim, frozen=True, gc=False):
    privileged: bool = False


class Container(_Slim, frozen=True, gc=False):
    name: str = ""
    image: str = ""
    resources: Needs = Needs()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""  #: "Always" makes an init container a sidecar, which keeps its request
    security_context: SecurityContext | None = None


class Requirement(_Slim, frozen=True, gc=False):
    """`operator`: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(_Slim, frozen=True, gc=False):
    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(_Slim, frozen=True, gc=False):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredTerm(_Slim, frozen=True, gc=False):
    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(_Slim, frozen=True, gc=False):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredTerm, ...] = msgspec.field(default=(), name="preferredDuringSchedulingIgnoredDuringExecution")


class LabelSelector(_Slim, frozen=True, gc=False):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class PodAffinityTerm(_Slim, frozen=True, gc=False):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(_Slim, frozen=True, gc=False):
    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(_Slim, frozen=True, gc=False):
    """Also of anti-affinity."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(_Slim, frozen=True, gc=False):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(_Slim, frozen=True, gc=False):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class Toleration(_Slim, frozen=True, gc=False):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class SchedulingGate(_Slim, frozen=True, gc=False):
    name: str


class ClaimSource(_Slim, frozen=True, gc=False):
    claim_name: str = ""


class EphemeralSource(_Slim, frozen=True, gc=False):
    """The claim is made from a template, by a controller, under the name `<pod>-<volume>`."""


class Volume(_Slim, frozen=True, gc=False):
    """Volumes of other kinds come from the node or the API server and restrict nothing."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None


class PodResourceClaim(_Slim, frozen=True, gc=False):
    """Of dynamic resource allocation (resource.k8s.io); what it refers to is not read."""

    name: str = ""


class SchedulingGroup(_Slim, frozen=True, gc=False):
    """The PodGroup of scheduling.k8s.io that a pod belongs to (Kubernetes 1.36)."""

    pod_group_name: str = ""


class PodSpec(_Slim, frozen=True, gc=False):
    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    scheduling_group: SchedulingGroup = SchedulingGroup()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    resources: Needs | None = None
    overhead: Quantities = {}
    termination_grace_period_seconds: int | None = None


class ContainerStatus(_Slim, frozen=True, gc=False):
    """The resources that the kubelet allocated to a container, and those it runs with (KEP-1287): both differ from the spec during a resize."""

    name: str = ""
    allocated_resources: Quantities = {}
    resources: Needs | None = None


class PodStatus(_Slim, frozen=True, gc=False):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    start_time: str | None = None
    nominated_node_name: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(KubeObject, frozen=True, gc=False):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# --- nodes


class Taint(_Slim, frozen=True, gc=False):
    key: str
    effect: str
    value: str = ""


class NodeSpec(_Slim, frozen=True, gc=False):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class ContainerImage(_Slim, frozen=True, gc=False):
    names: tuple[str, ...] | None = None  #: null where the runtime knows none
    size_bytes: int = 0


class NodeStatus(_Slim, frozen=True, gc=False):
    capacity: Quantities = {}
    allocatable: Quantities = {}
    conditions: tuple[Condition, ...] = ()
    images: tuple[ContainerImage, ...] | None = None


class Node(KubeObject, frozen=True, gc=False):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# --- volumes


class StorageRequest(_Slim, frozen=True, gc=False):
    requests: dict[str, str | float] = {}


class PersistentVolumeClaimSpec(_Slim, frozen=True, gc=False):
    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    selector: LabelSelector | None = None
    resources: StorageRequest = StorageRequest()


class PersistentVolumeClaimStatus(_Slim, frozen=True, gc=False):
    phase: str = ""


class PersistentVolumeClaim(KubeObject, frozen=True, gc=False):
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class VolumeNodeAffinity(_Slim, frozen=True, gc=False):
    required: NodeSelector | None = None


class ClaimReference(_Slim, frozen=True, gc=False):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class PersistentVolumeSpec(_Slim, frozen=True, gc=False):
    node_affinity: VolumeNodeAffinity | None = None
    storage_class_name: str = ""
    capacity: dict[str, str | float] = {}
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    claim_ref: ClaimReference | None = None


class PersistentVolumeStatus(_Slim, frozen=True, gc=False):
    phase: str = ""


class PersistentVolume(KubeObject, frozen=True, gc=False):
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologyRequirement(_Slim, frozen=True, gc=False):
    """The label has one of the values."""

    key: str
    values: tuple[str, ...] = ()


class TopologySelectorTerm(_Slim, frozen=True, gc=False):
    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClass(KubeObject, frozen=True, gc=False):
    volume_binding_mode: str = ""
    provisioner: str = ""
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


# --- Volcano's scheduling.volcano.sh/v1beta1


class NetworkTopology(_Slim, frozen=True, gc=False):
    mode: str = "hard"
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class SubGroupPolicy(_Slim, frozen=True, gc=False):
    name: str = ""
    match_label_keys: tuple[str, ...] = ()
    label_selector: LabelSelector = LabelSelector()
    sub_group_size: int = 1
    min_sub_groups: int = 0
    network_topology: NetworkTopology | None = None


class PodGroupSpec(_Slim, frozen=True, gc=False):
    min_member: int = 0
    min_task_member: dict[str, int] = {}
    queue: str = ""
    priority_class_name: str = ""
    min_resources: Quantities = {}
    network_topology: NetworkTopology | None = None
    sub_group_policy: tuple[SubGroupPolicy, ...] = ()


class PodGroupStatus(_Slim, frozen=True, gc=False):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class PodGroup(KubeObject, frozen=True, gc=False):
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()
    unknown_fields: tuple[str, ...] = ()  #: of its spec, in words (`SpecFields`)


class ExactMatch(_Slim, frozen=True, gc=False):
    name: str = ""


class RegexMatch(_Slim, frozen=True, gc=False):
    pattern: str = ""


class MemberSelector(_Slim, frozen=True, gc=False):
    exact_match: ExactMatch | None = None
    regex_match: RegexMatch | None = None
    label_match: LabelSelector | None = None


class HyperNodeMember(_Slim, frozen=True, gc=False):
    type: str = "Node"
    selector: MemberSelector = MemberSelector()


class HyperNodeSpec(_Slim, frozen=True, gc=False):
    tier: int = 0
    tier_name: str = ""
    members: tuple[HyperNodeMember, ...] = ()


class HyperNode(KubeObject, frozen=True, gc=False):
    spec: HyperNodeSpec = HyperNodeSpec()


class Named(_Slim, frozen=True, gc=False):
    name: str


class NodeMetrics(_Slim, frozen=True, gc=False):
    """metrics.k8s.io/v1beta1: what a node used when it was measured last. It is stored nowhere, and so has no uid."""

    metadata: Named
    timestamp: str = ""
    usage: Quantities = {}


class NodeMetricsList(_Slim, frozen=True, gc=False):
    items: tuple[NodeMetrics, ...] = ()


class Guarantee(_Slim, frozen=True, gc=False):
    resource: Quantities = {}


class NodeGroups(_Slim, frozen=True, gc=False):
    required: tuple[str, ...] = msgspec.field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[str, ...] = msgspec.field(default=(), name="preferredDuringSchedulingIgnoredDuringExecution")


class QueueAffinity(_Slim, frozen=True, gc=False):
    node_group_affinity: NodeGroups = NodeGroups()
    node_group_anti_affinity: NodeGroups = NodeGroups()

    @property
    def rules(self) -> dict[str, tuple[str, ...]]:
        """The rules that are set, by the names of `NODE_GROUP_RULES`."""
        near, far = self.node_group_affinity, self.node_group_anti_affinity
        rules = zip(NODE_GROUP_RULES, (near.required, near.preferred, far.required, far.preferred), strict=True)
        return {rule: groups for rule, groups in rules if groups}


class QueueSpec(_Slim, frozen=True, gc=False):
    weight: int = 1
    capability: Quantities = {}
    deserved: Quantities = {}
    guarantee: Guarantee = Guarantee()
    reclaimable: bool = True
    priority: int = 0
    parent: str = ""
    affinity: QueueAffinity = QueueAffinity()


class QueueStatus(_Slim, frozen=True, gc=False):
    """`pending` to `completed` count PodGroups; None = not reported."""

    state: str = ""
    allocated: Quantities = {}
    pending: int | None = None
    inqueue: int | None = None
    running: int | None = None
    unknown: int | None = None
    completed: int | None = None


class Queue(KubeObject, frozen=True, gc=False):
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()
    unknown_fields: tuple[str, ...] = ()  #: of its spec, in words (`SpecFields`)


# --- the rest


class ScopeSelectorTerm(_Slim, frozen=True, gc=False):
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(_Slim, frozen=True, gc=False):
    match_expressions: tuple[ScopeSelectorTerm, ...] = ()


class ResourceQuotaSpec(_Slim, frozen=True, gc=False):
    hard: Quantities = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector = ScopeSelector()


class ResourceQuotaStatus(_Slim, frozen=True, gc=False):
    hard: Quantities = {}
    used: Quantities = {}


class ResourceQuota(KubeObject, frozen=True, gc=False):
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class PriorityClass(KubeObject, frozen=True, gc=False):
    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


class DisruptionBudgetSpec(_Slim, frozen=True, gc=False):
    selector: LabelSelector | None = None


class DisruptionBudgetStatus(_Slim, frozen=True, gc=False):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    observed_generation: int = 0


class PodDisruptionBudget(KubeObject, frozen=True, gc=False):
    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()


class LeaseSpec(_Slim, frozen=True, gc=False):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class LeaseRecord(KubeObject, frozen=True, gc=False):
    """The API object; `lease.Lease` is the election that writes it."""

    spec: LeaseSpec = LeaseSpec()


class ObjectReference(_Slim, frozen=True, gc=False):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Event(KubeObject, frozen=True, gc=False):
    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    reporting_component: str = ""


class Namespace(KubeObject, frozen=True, gc=False):
    pass


class ConfigMap(KubeObject, frozen=True, gc=False):
    data: dict[str, str] = {}


class DefinitionStatus(_Slim, frozen=True, gc=False):
    conditions: tuple[Condition, ...] | None = None  #: a real API server writes null before the first condition


class CustomResourceDefinition(KubeObject, frozen=True, gc=False):
    status: DefinitionStatus = DefinitionStatus()
