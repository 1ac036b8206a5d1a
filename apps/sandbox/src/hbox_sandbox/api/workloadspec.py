"""Defaults and rules of Deployments, ReplicaSets, StatefulSets and Jobs (k8s.io/kubernetes pkg/apis/{apps,batch}/{v1,validation})."""

from __future__ import annotations

from typing import Any

import msgspec

from .errors import Json, bad_request, cause
from .resources import DEPLOYMENTS, JOBS, STATEFUL_SETS, ResourceType
from .selectors import selector_object_test
from .validation import check_pod

_POD = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}
_ROLLING = {"maxUnavailable": "25%", "maxSurge": "25%"}
_JOB_LABELS = ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name")


def complete_workload(resource: ResourceType, obj: Json) -> None:
    """Fill in defaults, in place; 400 for a shape that no template has."""
    spec: Any = obj.setdefault("spec", {})
    template: Any = spec.setdefault("template", {}) if isinstance(spec, dict) else None
    if not isinstance(template, dict) or not isinstance(template.setdefault("spec", {}), dict):
        raise bad_request(f"json: cannot unmarshal into Go value of type v1.{resource.kind}Spec")
    if not isinstance(template.setdefault("metadata", {}), dict):
        raise bad_request("json: cannot unmarshal into Go struct field PodTemplateSpec.template.metadata of type v1.ObjectMeta")
    if resource == JOBS:
        _complete_job(obj, spec, template)
    else:
        spec.setdefault("replicas", 1)
    for name, value in _POD.items():
        if resource != JOBS or name != "restartPolicy":
            template["spec"].setdefault(name, value)
    if resource == DEPLOYMENTS:
        strategy = spec.setdefault("strategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            strategy["rollingUpdate"] = {**_ROLLING, **(strategy.get("rollingUpdate") or {})}
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)
    elif resource == STATEFUL_SETS:
        spec.setdefault("podManagementPolicy", "OrderedReady")
        strategy = spec.setdefault("updateStrategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            strategy["rollingUpdate"] = {"partition": 0, **(strategy.get("rollingUpdate") or {})}
        spec.setdefault("revisionHistoryLimit", 10)


def _complete_job(obj: Json, spec: Json, template: Json) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    if not spec.get("manualSelector") and not spec.get("selector"):
        meta = obj["metadata"]
        values = (meta["uid"], meta.get("name", ""), meta["uid"], meta.get("name", ""))
        labels = template["metadata"].get("labels") or {}
        template["metadata"]["labels"] = {**labels, **dict(zip(_JOB_LABELS, values, strict=True))}
        spec["selector"] = {"matchLabels": {_JOB_LABELS[0]: meta["uid"]}}


def check_workload(resource: ResourceType, obj: Json) -> list[Json]:
    spec = obj["spec"]
    causes: list[Json] = []
    for name in ("replicas", "parallelism", "completions", "backoffLimit"):
        value = spec.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int):
            raise bad_request(f"json: cannot unmarshal into Go struct field {resource.kind}Spec.spec.{name} of type int32")
        if value < 0:
            causes.append(cause(f"spec.{name}", f"Invalid value: {value}: must be greater than or equal to 0"))
    template, selector = spec["template"], spec.get("selector")
    labels = template["metadata"].get("labels") or {}
    if not selector or not (selector.get("matchLabels") or selector.get("matchExpressions")):
        causes.append(cause("spec.selector", "Required value", "FieldValueRequired"))
    elif not selector_object_test(selector)(labels):
        text = msgspec.json.encode(labels).decode()
        why = f"Invalid value: {text}: `selector` does not match template `labels`"
        causes.append(cause("spec.template.metadata.labels", why))
    policy = template["spec"].get("restartPolicy")
    if resource == JOBS and policy not in ("OnFailure", "Never"):
        valid = '"OnFailure", "Never"'
        text, reason = (f"Unsupported value: {_quoted(policy)}: supported values: {valid}", "FieldValueNotSupported")
        if not policy:
            text, reason = (f"Required value: valid values: {valid}", "FieldValueRequired")
        causes.append(cause("spec.template.spec.restartPolicy", text, reason))
    elif resource != JOBS and policy != "Always":
        text = f'Unsupported value: {_quoted(policy)}: supported values: "Always"'
        causes.append(cause("spec.template.spec.restartPolicy", text, "FieldValueNotSupported"))
    pod = {
        "spec": {"restartPolicy": "Always"} | {name: template["spec"].get(name) for name in ("containers", "initContainers")}
    }
    return causes + [each | {"field": f"spec.template.{each['field']}"} for each in check_pod(pod)]


def check_workload_update(resource: ResourceType, old: Json, new: Json) -> list[Json]:
    """The selector does not change, nor a Job's template and completions."""
    kept = ("selector", "completionMode") if resource == JOBS else ("selector", "serviceName", "podManagementPolicy")
    before, after = old["spec"], new["spec"]
    changed = [name for name in kept if before.get(name) != after.get(name)]
    if resource == JOBS and before["template"] != after["template"] and not before.get("suspend"):
        changed.append("template")
    return [
        cause(f"spec.{name}", f"Invalid value: {msgspec.json.encode(after.get(name)).decode()}: field is immutable")
        for name in changed
    ]


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
