"""What the endpoint knows of the cluster: the labels of namespaces and the rules of queues, from watches.

A request is answered from memory and never causes a read. If a watch is not possible (rights, an API server that is away), the last known state counts; without
any, pods are completed without their namespace's labels, and Queues and PodGroups are checked by themselves alone.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.kube import NAMESPACES, QUEUES, Delta, Informer, KubeClient, KubeObject, Metadata
from hbox_common.kube import Queue as QueueObject
from hbox_common.kube.queues import closed, queue_of
from hbox_common.model import Queue, QueueName
from hbox_common.runtime import Condition

from ..core import NO_DEFAULTS, NamespaceDefaults, defaults_of
from ..core.namespaces import QUEUE_LABEL, SCHEDULER_LABEL

log = logging.getLogger(__name__)

#: For the watch to deliver a namespace whose pods come in the same moment, in seconds.
NEW_NAMESPACE_S = 1.0
REPEAT_S = 1.0
_LABELS = (SCHEDULER_LABEL, QUEUE_LABEL)


class Cluster:
    """`schedulers`: HBox's scheduler names, which labels may write."""

    def __init__(self, client: KubeClient, schedulers: Sequence[str]) -> None:
        self._schedulers = schedulers
        self._namespaces = Informer(client, NAMESPACES, KubeObject, keep=_slim)
        self._watched_queues = Informer(client, QUEUES, QueueObject, keep=_without_status)
        self._defaults: dict[str, NamespaceDefaults] = {}
        self._queues: dict[QueueName, Queue] = {}
        self._namespace_added = asyncio.Event()

    @property
    def queues(self) -> dict[QueueName, Queue] | None:
        """All queues by name; None before the first list."""
        return self._queues if self._watched_queues.synced.is_set() else None

    async def defaults(self, namespace: str) -> NamespaceDefaults:
        """What the labels of the namespace say. A namespace that was created a moment ago is waited for, for at most NEW_NAMESPACE_S."""
        if namespace not in self._defaults and self._namespaces.synced.is_set() and not self._namespaces.last_error:
            try:
                async with asyncio.timeout(NEW_NAMESPACE_S):
                    while namespace not in self._defaults:
                        await self._namespace_added.wait()
            except TimeoutError:
                log.info("namespace %s is not in the watch's copy", namespace)
        return self._defaults.get(namespace, NO_DEFAULTS)

    async def run(self, condition: Condition) -> None:
        """Until cancelled. `condition` is good from the first lists on, so that a replica that knows nothing gets no requests."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._namespaces.run(self._on_namespaces))
            tasks.create_task(self._watched_queues.run(self._on_queues))
            await self._keep(condition)

    async def _keep(self, condition: Condition) -> None:
        watched: tuple[tuple[str, Informer[Any]], ...] = (("namespaces", self._namespaces), ("queues", self._watched_queues))
        while True:
            unread = [(name, one) for name, one in watched if not one.synced.is_set()]
            if not unread:
                condition.ok()
                return
            name, informer = unread[0]
            condition.bad(informer.last_error or f"reading {name} from Kubernetes")
            try:
                async with asyncio.timeout(REPEAT_S):
                    await informer.synced.wait()
            except TimeoutError:
                pass  # state again what it waits for

    async def _on_namespaces(self, deltas: Sequence[Delta[KubeObject]]) -> None:
        for delta in deltas:
            if delta.new is not None:
                self._defaults[delta.new.metadata.name] = defaults_of(delta.new.metadata.labels, self._schedulers)
            elif delta.old is not None:
                self._defaults.pop(delta.old.metadata.name, None)
        self._namespace_added.set()
        self._namespace_added = asyncio.Event()

    async def _on_queues(self, deltas: Sequence[Delta[QueueObject]]) -> None:
        for delta in deltas:
            if delta.new is None:
                if delta.old is not None:
                    self._queues.pop(QueueName(delta.old.metadata.name), None)
                continue
            try:
                queue = queue_of(delta.new)
            except InvalidRequest as e:
                queue = closed(delta.new, e.message)
            self._queues[queue.name] = queue


def _slim(namespace: KubeObject) -> KubeObject:
    meta = namespace.metadata
    labels = {key: meta.labels[key] for key in _LABELS if key in meta.labels}
    return KubeObject(metadata=Metadata(name=meta.name, uid=meta.uid, resource_version=meta.resource_version, labels=labels))


def _without_status(queue: QueueObject) -> QueueObject:
    """The copy keeps identities only; the rules are in `queues`."""
    meta = queue.metadata
    return QueueObject(metadata=Metadata(name=meta.name, uid=meta.uid, resource_version=meta.resource_version))
