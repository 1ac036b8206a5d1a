"""Definitions of custom resources of the shapes that clusters with Volcano have: PodGroups without a status subresource, with an enum of phases or
without, with unknown fields dropped or kept. Written for these tests: nothing here is Volcano's own file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

PHASES = ("Pending", "Running", "Unknown", "Inqueue", "Completed")

_INTEGER: Json = {"type": "integer", "format": "int32"}
_STRING: Json = {"type": "string"}
_QUANTITIES: Json = {
    "type": "object",
    "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
}


@dataclass(frozen=True, slots=True)
class Shape:
    """Of the definition of PodGroups."""

    status_subresource: bool = False
    phase_enum: bool = False
    keeps_unknown: bool = False
    topology: bool = False  #: networkTopology and subGroupPolicy, which older ones do not have


OLD = Shape()
CURRENT = Shape(phase_enum=True, topology=True)
OPEN = Shape(keeps_unknown=True)
SHAPES = {"old": OLD, "current": CURRENT, "open": OPEN}


def pod_groups(shape: Shape, *, group: str = "scheduling.volcano.sh") -> Json:
    phase = _STRING | ({"enum": list(PHASES)} if shape.phase_enum else {})
    condition = {
        "type": "object",
        "properties": {
            **dict.fromkeys(("type", "status", "reason", "message", "transitionID"), _STRING),
            "lastTransitionTime": {"type": "string", "format": "date-time"},
        },
    }
    spec: Json = {
        "type": "object",
        "properties": {
            "minMember": _INTEGER,
            "minTaskMember": {"type": "object", "additionalProperties": _INTEGER},
            "minResources": _QUANTITIES,
            "queue": _STRING | {"default": "default"},
            "priorityClassName": _STRING,
        },
    }
    if shape.topology:
        topology = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        spec["properties"] |= {"networkTopology": topology, "subGroupPolicy": {"type": "array", "items": topology}}
    status: Json = {
        "type": "object",
        "properties": {
            "phase": phase,
            "conditions": {"type": "array", "items": condition},
            **dict.fromkeys(("running", "succeeded", "failed"), _INTEGER),
        },
    }
    if shape.keeps_unknown:
        spec["x-kubernetes-preserve-unknown-fields"] = status["x-kubernetes-preserve-unknown-fields"] = True
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    return definition("PodGroup", "podgroups", group, schema, namespaced=True, status=shape.status_subresource)


def queues(*, group: str = "scheduling.volcano.sh", parent: bool = True) -> Json:
    """With a status subresource, as all of them have; older ones have no `parent`."""
    spec: Json = {
        "type": "object",
        "properties": {
            "weight": _INTEGER,
            "priority": _INTEGER,
            "reclaimable": {"type": "boolean"},
            "capability": _QUANTITIES,
            "deserved": _QUANTITIES,
            "guarantee": {"type": "object", "properties": {"resource": _QUANTITIES}},
            **({"parent": _STRING} if parent else {}),
        },
    }
    status: Json = {
        "type": "object",
        "properties": {
            "state": _STRING,
            "allocated": _QUANTITIES,
            **dict.fromkeys(("pending", "inqueue", "running", "unknown", "completed"), _INTEGER),
        },
    }
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    return definition("Queue", "queues", group, schema, namespaced=False, status=True)


def definition(kind: str, plural: str, group: str, schema: Json, *, namespaced: bool, status: bool) -> Json:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": "v1beta1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}} if status else {},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
