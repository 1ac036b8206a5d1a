"""The subresource `scale` of workloads: the number of replicas alone (k8s.io/kubernetes pkg/registry/apps/*/storage)."""

from __future__ import annotations

from typing import Any

from .cluster import Cluster
from .errors import Json, bad_request, cause, invalid
from .patch import json_patch, merge_patch
from .selectors import format_selector
from .store import Version
from .writes import Options, Target, commit


def scale_of(version: Version) -> Json:
    """The Scale (autoscaling/v1) of a workload."""
    obj = version.load()
    meta, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    kept = {name: meta[name] for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp") if name in meta}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": kept,
        "spec": {"replicas": spec.get("replicas", 0)},
        "status": {"replicas": status.get("replicas", 0), "selector": format_selector(spec.get("selector"))},
    }


def update_scale(cluster: Cluster, target: Target, body: Any, options: Options, *, media: str = "") -> Json:
    """Set the replicas from a Scale, or from a patch of one if `media` names a patch; returns the new Scale."""
    current = cluster.find(target.resource, target.namespace, target.name)
    scale = scale_of(current)
    match media:
        case "":
            new = body
        case "application/json-patch+json":
            new = json_patch(scale, body)
        case _:
            new = merge_patch(scale, body)
    if not isinstance(new, dict) or not isinstance(new.get("spec") or {}, dict):
        raise bad_request("the body of the request is not a Scale with a spec")
    replicas = (new.get("spec") or {}).get("replicas", 0)
    _check(target.name, replicas)
    obj = current.load()
    obj["spec"]["replicas"] = replicas
    asked = (new.get("metadata") or {}).get("resourceVersion")
    if asked:
        obj["metadata"]["resourceVersion"] = asked
    whole = Target(target.resource, target.namespace, target.name)
    return scale_of(commit(cluster, whole, current, obj, options))


def _check(name: str, replicas: Any) -> None:
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request("json: cannot unmarshal into Go struct field ScaleSpec.spec.replicas of type int32")
    if replicas < 0:
        text = f"Invalid value: {replicas}: must be greater than or equal to 0"
        raise invalid("Scale", "autoscaling", name, [cause("spec.replicas", text)])
