"""Create, update, patch, apply and delete, for every resource alike: preconditions, isolation of status, generations, finalizers, no-ops.

All of it is synchronous, so each request is atomic. Refusals are `ApiError`. Follows `registry/generic/registry/store.go` of the real server.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .admission import admit_create, admit_update
from .apply import Manager, Shape, apply, record_update
from .cluster import Cluster, timestamp
from .errors import (
    STALE,
    Json,
    already_exists,
    bad_request,
    cause,
    conflict,
    forbidden,
    invalid,
    not_found,
    success,
    unsupported_media_type,
)
from .fieldvalidation import FieldValidation, check_applied, check_fields
from .patch import json_patch, merge_patch, strategic_patch
from .resources import NAMESPACES, PODS, ResourceType
from .store import Version, copied
from .validation import check_metadata, require_strings

_KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "managedFields")
_NOT_CONTENT = frozenset({"metadata", "status", "apiVersion", "kind"})
_RECREATED = "The object might have been deleted and then recreated"
PROTECTED = ("default", "kube-system", "kube-public")


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about."""

    resource: ResourceType
    namespace: str
    name: str
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Options:
    """How a write is meant. `manager`: the field manager; `force`: of an apply; `warnings`: for the client."""

    dry_run: bool = False
    manager: str = "unknown"
    force: bool = False
    validation: FieldValidation = FieldValidation.UNSET
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Deletion:
    """DeleteOptions. `grace_s` None: the object's own; `propagation` "": Background."""

    grace_s: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation: str = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """The outcome of a write: the object's version, or a plain `Status`; `code` is the HTTP status."""

    code: int
    version: Version | None = None
    body: Json = field(default_factory=dict)


