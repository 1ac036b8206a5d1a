"""The columns that `kubectl get` prints, by kind: those of k8s.io/kubernetes pkg/printers/internalversion/printers.go and, for custom resources, the
additionalPrinterColumns of their definition (apiextensions-apiserver pkg/registry/customresource/tableconvertor).

A printer turns one object into the cells of its row. It is always the wide row: clients hide the columns whose priority is above 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from .errors import Json
from .resources import (
    CLUSTER_ROLE_BINDINGS,
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PDBS,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    RUNTIME_CLASSES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
    ResourceType,
)
from .selectors import format_selector

NONE, UNKNOWN, UNSET = "<none>", "<unknown>", "<unset>"
_ROLE_PREFIX = "node-role.kubernetes.io/"
_DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_STEP = re.compile(
    r"""\.(?P<name>[\w-]+|\*)|\[['"](?P<key>[^'"]+)['"]\]|\[(?P<index>-?\d+|\*)\]|\[\?\(@(?P<filter>[^)]*)\)\]"""
)
_FILTER = re.compile(r"""(?P<path>(?:\.[\w-]+)+)\s*==\s*(?P<value>'[^']*'|"[^"]*"|[\w.]+)""")
_DAY_H, _YEAR_H = 24, 24 * 365

Printer: TypeAlias = Callable[[Json, float], list[Any]]


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `priority` above 0: only `kubectl get -o wide` prints it."""

    name: str
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    def definition(self) -> Json:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a kind. `cells(obj, now)`: one value a column; `now`: seconds since 1970."""

    columns: tuple[Column, ...]
    cells: Printer


def layout_of(resource: ResourceType) -> Layout:
    """The layout of a kind: its printer's, else that of kinds without one (name and creation time)."""
    if resource.custom and resource.printer_columns:
        return _custom_layout(resource.printer_columns)
    if resource.custom:
        return Layout((_NAME, Column("Age", "date")), lambda obj, now: [_name(obj), _age(obj, now)])
    return _LAYOUTS.get(resource.storage, _DEFAULT)


