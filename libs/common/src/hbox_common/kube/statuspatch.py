"""Writes the status of a custom resource where its definition stores it.

A definition with the status subresource accepts a status only at `/status`, and silently drops it from every other write. One without it (as Volcano's own
definition of PodGroups) has no `/status`, and the status is an ordinary field. HBox reads which of the two applies from the API server's discovery, and reads
it again on evidence: if `/status` is not found although its object exists, and if a write to the object did not change its status. So no permission to watch
definitions is needed.
"""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from hbox_common.errors import InvalidRequest, NotFound, Unavailable

from .resources import Resource
from .transport import JSON_PATCH, MERGE_PATCH, KubeClient

log = logging.getLogger(__name__)


class _Entry(msgspec.Struct):
    name: str


class _Served(msgspec.Struct):
    resources: list[_Entry]


class _Meta(msgspec.Struct):
    uid: str


class _Object(msgspec.Struct):
    metadata: _Meta


class StatusPatcher:
    """Patches the statuses of one kind."""

    def __init__(self, client: KubeClient, resource: Resource) -> None:
        self._client, self._resource = client, resource
        self._subresource: bool | None = None  #: None = not asked yet
        self._dropped: frozenset[str] = frozenset()  #: fields that the definition did not store at the last write

    async def patch(self, *, namespace: str | None, name: str, status: Mapping[str, Any], uid: str) -> Any:
        """Writes these fields of the status of the object with this uid; returns the resulting object.

        Raises NotFound if there is no such object, according to a read of the object itself; Conflict; InvalidRequest; and Unavailable, also while the
        definition is being changed.
        """
        for _ in range(2):
            there = await self._has_subresource() if self._subresource is None else self._subresource
            try:
                answer = await self._write(namespace, name, status, uid, there)
            except InvalidRequest as e:
                await self._require(namespace, name, uid)
                if not (there and isinstance(e, NotFound)):
                    raise
            else:
                kept = answer.get("status") or {}
                dropped = frozenset(field for field, value in status.items() if kept.get(field) != value)
                if there or not dropped:
                    return answer
                # Fields that the schema lacks are missing for ever; all of them, or old values, are another's status: discovery may be late.
                if not await self._has_subresource() and dropped.isdisjoint(kept) and len(dropped) < len(status):
                    self._report_dropped(dropped)
                    return answer
            self._subresource = None
        what = self._resource.path(namespace, name)
        raise Unavailable(f"{what} exists, but the API server takes its status neither with it nor at /status")

    async def _write(self, namespace: str | None, name: str, status: Mapping[str, Any], uid: str, there: bool) -> Any:
        body: object = {"metadata": {"uid": uid}, "status": status}
        if there:
            # A uid in a merge patch is no fence at `/status` of a custom resource: the API server puts the object's own metadata back first.
            body = [{"op": "test", "path": "/metadata/uid", "value": uid}, {"op": "add", "path": "/status", "value": status}]
        path = self._resource.path(namespace, name, "status" if there else None)
        return await self._client.json("PATCH", path, body=body, content_type=JSON_PATCH if there else MERGE_PATCH)

    async def _has_subresource(self) -> bool:
        """Asks the API server."""
        resource = self._resource
        try:
            found = (await self._client.expected("GET", resource.list_of_kinds)).decode(_Served)
        except NotFound:
            return False  # the definition and its objects were deleted: the write itself reports it
        self._subresource = any(entry.name == f"{resource.plural}/status" for entry in found.resources)
        return self._subresource

    async def _require(self, namespace: str | None, name: str, uid: str) -> None:
        """Raises NotFound where the object is not there, or another of its name is."""
        path = self._resource.path(namespace, name)
        found = (await self._client.expected("GET", path)).decode(_Object)
        if found.metadata.uid != uid:
            raise NotFound(f"{path} with uid {uid} does not exist any more")

    def _report_dropped(self, dropped: frozenset[str]) -> None:
        if dropped != self._dropped:
            self._dropped = dropped
            what = ", ".join(sorted(dropped))
            log.warning("the definition of %s does not keep %s of their statuses", self._resource.plural, what)
