"""The two subresources of pods that matter to a scheduler: binding and eviction (k8s.io/kubernetes pkg/registry/core/pod/storage)."""

from __future__ import annotations

from typing import Any

from .cluster import Cluster
from .errors import ApiError, Json, bad_request, cause, conflict, forbidden, success
from .resources import PDBS, PODS
from .selectors import selector_object_test
from .store import Version
from .writes import Deletion, Options, Target, Written, change, check_namespace, delete

_MAX_DISRUPTED = 2000


def bind(cluster: Cluster, target: Target, body: Any, options: Options) -> Written:
    """POST pods/NAME/binding. One write sets the node, the Binding's annotations (its labels with `pod_topology_labels` alone), and PodScheduled. 409
    when the pod's uid or resourceVersion is not the Binding's, or the pod is deleted, bound or gated; 403 before that when its namespace is being deleted,
    since admission treats a Binding as new content. The node may be missing."""
    if not isinstance(body, dict) or body.get("kind", "Binding") != "Binding":
        raise bad_request("not a Binding object")
    meta, node = body.get("metadata") or {}, body.get("target") or {}
    if meta.get("name") != target.name:
        raise bad_request("name in URL does not match name in Binding object")
    if node.get("kind", "Node") not in ("Node", ""):
        raise ApiError(
            500, "InternalError", f'target.kind: Unsupported value: "{node["kind"]}": supported values: "Node", "<empty>"'
        )
    if not node.get("name"):
        raise ApiError(500, "InternalError", "target.name: Required value")
    check_namespace(cluster, target, target.name)
    current = cluster.find(PODS, target.namespace, target.name)
    for label, given, actual in (
        ("UID", meta.get("uid"), current.uid),
        ("ResourceVersion", meta.get("resourceVersion"), str(current.revision)),
    ):
        if given and given != actual:
            why = f"Precondition failed: {label} in precondition: {given}, {label} in object meta: {actual}"
            raise conflict("pods", "", target.name, why)
    pod = current.load()
    if "deletionTimestamp" in pod["metadata"]:
        raise _binding_conflict(target.name, f"pod {target.name} is being deleted, cannot be assigned to a host")
    if bound_to := pod["spec"].get("nodeName"):
        raise _binding_conflict(target.name, f'pod {target.name} is already assigned to node "{bound_to}"')
    if pod["spec"].get("schedulingGates"):
        raise _binding_conflict(target.name, f"pod {target.name} has non-empty .spec.schedulingGates")
    if not options.dry_run:
        _assign(cluster, current, pod, node["name"], meta)
    return Written(201, body=success(code=201))


