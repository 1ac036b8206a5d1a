"""A Queue, a PodGroup and HyperNodes with all fields that Volcano's definitions have, as its users and components write them."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_NODE_GROUPS: Json = {
    "requiredDuringSchedulingIgnoredDuringExecution": ["a"],
    "preferredDuringSchedulingIgnoredDuringExecution": ["b"],
}
_TOPOLOGY: Json = {"mode": "soft", "highestTierAllowed": 2, "highestTierName": "rack"}
_LABELS: Json = {
    "matchLabels": {"role": "worker"},
    "matchExpressions": [{"key": "role", "operator": "In", "values": ["worker"]}],
}
_CONDITION: Json = {
    "type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": "1/2 tasks", "lastTransitionTime": "2026-01-01T00:00:00Z",
}  # fmt: skip

QUEUE: Json = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "Queue",
    "metadata": {"name": "whole"},
    "spec": {
        "weight": 3,
        "capability": {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": 4},
        "deserved": {"cpu": 4},
        "guarantee": {"resource": {"cpu": "2"}},
        "reclaimable": False,
        "priority": 7,
        "parent": "root",
        "type": "gpu",
        "dequeueStrategy": "fifo",
        "affinity": {"nodeGroupAffinity": _NODE_GROUPS, "nodeGroupAntiAffinity": _NODE_GROUPS},
        "extendClusters": [{"name": "other", "weight": 2, "capacity": {"cpu": "100"}}],
    },
}
QUEUE_STATUS: Json = {
    "state": "Open", "allocated": {"cpu": "1"}, "pending": 1, "inqueue": 2, "running": 3, "unknown": 4, "completed": 5,
    "reservation": {"nodes": ["n0"], "resource": {"cpu": "3"}},
}  # fmt: skip

POD_GROUP: Json = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "whole", "namespace": "default"},
    "spec": {
        "minMember": 2,
        "minTaskMember": {"worker": 2},
        "minResources": {"cpu": "2", "limits.cpu": "4"},
        "queue": "whole",
        "priorityClassName": "high",
        "networkTopology": _TOPOLOGY,
        "subGroupPolicy": [
            {"name": "workers", "labelSelector": _LABELS, "matchLabelKeys": ["rank"], "subGroupSize": 2, "minSubGroups": 1, "networkTopology": _TOPOLOGY}
        ],
    },
    "status": {"phase": "Running", "running": 2, "succeeded": 1, "failed": 1, "conditions": [_CONDITION | {"transitionID": "7"}]},
}  # fmt: skip

HYPER_NODES: tuple[Json, ...] = tuple(
    {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {"tier": 1, "tierName": "rack", "members": [{"type": "Node", "selector": selector}]},
    }
    for name, selector in (
        ("exact", {"exactMatch": {"name": "n0"}}),
        ("pattern", {"regexMatch": {"pattern": "n.*"}}),
        ("labels", {"labelMatch": _LABELS}),
    )
)
HYPER_NODE_STATUS: Json = {"nodeCount": 3, "conditions": [_CONDITION | {"observedGeneration": 1}]}

#: Parts of specs, and the path that an API server names as unknown.
MISSPELT_QUEUES: tuple[tuple[Json, str], ...] = (
    ({"guaranteed": {"resource": {"cpu": "2"}}}, "spec.guaranteed"),
    ({"wieght": 3}, "spec.wieght"),
    ({"deserve": {"cpu": "2"}}, "spec.deserve"),
    ({"guarantee": {"cpu": "2"}}, "spec.guarantee.cpu"),
    ({"affinity": {"nodeGroupAffinity": {"required": ["a"]}}}, "spec.affinity.nodeGroupAffinity.required"),
)
MISSPELT_POD_GROUPS: tuple[tuple[Json, str], ...] = (
    ({"minMembers": 3}, "spec.minMembers"),
    ({"networkTopology": {"highestTier": 1}}, "spec.networkTopology.highestTier"),
    ({"subGroupPolicy": [{"name": "a", "groupSize": 2}]}, "spec.subGroupPolicy[0].groupSize"),
)
