"""What metrics-server serves, as a definition whose objects a test writes."""

from datetime import datetime
from typing import Any

NODE_METRICS_DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "nodes.metrics.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, stands in for metrics-server"},
    },
    "spec": {
        "group": "metrics.k8s.io",
        "scope": "Cluster",
        "names": {"kind": "NodeMetrics", "listKind": "NodeMetricsList", "plural": "nodes", "singular": "nodemetrics"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def measured(name: str, cpu: str, memory: str, *, at: datetime) -> dict[str, Any]:
    return {
        "apiVersion": "metrics.k8s.io/v1beta1",
        "kind": "NodeMetrics",
        "metadata": {"name": name},
        "timestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "window": "20s",
        "usage": {"cpu": cpu, "memory": memory},
    }
