"""Writes to Kubernetes: conditions, PodGroup statuses, Events. Each write is fenced to its object."""

from contextlib import suppress
from typing import Any

import msgspec

from hbox_common.clock import wall_s
from hbox_common.errors import Conflict, NotFound, Unavailable
from hbox_common.kube import (
    MERGE_PATCH,
    PERSISTENTVOLUMECLAIMS,
    PODGROUPS,
    PODS,
    SELECTED_NODE,
    STRATEGIC_MERGE_PATCH,
    EventWriter,
    Involved,
    KubeClient,
    KubeObject,
    Resource,
    StatusPatcher,
    rfc3339,
)
from hbox_common.model.annotations import TRACE_ID
from hbox_common.model.traceids import trace_id_of, traceparent_of

from ..core.feedback import ConditionWrite, DeclaredWrite, EventWrite, Kind, SelectionWrite, StatusWrite

_API_VERSION: dict[str, str] = {Kind.POD: "v1", Kind.POD_GROUP: "scheduling.volcano.sh/v1beta1"}


class _Status(msgspec.Struct, frozen=True):
    conditions: list[dict[str, Any]] = []


class _Conditioned(KubeObject, frozen=True):
    status: _Status = _Status()


def _conditions_with(thing: _Conditioned, write: DeclaredWrite, now: str) -> list[dict[str, Any]] | None:
    """All conditions of the object with the written one; None if it has it already, or has it as True."""
    old = next((one for one in thing.status.conditions if one.get("type") == write.type), None)
    status = "True" if write.scheduled else "False"
    if old is not None and (old.get("status") == "True" or (old.get("status"), old.get("message")) == (status, write.message)):
        return None
    changed = old is None or old.get("status") != status
    new = {
        "type": write.type,
        "status": status,
        "reason": "Scheduled" if write.scheduled else "Unschedulable",
        "message": write.message,
        "lastTransitionTime": now if changed else (old or {}).get("lastTransitionTime", now),
    }
    return [*(one for one in thing.status.conditions if one.get("type") != write.type), new]


class KubeWriter:
    """Does the core's writes. Raises Unavailable where trying again may help; what was overtaken by a change of its object is let go."""

    def __init__(self, client: KubeClient, *, component: str, instance: str) -> None:
        self._client = client
        self._statuses = StatusPatcher(client, PODGROUPS)
        self._events = EventWriter(client, component=component, instance=instance)

    async def condition(self, write: ConditionWrite) -> None:
        """PodScheduled=False. On exactly the version seen: a binding that comes in between must keep its PodScheduled=True."""
        condition: dict[str, Any] = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": write.message,
        }
        if write.fresh:
            condition["lastTransitionTime"] = rfc3339(wall_s())
        await self._patch(
            PODS.path(write.namespace, write.name, "status"),
            {
                "metadata": {"uid": write.uid, "resourceVersion": write.resource_version},
                "status": {"conditions": [condition]},
            },
            STRATEGIC_MERGE_PATCH,
        )

    async def selection(self, write: SelectionWrite) -> None:
        """The node for which a claim's volume is to be made."""
        path = PERSISTENTVOLUMECLAIMS.path(write.namespace, write.claim)
        await self._patch(path, {"metadata": {"annotations": {SELECTED_NODE: write.node}}}, MERGE_PATCH)

    async def status(self, write: StatusWrite) -> None:
        """A PodGroup's phase, counts and conditions."""
        status = write.status
        conditions = [
            {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message}
            | ({"lastTransitionTime": c.since} if c.since else {})
            for c in status.conditions
        ]
        values = {
            "phase": status.phase.value,
            "running": status.running,
            "succeeded": status.succeeded,
            "failed": status.failed,
            "conditions": conditions,
        }
        with suppress(Conflict, NotFound):  # of another PodGroup, or gone: the watch brings it
            await self._statuses.patch(namespace=write.namespace, name=write.name, status=values, uid=write.uid)

    async def declared(self, write: DeclaredWrite) -> None:
        """The condition of an object that declares a gang. The conditions of other writers stay; one that is True stays True."""
        group, _, version = write.api_version.rpartition("/")
        resource = Resource(group, version, write.plural, namespaced=True)
        path = resource.path(write.namespace, write.name)
        with suppress(NotFound):
            thing = (await self._client.expected("GET", path)).decode(_Conditioned)
            wanted = _conditions_with(thing, write, rfc3339(wall_s()))
            if thing.metadata.uid != write.uid or wanted is None:
                return
            body = {"metadata": {"resourceVersion": thing.metadata.resource_version}, "status": {"conditions": wanted}}
            status = resource.path(write.namespace, write.name, "status")
            try:
                await self._client.json("PATCH", status, body=body, content_type=MERGE_PATCH)
            except Conflict as e:
                raise Unavailable(f"{path} changed meanwhile") from e

    async def event(self, write: EventWrite) -> None:
        """The Event of this object and reason: created, or counted up with the newest note."""
        about = Involved(write.api_version or _API_VERSION[write.kind], str(write.kind), write.namespace, write.name, write.uid)
        trace = {TRACE_ID: trace_id_of(traceparent_of(write.job))}
        await self._events.write(about, reason=write.reason, message=write.message, warning=write.warning, annotations=trace)

    async def _patch(self, path: str, body: dict[str, Any], content_type: str) -> None:
        with suppress(
            Conflict, NotFound
        ):  # changed or gone meanwhile: the watch brings the new version, which is looked at anew
            await self._client.json("PATCH", path, body=body, content_type=content_type)
