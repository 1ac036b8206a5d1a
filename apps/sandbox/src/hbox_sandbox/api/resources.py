"""Which resources exist: the built-in ones as a table, those of CustomResourceDefinitions as they are created.

A `ResourceType` is one served group/version/plural. Two types may share one `collection` (core and events.k8s.io events): the one that is not
the storage form carries a pair of views, from and to the stored form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from enum import StrEnum
from typing import TypeAlias

from .errors import Json


class NameRule(StrEnum):
    SUBDOMAIN = "subdomain"
    LABEL = "label"
    LABEL_1035 = "label1035"
    PATH = "path"


VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
View: TypeAlias = Callable[[Json], Json]


@dataclass(frozen=True, slots=True)
class ResourceType:
    """One served resource. `generation`: None, the object has none; else the top-level fields whose change does not raise it."""

    group: str
    version: str
    plural: str
    kind: str
    singular: str = ""
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = VERBS
    has_generation: bool = False
    has_status: bool = False
    keeps_status_on_create: bool = False
    needs_version_to_update: bool = False
    creates_on_update: bool = False
    returns_deleted: bool = False
    name_rule: NameRule = NameRule.SUBDOMAIN
    schema: Json | None = dataclass_field(default=None, compare=False)
    printer_columns: tuple[Json, ...] = dataclass_field(default=(), compare=False)
    custom: bool = False
    collection: str = ""
    to_stored: View | None = dataclass_field(default=None, compare=False)
    from_stored: View | None = dataclass_field(default=None, compare=False)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def storage(self) -> str:
        """Name of the collection that holds the objects: `plural.group`."""
        return self.collection or f"{self.plural}.{self.group}"


def _event_to_stored(event: Json) -> Json:
    return _renamed(event, _EVENT_FIELDS, "v1")


def _event_from_stored(event: Json) -> Json:
    return _renamed(event, {core: new for new, core in _EVENT_FIELDS.items()}, "events.k8s.io/v1")


def _renamed(obj: Json, names: Mapping[str, str], api_version: str) -> Json:
    renamed = {names.get(key, key): value for key, value in obj.items()}
    return renamed | {"apiVersion": api_version}


# events.k8s.io/v1 field -> core/v1 field (k8s.io/kubernetes pkg/apis/events/v1/conversion.go).
_EVENT_FIELDS = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}

PODS = ResourceType(
    group="",
    version="v1",
    plural="pods",
    kind="Pod",
    short_names=("po",),
    categories=("all",),
    subresources=("status", "binding", "eviction", "log", "exec", "attach", "portforward", "proxy"),
    has_generation=True,
    has_status=True,
    returns_deleted=True,
)
NODES = ResourceType(
    group="",
    version="v1",
    plural="nodes",
    kind="Node",
    namespaced=False,
    short_names=("no",),
    subresources=("status",),
    has_status=True,
    keeps_status_on_create=True,
)
NAMESPACES = ResourceType(
    group="",
    version="v1",
    plural="namespaces",
    kind="Namespace",
    namespaced=False,
    short_names=("ns",),
    subresources=("status", "finalize"),
    has_status=True,
    returns_deleted=True,
    name_rule=NameRule.LABEL,
)
PDBS = ResourceType(
    group="policy",
    version="v1",
    plural="poddisruptionbudgets",
    kind="PodDisruptionBudget",
    short_names=("pdb",),
    subresources=("status",),
    has_generation=True,
    has_status=True,
    needs_version_to_update=True,
)
CRDS = ResourceType(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    subresources=("status",),
    has_generation=True,
    has_status=True,
    needs_version_to_update=True,
)
PRIORITY_CLASSES = ResourceType(
    group="scheduling.k8s.io",
    version="v1",
    plural="priorityclasses",
    kind="PriorityClass",
    namespaced=False,
    short_names=("pc",),
    has_generation=True,
)
VOLUME_CLAIMS = ResourceType(
    group="",
    version="v1",
    plural="persistentvolumeclaims",
    kind="PersistentVolumeClaim",
    short_names=("pvc",),
    subresources=("status",),
    has_status=True,
    returns_deleted=True,
)
VOLUMES = ResourceType(
    group="",
    version="v1",
    plural="persistentvolumes",
    kind="PersistentVolume",
    namespaced=False,
    short_names=("pv",),
    subresources=("status",),
    has_status=True,
    returns_deleted=True,
)
STORAGE_CLASSES = ResourceType(
    group="storage.k8s.io",
    version="v1",
    plural="storageclasses",
    kind="StorageClass",
    namespaced=False,
    short_names=("sc",),
    returns_deleted=True,
)
RUNTIME_CLASSES = ResourceType(
    group="node.k8s.io", version="v1", plural="runtimeclasses", kind="RuntimeClass", namespaced=False
)
EVENTS = ResourceType(group="", version="v1", plural="events", kind="Event", short_names=("ev",), creates_on_update=True)
_RBAC = "rbac.authorization.k8s.io"
ROLES = ResourceType(group=_RBAC, version="v1", plural="roles", kind="Role", name_rule=NameRule.PATH)
ROLE_BINDINGS = ResourceType(group=_RBAC, version="v1", plural="rolebindings", kind="RoleBinding", name_rule=NameRule.PATH)
CLUSTER_ROLES = ResourceType(
    group=_RBAC, version="v1", plural="clusterroles", kind="ClusterRole", namespaced=False, name_rule=NameRule.PATH
)
CLUSTER_ROLE_BINDINGS = ResourceType(
    group=_RBAC,
    version="v1",
    plural="clusterrolebindings",
    kind="ClusterRoleBinding",
    namespaced=False,
    name_rule=NameRule.PATH,
)
CONFIG_MAPS = ResourceType(group="", version="v1", plural="configmaps", kind="ConfigMap", short_names=("cm",))
SECRETS = ResourceType(group="", version="v1", plural="secrets", kind="Secret")
SERVICES = ResourceType(
    group="",
    version="v1",
    plural="services",
    kind="Service",
    short_names=("svc",),
    categories=("all",),
    subresources=("status",),
    has_status=True,
    name_rule=NameRule.LABEL_1035,
    returns_deleted=True,
)
RESOURCE_QUOTAS = ResourceType(
    group="",
    version="v1",
    plural="resourcequotas",
    kind="ResourceQuota",
    short_names=("quota",),
    subresources=("status",),
    has_status=True,
    returns_deleted=True,
)
SERVICE_ACCOUNTS = ResourceType(
    group="", version="v1", plural="serviceaccounts", kind="ServiceAccount", short_names=("sa",), returns_deleted=True
)
LEASES = ResourceType(
    group="coordination.k8s.io",
    version="v1",
    plural="leases",
    kind="Lease",
    needs_version_to_update=True,
    creates_on_update=True,
)


def _workload(group: str, plural: str, kind: str, *short_names: str, scale: bool = True) -> ResourceType:
    return ResourceType(
        group=group,
        version="v1",
        plural=plural,
        kind=kind,
        short_names=short_names,
        categories=("all",),
        subresources=("status", "scale") if scale else ("status",),
        has_generation=True,
        has_status=True,
    )


DEPLOYMENTS = _workload("apps", "deployments", "Deployment", "deploy")
REPLICA_SETS = _workload("apps", "replicasets", "ReplicaSet", "rs")
STATEFUL_SETS = _workload("apps", "statefulsets", "StatefulSet", "sts")
JOBS = _workload("batch", "jobs", "Job", scale=False)
WORKLOADS = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, JOBS)
CONTROLLER_REVISIONS = ResourceType(group="apps", version="v1", plural="controllerrevisions", kind="ControllerRevision")
BUILT_IN = (
    PODS,
    NODES,
    NAMESPACES,
    EVENTS,
    CONFIG_MAPS,
    SECRETS,
    SERVICES,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
    LEASES,
    PRIORITY_CLASSES,
    PDBS,
    VOLUME_CLAIMS,
    VOLUMES,
    STORAGE_CLASSES,
    RUNTIME_CLASSES,
    ROLES,
    ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    ResourceType(
        group="events.k8s.io",
        version="v1",
        plural="events",
        kind="Event",
        short_names=("ev",),
        creates_on_update=True,
        collection=EVENTS.storage,
        to_stored=_event_to_stored,
        from_stored=_event_from_stored,
    ),
    CRDS,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    CONTROLLER_REVISIONS,
    JOBS,
)


def _review(group: str, kind: str, *, namespaced: bool = False) -> ResourceType:
    return ResourceType(
        group=group, version="v1", plural=f"{kind.lower()}s", kind=kind, namespaced=namespaced, verbs=("create",)
    )


#: What `kubectl top` asks for: there are no measurements.
METRICS = tuple(
    ResourceType(
        group="metrics.k8s.io", version="v1beta1", plural=plural, kind=kind, namespaced=namespaced, verbs=("get", "list")
    )
    for plural, kind, namespaced in (("nodes", "NodeMetrics", False), ("pods", "PodMetrics", True))
)
#: Kinds whose objects are answered and not stored.
REVIEWS = (
    _review("authentication.k8s.io", "TokenReview"),
    _review("authentication.k8s.io", "SelfSubjectReview"),
    _review("authorization.k8s.io", "LocalSubjectAccessReview", namespaced=True),
    _review("authorization.k8s.io", "SelfSubjectAccessReview"),
    _review("authorization.k8s.io", "SelfSubjectRulesReview"),
    _review("authorization.k8s.io", "SubjectAccessReview"),
)


class Registry:
    """The served types, by group, version and plural."""

    def __init__(self) -> None:
        self._types: dict[tuple[str, str, str], ResourceType] = {}
        for resource in (*BUILT_IN, *REVIEWS, *METRICS):
            self.add(resource)

    def __iter__(self) -> Iterator[ResourceType]:
        return iter(self._types.values())

    def add(self, resource: ResourceType) -> None:
        self._types[resource.group, resource.version, resource.plural] = resource

    def drop(self, *, group: str, plural: str) -> None:
        """Stop serving every version of a custom resource."""
        self._types = {key: each for key, each in self._types.items() if not (key[0] == group and key[2] == plural)}

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        return self._types.get((group, version, plural))

    def stored_as(self, storage: str) -> ResourceType | None:
        """The type in whose form a collection is stored."""
        return next((each for each in self if each.storage == storage and each.from_stored is None), None)

    def group_versions(self) -> dict[str, list[str]]:
        """Versions by group, the core group ("") included, in order of registration."""
        found: dict[str, list[str]] = {}
        for resource in self:
            versions = found.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        return found


def custom_types(crd: Json) -> list[ResourceType]:
    """The types that a CustomResourceDefinition declares: one for each served version; all share the stored form of the storage version."""
    spec = crd["spec"]
    group, names = spec["group"], spec["names"]
    storage_version = next(each["name"] for each in spec["versions"] if each.get("storage"))
    types: list[ResourceType] = []
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        subresources = version.get("subresources") or {}
        is_stored = version["name"] == storage_version
        types.append(
            ResourceType(
                group=group,
                version=version["name"],
                plural=names["plural"],
                kind=names["kind"],
                singular=names.get("singular") or names["kind"].lower(),
                namespaced=spec["scope"] == "Namespaced",
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=("status",) if "status" in subresources else (),
                has_generation=True,
                has_status="status" in subresources,
                needs_version_to_update=True,
                schema=(version.get("schema") or {}).get("openAPIV3Schema"),
                printer_columns=tuple(version.get("additionalPrinterColumns") or ()),
                custom=True,
                to_stored=None if is_stored else _with_api_version(f"{group}/{storage_version}"),
                from_stored=None if is_stored else _with_api_version(f"{group}/{version['name']}"),
            )
        )
    return types


def _with_api_version(api_version: str) -> View:
    """Conversion strategy None: only the apiVersion changes."""
    return lambda obj: obj | {"apiVersion": api_version}
