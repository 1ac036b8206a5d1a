"""Locks of nodes in allocation: acquired before a binding, watched until the device plugin releases them, and removed if they are stale (`core.stalelocks`).

A watch keeps a copy of all nodes' locks; it starts with the first node that needs a lock. It reports at once that a lock is gone, and the resourceVersion at
which a node can be locked without a read. Without the watch (rights of an older chart) the binder reads nodes, half a second later.

The binder checks a lock that is older than a plugin needs: every half second if pods wait for that node, else at growing intervals, LOOKS_PER_S on all nodes
together. On one node it acquires, releases and checks locks one at a time, so that it does not remove a lock that a pod has just acquired.

When locks are released, the binder reads a sample of their pods for the metric of allocation results. While a node rests because its kubelet refuses pods
with cards (`NodeRests` of job-controller), the binder takes none of its locks: else a controller's pods would be bound and fail as fast as it creates them.

After a restart the binder lists the nodes and checks every lock.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn
from weakref import WeakValueDictionary

from hbox_common.clock import monotonic_s, wall_s
from hbox_common.errors import Conflict, HBoxError, NotFound
from hbox_common.kube import NODES, Informer, KubeClient, KubeObject, Locked, locks_of, older, read_locks, read_pod, write_locks
from hbox_common.kube.reflector import Delta
from hbox_common.model import NodeName, NodeRest, PodUid, RequestKind
from hbox_common.model.devices import VENDORS, BindPhase, format_lock, parse_lock
from hbox_common.model.devices.handshake import BIND_PHASES
from hbox_common.pacing import TokenBucket, backoff_s

from .. import metrics
from ..core.stalelocks import LockOwner, stale

log = logging.getLogger(__name__)

#: A lock that stands for so long is looked into, and again after as long where pods wait for the node, else after growing pauses: a plugin needs some tens of
#: milliseconds.
LOOK_S, LONGEST_PAUSE_S = 0.5, 8.0
#: Of all nodes together, where plugins died on many: each is a read of the node, and one of the pod.
LOOKS_PER_S = 20.0
_ROUND_S = 0.1
#: kubelet writes a pod's status a moment after its plugin has answered.
_STATUS_S = 1.0
#: Limits of the reads of pods for the metric: concurrent ones, and each second.
_MOST_READ, _SAMPLES_PER_S = 4, 20.0
_TRIES = 6

#: Of a pod that kubelet failed because a device plugin did (kubelet `lifecycle`).
_NOT_ADMITTED = "UnexpectedAdmissionError"


class Taking(StrEnum):
    TAKEN = "taken"  #: by this call
    HELD = "held"  #: the pod has it already
    LOCKED = "locked"  #: another has it
    GONE = "gone"  #: no such node
    UNCLEAR = "unclear"  #: nobody knows: try again


@dataclass(frozen=True, slots=True)
class Took:
    """What came of taking a node's locks. `holder`: of LOCKED, the one pod (namespace, name) that has all that stand there."""

    taking: Taking
    message: str = ""
    holder: tuple[str, str] | None = None


@dataclass(slots=True)
class _Seen:
    """Times are monotonic."""

    locked: Locked
    since: float  #: for how long these locks stand
    looked_at: float  #: last, or as `since`
    looks: int = 0

    def due(self, *, waited_for: bool) -> float:
        """When it is to be looked into. `waited_for`: by other pods."""
        if waited_for or not self.looks:
            return self.looked_at + LOOK_S
        return self.looked_at + backoff_s(self.looks - 1, base_s=2 * LOOK_S, cap_s=LONGEST_PAUSE_S)


