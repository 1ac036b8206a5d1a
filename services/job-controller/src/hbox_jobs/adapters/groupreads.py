"""Reads PodGroups whose pods are newer than the watch of PodGroups, so that no gang starts with an outdated minimum (ADR 88)."""

import asyncio
import logging

import msgspec

from hbox_common import kube
from hbox_common.clock import monotonic_s
from hbox_common.errors import HBoxError, NotFound
from hbox_common.kube import PODGROUPS, KubeClient
from hbox_common.kube.nesting import decoded
from hbox_common.kube.status import NotServed
from hbox_common.pacing import backoff_s

from .. import metrics
from ..core.jobs import Jobs
from ..core.views import GroupView
from .objects import GROUP_FIELDS, group_view

log = logging.getLogger(__name__)

#: Seconds after which a PodGroup that was not found is read again before it counts as deleted, if the watch still shows it.
MISSING_AGAIN_S = 1.0
#: Concurrent reads.
AT_ONCE = 16
#: Backoff between two attempts to read one PodGroup, in seconds: first and maximum.
RETRY_S, RETRY_MAX_S = 0.2, 5.0
TIMEOUT_S = 5.0

_DECODER = msgspec.json.Decoder(kube.PodGroup)


class GroupReader:
    """`unread`: to be set when `jobs` may have PodGroups to read; `wake`: the reader sets it after each read."""

    def __init__(self, client: KubeClient, jobs: Jobs, *, wake: asyncio.Event) -> None:
        self._client, self._jobs, self._wake = client, jobs, wake
        self.unread = asyncio.Event()
        self._failures: dict[str, int] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await self.unread.wait()
                self.unread.clear()
                while (unread := self._jobs.next_unread()) is not None:
                    await self._slots.acquire()  # released by `_view`
                    group.create_task(self._read(*unread))

    async def _read(self, key: str, up_to: int) -> None:
        try:
            view = await self._view(key)
            if view is None:
                # It may be about to be created again. If the watch delivers its deletion meanwhile, the second read changes nothing.
                await asyncio.sleep(MISSING_AGAIN_S)
                await self._slots.acquire()
                view = await self._view(key)
        except (HBoxError, msgspec.DecodeError) as e:
            metrics.GROUP_READS.labels("failed").inc()
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            if failures == 1:
                log.warning(
                    "PodGroup %s has pods newer than the watch of PodGroups and could not be read; its gang waits: %s", key, e
                )
            self._jobs.read_failing(key, f"PodGroup {key} could not be read, so its pods wait: {e}", monotonic_s())
            self._wake.set()
            await asyncio.sleep(backoff_s(failures - 1, base_s=RETRY_S, cap_s=RETRY_MAX_S))
            self._jobs.read_failed(key, monotonic_s())
        else:
            metrics.GROUP_READS.labels("read").inc()
            self._failures.pop(key, None)
            self._jobs.group_read(key, up_to, view, monotonic_s())
        self._wake.set()

    async def _view(self, key: str) -> GroupView | None:
        """The PodGroup by a consistent read; None if it does not exist. Releases one of `_slots`. Raises HBoxError."""
        try:
            answer = await self._client.expected("GET", PODGROUPS.path(*key.split("/", 1)), timeout_s=TIMEOUT_S)
        except NotServed:
            raise  # by a proxy, or while the definition is absent: no evidence that the PodGroup is gone
        except NotFound:
            return None
        finally:
            self._slots.release()
        return group_view(GROUP_FIELDS.note(decoded(_DECODER, answer.body), answer.body))
