"""Writing whole objects: server-side apply of any manifest, and status patches."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from hbox_common.clock import monotonic_s
from hbox_common.errors import InvalidRequest, NotFound, Unavailable

from .objects import CustomResourceDefinition
from .resources import CRDS, Resource
from .transport import APPLY_PATCH, MERGE_PATCH, KubeClient

_POLL_S = 0.05


class _Kind(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool


class _Discovery(msgspec.Struct):
    resources: list[_Kind]


async def resource_of(client: KubeClient, *, api_version: str, kind: str) -> Resource:
    """Where objects of this kind live, by discovery. Raises NotFound when the server does not know it, and Unavailable."""
    group, _, version = api_version.rpartition("/")
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    found = (await client.expected("GET", path)).decode(_Discovery)
    for entry in found.resources:
        if entry.kind == kind and "/" not in entry.name:
            return Resource(group, version, entry.name, namespaced=entry.namespaced)
    raise NotFound(f"the Kubernetes API at {client.base} knows no {kind} in {api_version}", hint="install its definition first")


async def apply(client: KubeClient, manifest: Mapping[str, Any], *, field_manager: str, force: bool = True) -> Any:
    """Server-side apply; returns the resulting object. Without a namespace, a namespaced object goes to `default`.

    Raises InvalidRequest for a manifest without kind or name, or if the server rejects it; Conflict if another manager owns a field and `force` is off;
    NotFound for an unknown kind; Unavailable.
    """
    metadata = manifest.get("metadata") or {}
    api_version, kind, name = manifest.get("apiVersion"), manifest.get("kind"), metadata.get("name")
    if not (isinstance(api_version, str) and isinstance(kind, str) and isinstance(name, str) and api_version and kind and name):
        raise InvalidRequest("a manifest needs apiVersion, kind and metadata.name")
    resource = await resource_of(client, api_version=api_version, kind=kind)
    params = {"fieldManager": field_manager, "force": "true" if force else "false"}
    # JSON is YAML: the content type is the only one that apply has, the body need not be spelled differently.
    return await client.json(
        "PATCH",
        resource.path(metadata.get("namespace") or "default", name),
        params=params,
        body=manifest,
        content_type=APPLY_PATCH,
    )


async def wait_established(client: KubeClient, name: str, *, timeout_s: float = 10.0) -> None:
    """Returns when the custom resource definition `name` ("queues.scheduling.volcano.sh") is served.

    Raises Unavailable after `timeout_s`, NotFound when there is no such definition.
    """
    deadline = monotonic_s() + timeout_s
    while True:
        crd = (await client.expected("GET", CRDS.path(name=name))).decode(CustomResourceDefinition)
        state = {condition.type: condition for condition in crd.status.conditions or ()}
        if (established := state.get("Established")) is not None and established.status == "True":
            return
        if monotonic_s() >= deadline:
            names = state.get("NamesAccepted")
            message = f": {names.message}" if names is not None and names.status == "False" else ""
            raise Unavailable(f"the definition {name} is not established after {timeout_s:g} s{message}")
        await asyncio.sleep(_POLL_S)


async def patch_status(
    client: KubeClient,
    resource: Resource,
    *,
    namespace: str | None,
    name: str,
    status: Mapping[str, Any],
    uid: str | None = None,
    resource_version: str | None = None,
) -> Any:
    """Merge-patches the status subresource with `status` (null deletes a field); the object as it is afterwards.

    With `resource_version`, only that version of it. With `uid`, a namesake of a built-in kind gives Conflict or InvalidRequest; API servers do not look at
    it in statuses of custom resources (`StatusPatcher` does).
    Raises NotFound, Conflict, InvalidRequest, Unavailable.
    """
    body: dict[str, object] = {"status": status}
    if fence := {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value is not None}:
        body["metadata"] = fence
    return await client.json("PATCH", resource.path(namespace, name, "status"), body=body, content_type=MERGE_PATCH)