def create(cluster: Cluster, target: Target, obj: Json, options: Options) -> Written:
    resource = target.resource
    meta = _checked_body(target, obj)
    options.warnings.extend(check_fields(resource, obj, options.validation))
    if resource.to_stored is not None:
        obj = resource.to_stored(obj)
    if meta.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    for name in ("uid", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
        meta.pop(name, None)
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = meta["generateName"] + cluster.name_suffix()
    if resource.namespaced:
        meta["namespace"] = target.namespace
        check_namespace(cluster, target, meta.get("name", ""))
    else:
        meta.pop("namespace", None)
    meta["uid"] = cluster.new_uid()
    meta["creationTimestamp"] = cluster.now()
    if resource.has_generation:
        meta["generation"] = 1
    _refuse(resource, meta.get("name", ""), check_metadata(resource, meta))
    _refuse(resource, meta["name"], admit_create(cluster, resource, obj))
    key = f"{target.namespace}/{meta['name']}" if resource.namespaced else meta["name"]
    if cluster.store.get(resource.storage, key) is not None:
        raise already_exists(resource.plural, resource.group, meta["name"])
    if options.dry_run:
        return Written(201, cluster.store.preview(resource.storage, obj))
    return Written(201, cluster.store.create(resource.storage, obj))


def update(cluster: Cluster, target: Target, obj: Json, options: Options) -> Written:
    """PUT. An object that is absent is created where its kind allows that (leases, events)."""
    resource = target.resource
    meta = _checked_body(target, obj)
    if not meta.get("name"):
        raise bad_request("name must be provided")
    key = f"{target.namespace}/{target.name}" if resource.namespaced else target.name
    if cluster.store.get(resource.storage, key) is None and resource.creates_on_update and not target.subresource:
        meta.pop("resourceVersion", None)
        return create(cluster, target, obj, options)
    current = cluster.find(resource, target.namespace, target.name)
    options.warnings.extend(check_fields(resource, obj, options.validation))
    if resource.to_stored is not None:
        obj = resource.to_stored(obj)
    if not meta.get("resourceVersion") and resource.needs_version_to_update:
        causes = [cause("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")]
        raise invalid(resource.kind, resource.group, target.name, causes)
    return Written(200, commit(cluster, target, current, obj, options))


def patch(cluster: Cluster, target: Target, content_type: str, body: Any, options: Options) -> Written:
    """PATCH in one of the four media types; only apply may create."""
    if content_type == "application/apply-patch+yaml":
        return _apply(cluster, target, body, options)
    current = cluster.find(target.resource, target.namespace, target.name)
    old = _viewed(target.resource, current.load())
    match content_type:
        case "application/json-patch+json":
            new = json_patch(old, body)
        case "application/merge-patch+json":
            new = merge_patch(old, _object(body))
        case "application/strategic-merge-patch+json" if not target.resource.custom:
            new = strategic_patch(old, _object(body))
        case _:
            accepted = ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"]
            raise unsupported_media_type(content_type, accepted)
    new = copied(new)  # it may share parts with itself, by a copy of JSON patch, and with the body
    meta = _checked_body(target, new)
    if target.resource.custom and target.subresource == "status":
        meta["uid"] = current.uid  # no precondition: the real server restores the object's metadata before the comparison
    if meta.get("uid", current.uid) != current.uid:
        text = f'Invalid value: "{meta["uid"]}": field is immutable'
        raise invalid(target.resource.kind, target.resource.group, target.name, [cause("metadata.uid", text)])
    options.warnings.extend(check_fields(target.resource, new, options.validation, patch=body))
    if target.resource.to_stored is not None:
        new = target.resource.to_stored(new)
    return Written(200, commit(cluster, target, current, new, options))


def _apply(cluster: Cluster, target: Target, body: Any, options: Options) -> Written:
    resource, applied = target.resource, _object(body)
    if not options.manager:
        raise invalid(
            "PatchOptions",
            "meta.k8s.io",
            "",
            [cause("fieldManager", "Required value: is required for apply patch", "FieldValueRequired")],
        )
    meta = applied.setdefault("metadata", {})
    meta.setdefault("name", target.name)
    if meta.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    _checked_body(target, applied)
    check_applied(resource, applied, options.validation, f"{target.namespace}/{target.name}")
    if resource.has_status:
        kept = ("apiVersion", "kind", "metadata", "status") if target.subresource == "status" else None
        applied = {key: value for key, value in applied.items() if (key in kept if kept else key != "status")}
    if resource.to_stored is not None:
        applied = resource.to_stored(applied)
    key = f"{target.namespace}/{target.name}" if resource.namespaced else target.name
    current = cluster.store.get(resource.storage, key)
    me = _manager(cluster, target, options.manager, "Apply")
    if current is None:
        if target.subresource:
            raise not_found(resource.plural, resource.group, target.name)
        if meta.get("uid"):
            why = "uid mismatch: the provided object specified uid " + meta["uid"] + ", and no existing object was found"
            raise conflict(resource.plural, resource.group, target.name, why)
        return create(cluster, target, apply(None, applied, me=me, force=options.force, shape=_shape(resource)), options)
    live = current.load()
    new = apply(live, applied, me=me, force=options.force, shape=_shape(resource))
    if not meta.get("resourceVersion"):
        new["metadata"]["resourceVersion"] = str(current.revision)
    return Written(200, commit(cluster, target, current, new, options, owned=True))


def commit(cluster: Cluster, target: Target, current: Version, new: Json, options: Options, *, owned: bool = False) -> Version:
    """Check a whole new state against the present one and store it; nothing happens where they are equal. `owned`: the caller kept managedFields."""
    resource, old = target.resource, current.load()
    meta, old_meta = new["metadata"], old["metadata"]
    _check_preconditions(target, current, meta)
    applied_fields = meta.get("managedFields")
    for name in _KEPT:
        meta.pop(name, None)
        if name in old_meta:
            meta[name] = old_meta[name]
    new["apiVersion"], new["kind"] = old["apiVersion"], old["kind"]
    meta["resourceVersion"] = str(current.revision)
    if resource.namespaced:
        meta["namespace"] = current.namespace
    new = _isolated(resource, target.subresource, old, new)
    meta = new["metadata"]
    if owned:
        meta.pop("managedFields", None)
        if applied_fields:
            meta["managedFields"] = applied_fields
    if new == old:
        return current
    causes = check_metadata(resource, meta) + _check_finalizers(old_meta, meta)
    if target.subresource != "status" or resource.custom:
        causes += admit_update(resource, old, new)
    _refuse(resource, current.name, causes)
    if not owned and "managedFields" in old_meta:
        record_update(old, new, me=_manager(cluster, target, options.manager, "Update"), shape=_shape(resource))
    if new == old:
        return current
    if resource.has_generation and target.subresource != "status" and _content(resource, new) != _content(resource, old):
        meta["generation"] = old_meta.get("generation", 0) + 1
    if options.dry_run:
        return cluster.store.preview(resource.storage, new)
    if current.deleting and not meta.get("finalizers") and not _still_terminating(resource, new):
        return cluster.store.remove(resource.storage, current, new)
    return cluster.store.replace(resource.storage, current, new)


def change(cluster: Cluster, resource: ResourceType, current: Version, mutate: Callable[[Json], None]) -> Version:
    """A write by the control plane itself (kubelets, controllers): no isolation, no checks, no ownership; a no-op stores nothing."""
    obj = current.load()
    mutate(obj)
    if obj == current.load():
        return current
    if current.deleting and not obj["metadata"].get("finalizers") and not _still_terminating(resource, obj):
        return cluster.store.remove(resource.storage, current, obj)
    return cluster.store.replace(resource.storage, current, obj)


def delete(cluster: Cluster, target: Target, deletion: Deletion) -> Written:
    """DELETE: at once, or by a deletionTimestamp where finalizers, a grace period or a namespace's content ask for it."""
    resource = target.resource
    current = cluster.find(resource, target.namespace, target.name)
    if deletion.uid and deletion.uid != current.uid:
        why = f"the UID in the precondition ({deletion.uid}) does not match the UID in record ({current.uid}). " + _RECREATED
        raise conflict(resource.plural, resource.group, current.name, why)
    if deletion.resource_version and deletion.resource_version != str(current.revision):
        why = f"the ResourceVersion in the precondition ({deletion.resource_version}) does not match the ResourceVersion in record ({current.revision}). "
        why += "The object might have been modified"
        raise conflict(resource.plural, resource.group, current.name, why)
    if resource.storage == NAMESPACES.storage and current.name in PROTECTED:
        raise forbidden("namespaces", "", current.name, "this namespace may not be deleted")
    if deletion.dry_run:
        return Written(200, current)
    obj = current.load()
    meta = obj["metadata"]
    grace_s = _grace_s(resource, obj, deletion.grace_s)
    finalizers = [each for each in meta.get("finalizers") or () if each not in ("foregroundDeletion", "orphan")]
    if deletion.propagation == "Foreground":
        finalizers.append("foregroundDeletion")
    elif deletion.propagation == "Orphan":
        finalizers.append("orphan")
    elif not deletion.propagation:
        finalizers = list(meta.get("finalizers") or ())
    emptying = resource.storage == NAMESPACES.storage and _still_terminating(resource, obj)
    lingers = finalizers or grace_s > 0 or emptying
    if not lingers and resource.storage == PODS.storage:
        # The real server marks a pod even when it takes it away at once: watchers see MODIFIED, then DELETED.
        current = _mark_deleted(cluster, resource, current, obj, finalizers=[], grace_s=0)
        obj = current.load()
    if not lingers:
        meta.pop("finalizers", None)
        gone = cluster.store.remove(resource.storage, current, obj)
        return Written(200, gone) if resource.returns_deleted else Written(200, None, _deleted_status(resource, gone))
    return Written(200, _mark_deleted(cluster, resource, current, obj, finalizers=finalizers, grace_s=grace_s))


def _mark_deleted(
    cluster: Cluster, resource: ResourceType, current: Version, obj: Json, *, finalizers: list[str], grace_s: int
) -> Version:
    meta = obj["metadata"]
    before = copy.deepcopy(obj)
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
    already_s = meta.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" not in meta:
        meta["deletionTimestamp"] = timestamp(cluster.clock() + _as_go_counts(grace_s))
        meta["deletionGracePeriodSeconds"] = grace_s
        if resource.has_generation and meta.get("generation"):
            meta["generation"] += 1
    elif already_s is not None and grace_s < already_s:
        asked_at = datetime.fromisoformat(meta["deletionTimestamp"]).timestamp() - _as_go_counts(already_s)
        meta["deletionTimestamp"] = timestamp(asked_at + _as_go_counts(grace_s))
        meta["deletionGracePeriodSeconds"] = grace_s
    if resource.storage == NAMESPACES.storage:
        obj["status"] = (obj.get("status") or {}) | {"phase": "Terminating"}
    return current if obj == before else cluster.store.replace(resource.storage, current, obj)


def _grace_s(resource: ResourceType, obj: Json, asked_s: int | None) -> int:
    """Only pods have a grace period, and none where no kubelet has to stop them."""
    if resource.storage != PODS.storage or not obj["spec"].get("nodeName"):
        return 0
    if (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    grace_s = asked_s if asked_s is not None else int(obj["spec"].get("terminationGracePeriodSeconds", 0))
    return 1 if grace_s < 0 else grace_s


def _as_go_counts(seconds: int) -> float:
    """A time.Duration: nanoseconds in 64 bits, which turn over after 292 years."""
    return ((seconds * 10**9 + 2**63) % 2**64 - 2**63) / 1e9


def _still_terminating(resource: ResourceType, obj: Json) -> bool:
    """Whether something else than metadata.finalizers holds a deleted object: a namespace's own, a pod's kubelet."""
    if resource.storage == NAMESPACES.storage:
        return bool((obj.get("spec") or {}).get("finalizers"))
    if resource.storage == PODS.storage:
        return bool(obj["metadata"].get("deletionGracePeriodSeconds"))
    return False


def _deleted_status(resource: ResourceType, version: Version) -> Json:
    details: Json = {"name": version.name}
    if resource.group:
        details["group"] = resource.group
    return success(details=details | {"kind": resource.plural, "uid": version.uid})


def _object(body: Any) -> Json:
    if not isinstance(body, dict):
        raise bad_request("the body of the request is not a JSON object")
    return body


def _checked_body(target: Target, obj: Any) -> Json:
    """The metadata of a body that fits its URL; 400 where kind, name or namespace differ."""
    resource = target.resource
    obj = _object(obj)
    given = (obj.setdefault("apiVersion", resource.api_version), obj.setdefault("kind", resource.kind))
    if given != (resource.api_version, resource.kind):
        expected = f"{resource.api_version}, Kind={resource.kind}"
        raise bad_request(
            f"the API version in the data ({given[0]}, Kind={given[1]}) does not match the expected API version ({expected})"
        )
    meta: Any = obj.setdefault("metadata", {})
    if not isinstance(meta, dict):
        raise bad_request("json: cannot unmarshal metadata into Go value of type v1.ObjectMeta")
    if target.name and meta.get("name", target.name) != target.name:
        raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({target.name})")
    if resource.namespaced and meta.get("namespace", target.namespace) != target.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    require_strings(meta.get("labels"), "ObjectMeta.metadata.labels")
    require_strings(meta.get("annotations"), "ObjectMeta.metadata.annotations")
    if target.name:
        meta.setdefault("name", target.name)
    return meta


def check_namespace(cluster: Cluster, target: Target, name: str) -> None:
    """Raises ApiError if the namespace does not exist or is being deleted."""
    namespace = cluster.find(NAMESPACES, "", target.namespace)
    if namespace.deleting:
        causes = [cause("metadata.namespace", f"namespace {target.namespace} is being terminated", "NamespaceTerminating")]
        why = f"unable to create new content in namespace {target.namespace} because it is being terminated"
        raise forbidden(target.resource.plural, target.resource.group, name, why, causes=causes)


def _check_preconditions(target: Target, current: Version, meta: Mapping[str, Any]) -> None:
    resource = target.resource
    asked = meta.get("resourceVersion")
    if meta.get("uid") and meta["uid"] != current.uid:
        why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {current.uid}"
        raise conflict(resource.plural, resource.group, current.name, why)
    if asked and asked != str(current.revision):
        raise conflict(resource.plural, resource.group, current.name, STALE)


def _check_finalizers(old_meta: Json, meta: Json) -> list[Json]:
    if "deletionTimestamp" not in old_meta:
        return []
    added = [each for each in meta.get("finalizers") or () if each not in (old_meta.get("finalizers") or ())]
    if not added:
        return []
    text = f"Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{', '.join(map(repr, added))}}}"
    return [cause("metadata.finalizers", text.replace("'", '"'), "FieldValueForbidden")]


def _isolated(resource: ResourceType, subresource: str, old: Json, new: Json) -> Json:
    """A write to /status changes the status alone (built-in kinds: labels and annotations too), any other write all but the status."""
    if subresource == "finalize":
        return {**old, "spec": new.get("spec") or {}}
    if not resource.has_status:
        return new
    if subresource != "status":
        merged = {key: value for key, value in new.items() if key != "status"}
        return merged | ({"status": old["status"]} if "status" in old else {})
    merged = {key: value for key, value in old.items() if key != "status"}
    merged["metadata"] = dict(old["metadata"])
    if not resource.custom:
        for name in ("labels", "annotations"):
            merged["metadata"].pop(name, None)
            if name in new["metadata"]:
                merged["metadata"][name] = new["metadata"][name]
    return merged | ({"status": new["status"]} if new.get("status") is not None else {})


def _content(resource: ResourceType, obj: Json) -> Json:
    kept = _NOT_CONTENT if resource.has_status else _NOT_CONTENT - {"status"}
    return {key: value for key, value in obj.items() if key not in kept}


def _viewed(resource: ResourceType, obj: Json) -> Json:
    return obj if resource.from_stored is None else resource.from_stored(obj)


def _shape(resource: ResourceType) -> Shape:
    return Shape(schema=resource.schema, custom=resource.custom)


def _manager(cluster: Cluster, target: Target, name: str, operation: str) -> Manager:
    return Manager(
        name=name,
        operation=operation,
        subresource=target.subresource,
        paths=frozenset(),
        api_version=target.resource.api_version,
        time=cluster.now(),
    )


def _refuse(resource: ResourceType, name: str, causes: list[Json]) -> None:
    if causes:
        raise invalid(resource.kind, resource.group, name, causes)
