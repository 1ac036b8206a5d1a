"""Reviews: who a client is, and what it may do. Each is created, answered, and not stored.

The emulated API lets everybody in and has no accounts with keys. A token is `sandbox:USER` or `sandbox:USER:GROUP,GROUP`: any client can make one up.
Rights come from the objects of rbac.authorization.k8s.io, as the RBAC authorizer reads them; `system:masters` may do all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from multidict import MultiMapping

from .cluster import Cluster
from .errors import Json, bad_request
from .resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, ResourceType

TOKEN = "sandbox:"
MASTERS, AUTHENTICATED = "system:masters", "system:authenticated"
#: Kinds that have no spec, or an empty one.
_NO_SPEC = ("SelfSubjectReview",)


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: frozenset[str]


ANONYMOUS = User("system:anonymous", frozenset({"system:unauthenticated"}))
#: The user of requests without a token: kubectl sends none to a server without TLS.
ADMIN = User("admin", frozenset({MASTERS, AUTHENTICATED}))


def user_of(headers: MultiMapping[str]) -> User:
    """The user of a request: of its token, or the impersonated one."""
    if name := headers.get("Impersonate-User"):
        return User(name, frozenset({*headers.getall("Impersonate-Group", ()), AUTHENTICATED}))
    authorization = headers.get("Authorization", "")
    if not authorization:
        return ADMIN
    status = _token(authorization.removeprefix("Bearer ").strip())
    if not status["authenticated"]:
        return ANONYMOUS
    return User(status["user"]["username"], frozenset(status["user"]["groups"]))


def review(cluster: Cluster, resource: ResourceType, namespace: str, asked: Any, me: User) -> Json:
    """The object with its status. `me`: who asks."""
    kind = resource.kind
    fits = isinstance(asked, dict) and asked.get("kind", kind) == kind
    if not fits or not (kind in _NO_SPEC or isinstance(asked.get("spec"), dict)):
        raise bad_request(f"the object provided is no {kind} with a spec")
    spec: Json = asked.get("spec") or {}
    match kind:
        case "TokenReview":
            status = _token(str(spec.get("token", "")))
        case "SelfSubjectReview":
            status = {"userInfo": {"username": me.name, "groups": sorted(me.groups)}}
        case "SelfSubjectAccessReview":
            status = _access(cluster, spec, me)
        case "SelfSubjectRulesReview":
            status = _rights(cluster, str(spec.get("namespace", "")), me)
        case _:
            if namespace:
                spec = spec | {"resourceAttributes": {**(spec.get("resourceAttributes") or {}), "namespace": namespace}}
            user = User(str(spec.get("user", "")), frozenset(str(group) for group in spec.get("groups") or ()))
            status = _access(cluster, spec, user)
    answer: Json = {"kind": kind, "apiVersion": resource.api_version, "metadata": asked.get("metadata") or {}}
    return answer | ({} if kind in _NO_SPEC else {"spec": spec}) | {"status": status}


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


def _access(cluster: Cluster, spec: Json, user: User) -> Json:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if not isinstance(resource, dict) and not isinstance(path, dict):
        return {"allowed": False, "reason": "only resourceAttributes and nonResourceAttributes are reviewed"}
    if MASTERS in user.groups:
        return {"allowed": True}
    if isinstance(resource, dict):
        rules = _rules(cluster, user, str(resource.get("namespace", "")))
        return {"allowed": any(_allows(rule, resource) for rule in rules)}
    assert isinstance(path, dict)
    return {"allowed": any(_allows_path(rule, path) for rule in _rules(cluster, user, ""))}


def _rights(cluster: Cluster, namespace: str, user: User) -> Json:
    rules = list(_rules(cluster, user, namespace))
    resources = [{name: rule.get(name) or [] for name in ("verbs", "apiGroups", "resources", "resourceNames")} for rule in rules
                 if rule.get("resources")]  # fmt: skip
    paths = [{name: rule[name] for name in ("verbs", "nonResourceURLs")} for rule in rules if rule.get("nonResourceURLs")]
    if MASTERS in user.groups:
        resources.append({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})
        paths.append({"verbs": ["*"], "nonResourceURLs": ["*"]})
    return {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}


def _rules(cluster: Cluster, user: User, namespace: str) -> Iterator[Json]:
    """Of all roles that the user has, in all namespaces and in this one."""
    bindings = list(_objects(cluster, CLUSTER_ROLE_BINDINGS, ""))
    if namespace:
        bindings += _objects(cluster, ROLE_BINDINGS, namespace)
    for binding in bindings:
        if not any(_is(subject, user) for subject in binding.get("subjects") or ()):
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


def _is(subject: Json, user: User) -> bool:
    match subject.get("kind"):
        case "User":
            return bool(subject.get("name") == user.name)
        case "Group":
            return subject.get("name") in user.groups
        case "ServiceAccount":
            return user.name == f"system:serviceaccount:{subject.get('namespace')}:{subject.get('name')}"
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


def _allows_path(rule: Json, asked: Json) -> bool:
    path = str(asked.get("path", ""))
    matches = (url == path or (url.endswith("*") and path.startswith(url[:-1])) for url in rule.get("nonResourceURLs") or ())
    return _has(rule.get("verbs"), asked.get("verb", "")) and any(matches)


def _has(allowed: Any, value: Any) -> bool:
    return "*" in (allowed or ()) or value in (allowed or ())
