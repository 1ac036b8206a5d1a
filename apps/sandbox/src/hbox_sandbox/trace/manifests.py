"""Kubernetes objects of a trace's nodes and pods.

Cards are advertised as HAMi's device plugin does: each card in its register annotation, and cards in allocatable as
cards x shares, since a kubelet counts it as an ordinary resource and every pod that shares a card takes one.
"""

import json
from collections.abc import Mapping
from typing import Any

from hbox_common.model import SCHEDULER_NAME
from hbox_common.model import annotations as names
from hbox_common.model.devices.amd import AMD
from hbox_common.model.devices.hami import HamiVendor
from hbox_common.model.devices.hygon import HYGON
from hbox_common.model.devices.nvidia import NVIDIA

from .model import TraceNode, TracePod

#: On all that a replay makes, so that it can be found again.
REPLAY_LABEL = "hbox.io/replay"

#: Pods that may share a card. The smallest share of the published trace is 50 thousandths.
SHARES = 20

#: MiB of each model's memory. The trace names shares and no sizes: these are the data sheets' sizes, rounded down to a hundred so that
#: percentages divide without remainder. G2 and G3 are not disclosed; a share of them is a share whatever their size.
MEMORY_MIB: Mapping[str, int] = {
    "T4": 15_300,
    "P100": 16_200,
    "V100M16": 16_100,
    "V100M32": 32_500,
    "A10": 22_700,
    "G2": 32_500,
    "G3": 81_500,
    "NVIDIA-A100-SXM4-80GB": 81_900,
    "NVIDIA-H100-80GB-HBM3": 81_500,
    "NVIDIA-H200": 143_700,
    "AMD_Instinct_MI300X_OAM": 196_600,
    "DCU-Z100L": 32_700,
}
UNKNOWN_MEMORY_MIB = 16_000

#: Whose a card is, by how its model begins; NVIDIA's where it begins with none of these.
BY_MODEL: Mapping[str, HamiVendor] = {"AMD": AMD, "DCU": HYGON}

#: As many as large managed clusters allow; the trace's nodes are never short of it.
PODS_PER_NODE = 256


def node_manifest(node: TraceNode, *, now: str) -> dict[str, Any]:
    """A Node that is ready. `now`: RFC 3339, of its heartbeat."""
    resources = {"cpu": f"{node.cpu_milli}m", "memory": f"{node.memory_mib}Mi", "pods": str(PODS_PER_NODE)}
    labels = {"kubernetes.io/hostname": node.name, REPLAY_LABEL: "true"}
    annotations: dict[str, str] = {}
    if node.cards:
        memory = MEMORY_MIB.get(node.model, UNKNOWN_MEMORY_MIB)
        vendor = vendor_of(node.model)
        resources[vendor.cards] = str(node.cards * SHARES)
        card_labels = {vendor.model_label: node.model, vendor.memory_label: str(memory)}
        labels |= {label: value for label, value in card_labels.items() if label}
        annotations[vendor.register_annotation] = json.dumps(
            [
                {
                    "id": f"GPU-{node.name}-{index}",
                    "index": index,
                    "count": SHARES,
                    "devmem": memory,
                    "devcore": 100,
                    "type": f"{vendor.type_prefix}{node.model}",  # the plugin puts its vendor word before the product's name
                    "numa": index * 2 // node.cards,
                    "mode": "hami-core",
                    "health": True,
                }
                for index in range(node.cards)
            ],
            separators=(",", ":"),
        )
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels, "annotations": annotations},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "",
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
            ],
        },
    }


def vendor_of(model: str) -> HamiVendor:
    """Whose cards are of this model."""
    return next((vendor for begin, vendor in BY_MODEL.items() if model.startswith(begin)), NVIDIA)


def pod_manifest(pod: TracePod, *, namespace: str, prefix: str = "", queue: str = "default") -> dict[str, Any]:
    """A Pod for HBox. `prefix`: of its name and its gang's name."""
    resources: dict[str, str] = {"cpu": f"{pod.cpu_milli}m", "memory": f"{pod.memory_mib}Mi"}
    annotations = {"scheduling.volcano.sh/queue-name": queue}
    if pod.cards:
        resources[NVIDIA.cards] = str(pod.cards)
        if pod.card_milli < 1000:
            # HAMi's shares are whole percents; a finer one is rounded up, so that no card is promised more than it has.
            percent = str(-(-pod.card_milli // 10))
            resources[NVIDIA.cores] = resources[NVIDIA.memory_percent] = percent
    if pod.models:
        annotations[NVIDIA.models_annotation] = ",".join(pod.models)
    if pod.gang:
        annotations[names.GROUP_NAME] = prefix + pod.gang
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": prefix + pod.name,
            "namespace": namespace,
            "labels": {REPLAY_LABEL: "true"},
            "annotations": annotations,
        },
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "main",
                    "image": "registry.k8s.io/pause:3.10",
                    "resources": {"requests": resources, "limits": resources},
                }
            ],
        },
    }


def pod_group_manifest(name: str, *, namespace: str, members: int, queue: str = "default") -> dict[str, Any]:
    """A PodGroup all of whose members have to start together. `name` with its prefix."""
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace, "labels": {REPLAY_LABEL: "true"}},
        "spec": {"minMember": members, "queue": queue},
    }
