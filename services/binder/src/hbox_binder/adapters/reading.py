"""What became of pods, read at the API server by those who would free what they hold: one consistent read each (no resourceVersion), judged by uid."""

import asyncio
from collections.abc import AsyncIterator

import msgspec

from hbox_common.errors import HBoxError, InvalidRequest
from hbox_common.events import MOST_PODS_READ, Event, PodAsked, PodRead, PodsAsked, PodsRead, PodStanding
from hbox_common.kube import PODS, KubeClient, error_of, read_status
from hbox_common.model import NodeName

#: Reads under way at once, of all questions together: bindings come first.
AT_ONCE = 8

OK, NOT_FOUND = 200, 404
MAX_ERROR_CHARS = 200  #: characters of an error

_ENDED = ("Succeeded", "Failed")


class _Metadata(msgspec.Struct):
    uid: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    """No more of a pod than the answer needs: whatever else is wrong with it must not keep it from being found."""

    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class PodDesk:
    """Answers `PodsAsked`."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def answer(self, asked: Event) -> AsyncIterator[Event]:
        """One page. Raises InvalidRequest where more pods are asked for than one question may have."""
        assert isinstance(asked, PodsAsked)
        if len(asked.pods) > MOST_PODS_READ:
            raise InvalidRequest(f"{len(asked.pods)} pods in one question", hint=f"ask for {MOST_PODS_READ} at most")
        async with asyncio.TaskGroup() as tasks:
            reads = [tasks.create_task(self._read(pod)) for pod in asked.pods]
        yield PodsRead(pods=tuple(read.result() for read in reads))

    async def _read(self, asked: PodAsked) -> PodRead:
        async with self._slots:
            path = PODS.path(asked.namespace, asked.name)
            try:
                answer = await self._client.request("GET", path)
                if answer.status == NOT_FOUND and _reports_gone(answer.body, asked):
                    return PodRead(uid=asked.uid, standing=PodStanding.GONE, message="there is no pod of its name")
                if answer.status != OK:
                    raise error_of(answer.status, answer.body, what=f"GET {path}")
                found = answer.decode(_Pod)
            except HBoxError as e:
                return PodRead(uid=asked.uid, standing=PodStanding.UNKNOWN, message=e.message[:MAX_ERROR_CHARS])
        if not found.metadata.uid:
            return PodRead(uid=asked.uid, standing=PodStanding.UNKNOWN, message="what the API server sent has no uid")
        if found.metadata.uid != asked.uid:
            message = f"the pod of this name is another one (uid {found.metadata.uid})"
            return PodRead(uid=asked.uid, standing=PodStanding.GONE, message=message)
        standing = PodStanding.ENDED if found.status.phase in _ENDED else PodStanding.HOLDS
        return PodRead(uid=asked.uid, standing=standing, node=NodeName(found.spec.node_name))


def _reports_gone(body: bytes, asked: PodAsked) -> bool:
    """Whether it is the API server that has no such pod. A load balancer's own 404, or that of a path which is not served, is no evidence."""
    status = read_status(body)
    return (
        status.reason == "NotFound"
        and status.details is not None
        and (status.details.kind, status.details.name) == ("pods", asked.name)
    )
