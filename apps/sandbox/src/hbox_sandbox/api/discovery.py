"""What clients ask before anything else: versions, groups and resources (legacy, unaggregated discovery, which all clients still read)."""

from __future__ import annotations

from .errors import Json
from .openapi import document
from .resources import Registry, ResourceType

VERSION = {
    "major": "1",
    "minor": "34",
    "gitVersion": "v1.34.0+hbox-sandbox",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_SUBRESOURCES: dict[str, tuple[str, str, list[str]]] = {
    "binding": ("Binding", "v1", ["create"]),
    "eviction": ("Eviction", "policy/v1", ["create"]),
    "finalize": ("", "", ["update"]),
    "scale": ("Scale", "autoscaling/v1", ["get", "patch", "update"]),
    "log": ("", "", ["get"]),
    "exec": ("PodExecOptions", "v1", ["create", "get"]),
    "attach": ("PodAttachOptions", "v1", ["create", "get"]),
    "portforward": ("PodPortForwardOptions", "v1", ["create", "get"]),
    "proxy": ("PodProxyOptions", "v1", ["create", "delete", "get", "patch", "update"]),
    "status": ("", "", ["get", "patch", "update"]),
}


def discover(registry: Registry, path: str) -> Json | None:
    """The discovery document at `path`, None where there is none."""
    if path == "/version":
        return VERSION
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path.startswith("/openapi/v3"):
        return document(registry, path.removeprefix("/openapi/v3").strip("/"), VERSION["gitVersion"])
    groups = registry.group_versions()
    if path == "/apis":
        return {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [_group(name, found) for name, found in groups.items() if name],
        }
    parts = path.strip("/").split("/")
    if parts[0] == "apis" and len(parts) == 2 and parts[1] in groups:
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], groups[parts[1]])}
    if parts == ["api", "v1"]:
        return _resources(registry, "", "v1")
    if parts[0] == "apis" and len(parts) == 3 and parts[2] in groups.get(parts[1], ()):
        return _resources(registry, parts[1], parts[2])
    return None


def _group(name: str, versions: list[str]) -> Json:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _resources(registry: Registry, group: str, version: str) -> Json:
    found: list[Json] = []
    for resource in registry:
        if (resource.group, resource.version) == (group, version):
            found.append(_resource(resource))
            found += [_subresource(resource, name) for name in resource.subresources]
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": found}


def _resource(resource: ResourceType) -> Json:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.singular or resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return entry


def _subresource(resource: ResourceType, name: str) -> Json:
    kind, group_version, verbs = _SUBRESOURCES[name]
    entry: Json = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
    entry |= {"kind": kind or resource.kind, "verbs": verbs}
    if "/" in group_version:
        entry["group"], _, entry["version"] = group_version.partition("/")
    return entry
