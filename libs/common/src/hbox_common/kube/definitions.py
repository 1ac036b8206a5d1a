"""The definitions of Queue, PodGroup and HyperNode that HBox installs where a cluster has none.

The schemas are closed: they have all fields of Volcano's definitions of the same kinds up to 1.15, spec and status, so that manifests and controllers
written for Volcano lose nothing, and no other fields. An API server refuses or prunes an unknown field. Bounds and patterns are looser than Volcano's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hbox_common.model import DEFAULT_QUEUE, VENDORS

from .definitiontexts import described
from .resources import HYPERNODES, PODGROUPS, QUEUES, Resource

#: Label and field manager of what HBox installs.
MANAGED_BY, FIELD_MANAGER = "app.kubernetes.io/managed-by", "hbox"

_STRING: Mapping[str, Any] = {"type": "string"}
_BOOLEAN: Mapping[str, Any] = {"type": "boolean"}
_INTEGER: Mapping[str, Any] = {"type": "integer", "format": "int32"}
_LONG: Mapping[str, Any] = {"type": "integer", "format": "int64"}
_TIME: Mapping[str, Any] = {"type": "string", "format": "date-time"}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _list(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _map(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


_STRINGS = _list(_STRING)
_AMOUNTS = _map({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True})
_LABELS = _object(
    matchLabels=_map(_STRING),
    matchExpressions=_list(_object(key=_STRING, operator=_STRING, values=_STRINGS) | {"required": ["key", "operator"]}),
)
_NODE_GROUPS = _object(
    requiredDuringSchedulingIgnoredDuringExecution=_STRINGS, preferredDuringSchedulingIgnoredDuringExecution=_STRINGS
)
_TOPOLOGY = _object(mode={**_STRING, "enum": ["hard", "soft"]}, highestTierAllowed=_INTEGER, highestTierName=_STRING)
_CONDITION = dict.fromkeys(("type", "status", "reason", "message"), _STRING) | {"lastTransitionTime": _TIME}


def _column(name: str, kind: str, path: str, *, wide: bool = False) -> dict[str, Any]:
    """What `kubectl get` shows; a wide column only with `-o wide`."""
    return {"name": name, "type": kind, "jsonPath": path, **({"priority": 1} if wide else {})}


def _definition(
    kind: str,
    resource: Resource,
    short: list[str],
    *,
    spec: Any,
    status: Any,
    columns: Sequence[Mapping[str, Any]] = (),
    subresource: bool = True,
) -> dict[str, Any]:
    group, plural = resource.group, resource.plural
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "labels": {MANAGED_BY: FIELD_MANAGER}},
        "spec": {
            "group": group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower(), "shortNames": short},
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}} if subresource else {},
                    **({"additionalPrinterColumns": list(columns)} if columns else {}),
                    "schema": {"openAPIV3Schema": described(kind, _object(spec=spec, status=status))},
                }
            ],
        },
    }


#: Columns of a definition show one resource; dots in a name are escaped in a path.
_CARDS = VENDORS.default.cards.replace(".", "\\.")

QUEUE = _definition(
    "Queue",
    QUEUES,
    ["q", "queue-v1beta1"],
    spec=_object(
        weight={**_INTEGER, "minimum": 1, "maximum": 65535, "default": 1},
        capability=_AMOUNTS,
        deserved=_AMOUNTS,
        guarantee=_object(resource=_AMOUNTS),
        reclaimable=_BOOLEAN,
        priority=_INTEGER,
        parent=_STRING,
        affinity=_object(nodeGroupAffinity=_NODE_GROUPS, nodeGroupAntiAffinity=_NODE_GROUPS),
        type=_STRING,
        dequeueStrategy=_STRING,
        extendClusters=_list(_object(name=_STRING, weight=_INTEGER, capacity=_AMOUNTS)),
    ),
    status=_object(
        state=_STRING,
        allocated=_AMOUNTS,
        **dict.fromkeys(("pending", "inqueue", "running", "unknown", "completed"), _INTEGER),
        reservation=_object(nodes=_STRINGS, resource=_AMOUNTS),
    ),
    columns=(
        _column("STATE", "string", ".status.state"),
        _column("PARENT", "string", ".spec.parent"),
        _column("DESERVED", "string", f".spec.deserved.{_CARDS}"),
        _column("CARDS", "string", f".status.allocated.{_CARDS}"),
        _column("INQUEUE", "integer", ".status.inqueue"),
        _column("RUNNING", "integer", ".status.running"),
        _column("AGE", "date", ".metadata.creationTimestamp"),
    ),
)

POD_GROUP = _definition(
    "PodGroup",
    PODGROUPS,
    ["pg", "podgroup-v1beta1"],
    spec=_object(
        minMember={**_INTEGER, "default": 1},
        minTaskMember=_map(_INTEGER),
        queue={**_STRING, "default": DEFAULT_QUEUE},
        priorityClassName=_STRING,
        minResources=_AMOUNTS,
        networkTopology=_TOPOLOGY,
        subGroupPolicy=_list(
            _object(
                name=_STRING,
                labelSelector=_LABELS,
                matchLabelKeys=_STRINGS,
                subGroupSize=_INTEGER,
                minSubGroups=_INTEGER,
                networkTopology=_TOPOLOGY,
            )
        ),
    ),
    status=_object(
        phase=_STRING,
        conditions=_list(_object(**_CONDITION, transitionID=_STRING)),
        **dict.fromkeys(("running", "succeeded", "failed"), _INTEGER),
    ),
    columns=(
        _column("PHASE", "string", ".status.phase"),
        _column("QUEUE", "string", ".spec.queue"),
        _column("MIN", "integer", ".spec.minMember"),
        _column("RUNNING", "integer", ".status.running"),
        _column("AGE", "date", ".metadata.creationTimestamp"),
        _column("CLASS", "string", ".spec.priorityClassName", wide=True),
        _column("WAITS", "string", '.status.conditions[?(@.type=="Unschedulable")].message', wide=True),
    ),
    # As Volcano's: its scheduler writes statuses with the object, and with a subresource they would be dropped without a word.
    subresource=False,
)

HYPER_NODE = _definition(
    "HyperNode",
    HYPERNODES,
    ["hn"],
    spec=_object(
        tier={**_INTEGER, "minimum": 0},
        tierName=_STRING,
        members=_list(
            _object(
                type={**_STRING, "enum": ["Node", "HyperNode"]},
                selector=_object(exactMatch=_object(name=_STRING), regexMatch=_object(pattern=_STRING), labelMatch=_LABELS),
            )
        ),
    ),
    status=_object(conditions=_list(_object(**_CONDITION, observedGeneration=_LONG)), nodeCount=_LONG),
    columns=(
        _column("TIER", "integer", ".spec.tier"),
        _column("TIER-NAME", "string", ".spec.tierName"),
        _column("MEMBERS", "string", ".spec.members[0].type"),
        _column("AGE", "date", ".metadata.creationTimestamp"),
    ),
)

DEFINITIONS = (QUEUE, POD_GROUP, HYPER_NODE)

#: By kind, the fields that HBox neither reads nor writes: Volcano's own components do.
UNREAD: Mapping[str, frozenset[str]] = {
    "Queue": frozenset({"spec.type", "spec.dequeueStrategy", "spec.extendClusters", "status.reservation"}),
    "PodGroup": frozenset({"status.conditions[].transitionID"}),
    "HyperNode": frozenset({"status.conditions", "status.nodeCount"}),
}


def schema_of(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of a definition of this module."""
    schema: Mapping[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema
