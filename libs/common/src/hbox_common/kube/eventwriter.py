"""Kubernetes Events: one object for each thing and reason, counted up with the newest note."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

from hbox_common.clock import wall_s
from hbox_common.errors import Conflict, NotFound

from .resources import EVENTS
from .times import rfc3339
from .transport import MERGE_PATCH, KubeClient

#: Names of Events are remembered up to here, so that most repetitions need one request.
_MAX_REMEMBERED = 20_000

#: The API server refuses longer notes.
MAX_NOTE = 1024

#: Where Events about objects of the whole cluster stand.
CLUSTER_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Involved:
    """What an Event is about; `namespace` is empty for an object of the whole cluster."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class EventWriter:
    """Writes Events as `component`."""

    def __init__(self, client: KubeClient, *, component: str, instance: str) -> None:
        self._client, self._component, self._instance = client, component, instance
        self._counts: dict[str, int] = {}

    async def write(
        self, about: Involved, *, reason: str, message: str, warning: bool, annotations: Mapping[str, str] = {}
    ) -> None:
        """The Event of this object and reason: created, with these annotations, or counted up with this message, cut to MAX_NOTE. Raises InvalidRequest,
        Unavailable."""
        name = f"{about.name[:200]}.{sha256(f'{about.uid}/{reason}'.encode()).hexdigest()[:16]}"
        now = rfc3339(wall_s())
        message = message[:MAX_NOTE]
        count = self._counts.pop(name, 0)
        if count:
            with suppress(NotFound):
                await self._count_up(about, name, now, count, message)
                self._remember(name, count + 1)
                return
        # New to us, or it has expired.
        try:
            count = await self._create(
                about, name, now, reason=reason, message=message, warning=warning, annotations=annotations
            )
            if count:
                await self._count_up(about, name, now, count, message)
        except NotFound:  # its namespace is gone, or it expired this very moment
            return
        self._remember(name, count + 1)

    def _remember(self, name: str, count: int) -> None:
        if len(self._counts) >= _MAX_REMEMBERED:
            self._counts.clear()
        self._counts[name] = count

    async def _count_up(self, about: Involved, name: str, now: str, count: int, message: str) -> None:
        await self._client.json(
            "PATCH",
            EVENTS.path(about.namespace or CLUSTER_NAMESPACE, name),
            body={"message": message, "lastTimestamp": now, "count": count + 1},
            content_type=MERGE_PATCH,
        )

    async def _create(
        self, about: Involved, name: str, now: str, *, reason: str, message: str, warning: bool, annotations: Mapping[str, str]
    ) -> int:
        """Returns 0 when it was created, else the count of the one that is there."""
        namespace = about.namespace or CLUSTER_NAMESPACE
        try:
            await self._client.json(
                "POST",
                EVENTS.path(namespace),
                body={
                    "apiVersion": "v1",
                    "kind": "Event",
                    "metadata": {
                        "name": name,
                        "namespace": namespace,
                        **({"annotations": dict(annotations)} if annotations else {}),
                    },
                    "involvedObject": {
                        "apiVersion": about.api_version,
                        "kind": about.kind,
                        "name": about.name,
                        "uid": about.uid,
                        **({"namespace": about.namespace} if about.namespace else {}),
                    },
                    "type": "Warning" if warning else "Normal",
                    "reason": reason,
                    "message": message,
                    "source": {"component": self._component},
                    "reportingComponent": self._component,
                    "reportingInstance": self._instance,
                    "firstTimestamp": now,
                    "lastTimestamp": now,
                    "count": 1,
                },
            )
        except Conflict:
            known = await self._client.json("GET", EVENTS.path(namespace, name))
            return max(1, int(known.get("count") or 1))
        return 0