class NodeLocks:
    """`on_news`: called with each node whose lock is released, and with each node whose lock is still held after an inspection.
    `waited_for`: whether a decision to bind the pod is open. `in_line`: whether pods wait for a node's lock.
    `expires_s`: the age at which a lock may be removed unless its pod is in allocation; HAMi's own is 300. The names of the locks are those of the vendors at
    the construction of this object: `device_config` may set others."""

    def __init__(
        self,
        client: KubeClient,
        *,
        on_news: Callable[[NodeName], None],
        waited_for: Callable[[str, str], bool],
        in_line: Callable[[NodeName], bool],
        expires_s: float,
    ) -> None:
        self._names = tuple(sorted(VENDORS.locks))
        self._in_line = in_line
        self._client, self._on_news, self._waited_for, self._expires_s = client, on_news, waited_for, expires_s
        self._nodes: dict[str, _Seen] = {}
        self._held: set[str] = set()  #: of these, those with a lock
        self._uids: dict[str, PodUid] = {}  #: of these, for which pod it was taken here
        self._guards: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._wanted = asyncio.Event()
        self._resting: dict[str, float] = {}  #: until when the node is given no other pod, monotonic
        self._reading = 0
        self._samples = TokenBucket(rate_per_s=_SAMPLES_PER_S, burst=_SAMPLES_PER_S)
        self._looks = TokenBucket(rate_per_s=LOOKS_PER_S, burst=LOOKS_PER_S)
        self._tasks = asyncio.TaskGroup()
        metrics.LOCKED_NODES.set_function(lambda: len(self._held))
        metrics.RESTING_NODES.set_function(lambda: len(self._resting))

    def want(self) -> None:
        """There is a node with a lock to take: watch."""
        self._wanted.set()

    def free(self, node: NodeName) -> bool:
        """Whether the node may be locked now, as far as is known."""
        return node not in self._held and self._resting.get(node, 0.0) <= monotonic_s()

    def holder(self, node: NodeName) -> tuple[str, str] | None:
        """The one pod (namespace, name) that has all locks of a node, as far as is known."""
        return _holder(self._nodes[node].locked) if node in self._held else None

    # --- taking and releasing

    def held_by(self, namespace: str, pod: str) -> list[NodeName]:
        """Nodes with a lock of this pod, as far as is known."""
        return [
            NodeName(node)
            for node in self._held
            if any(parse_lock(value).of(namespace, pod) for _, value in self._nodes[node].locked.locks)
        ]

    async def take(self, node: NodeName, names: Sequence[str], *, namespace: str, pod: str, uid: PodUid) -> Took:
        """Take these locks for the pod. Raises nothing but Bug."""
        async with self._guard(node):
            took = await self._take(node, names, namespace=namespace, pod=pod)
            if took.taking in (Taking.TAKEN, Taking.HELD):
                self._uids[node] = uid
            return took

    async def _take(self, node: NodeName, names: Sequence[str], *, namespace: str, pod: str) -> Took:
        if self._resting.get(node, 0.0) > monotonic_s():
            return Took(Taking.LOCKED, f"node {node} rests after its kubelet refused pods with cards")
        known = self._nodes.get(node)
        locked = known.locked if known is not None else None
        try:
            for attempt in range(_TRIES):
                if locked is None or attempt:
                    locked = await read_locks(self._client, node, self._names)
                    if locked is None:
                        return Took(Taking.GONE, f"there is no node {node}")
                    self._see(node, locked)
                standing = {name: value for name, value in locked.locks if name in names}
                if standing and not all(parse_lock(value).of(namespace, pod) for value in standing.values()):
                    if known is None or attempt:
                        return Took(Taking.LOCKED, f"node {node} is locked: {', '.join(standing.values())}", _holder(locked))
                    continue  # by the copy alone: it may be behind
                if len(standing) == len(names):
                    return Took(Taking.HELD)
                try:
                    written = await write_locks(
                        self._client,
                        node,
                        names,
                        format_lock(namespace, pod, wall_s()),
                        resource_version=locked.resource_version,
                    )
                except Conflict:
                    continue
                if written is None:
                    return Took(Taking.GONE, f"there is no node {node}")
                self._see(node, written)
                return Took(Taking.TAKEN)
        except HBoxError as e:
            return Took(Taking.UNCLEAR, f"node {node} cannot be locked: {e}")
        return Took(Taking.UNCLEAR, f"node {node} was written again and again while it was to be locked")

    async def release(self, node: NodeName, *, namespace: str, pod: str) -> None:
        """Remove the locks that the pod has. What cannot be removed is looked into later. Raises nothing but Bug."""
        try:
            async with self._guard(node):
                for _ in range(_TRIES):
                    locked = await read_locks(self._client, node, self._names)
                    if locked is None:
                        self._forget(node)
                        return
                    self._see(node, locked)
                    own = [name for name, value in locked.locks if parse_lock(value).of(namespace, pod)]
                    if not own or await self._remove(node, own, locked):
                        return
        except HBoxError as e:
            log.info("node %s: its lock cannot be released now: %s", node, e, extra={"node": node})

    async def _remove(self, node: str, names: Sequence[str], locked: Locked) -> bool:
        try:
            written = await write_locks(self._client, node, names, None, resource_version=locked.resource_version)
        except Conflict:
            return False
        if written is None:
            self._forget(node)
        else:
            self._see(node, written)
        return True

    def _guard(self, node: str) -> asyncio.Lock:
        """Held while a task acquires or removes the node's lock."""
        guard = self._guards.get(node)
        if guard is None:
            guard = self._guards[node] = asyncio.Lock()
        return guard

    # --- seeing

    async def run(self) -> None:
        """Watch, and look into locks that stand too long. Until cancelled."""
        nodes = Informer(self._client, NODES, KubeObject)
        async with self._tasks as group:
            group.create_task(self._look_after())
            await self._wanted.wait()
            group.create_task(nodes.run(self._changed))

    async def _changed(self, deltas: Sequence[Delta[KubeObject]]) -> None:
        for delta in deltas:
            if delta.new is not None:
                self._see(delta.new.metadata.name, locks_of(delta.new, self._names))
            elif delta.old is not None:
                self._forget(delta.old.metadata.name)

    def _see(self, node: str, locked: Locked) -> None:
        known = self._nodes.get(node)
        if known is not None:
            if older(locked.resource_version, known.locked.resource_version):
                return
            if known.locked.locks == locked.locks:
                known.locked = locked
                return
        now = monotonic_s()
        self._nodes[node] = _Seen(locked, since=now, looked_at=now)
        taken_for = self._uids.pop(node, None)
        if not locked.free:
            self._held.add(node)
        elif node in self._held:
            assert known is not None
            metrics.ALLOCATION_S.observe(now - known.since)
            self._held.discard(node)
            self._ask(known.locked, taken_for)
            self._on_news(NodeName(node))

    def _forget(self, node: str) -> None:
        self._nodes.pop(node, None)
        self._uids.pop(node, None)
        self._resting.pop(node, None)
        if node in self._held:
            self._held.discard(node)
            self._on_news(NodeName(node))

    # --- what plugins say of pods

    def rest(self, rest: NodeRest) -> None:
        """A node's kubelet refuses pods with cards, or admits them again."""
        now = wall_s()
        ends = [one.until for one in rest.lasting(now) if one.kind == RequestKind.CARDS and not one.only]
        if ends:
            self._resting[rest.node] = monotonic_s() + max(ends) - now
        elif self._resting.pop(rest.node, None) is not None:
            self._on_news(rest.node)

    def _ask(self, was: Locked, taken_for: PodUid | None) -> None:
        """Read the pod that held this lock, within the limits of such reads."""
        lock = next((lock for _, value in was.locks if (lock := parse_lock(value)).pod), None)
        if lock is not None and self._reading < _MOST_READ and self._samples.take(monotonic_s()):
            self._reading += 1
            self._tasks.create_task(self._count(lock.namespace, lock.pod, taken_for))

    async def _count(self, namespace: str, name: str, taken_for: PodUid | None) -> None:
        try:
            failed = await self._failed(namespace, name, taken_for)
        except HBoxError:
            return
        finally:
            self._reading -= 1
        if failed is not None:
            metrics.ALLOCATIONS.labels("failed" if failed else "success").inc()

    async def _failed(self, namespace: str, name: str, taken_for: PodUid | None) -> bool | None:
        """Whether the device plugin failed to hand over the pod's cards; None if the pod is gone (another pod of its name proves nothing).

        The annotation of the bind phase is no proof, since the pod's owner can write it; the status that the kubelet writes is."""
        pod = await read_pod(self._client, namespace=namespace, name=name)
        uid = taken_for or pod.metadata.uid
        notes = pod.metadata.annotations
        if any(notes.get(name) == BindPhase.FAILED for name in BIND_PHASES) and pod.status.phase == "Pending":
            await asyncio.sleep(_STATUS_S)
            pod = await read_pod(self._client, namespace=namespace, name=name)
        if pod.metadata.uid != uid:
            return None
        return (pod.status.phase, pod.status.reason) == ("Failed", _NOT_ADMITTED)

    # --- looking into

    async def _look_after(self) -> NoReturn:
        while True:
            now = monotonic_s()
            for node in [node for node, until in self._resting.items() if until <= now]:
                del self._resting[node]
                self._on_news(NodeName(node))
            for node in self._due(now):
                seen = self._nodes.get(node)
                if seen is None or seen.locked.free:
                    continue
                if not self._looks.take(monotonic_s()):
                    break
                seen.looked_at, seen.looks = monotonic_s(), seen.looks + 1
                try:
                    async with self._guard(node):
                        await self._look_into(node)
                except HBoxError as e:
                    log.info("node %s: its lock cannot be looked into now: %s", node, e, extra={"node": node})
            await asyncio.sleep(_ROUND_S)

    def _due(self, now: float) -> list[str]:
        """Nodes whose locks are to be looked into, first those that pods wait for, and of these whose time came first."""
        due: list[tuple[bool, float, str]] = []
        for node in self._held:
            waited_for = self._in_line(NodeName(node))
            at = self._nodes[node].due(waited_for=waited_for)
            if at <= now:
                due.append((not waited_for, at, node))
        return [node for _, _, node in sorted(due)]

    async def _look_into(self, node: str) -> None:
        locked = await read_locks(self._client, node, self._names)
        if locked is None:
            self._forget(node)
            return
        self._see(node, locked)
        seen, taken_for = self._nodes[node], self._uids.get(node)
        removable: dict[str, list[str]] = {}
        for name, value in locked.locks:
            lock = parse_lock(value)
            owner = await self._owner(lock.namespace, lock.pod, taken_for) if lock.pod else None
            seen_s = monotonic_s() - seen.since
            if why := stale(lock, owner, node=node, now=wall_s(), seen_s=seen_s, expires_s=self._expires_s):
                removable.setdefault(why, []).append(name)
        for why, names in removable.items():
            if await self._remove(node, names, self._nodes[node].locked if node in self._nodes else locked):
                metrics.LOCKS_REMOVED.labels(why).inc()
                log.warning("node %s: lock %s removed: %s", node, locked.locks, why, extra={"node": node})
        if node in self._held:
            self._on_news(NodeName(node))

    async def _owner(self, namespace: str, name: str, taken_for: PodUid | None) -> LockOwner | None:
        try:
            pod = await read_pod(self._client, namespace=namespace, name=name)
        except NotFound:
            return None
        return LockOwner(
            node=pod.spec.node_name,
            ended=pod.status.phase in ("Succeeded", "Failed"),
            admitted=pod.status.start_time is not None,
            waited_for=self._waited_for(namespace, name),
            another=taken_for is not None and pod.metadata.uid != taken_for,
        )


def _holder(locked: Locked) -> tuple[str, str] | None:
    """The one pod that has all locks of a node."""
    holders = {(lock.namespace, lock.pod) for _, value in locked.locks if (lock := parse_lock(value)).pod}
    return holders.pop() if len(holders) == 1 else None
