"""What the server adds to an object on its way in: defaults, priorities, initial status (the built-in admission plugins and `PrepareForCreate`)."""

from __future__ import annotations

from base64 import b64encode

from .cluster import Cluster, micro_timestamp
from .errors import Json, bad_request, cause, forbidden
from .podspec import check_scheduling, complete_scheduling
from .resources import (
    CRDS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NAMESPACES,
    PDBS,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    RUNTIME_CLASSES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
    WORKLOADS,
    ResourceType,
)
from .schema import shape_custom
from .validation import check_pod, check_pod_update, check_quantities
from .workloadspec import check_workload, check_workload_update, complete_workload

_TOLERATED_FOR_S = 300
_DEFAULT_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def admit_create(cluster: Cluster, resource: ResourceType, obj: Json) -> list[Json]:
    """Complete a new object in place; returns causes of invalidity."""
    if resource.has_status and not resource.keeps_status_on_create:
        obj.pop("status", None)
    if resource.custom:
        return shape_custom(obj, resource.schema)
    match resource.storage:
        case PODS.storage:
            return _admit_pod(cluster, obj)
        case NAMESPACES.storage:
            obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"]["name"]
            obj["spec"] = {"finalizers": ["kubernetes"]}
            obj["status"] = {"phase": "Active"}
        case PDBS.storage:
            obj["status"] = {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}
        case PRIORITY_CLASSES.storage:
            obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
            if not isinstance(obj.get("value", 0), int):
                raise bad_request("json: cannot unmarshal value into Go struct field PriorityClass.value of type int32")
            obj.setdefault("value", 0)
            if obj["value"] > 1_000_000_000 and not obj["metadata"]["name"].startswith("system-"):
                why = "Forbidden: maximum allowed value of a user defined priority is 1000000000"
                return [cause("value", why, "FieldValueForbidden")]
        case VOLUME_CLAIMS.storage:
            obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
            obj["status"] = {"phase": "Pending"}
        case VOLUMES.storage:
            obj["spec"] = {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"} | (obj.get("spec") or {})
            obj["status"] = {"phase": "Pending"}
        case STORAGE_CLASSES.storage:
            obj.setdefault("reclaimPolicy", "Delete")
            obj.setdefault("volumeBindingMode", "Immediate")
        case CRDS.storage:
            return _admit_crd(obj)
        case DEPLOYMENTS.storage | REPLICA_SETS.storage | STATEFUL_SETS.storage | JOBS.storage:
            complete_workload(resource, obj)
            return check_workload(resource, obj)
    return admit_any(resource, obj)


def admit_update(resource: ResourceType, old: Json, new: Json) -> list[Json]:
    """Check and complete a changed object in place; returns causes of invalidity."""
    if resource.custom:
        return shape_custom(new, resource.schema)
    if resource.storage == PODS.storage:
        check_quantities(new["spec"])
        return check_pod_update(old, new)
    if resource.storage == PRIORITY_CLASSES.storage and old.get("value") != new.get("value"):
        return [cause("value", "Forbidden: may not be changed in an update.", "FieldValueForbidden")]
    if resource in WORKLOADS:
        complete_workload(resource, new)
        return check_workload(resource, new) + check_workload_update(resource, old, new)
    return admit_any(resource, new)


def admit_any(resource: ResourceType, obj: Json) -> list[Json]:
    """Rules for creates and updates alike."""
    match resource.storage:
        case "secrets.":
            for key, value in obj.pop("stringData", {}).items():
                obj.setdefault("data", {})[key] = b64encode(value.encode()).decode()
            obj.setdefault("type", "Opaque")
        case "leases.coordination.k8s.io":
            spec = obj.setdefault("spec", {})
            _micro(spec, "acquireTime", "renewTime")
            if (duration := spec.get("leaseDurationSeconds")) is not None and duration <= 0:
                return [cause("spec.leaseDurationSeconds", f"Invalid value: {duration}: must be greater than 0")]
        case EVENTS.storage:
            _micro(obj, "eventTime")
            return _check_event(obj)
        case "services.":
            obj.setdefault("spec", {}).setdefault("type", "ClusterIP")
    return []


def _micro(holder: Json, *names: str) -> None:
    for name in names:
        if holder.get(name) is not None:
            try:
                holder[name] = micro_timestamp(holder[name])
            except (ValueError, TypeError) as error:
                raise bad_request(
                    f'parsing time "{holder[name]}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse'
                ) from error


def _check_event(event: Json) -> list[Json]:
    about, namespace = event.get("involvedObject") or {}, event["metadata"].get("namespace", "")
    if about.get("namespace", "") != namespace and not (not about.get("namespace") and namespace == "default"):
        return [
            cause("involvedObject.namespace", f'Invalid value: "{about.get("namespace", "")}": does not match event.namespace')
        ]
    return []


def _admit_pod(cluster: Cluster, pod: Json) -> list[Json]:
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        spec = pod["spec"] = {}
    check_quantities(spec)
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    if not spec.get("schedulerName"):
        spec["schedulerName"] = "default-scheduler"
    _resolve_priority(cluster, pod)
    for part in ("containers", "initContainers"):
        for container in spec.get(part) or ():
            _default_requests(container)
    complete_scheduling(spec)
    _apply_runtime_class(cluster, pod)
    tolerations = spec.setdefault("tolerations", [])
    for key in _DEFAULT_TOLERATIONS:
        if not any(
            each.get("key") in (key, None, "") and each.get("effect") in ("NoExecute", None, "") for each in tolerations
        ):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATED_FOR_S})
    status = pod["status"] = {"phase": "Pending", "qosClass": _quality(spec)}
    if spec.get("schedulingGates"):
        gated: Json = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
        gated |= {
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": None,
            "lastTransitionTime": None,
        }
        status["conditions"] = [gated]
    return check_pod(pod) + check_scheduling(spec)


