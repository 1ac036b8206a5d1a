"""Kinds and fields that a simulation reads and no service does: `hbox_common.kube` has the rest."""

import msgspec

from hbox_common import kube
from hbox_common.kube.objects import Quantities


class _Slim(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    pass


# --- Volcano's PodGroup and Queue, whole


class NetworkTopology(_Slim, frozen=True, gc=False):
    mode: str = "hard"
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class LabelSelector(_Slim, frozen=True, gc=False):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[kube.Requirement, ...] = ()


class SubGroupPolicy(_Slim, frozen=True, gc=False):
    name: str = ""
    match_label_keys: tuple[str, ...] = ()
    label_selector: LabelSelector = LabelSelector()
    sub_group_size: int = 1
    min_sub_groups: int = 0
    network_topology: NetworkTopology | None = None


class PodGroupSpec(kube.PodGroupSpec, frozen=True, gc=False):
    network_topology: NetworkTopology | None = None
    sub_group_policy: tuple[SubGroupPolicy, ...] = ()


class PodGroup(kube.KubeObject, frozen=True, gc=False):
    spec: PodGroupSpec = PodGroupSpec()
    status: kube.PodGroupStatus = kube.PodGroupStatus()


class NodeGroups(_Slim, frozen=True, gc=False):
    required: tuple[str, ...] = msgspec.field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[str, ...] = msgspec.field(default=(), name="preferredDuringSchedulingIgnoredDuringExecution")


class QueueAffinity(_Slim, frozen=True, gc=False):
    node_group_affinity: NodeGroups = NodeGroups()
    node_group_anti_affinity: NodeGroups = NodeGroups()


class QueueSpec(kube.QueueSpec, frozen=True, gc=False):
    affinity: QueueAffinity = QueueAffinity()


class Queue(kube.KubeObject, frozen=True, gc=False):
    spec: QueueSpec = QueueSpec()
    status: kube.QueueStatus = kube.QueueStatus()


# --- Volcano's HyperNode, topology.volcano.sh/v1alpha1


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


class HyperNode(kube.KubeObject, frozen=True, gc=False):
    spec: HyperNodeSpec = HyperNodeSpec()


# --- Kubernetes


class DisruptionBudgetSpec(_Slim, frozen=True, gc=False):
    selector: LabelSelector = LabelSelector()


class DisruptionBudgetStatus(_Slim, frozen=True, gc=False):
    disruptions_allowed: int = 0


class PodDisruptionBudget(kube.KubeObject, frozen=True, gc=False):
    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()


class ResourceQuotaSpec(_Slim, frozen=True, gc=False):
    hard: Quantities = {}


class ResourceQuotaStatus(_Slim, frozen=True, gc=False):
    hard: Quantities = {}
    used: Quantities = {}


class ResourceQuota(kube.KubeObject, frozen=True, gc=False):
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


# --- HBox's own


class SimulationSpec(_Slim, frozen=True, gc=False):
    cycles: int = 1
    requeue_evicted: bool | None = None  #: absent = where there is more than one cycle
    age_seconds: dict[str, float] = {}
    before_cycle_wait_seconds: float = 0.0


class Simulation(kube.KubeObject, frozen=True, gc=False):
    spec: SimulationSpec = SimulationSpec()
