"""Watches the kinds of owners that pods name, and reads single owners that no watch has delivered.

A kind is watched once a pod names it. If the cluster does not serve it, or HBox may not read it, its pods are single pods until both have changed. A kind
that was readable and fails for another reason (no answer, an error of the server) keeps its pods waiting: what their owners declare is not known.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from hbox_common import kube
from hbox_common.clock import monotonic_s
from hbox_common.errors import HBoxError, InvalidRequest, NotFound, Unavailable
from hbox_common.kube import Delta, Informer, KubeClient, Resource
from hbox_common.kube.nesting import decoded
from hbox_common.kube.status import NotAllowed, NotServed
from hbox_common.pacing import backoff_s
from hbox_common.workloads import Kind, Kinds, Owner, OwnerRef, read_owner

from .. import metrics
from ..core.intake import Turns
from ..core.jobs import Jobs
from ..core.owners import READ_AFTER_S, GroupKind, Wanted
from ..core.successions import declared_pods
from ..core.surges import rollout_of

log = logging.getLogger(__name__)

#: Seconds between two looks at owners that are not read.
LOOK_S = 0.1
#: Seconds between two attempts to read a kind that the cluster does not serve, or that HBox may not read.
UNREADABLE_S = 5.0
#: Seconds between two checks of a watch that reports an error.
CHECK_S = 1.0
#: Concurrent reads of single owners.
AT_ONCE = 16
TIMEOUT_S = 5.0
RETRY_S, RETRY_MAX_S = 0.2, 5.0
#: Seconds between two looks at the files of further kinds.
FILES_S = 5.0
#: Maximum bytes of all files of further kinds: a ConfigMap holds 1 MiB.
FILES_BYTES = 2**20


class OwnerObject(kube.KubeObject, frozen=True, gc=False):
    """An owner of any kind. Its status is not read. `spec` is JSON: as values, the specs of a page of large objects would take more than ten times as much."""

    spec: msgspec.Raw = msgspec.Raw()


class _Entry(msgspec.Struct):
    name: str
    kind: str = ""
    namespaced: bool = False


class _Served(msgspec.Struct):
    resources: list[_Entry] = []


_DECODER = msgspec.json.Decoder(OwnerObject)
_SPEC: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def slim(thing: OwnerObject) -> OwnerObject:
    meta = thing.metadata
    return OwnerObject(
        metadata=kube.Metadata(name=meta.name, uid=meta.uid, namespace=meta.namespace, resource_version=meta.resource_version)
    )


class _Unreadable(Exception):
    """Why no object of a kind can be read."""


@dataclass(frozen=True, slots=True)
class _Stale:
    """A known owner that has to be read again, since its pods are newer than its watch."""

    namespace: str
    ref: OwnerRef


class OwnerWatch:
    """`wake`: set after each change of `jobs`."""

    def __init__(self, client: KubeClient, jobs: Jobs, kinds: Kinds, *, wake: asyncio.Event, kinds_dir: str = "") -> None:
        self._client, self._jobs, self._wake = client, jobs, wake
        self._builtin = self._kinds = kinds
        self._kinds_dir = Path(kinds_dir) if kinds_dir else None
        self._files: dict[str, bytes] = {}
        self.complaint = ""  #: about the files of further kinds
        self._running: dict[GroupKind, asyncio.Task[None]] = {}
        self._resources: dict[GroupKind, Resource] = {}  #: of kinds that are served
        self._listed: set[GroupKind] = set()
        self._informers: dict[GroupKind, Informer[OwnerObject]] = {}
        self._busy = 0  #: reads in flight
        self._free = asyncio.Event()  #: a turn was enqueued, or a read ended
        self._reading: dict[str, None] = {}  #: keys of owners that are enqueued, read, or read again after a failure
        self._turns: Turns[Wanted | _Stale] = Turns()
        self._failures: dict[str, int] = {}

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read_in_turns(group))
            while True:
                self.start(group)
                self._read_wanted()
                self._reread()
                metrics.OWNERS.set(len(self._jobs.owners))
                await asyncio.sleep(LOOK_S)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Begin to watch the kinds that pods name."""
        for name in [each for each in self._jobs.owners.named if each not in self._running]:
            kind = next((each for each in self._kinds if (each.group, each.kind) == name), None)
            if kind is not None:
                self._running[name] = group.create_task(self._follow(name, kind))

    @property
    def settled(self) -> bool:
        """Whether every owner that pods name is read, or known to be unreadable."""
        return not self._jobs.owners.waiting

    # --- one kind

    async def _follow(self, name: GroupKind, kind: Kind) -> None:
        failures = 0
        while True:
            try:
                resource = await self._find(kind)
            except _Unreadable as e:
                self._unreadable(name, str(e))
                await asyncio.sleep(UNREADABLE_S)
                continue
            except HBoxError as e:
                failures += 1
                log.warning("owners of kind %s cannot be read yet: %s", kind.kind, e)
                await asyncio.sleep(backoff_s(failures - 1, base_s=RETRY_S, cap_s=RETRY_MAX_S))
                continue
            failures = 0
            await self._watch(name, kind, resource)

    async def _find(self, kind: Kind) -> Resource:
        """Where the kind is served. Raises _Unreadable, and HBoxError if that is not known."""
        for version in kind.versions:
            resource = Resource(kind.group, version, kind.plural, namespaced=True)
            try:
                served = (await self._client.expected("GET", resource.list_of_kinds, timeout_s=TIMEOUT_S)).decode(_Served)
            except NotFound:
                continue
            except msgspec.DecodeError as e:
                raise Unavailable(f"discovery of {resource.list_of_kinds} cannot be read: {e}") from e
            if not any(each.name == kind.plural and each.kind == kind.kind and each.namespaced for each in served.resources):
                continue
            await self._probe(resource)
            return resource
        raise _Unreadable(f"the cluster does not serve {kind.plural}.{kind.group}")

    async def _probe(self, resource: Resource) -> None:
        try:
            await self._client.expected("GET", resource.path(), params={"limit": "1"}, timeout_s=TIMEOUT_S)
        except NotAllowed as e:
            raise _Unreadable(f"HBox may not list {resource.plural}.{resource.group}: grant it get, list and watch") from e
        except NotFound as e:
            raise _Unreadable(f"the cluster does not serve {resource.plural}.{resource.group}") from e

    def _unreadable(self, name: GroupKind, reason: str) -> None:
        if not self._jobs.owners.is_unreadable(name):
            log.warning("owners of kind %s are not read, their pods are single pods: %s", name[1], reason)
        self._jobs.place_again(self._jobs.owners.kind_unreadable(name, reason), monotonic_s())
        self._wake.set()

    async def _watch(self, name: GroupKind, kind: Kind, resource: Resource) -> None:
        """Follow the kind until it is not served there any more, or may not be read."""
        informer = Informer(self._client, resource, OwnerObject, keep=slim)
        api_version = f"{resource.group}/{resource.version}" if resource.group else resource.version
        self._informers[name], self._resources[name] = informer, resource

        async def take(deltas: Sequence[Delta[OwnerObject]]) -> None:
            now = monotonic_s()
            for delta in deltas:
                if delta.new is not None:
                    self.deliver(api_version, kind.kind, delta.new, now)
                elif delta.old is not None:
                    self._jobs.owner_gone(delta.old.metadata.uid)
            if informer.synced.is_set():
                self._jobs.owners_delivered(name, informer.delivered)
            self._wake.set()

        async with asyncio.TaskGroup() as group:
            running = group.create_task(informer.run(take))
            checked_at = monotonic_s()
            while True:
                await asyncio.sleep(LOOK_S)
                if informer.synced.is_set() and informer.delivered:
                    if name not in self._listed:
                        self._listed.add(name)
                        self._after_list(name, informer)
                    self._jobs.owners_delivered(name, informer.delivered)
                if informer.last_error and monotonic_s() >= checked_at + CHECK_S:
                    checked_at = monotonic_s()
                    try:
                        await self._probe(resource)
                    except _Unreadable as e:
                        self._unreadable(name, str(e))
                        break
                    except HBoxError:
                        pass
            running.cancel()
        self._listed.discard(name)

    def deliver(self, api_version: str, kind: str, thing: OwnerObject, now: float) -> None:
        """Take an owner from its watch. One that cannot be decoded is left to a read of this object, which explains it on its pods."""
        try:
            owner = self._owner(api_version, kind, thing)
        except (msgspec.DecodeError, UnicodeDecodeError) as e:
            log.warning("%s %s cannot be decoded: %s", kind, thing.metadata.name, e)
        else:
            self._jobs.owner(owner, now)

    def _after_list(self, name: GroupKind, informer: Informer[OwnerObject]) -> None:
        """The copy is complete: owners that it lacks were deleted while the kind was not watched."""
        for owner in list(self._jobs.owners.of_kind(name)):
            if owner.ref.uid not in informer.store and owner.version <= _number(informer.resource_version):
                self._jobs.owner_gone(owner.ref.uid)
        self._jobs.place_again(self._jobs.owners.kind_readable(name), monotonic_s())
        self._wake.set()

    def _owner(self, api_version: str, kind: str, thing: OwnerObject) -> Owner:
        """Raises msgspec.DecodeError, and UnicodeDecodeError."""
        meta = msgspec.to_builtins(thing.metadata)
        spec = decoded(_SPEC, thing.spec) if bytes(thing.spec) else None
        deleting = meta.get("deletionTimestamp") is not None
        of = self._kinds.of(api_version, kind)
        self._jobs.successions.declare(thing.metadata.uid, None if deleting else declared_pods(of, spec))
        self._jobs.surges.declare(thing.metadata.uid, None if deleting else rollout_of(of, api_version, meta))
        return read_owner(self._kinds, {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec})

    # --- single owners

    def _read_wanted(self) -> None:
        """Enqueue owners that their watch did not deliver."""
        now = monotonic_s()
        for name in self._listed:
            for wanted in self._jobs.owners.wanted(name):
                if wanted.key not in self._reading and now >= wanted.since + READ_AFTER_S:
                    self._reading[wanted.key] = None
                    self._enqueue(wanted)

    def _reread(self) -> None:
        """Enqueue owners whose pods are newer than their watch."""
        while (owner := self._jobs.next_stale_owner()) is not None:
            self._enqueue(_Stale(owner.namespace, owner.ref))

    def _enqueue(self, turn: "Wanted | _Stale") -> None:
        self._turns.add(turn, turn.namespace)
        self._free.set()

    async def _read_in_turns(self, group: asyncio.TaskGroup) -> NoReturn:
        """At most AT_ONCE at a time, from namespaces in turns. A read that failed and waits takes no slot."""
        while True:
            await self._free.wait()
            self._free.clear()
            while self._busy < AT_ONCE and (turn := self._turns.pop()) is not None:
                if isinstance(turn, Wanted) and not self._jobs.owners.wants(turn):
                    self._reading.pop(turn.key, None)  # its pods are gone, or its watch has delivered it
                    self._failures.pop(turn.key, None)
                    continue
                self._busy += 1
                group.create_task(self._read(turn) if isinstance(turn, Wanted) else self._read_again(turn))

    async def _get_in_slot(self, name: GroupKind, namespace: str, object_name: str) -> Owner | None:
        try:
            return await self._get(name, namespace, object_name)
        finally:
            self._busy -= 1
            self._free.set()

    async def _read(self, wanted: Wanted) -> None:
        name, up_to = (wanted.ref.group, wanted.ref.kind), self._jobs.pods_at
        try:
            owner = await self._get_in_slot(name, wanted.namespace, wanted.ref.name)
        except _Unreadable as e:
            self._jobs.place_again(self._jobs.owners.unreadable(wanted, str(e)), monotonic_s())
            metrics.OWNER_READS.labels("unreadable").inc()
        except HBoxError as e:
            metrics.OWNER_READS.labels("failed").inc()
            failures = self._failures[wanted.key] = self._failures.get(wanted.key, 0) + 1
            if failures == 1:
                log.warning("%s of namespace %s could not be read; its pods wait: %s", wanted.ref.title, wanted.namespace, e)
            await asyncio.sleep(backoff_s(failures - 1, base_s=RETRY_S, cap_s=RETRY_MAX_S))
        else:
            self._failures.pop(wanted.key, None)
            metrics.OWNER_READS.labels("read").inc()
            now = monotonic_s()
            if owner is None or (wanted.ref.uid and owner.ref.uid != wanted.ref.uid):
                reason = f"{wanted.ref.title} does not exist" + (
                    "" if owner is None else " any more: another object has its name"
                )
                self._jobs.place_again(self._jobs.owners.unreadable(wanted, reason), now)
            if owner is not None:
                self._jobs.first_read(owner, up_to, now)
        self._reading.pop(wanted.key, None)
        self._wake.set()

    async def _read_again(self, known: _Stale) -> None:
        name, uid = (known.ref.group, known.ref.kind), known.ref.uid
        self._jobs.owner_read_begins(uid)
        try:
            owner = await self._get_in_slot(name, known.namespace, known.ref.name)
        except (_Unreadable, HBoxError) as e:
            metrics.OWNER_READS.labels("failed").inc()
            failures = self._failures[uid] = self._failures.get(uid, 0) + 1
            why = f"{known.ref.title} could not be read again, so its new pods wait: {e}"
            self._jobs.owner_read_failing(uid, why, monotonic_s())
            self._wake.set()
            await asyncio.sleep(backoff_s(failures - 1, base_s=RETRY_S, cap_s=RETRY_MAX_S))
            self._jobs.owner_read_failed(uid, monotonic_s())
        else:
            metrics.OWNER_READS.labels("read").inc()
            self._failures.pop(uid, None)
            same = owner is not None and owner.ref.uid == uid
            self._jobs.owner_read(uid, owner if same else None, monotonic_s())
        self._wake.set()

    async def _get(self, name: GroupKind, namespace: str, object_name: str) -> Owner | None:
        """The object by a consistent read; None if it does not exist. Raises _Unreadable and HBoxError."""
        resource = self._resources.get(name)
        if resource is None:
            raise Unavailable(f"the watch of kind {name[1]} begins again")
        try:
            answer = await self._client.expected("GET", resource.path(namespace, object_name), timeout_s=TIMEOUT_S)
            thing = decoded(_DECODER, answer.body)
            api_version = f"{resource.group}/{resource.version}" if resource.group else resource.version
            return self._owner(api_version, name[1], thing)
        except NotServed as e:
            raise _Unreadable(f"the cluster does not serve {resource.plural}.{resource.group}") from e
        except NotFound:
            return None
        except NotAllowed as e:
            raise _Unreadable(f"HBox may not get {resource.plural}.{resource.group}") from e
        except (msgspec.DecodeError, UnicodeDecodeError) as e:
            raise _Unreadable(f"{name[1]} {object_name} cannot be decoded: {e}") from e

    # --- further kinds

    async def follow_files(self) -> None:
        """Read the files of further kinds again and again; an invalid file leaves the kinds in force and is reported."""
        while self._kinds_dir is not None:
            self.read_files(self._kinds_dir)
            await asyncio.sleep(FILES_S)

    def read_files(self, folder: Path) -> None:
        try:
            found = {
                each.name: each.read_bytes()
                for each in sorted(folder.iterdir())
                if each.is_file() and not each.name.startswith(".")
            }
            if sum(map(len, found.values())) > FILES_BYTES:
                raise InvalidRequest(f"{folder}: the files of kinds have more than {FILES_BYTES} bytes")
            if found == self._files:
                return
            kinds = self._builtin.with_files(found)
        except (OSError, InvalidRequest) as e:
            if self.complaint != str(e):
                log.error("the files of kinds are not taken over: %s", e)
            self.complaint = str(e)
            return
        self.complaint, self._files = "", found
        self._use(kinds)

    def _use(self, kinds: Kinds) -> None:
        """Watch kinds again whose form changed: the watch reads the owners that are known by the new form."""
        old, new = ({(each.group, each.kind): each for each in some} for some in (self._kinds, kinds))
        for name in [name for name in self._running if old.get(name) != new.get(name)]:
            self._running.pop(name).cancel()
            self._listed.discard(name)
            self._informers.pop(name, None)
            self._resources.pop(name, None)
        self._kinds = kinds
        self._jobs.place_again(self._jobs.owners.use(kinds), monotonic_s())
        self._wake.set()


def _number(resource_version: str) -> int:
    return int(resource_version) if resource_version.isdecimal() else 0
