"""TokenReview and SubjectAccessReview: who a client of another program is, and what it may do there.

The emulated API lets everybody in and has no accounts with keys. A token is `sandbox:USER` or `sandbox:USER:GROUP,GROUP`: any client can make one up.
Rights come from the objects of rbac.authorization.k8s.io, as the RBAC authorizer reads them; `system:masters` may do all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .cluster import Cluster
from .errors import Json, bad_request
from .resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, ResourceType

TOKEN = "sandbox:"
MASTERS, AUTHENTICATED = "system:masters", "system:authenticated"

PATHS = {
    "/apis/authentication.k8s.io/v1/tokenreviews": "TokenReview",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews": "SubjectAccessReview",
}


def review(cluster: Cluster, path: str, asked: Any) -> Json:
    """The object with its status."""
    kind = PATHS[path]
    if not isinstance(asked, dict) or asked.get("kind") != kind or not isinstance(asked.get("spec"), dict):
        raise bad_request(f"the object provided is no {kind} with a spec")
    spec = asked["spec"]
    status = _token(str(spec.get("token", ""))) if kind == "TokenReview" else _access(cluster, spec)
    return {"apiVersion": asked.get("apiVersion", ""), "kind": kind, "metadata": {}, "spec": spec, "status": status}


def _token(token: str) -> Json:
    user, _, groups = token.removeprefix(TOKEN).partition(":")
    if not token.startswith(TOKEN) or not user:
        return {"authenticated": False, "user": {}, "error": "invalid bearer token"}
    # A user's name may have colons itself, as service accounts' names do: then its groups follow the last one.
    if user == "system" and groups:
        parts = token.removeprefix(TOKEN).split(":")
        user, groups = ":".join(parts[:4]), ":".join(parts[4:])
    named = [group for group in groups.split(",") if group]
    return {"authenticated": True, "user": {"username": user, "groups": [*named, AUTHENTICATED]}}


def _access(cluster: Cluster, spec: Json) -> Json:
    attributes = spec.get("resourceAttributes")
    if not isinstance(attributes, dict):
        return {"allowed": False, "reason": "only resourceAttributes are reviewed"}
    user, groups = str(spec.get("user", "")), {str(group) for group in spec.get("groups") or ()}
    if MASTERS in groups:
        return {"allowed": True}
    namespace = str(attributes.get("namespace", ""))
    allowed = any(_allows(rule, attributes) for rule in _rules(cluster, user, groups, namespace))
    return {"allowed": allowed}


def _rules(cluster: Cluster, user: str, groups: set[str], namespace: str) -> Iterator[Json]:
    """Of all roles that the user has, in all namespaces and in this one."""
    bindings = list(_objects(cluster, CLUSTER_ROLE_BINDINGS, ""))
    if namespace:
        bindings += _objects(cluster, ROLE_BINDINGS, namespace)
    for binding in bindings:
        if not any(_is(subject, user, groups) for subject in binding.get("subjects") or ()):
            continue
        reference = binding.get("roleRef") or {}
        kind = ROLES if reference.get("kind") == "Role" else CLUSTER_ROLES
        key = f"{namespace}/{reference.get('name')}" if kind is ROLES else str(reference.get("name"))
        version = cluster.store.get(kind.storage, key)
        if version is not None:
            yield from version.load().get("rules") or ()


def _objects(cluster: Cluster, resource: ResourceType, namespace: str) -> Iterator[Json]:
    prefix = f"{namespace}/" if namespace else ""
    return (version.load() for version in cluster.store.collection(resource.storage).scan(prefix=prefix, after=""))


def _is(subject: Json, user: str, groups: set[str]) -> bool:
    match subject.get("kind"):
        case "User":
            return bool(subject.get("name") == user)
        case "Group":
            return subject.get("name") in groups
        case "ServiceAccount":
            return user == f"system:serviceaccount:{subject.get('namespace')}:{subject.get('name')}"
    return False


def _allows(rule: Json, asked: Json) -> bool:
    names = rule.get("resourceNames") or ()
    resource = str(asked.get("resource", ""))
    if asked.get("subresource"):
        resource += f"/{asked['subresource']}"
    return (
        _has(rule.get("verbs"), asked.get("verb", ""))
        and _has(rule.get("apiGroups"), asked.get("group", ""))
        and _has(rule.get("resources"), resource)
        and (not names or asked.get("name", "") in names)
    )


def _has(allowed: Any, value: Any) -> bool:
    return "*" in (allowed or ()) or value in (allowed or ())