def _default_requests(container: Json) -> None:
    """Requests not given equal the limits (SetDefaults_Pod)."""
    resources = container.setdefault("resources", {})
    for part in ("limits", "requests"):
        if part in resources:
            resources[part] = {name: str(amount) for name, amount in (resources[part] or {}).items()}
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _apply_runtime_class(cluster: Cluster, pod: Json) -> None:
    """The overhead of a pod is that of its RuntimeClass (plugin/pkg/admission/runtimeclass)."""
    spec, name = pod["spec"], pod["spec"].get("runtimeClassName", "")
    overhead: Json = {}
    if name:
        found = cluster.store.get(RUNTIME_CLASSES.storage, name)
        if found is None:
            raise forbidden("pods", "", pod["metadata"]["name"], f'pod rejected: RuntimeClass "{name}" not found')
        overhead = (found.load().get("overhead") or {}).get("podFixed") or {}
    if not overhead and spec.get("overhead"):
        why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        raise forbidden("pods", "", pod["metadata"]["name"], why)
    if overhead and spec.setdefault("overhead", overhead) != overhead:
        why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        raise forbidden("pods", "", pod["metadata"]["name"], why)


def _resolve_priority(cluster: Cluster, pod: Json) -> None:
    spec, name = pod["spec"], pod["spec"].get("priorityClassName", "")
    value, policy = 0, "PreemptLowerPriority"
    if name:
        found = cluster.store.get(PRIORITY_CLASSES.storage, name)
        if found is None:
            raise forbidden("pods", "", pod["metadata"]["name"], f"no PriorityClass with name {name} was found")
        chosen = found.load()
        value, policy = chosen["value"], chosen.get("preemptionPolicy", policy)
    else:
        for each in cluster.store.collection(PRIORITY_CLASSES.storage).entries.values():
            if b'"globalDefault":true' in each.body:
                chosen = each.load()
                spec["priorityClassName"] = each.name
                value, policy = chosen["value"], chosen.get("preemptionPolicy", policy)
    if "priority" in spec and spec["priority"] != value:
        why = f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission controller computed {value}"
        raise forbidden("pods", "", pod["metadata"]["name"], f"{why} from the given PriorityClass name")
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", policy)


def _quality(spec: Json) -> str:
    """QoS class from cpu and memory alone, those of the pod as a whole where it names any (pkg/apis/core/helper/qos)."""
    guaranteed, any_set = True, False
    holders = [spec] if spec.get("resources") else [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    for container in holders:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        any_set = any_set or any(name in amounts for name in ("cpu", "memory") for amounts in (limits, requests))
        guaranteed = guaranteed and all(name in limits and limits[name] == requests.get(name) for name in ("cpu", "memory"))
    if not any_set:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _admit_crd(crd: Json) -> list[Json]:
    spec = crd.get("spec") or {}
    names, causes = spec.get("names") or {}, []
    for path, value in (
        ("spec.group", spec.get("group")),
        ("spec.scope", spec.get("scope")),
        ("spec.names.plural", names.get("plural")),
        ("spec.names.kind", names.get("kind")),
        ("spec.versions", spec.get("versions")),
    ):
        if not value:
            causes.append(cause(path, "Required value", "FieldValueRequired"))
    if causes:
        return causes
    if crd["metadata"]["name"] != f"{names['plural']}.{spec['group']}":
        text = f'Invalid value: "{crd["metadata"]["name"]}": must be spec.names.plural+"."+spec.group'
        causes.append(cause("metadata.name", text))
    if sum(bool(version.get("storage")) for version in spec["versions"]) != 1:
        causes.append(cause("spec.versions", "Invalid value: must have exactly one version marked as storage version"))
    for at, version in enumerate(spec["versions"]):
        if not version.get("name"):
            causes.append(cause(f"spec.versions[{at}].name", "Required value", "FieldValueRequired"))
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            causes.append(
                cause(
                    f"spec.versions[{at}].schema.openAPIV3Schema", "Required value: schemas are required", "FieldValueRequired"
                )
            )
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})
    return causes
