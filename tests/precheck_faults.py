"""Objects that make a cluster unfit for an install, or odd: `hbox check --pre` has to see each."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def storage_class(name: str, *, default: bool) -> Json:
    notes = {"storageclass.kubernetes.io/is-default-class": str(default).lower()}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": notes},
        "provisioner": "example.com/none",
    }


def old_queues() -> Json:
    """Volcano's Queue of a version that HBox does not read, as a Helm release of somebody else's."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    notes = {"meta.helm.sh/release-name": "volcano", "meta.helm.sh/release-namespace": "volcano-system"}
    names = {"kind": "Queue", "listKind": "QueueList", "plural": "queues", "singular": "queue"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "queues.scheduling.volcano.sh", "annotations": notes},
        "spec": {
            "group": "scheduling.volcano.sh",
            "scope": "Cluster",
            "names": names,
            "versions": [{"name": "v1alpha2", "served": True, "storage": True, "schema": schema}],
        },
    }


def scheduler(namespace: str, name: str, *args: str, image: str = "example.com/scheduler:1") -> Json:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": image, "args": list(args)}]},
            },
        },
    }


def webhook(name: str) -> Json:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    hook = {
        "name": f"{name}.example.com",
        "rules": [rule],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/none"},
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [hook],
    }


def role(name: str) -> Json:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": []}
