"""What Kubernetes is told: conditions, PodGroup statuses, Events. Each write is fenced to the object that it was meant for."""

from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from hbox_common.clock import wall_s
from hbox_common.errors import Conflict, NotFound
from hbox_common.kube import EVENTS, MERGE_PATCH, PERSISTENTVOLUMECLAIMS, PODGROUPS, PODS, KubeClient

from ..core.feedback import ConditionWrite, EventWrite, Kind, SelectionWrite, StatusWrite
from .volumes import SELECTED_NODE

STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

_API_VERSION = {Kind.POD: "v1", Kind.POD_GROUP: "scheduling.volcano.sh/v1beta1"}

#: Names of Events are remembered up to here, so that most repetitions need one request.
_MAX_REMEMBERED = 20_000


def rfc3339(seconds: float) -> str:
    """Seconds since the epoch as Kubernetes' Time: UTC, whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class KubeWriter:
    """Does the core's writes. Raises Unavailable where trying again may help; what was overtaken by a change of its object is let go."""

    def __init__(self, client: KubeClient, *, component: str, instance: str) -> None:
        self._client, self._component, self._instance = client, component, instance
        self._counts: dict[str, int] = {}

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
        await self._patch(
            PODGROUPS.path(write.namespace, write.name, "status"),
            {
                "metadata": {"uid": write.uid},
                "status": {
                    "phase": status.phase.value,
                    "running": status.running,
                    "succeeded": status.succeeded,
                    "failed": status.failed,
                    "conditions": conditions,
                },
            },
            MERGE_PATCH,
        )

    async def event(self, write: EventWrite) -> None:
        """The Event of this object and reason: created, or counted up with the newest note."""
        name = f"{write.name[:200]}.{sha256(f'{write.uid}/{write.reason}'.encode()).hexdigest()[:16]}"
        now = rfc3339(wall_s())
        path = EVENTS.path(write.namespace, name)
        count = self._counts.get(name, 0)
        try:
            if count == 0:
                count = await self._create_event(write, name, now)
            if count > 0:
                await self._client.json(
                    "PATCH",
                    path,
                    body={"message": write.message, "lastTimestamp": now, "count": count + 1},
                    content_type=MERGE_PATCH,
                )
        except NotFound:  # it has expired, or its namespace is gone: the next time makes a new one
            self._counts.pop(name, None)
            return
        if len(self._counts) >= _MAX_REMEMBERED:
            self._counts.clear()
        self._counts[name] = count + 1

    async def _create_event(self, write: EventWrite, name: str, now: str) -> int:
        """Returns 0 when it was created, else the count of the one that is there."""
        try:
            await self._client.json(
                "POST",
                EVENTS.path(write.namespace),
                body={
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": {"name": name, "namespace": write.namespace},
                    "involvedObject": {
                        "apiVersion": _API_VERSION[write.kind],
                        "kind": write.kind.value,
                        "namespace": write.namespace,
                        "name": write.name,
                        "uid": write.uid,
                    },
                    "type": "Warning" if write.warning else "Normal",
                    "reason": write.reason,
                    "message": write.message,
                    "source": {"component": self._component},
                    "reportingComponent": self._component,
                    "reportingInstance": self._instance,
                    "firstTimestamp": now,
                    "lastTimestamp": now,
                    "count": 1,
                },
            )
        except Conflict:
            known = await self._client.json("GET", EVENTS.path(write.namespace, name))
            return max(1, int(known.get("count") or 1))
        return 0

    async def _patch(self, path: str, body: dict[str, Any], content_type: str) -> None:
        try:
            await self._client.json("PATCH", path, body=body, content_type=content_type)
        except (Conflict, NotFound):
            # Changed or gone meanwhile: the watch brings the new version, which is looked at anew.
            return