def _assign(cluster: Cluster, current: Version, pod: Json, node: str, binding: Json) -> None:
    pod["spec"]["nodeName"] = node
    if binding.get("annotations"):
        pod["metadata"]["annotations"] = {**(pod["metadata"].get("annotations") or {}), **binding["annotations"]}
    if cluster.pod_topology_labels and binding.get("labels"):
        pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {}), **binding["labels"]}
    set_condition(pod, {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": cluster.now()})
    cluster.store.replace(PODS.storage, current, pod)


def _binding_conflict(name: str, why: str) -> ApiError:
    return conflict("pods/binding", "", name, why)


def set_condition(obj: Json, condition: Json) -> None:
    """Put a condition in place of the one of its type; the time of transition stays where the status does."""
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    for at, each in enumerate(conditions):
        if each.get("type") == condition["type"]:
            if each.get("status") == condition["status"]:
                condition = condition | {"lastTransitionTime": each.get("lastTransitionTime")}
            conditions[at] = condition
            return
    conditions.append(condition)


def evict(cluster: Cluster, target: Target, body: Any, options: Options) -> Written:
    """POST pods/NAME/eviction: a graceful delete that respects disruption budgets; pods that are pending, terminal or deleted bypass them."""
    if not isinstance(body, dict) or body.get("kind", "Eviction") != "Eviction":
        raise bad_request("not a Eviction object")
    if (body.get("metadata") or {}).get("name") != target.name:
        raise bad_request("name in URL does not match name in Eviction object")
    deletion = deletion_from(body.get("deleteOptions") or {}, dry_run=options.dry_run)
    current = cluster.find(PODS, target.namespace, target.name)
    pod = current.load()
    if not (pod["status"].get("phase") in ("Succeeded", "Failed", "Pending") or current.deleting):
        _spend_budget(cluster, current, pod, dry_run=options.dry_run)
    _check_target(current, deletion)
    if not options.dry_run:
        disrupted: Json = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        disrupted |= {"lastProbeTime": None, "lastTransitionTime": cluster.now()}
        change(cluster, PODS, current, lambda obj: set_condition(obj, disrupted))
    delete(cluster, target, Deletion(grace_s=deletion.grace_s, propagation=deletion.propagation, dry_run=options.dry_run))
    return Written(201, body=success(code=201))


def _check_target(current: Version, deletion: Deletion) -> None:
    for label, given, actual in (
        ("UID", deletion.uid, current.uid),
        ("ResourceVersion", deletion.resource_version, str(current.revision)),
    ):
        if given and given != actual:
            why = f"Precondition failed: {label} in precondition: {given}, {label} in object meta: {actual}"
            raise conflict("pods", "", current.name, why)


def deletion_from(options: Json, *, dry_run: bool = False) -> Deletion:
    """A DeleteOptions object as a value; 400 where a part has the wrong type."""
    grace_s, preconditions = options.get("gracePeriodSeconds"), options.get("preconditions") or {}
    if grace_s is not None and (isinstance(grace_s, bool) or not isinstance(grace_s, int)):
        raise bad_request(
            "json: cannot unmarshal gracePeriodSeconds into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
        )
    propagation = options.get("propagationPolicy") or ""
    if propagation not in ("", "Background", "Foreground", "Orphan"):
        raise bad_request(f'invalid propagationPolicy: Unsupported value: "{propagation}"')
    return Deletion(
        grace_s=grace_s,
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        propagation=propagation,
        dry_run=dry_run or "All" in (options.get("dryRun") or ()),
    )


def is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def budgets_of(cluster: Cluster, pod: Version) -> list[Version]:
    """The disruption budgets whose selector takes this pod."""
    found = []
    for budget in cluster.store.collection(PDBS.storage).scan(prefix=f"{pod.namespace}/", after=""):
        selector = (budget.load().get("spec") or {}).get("selector")
        if selector is not None and selector_object_test(selector)(pod.labels):
            found.append(budget)
    return found


def _spend_budget(cluster: Cluster, current: Version, pod: Json, *, dry_run: bool) -> None:
    budgets = budgets_of(cluster, current)
    if len(budgets) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ApiError(500, "InternalError", text)
    if not budgets:
        return
    budget = budgets[0].load()
    status, name = budget.get("status") or {}, budgets[0].name
    if not is_ready(pod):
        healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
        if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow" or (healthy >= desired > 0):
            return
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        text = f"The disruption budget {name} is still being processed by the server."
        raise _budget_exhausted(text, retry_after_s=10)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise forbidden("poddisruptionbudget", "", name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or {}) > _MAX_DISRUPTED:
        raise forbidden(
            "poddisruptionbudget", "", name, "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        )
    if allowed == 0:
        needs = f"needs {status.get('desiredHealthy', 0)} healthy pods and has {status.get('currentHealthy', 0)} currently"
        raise _budget_exhausted(f"The disruption budget {name} {needs}", retry_after_s=None)
    if dry_run:
        return

    def spend(obj: Json) -> None:
        obj["status"]["disruptionsAllowed"] = allowed - 1
        obj["status"].setdefault("disruptedPods", {})[current.name] = cluster.now()

    change(cluster, PDBS, budgets[0], spend)


def _budget_exhausted(text: str, *, retry_after_s: int | None) -> ApiError:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    details = {"causes": [cause("", text, "DisruptionBudget")]}
    return ApiError(429, "TooManyRequests", message, details=details, retry_after_s=retry_after_s)