def human_duration(seconds: float) -> str:
    """As k8s.io/apimachinery util/duration HumanDuration: two or three significant figures."""
    if seconds <= -2:  # clocks may differ by less than two seconds
        return "<invalid>"
    whole = max(0, int(seconds))
    minutes, hours = whole // 60, whole // 3600
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 8 * _DAY_H:
        return _two(hours // _DAY_H, "d", hours % _DAY_H, "h")
    if hours < 2 * _YEAR_H:
        return f"{hours // _DAY_H}d"
    if hours < 8 * _YEAR_H:
        return _two(hours // _YEAR_H, "y", hours // _DAY_H % 365, "d")
    return f"{hours // _YEAR_H}y"


def _two(amount: int, unit: str, rest: int, smaller: str) -> str:
    return f"{amount}{unit}{rest}{smaller}" if rest else f"{amount}{unit}"


def _seconds(time: Any) -> float | None:
    try:
        return datetime.fromisoformat(time).timestamp() if time else None
    except (TypeError, ValueError):
        return None


def _since(time: Any, now: float) -> str:
    seconds = _seconds(time)
    return UNKNOWN if seconds is None else human_duration(now - seconds)


def _name(obj: Json) -> str:
    return str(obj["metadata"]["name"])


def _age(obj: Json, now: float) -> str:
    return _since(obj["metadata"].get("creationTimestamp"), now)


def _is_deleted(obj: Json) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def _labels(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def _containers(obj: Json) -> list[str]:
    containers = obj["spec"]["template"]["spec"].get("containers") or ()
    return [",".join(each["name"] for each in containers), ",".join(each.get("image", "") for each in containers)]


def _has(conditions: Sequence[Json] | None, kind: str) -> bool:
    return any(each.get("type") == kind and each.get("status") == "True" for each in conditions or ())


# --- pods


def _pod(pod: Json, now: float) -> list[Any]:
    spec, status = pod["spec"], pod.get("status") or {}
    sidecars = {each["name"] for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"}
    state = _PodState(status.get("reason") or status.get("phase", ""))
    if any(
        each["type"] == "PodScheduled" and each.get("reason") == "SchedulingGated" for each in status.get("conditions") or ()
    ):
        state.reason = "SchedulingGated"
    initializing = state.initialise(spec, status, sidecars)
    if not initializing or _has(status.get("conditions"), "Initialized"):
        state.run(status)
    if _is_deleted(pod) and status.get("reason") == "NodeLost":
        state.reason = "Unknown"
    elif _is_deleted(pod) and status.get("phase") not in ("Succeeded", "Failed"):
        state.reason = "Terminating"
    restarts = str(state.restarts)
    if state.restarts and state.restarted_at:
        restarts = f"{state.restarts} ({_since(state.restarted_at, now)} ago)"
    total = len(spec.get("containers") or ()) + len(sidecars)
    ips, gates = status.get("podIPs") or (), spec.get("readinessGates") or ()
    passed = sum(_has(status.get("conditions"), each["conditionType"]) for each in gates)
    return [
        *(_name(pod), f"{state.ready}/{total}", state.reason, restarts, _age(pod, now)),
        (ips[0].get("ip") if ips else "") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{passed}/{len(gates)}" if gates else NONE,
    ]


@dataclass(slots=True)
class _PodState:
    """The state of a pod by its containers."""

    reason: str
    ready: int = 0
    restarts: int = 0
    restarted_at: str = ""
    sidecar_restarts: int = 0
    sidecar_restarted_at: str = ""

    def _count(self, container: Json) -> None:
        self.restarts += container.get("restartCount", 0)
        self.restarted_at = max(self.restarted_at, _restarted_at(container))

    def initialise(self, spec: Json, status: Json, sidecars: set[str]) -> bool:
        """Count init containers; True if one of them is not done."""
        for at, container in enumerate(status.get("initContainerStatuses") or ()):
            self._count(container)
            is_sidecar = container["name"] in sidecars
            if is_sidecar:
                self.sidecar_restarts += container.get("restartCount", 0)
                self.sidecar_restarted_at = max(self.sidecar_restarted_at, _restarted_at(container))
            state = container.get("state") or {}
            ended = state.get("terminated")
            if ended is not None and ended.get("exitCode") == 0:
                continue
            if is_sidecar and container.get("started"):
                self.ready += bool(container.get("ready"))
                continue
            waits_for = (state.get("waiting") or {}).get("reason", "")
            if ended is not None:
                self.reason = f"Init:{ended.get('reason') or _how_ended(ended)}"
            elif waits_for and waits_for != "PodInitializing":
                self.reason = f"Init:{waits_for}"
            else:
                self.reason = f"Init:{at}/{len(spec.get('initContainers') or ())}"
            return True
        return False

    def run(self, status: Json) -> None:
        """Count the containers: restarts of finished init containers count no more."""
        self.restarts, self.restarted_at = self.sidecar_restarts, self.sidecar_restarted_at
        running = False
        for container in reversed(status.get("containerStatuses") or ()):
            self._count(container)
            state = container.get("state") or {}
            ended = state.get("terminated")
            if waits_for := (state.get("waiting") or {}).get("reason"):
                self.reason = waits_for
            elif ended is not None:
                self.reason = ended.get("reason") or _how_ended(ended)
            elif container.get("ready") and "running" in state:
                running = True
                self.ready += 1
        if self.reason == "Completed" and running:
            self.reason = "Running" if _has(status.get("conditions"), "Ready") else "NotReady"


def _restarted_at(container: Json) -> str:
    return ((container.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""


def _how_ended(ended: Json) -> str:
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


# --- workloads


def _deployment(obj: Json, now: float) -> list[Any]:
    status = obj.get("status") or {}
    ready = f"{status.get('readyReplicas', 0)}/{obj['spec'].get('replicas', 0)}"
    counts = [status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]
    return [_name(obj), ready, *counts, _age(obj, now), *_containers(obj), format_selector(obj["spec"].get("selector"))]


def _replica_set(obj: Json, now: float) -> list[Any]:
    status = obj.get("status") or {}
    counts = [obj["spec"].get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [_name(obj), *counts, _age(obj, now), *_containers(obj), format_selector(obj["spec"].get("selector")) or NONE]


def _stateful_set(obj: Json, now: float) -> list[Any]:
    ready = (obj.get("status") or {}).get("readyReplicas", 0)
    return [_name(obj), f"{ready}/{obj['spec'].get('replicas', 0)}", _age(obj, now), *_containers(obj)]


def _job(job: Json, now: float) -> list[Any]:
    spec, status = job["spec"], job.get("status") or {}
    done, parallelism = status.get("succeeded", 0), spec.get("parallelism") or 0
    completions = f"{done}/{spec.get('completions') or 1}"
    if spec.get("completions") is None and parallelism > 1:
        completions += f" of {parallelism}"
    started, ended = _seconds(status.get("startTime")), _seconds(status.get("completionTime"))
    duration = "" if started is None else human_duration((now if ended is None else ended) - started)
    selector = format_selector(spec.get("selector")) or NONE
    return [_name(job), _job_status(job), completions, duration, _age(job, now), *_containers(job), selector]


def _job_status(job: Json) -> str:
    conditions = (job.get("status") or {}).get("conditions")
    for kind in ("Complete", "Failed"):
        if _has(conditions, kind):
            return kind
    if _is_deleted(job):
        return "Terminating"
    for kind in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if _has(conditions, kind):
            return kind
    return "Running"


def _controller_revision(obj: Json, now: float) -> list[Any]:
    owner = next((each for each in obj["metadata"].get("ownerReferences") or () if each.get("controller")), None)
    controller = NONE
    if owner is not None:
        group = owner["apiVersion"].rpartition("/")[0]
        controller = f"{owner['kind']}{'.' if group else ''}{group}".lower() + f"/{owner['name']}"
    return [_name(obj), controller, obj.get("revision", 0), _age(obj, now)]


def _budget(obj: Json, now: float) -> list[Any]:
    spec, allowed = obj.get("spec") or {}, (obj.get("status") or {}).get("disruptionsAllowed", 0)
    bounds = [str(spec[name]) if spec.get(name) is not None else "N/A" for name in ("minAvailable", "maxUnavailable")]
    return [_name(obj), *bounds, allowed, _age(obj, now)]


# --- nodes, namespaces, events


def _node(node: Json, now: float) -> list[Any]:
    status = node.get("status") or {}
    ready = next((each for each in status.get("conditions") or () if each.get("type") == "Ready"), None)
    states = ["Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"]
    if (node.get("spec") or {}).get("unschedulable"):
        states.append("SchedulingDisabled")
    labels = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)} | {
        labels.get("kubernetes.io/role", "")
    }
    info = status.get("nodeInfo") or {}
    addresses = status.get("addresses") or ()
    return [
        *(
            _name(node),
            ",".join(states),
            ",".join(sorted(roles - {""})) or NONE,
            _age(node, now),
            info.get("kubeletVersion", ""),
        ),
        *(
            next((each["address"] for each in addresses if each.get("type") == kind), NONE)
            for kind in ("InternalIP", "ExternalIP")
        ),
        *(info.get(name) or UNKNOWN for name in ("osImage", "kernelVersion", "containerRuntimeVersion")),
    ]


def _event(event: Json, now: float) -> list[Any]:
    first = _since(event.get("firstTimestamp") or event.get("eventTime"), now)
    last, count = (_since(event["lastTimestamp"], now) if event.get("lastTimestamp") else first), event.get("count") or 1
    if series := event.get("series"):
        last, count = _since(series.get("lastObservedTime"), now), series.get("count", 0)
    about, source = event.get("involvedObject") or {}, event.get("source") or {}
    target = about.get("kind", "").lower() + (f"/{about['name']}" if about.get("name") else "")
    origin = (
        source.get("component") or event.get("reportingComponent", ""),
        source.get("host") or event.get("reportingInstance", ""),
    )
    return [
        *(last, event.get("type", ""), event.get("reason", ""), target, about.get("fieldPath", "")),
        ", ".join(origin) if origin[1] else origin[0],
        *(event.get("message", "").strip(), first, count, _name(event)),
    ]


def _namespace(obj: Json, now: float) -> list[Any]:
    return [_name(obj), (obj.get("status") or {}).get("phase", ""), _age(obj, now)]


# --- configuration, access, storage


def _service(obj: Json, now: float) -> list[Any]:
    spec = obj.get("spec") or {}
    kind, external = spec.get("type", ""), ",".join(spec.get("externalIPs") or ())
    if kind == "LoadBalancer":
        ingress = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
        balancers = sorted({each.get("ip") or each.get("hostname", "") for each in ingress} - {""})
        external = ",".join([*balancers, *(spec.get("externalIPs") or ())]) or "<pending>"
    elif kind == "ExternalName":
        external = spec.get("externalName", "")
    ports = [
        f"{each.get('port')}{':' + str(each['nodePort']) if each.get('nodePort') else ''}/{each.get('protocol', 'TCP')}"
        for each in spec.get("ports") or ()
    ]
    address = next(iter(spec.get("clusterIPs") or ()), "") or spec.get("clusterIP") or NONE
    return [_name(obj), kind, address, external or NONE, ",".join(ports) or NONE, _age(obj, now), _labels(spec.get("selector"))]


def _quota(obj: Json, now: float) -> list[Any]:
    status = obj.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    entries = {name: f"{name}: {used.get(name, 0)}/{hard[name]}" for name in sorted(hard)}
    limits = [text for name, text in entries.items() if name.startswith("limits.")]
    return [_name(obj), ", ".join(each for each in entries.values() if each not in limits), ", ".join(limits), _age(obj, now)]


def _binding(obj: Json, now: float) -> list[Any]:
    role, subjects = obj.get("roleRef") or {}, obj.get("subjects") or ()
    users, groups = (", ".join(each["name"] for each in subjects if each.get("kind") == kind) for kind in ("User", "Group"))
    accounts = ", ".join(
        f"{each.get('namespace', '')}/{each['name']}" for each in subjects if each.get("kind") == "ServiceAccount"
    )
    return [_name(obj), f"{role.get('kind')}/{role.get('name')}", _age(obj, now), users, groups, accounts]


def _storage_class(obj: Json, now: float) -> list[Any]:
    annotations = obj["metadata"].get("annotations") or {}
    is_default = any(annotations.get(name) == "true" for name in _DEFAULT_CLASS)
    return [
        _name(obj) + (" (default)" if is_default else ""),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", "Immediate"),
        str(bool(obj.get("allowVolumeExpansion"))).lower(),
        _age(obj, now),
    ]


def _modes(modes: Sequence[str] | None) -> str:
    return ",".join(short for name, short in _MODES.items() if name in (modes or ()))


def _volume(obj: Json, now: float) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    claim = spec.get("claimRef")
    return [
        _name(obj),
        (spec.get("capacity") or {}).get("storage", "0"),
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if _is_deleted(obj) else status.get("phase", ""),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", UNSET),
        status.get("reason", ""),
        _age(obj, now),
        spec.get("volumeMode", UNSET),
    ]


def _claim(obj: Json, now: float) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    volume = spec.get("volumeName", "")
    return [
        _name(obj),
        "Terminating" if _is_deleted(obj) else status.get("phase", ""),
        volume,
        (status.get("capacity") or {}).get("storage", "0") if volume else "",
        _modes(status.get("accessModes")) if volume else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", UNSET),
        _age(obj, now),
        spec.get("volumeMode", UNSET),
    ]


def _named(*extract: Callable[[Json], Any], age_at: int | None = None) -> Printer:
    """Name, some values, and the age at `age_at` (None: at the end)."""

    def cells(obj: Json, now: float) -> list[Any]:
        row = [_name(obj), *(each(obj) for each in extract)]
        row.insert(len(row) if age_at is None else age_at, _age(obj, now))
        return row

    return cells


# --- columns

_NAME, _AGE = (
    Column("Name", format="name", description="Name of the object."),
    Column("Age", description="Time since its creation."),
)


def _wide(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, priority=1) for name in names)


def _layout(printer: Printer, *columns: str | Column) -> Layout:
    named = {"Name": _NAME, "Age": _AGE}
    return Layout(tuple(named.get(each) or Column(each) if isinstance(each, str) else each for each in columns), printer)


def _integer(name: str) -> Column:
    return Column(name, "integer")


_POD_TEMPLATE = _wide("Containers", "Images", "Selector")
_EVENT_COLUMNS: tuple[str | Column, ...] = (
    "Last Seen",
    "Type",
    "Reason",
    "Object",
    *_wide("Subobject", "Source"),
    "Message",
    *_wide("First Seen", "Count"),
)
_VOLUME_COLUMNS = (
    "Name",
    "Capacity",
    "Access Modes",
    "Reclaim Policy",
    "Status",
    "Claim",
    "StorageClass",
    "VolumeAttributesClass",
)
_CLAIM_COLUMNS = ("Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass", "Age")
_BINDING = _layout(_binding, "Name", "Role", "Age", *_wide("Users", "Groups", "ServiceAccounts"))
_NODE_WIDE = _wide("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime")
_DEFAULT = Layout(
    (_NAME, Column("Created At", "date")), lambda obj, _: [_name(obj), obj["metadata"].get("creationTimestamp", "")]
)
_LAYOUTS: Mapping[str, Layout] = {
    PODS.storage: _layout(
        _pod, *("Name", "Ready", "Status", "Restarts", "Age"), *_wide("IP", "Node", "Nominated Node", "Readiness Gates")
    ),
    NODES.storage: _layout(_node, "Name", "Status", "Roles", "Age", "Version", *_NODE_WIDE),
    NAMESPACES.storage: _layout(_namespace, "Name", "Status", "Age"),
    EVENTS.storage: _layout(_event, *_EVENT_COLUMNS, Column("Name", format="name", priority=1)),
    DEPLOYMENTS.storage: _layout(_deployment, "Name", "Ready", "Up-to-date", "Available", "Age", *_POD_TEMPLATE),
    REPLICA_SETS.storage: _layout(
        _replica_set, "Name", *(_integer(each) for each in ("Desired", "Current", "Ready")), "Age", *_POD_TEMPLATE
    ),
    STATEFUL_SETS.storage: _layout(_stateful_set, "Name", "Ready", "Age", *_wide("Containers", "Images")),
    JOBS.storage: _layout(_job, "Name", "Status", "Completions", "Duration", "Age", *_POD_TEMPLATE),
    CONTROLLER_REVISIONS.storage: _layout(_controller_revision, "Name", "Controller", "Revision", "Age"),
    PDBS.storage: _layout(_budget, "Name", "Min Available", "Max Unavailable", _integer("Allowed Disruptions"), "Age"),
    SERVICES.storage: _layout(
        _service, "Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", Column("Selector", priority=1)
    ),
    CONFIG_MAPS.storage: _layout(
        _named(lambda obj: len(obj.get("data") or ()) + len(obj.get("binaryData") or ())), "Name", "Data", "Age"
    ),
    SECRETS.storage: _layout(
        _named(lambda obj: obj.get("type", ""), lambda obj: len(obj.get("data") or ())), "Name", "Type", "Data", "Age"
    ),
    SERVICE_ACCOUNTS.storage: _layout(_named(lambda obj: len(obj.get("secrets") or ())), "Name", "Secrets", "Age"),
    LEASES.storage: _layout(_named(lambda obj: (obj.get("spec") or {}).get("holderIdentity") or ""), "Name", "Holder", "Age"),
    RESOURCE_QUOTAS.storage: _layout(_quota, "Name", "Request", "Limit", "Age"),
    PRIORITY_CLASSES.storage: _layout(
        _named(
            lambda obj: obj.get("value", 0),
            lambda obj: bool(obj.get("globalDefault")),
            lambda obj: obj.get("preemptionPolicy", ""),
            age_at=3,
        ),
        *("Name", _integer("Value"), Column("Global-Default", "boolean"), "Age", "PreemptionPolicy"),
    ),
    RUNTIME_CLASSES.storage: _layout(_named(lambda obj: obj.get("handler", "")), "Name", "Handler", "Age"),
    STORAGE_CLASSES.storage: _layout(
        _storage_class, "Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"
    ),
    VOLUMES.storage: _layout(_volume, *_VOLUME_COLUMNS, "Reason", "Age", Column("VolumeMode", priority=1)),
    VOLUME_CLAIMS.storage: _layout(_claim, *_CLAIM_COLUMNS, Column("VolumeMode", priority=1)),
    ROLE_BINDINGS.storage: _BINDING,
    CLUSTER_ROLE_BINDINGS.storage: _BINDING,
}
SCALE = _layout(
    lambda obj, now: [_name(obj), obj["spec"].get("replicas", 0), obj["status"]["replicas"], _age(obj, now)],
    *("Name", _integer("Desired"), _integer("Available"), "Age"),
)


# --- custom resources


def _custom_layout(columns: Sequence[Json]) -> Layout:
    paths = [(each["type"], _parse(each["jsonPath"])) for each in columns]

    def cells(obj: Json, now: float) -> list[Any]:
        return [_name(obj), *(_custom_cell(kind, next(_find(obj, path), None), now) for kind, path in paths)]

    defined = tuple(
        Column(
            each["name"],
            each["type"],
            each.get("format", ""),
            each.get("priority", 0),
            each.get("description") or f"Custom resource definition column (in JSONPath format): {each['jsonPath']}",
        )
        for each in columns
    )
    return Layout((_NAME, *defined), cells)


def _custom_cell(kind: str, value: Any, now: float) -> Any:
    match kind:
        case "string":
            return None if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()
        case "date":
            return _since(value, now) if isinstance(value, str) else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "integer" | "number" if isinstance(value, (int, float)) and not isinstance(value, bool):
            return int(value) if kind == "integer" else float(value)
    return None


@dataclass(frozen=True, slots=True)
class _Step:
    """Of a JSON path: a name, an index, `*`, or the items of a list of which `path` is `value`."""

    name: str = ""
    index: int | None = None
    path: tuple[_Step, ...] = ()
    value: str = ""


def _parse(path: str) -> tuple[_Step, ...]:
    """The subset of JSONPath that a definition's columns may use; steps that it does not have find nothing."""
    steps: list[_Step] = []
    for found in _STEP.finditer(path):
        if found["filter"] is not None:
            test = _FILTER.search(found["filter"])
            steps.append(_Step(path=_parse(test["path"]), value=test["value"].strip("'\"")) if test else _Step())
        elif found["index"] is not None and found["index"] != "*":
            steps.append(_Step(index=int(found["index"])))
        else:
            steps.append(_Step(name=found["name"] or found["key"] or "*"))
    return tuple(steps)


def _find(value: Any, path: Sequence[_Step]) -> Iterator[Any]:
    if not path:
        yield value
        return
    step, rest = path[0], path[1:]
    inner: Sequence[Any] = ()
    if step.path and isinstance(value, list):
        inner = [each for each in value if any(str(found) == step.value for found in _find(each, step.path))]
    elif step.index is not None and isinstance(value, list):
        inner = value[step.index :][:1]
    elif step.name == "*":
        inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ()
    elif isinstance(value, dict) and step.name in value:
        inner = [value[step.name]]
    for each in inner:
        yield from _find(each, rest)
