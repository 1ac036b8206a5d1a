"""Descriptions of all fields of Queue, PodGroup and HyperNode, for `kubectl explain`."""

from collections.abc import Mapping
from typing import Any

#: By kind and path; `[]` = of each element. The empty path is the kind itself.
_TEXTS: Mapping[str, Mapping[str, str]] = {
    "Queue": {
        "": "Queue shares the cluster's resources among departments, teams and users. Queues form a tree; jobs are in its leaves.",
        "spec": "Limits and rules of the queue.",
        "spec.weight": "Share of the queue among its siblings, relative to their weights, if no deserved amounts are set.",
        "spec.capability": "Limit by resource: the queue and the queues below it never use more.",
        "spec.deserved": "Amount by resource that the queue gets back from other queues if its jobs need it.",
        "spec.guarantee": "Amounts that are kept free for the queue.",
        "spec.guarantee.resource": "Amount by resource that other queues never use, even while it is idle.",
        "spec.reclaimable": "Whether other queues may reclaim what the queue uses above its deserved amounts. Default: true.",
        "spec.priority": "Order in which queues are served; higher first.",
        "spec.parent": "Name of the queue above this one. Default: root.",
        "spec.affinity": "Node groups that the queue's jobs may use.",
        "spec.affinity.nodeGroupAffinity": "Groups of nodes on which jobs of the queue have to run, or run by preference.",
        "spec.affinity.nodeGroupAntiAffinity": "Groups of nodes on which jobs of the queue must not run, or run only if there is no other place.",
        "spec.type": "Used by Volcano only.",
        "spec.dequeueStrategy": "Used by Volcano only: how jobs leave the queue.",
        "spec.extendClusters": "Used by Volcano only: further clusters of the queue.",
        "spec.extendClusters[].name": "Name of the cluster.",
        "spec.extendClusters[].weight": "Weight of the cluster.",
        "spec.extendClusters[].capacity": "Amount by resource of the cluster.",
        "status": "State and use of the queue, as last observed.",
        "status.state": "Open, Closed, Closing or Unknown. A queue that is not open starts no jobs.",
        "status.allocated": "Amount by resource that jobs of the queue hold.",
        "status.pending": "PodGroups that are not admitted.",
        "status.inqueue": "PodGroups that are admitted and wait for places.",
        "status.running": "PodGroups that run.",
        "status.unknown": "PodGroups that run with fewer pods than they need.",
        "status.completed": "PodGroups that have ended.",
        "status.reservation": "Used by Volcano only: nodes that are set aside for the queue.",
        "status.reservation.nodes": "Names of these nodes.",
        "status.reservation.resource": "Amount by resource of these nodes.",
    },
    "PodGroup": {
        "": "PodGroup is a gang: its pods start together or not at all. Pods name it by the annotation scheduling.k8s.io/group-name.",
        "spec": "Requirements of the gang.",
        "spec.minMember": "Number of pods that have to start together.",
        "spec.minTaskMember": "Number of pods of each role that have to start together. Roles are the values of the annotation volcano.sh/task-spec.",
        "spec.queue": "Name of the queue of the gang. It has to be a leaf.",
        "spec.priorityClassName": "PriorityClass of the gang; it decides the order in the queue and which pods the gang may preempt.",
        "spec.minResources": "Amount by resource that has to be available before the gang is admitted, if the policy has the action enqueue.",
        "spec.subGroupPolicy": "Parts of the gang that have constraints of their own.",
        "spec.subGroupPolicy[].name": "Name of the part.",
        "spec.subGroupPolicy[].labelSelector": "Pods of the part, by label.",
        "spec.subGroupPolicy[].matchLabelKeys": "Labels whose values divide these pods into sub-groups.",
        "spec.subGroupPolicy[].subGroupSize": "Number of pods of one sub-group that have to start together.",
        "spec.subGroupPolicy[].minSubGroups": "Number of sub-groups that have to start together.",
        "status": "State of the gang, as last observed.",
        "status.phase": "Pending (not admitted), Inqueue (waits for places), Running, Unknown (runs with fewer pods than it needs) or Completed.",
        "status.running": "Number of pods that run.",
        "status.succeeded": "Number of pods that have ended without an error.",
        "status.failed": "Number of pods that have failed.",
    },
    "HyperNode": {
        "": "HyperNode is a domain of the fabric: nodes, or smaller domains, with fast links between them.",
        "spec": "Place of the domain in the fabric, and its members.",
        "spec.tier": "Level in the fabric; lower tiers have faster links.",
        "spec.tierName": "Name of the tier, to which highestTierName of a PodGroup refers.",
        "spec.members": "Nodes or HyperNodes of the domain.",
        "spec.members[].type": "Node or HyperNode.",
        "spec.members[].selector": "Which nodes or HyperNodes; one of the fields.",
        "spec.members[].selector.exactMatch": "One member by its name.",
        "spec.members[].selector.exactMatch.name": "Name of the member.",
        "spec.members[].selector.regexMatch": "All members whose name matches.",
        "spec.members[].selector.regexMatch.pattern": "Regular expression for names.",
        "spec.members[].selector.labelMatch": "All nodes whose labels match.",
        "status": "State of the domain; Volcano's controllers write it.",
        "status.nodeCount": "Number of nodes of the domain.",
    },
}

#: By field and the one above it, for fields of several kinds.
_SHARED: Mapping[str, str] = {
    "conditions": "Conditions, one of each type.",
    "conditions[].type": "Type of the condition. A PodGroup has Scheduled and Unschedulable.",
    "conditions[].status": "True, False or Unknown.",
    "conditions[].reason": "Reason of the last change, as one word.",
    "conditions[].message": "Outcome, code and text; `hbox reason show CODE` explains a code.",
    "conditions[].lastTransitionTime": "When the status changed.",
    "conditions[].transitionID": "Used by Volcano only: the session that changed the condition.",
    "conditions[].observedGeneration": "Used by Volcano only: generation of the object at the change.",
    "networkTopology": "Domain of the fabric in which the pods have to be together.",
    "networkTopology.mode": "hard: they start in one domain or not at all. soft: one domain is preferred.",
    "networkTopology.highestTierAllowed": "Highest tier of this domain.",
    "networkTopology.highestTierName": "Name of the highest tier, instead of its number.",
    "matchLabels": "Labels with their values, all of which have to match.",
    "matchExpressions": "Expressions on labels, all of which have to match.",
    "matchExpressions[].key": "Key of the label.",
    "matchExpressions[].operator": "In, NotIn, Exists or DoesNotExist.",
    "matchExpressions[].values": "Values of In and NotIn.",
    "requiredDuringSchedulingIgnoredDuringExecution": "Names of groups: no other is used.",
    "preferredDuringSchedulingIgnoredDuringExecution": "Names of groups: they are used first.",
}


def described(kind: str, schema: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """The schema of a field of this kind, and of the fields below it, with their descriptions. `path`: of the field; empty: of the object."""
    text = description_of(kind, path)
    out = {**schema, "description": text} if text else dict(schema)
    if "properties" in schema:
        below = f"{path}." if path else ""
        out["properties"] = {name: described(kind, one, f"{below}{name}") for name, one in schema["properties"].items()}
    if "items" in schema:
        out["items"] = described(kind, schema["items"], f"{path}[]")
    return out


def description_of(kind: str, path: str) -> str:
    """The description of a field; empty if there is none, as for the elements of a list."""
    texts = _TEXTS[kind]
    if path in texts:
        return texts[path]
    above, _, field = path.rpartition(".")
    return _SHARED.get(f"{above.rpartition('.')[2]}.{field}") or _SHARED.get(field, "")
