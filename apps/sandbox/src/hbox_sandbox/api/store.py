"""The object store: etcd and the watch cache in one, pure and synchronous.

Theory of operation. An object version is stored as its serialised JSON and the few fields by which it is selected: lists and watches
join those bytes, so no tree of dicts per object is kept (10,000 pods would take 200 MB and keep the garbage collector busy). A writer
decodes, changes and encodes. One counter gives every write, of any resource, its resourceVersion. Each collection keeps a bounded history of
events; it feeds watches that start in the past, and lists at an older version are made by undoing the events since. Leaving the window is 410.

Nothing here waits, reads a clock or does I/O. Watchers get events into bounded queues and are woken by a callback; a watcher that falls behind
is ended, as the real server does, and has to start anew.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import TypeAlias

import msgspec

from .errors import Json, expired, too_large, too_old

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

_NOTHING: Mapping[str, str] = {}


class Version(msgspec.Struct, frozen=True, gc=False):
    """One version of one object. `body`: its JSON in stored form; `owners`: uids of its owner references."""

    key: str
    namespace: str
    name: str
    uid: str
    revision: int
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    owners: tuple[str, ...]
    deleting: bool
    body: bytes

    def load(self) -> Json:
        """A fresh, private copy of the object."""
        obj: Json = _decode(self.body)
        return obj


def copied(obj: Json) -> Json:
    """An object that shares nothing with `obj`: a tenth of what `copy.deepcopy` takes."""
    copy: Json = _decode(_encode(obj))
    return copy


class EventType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Event(msgspec.Struct, gc=False):
    """A change. `version` of a DELETED event is the last state with the revision of the deletion."""

    type: EventType
    version: Version
    previous: Version | None
    _line: bytes | None = None

    def line(self) -> bytes:
        """The watch line, made once and shared by all watchers."""
        if self._line is None:
            self._line = watch_line(self.type, self.version.body)
        return self._line


def watch_line(kind: str, body: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)


Match: TypeAlias = Callable[[Version], bool]


class Subscription:
    """One watcher's queue of events, narrowed to what `match` selects (None: everything)."""

    def __init__(self, *, match: Match | None, wake: Callable[[], None], capacity: int = 20_000) -> None:
        self._match = match
        self._wake = wake
        self._capacity = capacity
        self.events: deque[Event] = deque()
        self.ended = False
        """The watcher fell behind, or what it watches is served no more: it has to start anew."""

    def offer(self, event: Event) -> None:
        seen = self.narrow(event)
        if seen is None or self.ended:
            return
        if len(self.events) >= self._capacity:
            self.events.clear()
            self.end()
            return
        self.events.append(seen)
        self._wake()

    def end(self) -> None:
        self.ended = True
        self._wake()

    def narrow(self, event: Event) -> Event | None:
        """The event as this watcher sees it: an object that leaves the selection is DELETED (in its last selected state), one that enters it ADDED."""
        if self._match is None:
            return event
        now = event.type is not EventType.DELETED and self._match(event.version)
        before = event.previous is not None and self._match(event.previous)
        if now:
            return event if before or event.type is EventType.ADDED else Event(EventType.ADDED, event.version, event.previous)
        if not before:
            return None
        if event.type is EventType.DELETED:
            return event
        assert event.previous is not None
        return Event(EventType.DELETED, _restamped(event.previous, event.version.revision), event.previous)


class Collection:
    """The objects of one resource, their order, their recent history and their watchers."""

    def __init__(self, *, history: int, start: int) -> None:
        self.keys: list[str] = []
        self.entries: dict[str, Version] = {}
        self.watchers: list[Subscription] = []
        self._history: deque[Event] = deque()
        self._window = history
        self.floor = start
        """Revision of the newest dropped event: earlier states cannot be reconstructed."""

    def record(self, event: Event) -> None:
        self._history.append(event)
        if len(self._history) > self._window:
            self.floor = self._history.popleft().version.revision
        for watcher in self.watchers:
            watcher.offer(event)

    def forget(self) -> None:
        """Compaction: drop the whole history."""
        if self._history:
            self.floor = self._history[-1].version.revision
            self._history.clear()

    def since(self, revision: int) -> list[Event]:
        """Events after `revision`, oldest first; 410 when some of them were forgotten."""
        if revision < self.floor:
            raise too_old(revision, self.floor)
        found: list[Event] = []
        for event in reversed(self._history):
            if event.version.revision <= revision:
                break
            found.append(event)
        found.reverse()
        return found

    def scan(self, *, prefix: str, after: str) -> Iterator[Version]:
        """Present objects whose key starts with `prefix`, in key order, strictly after key `after`."""
        first = bisect_left(self.keys, max(prefix, after + "\0" if after else ""))
        for key in self.keys[first:]:
            if not key.startswith(prefix):
                return
            yield self.entries[key]

    def scan_at(self, revision: int, *, prefix: str, after: str) -> Iterator[Version]:
        """Like `scan`, as of `revision`; 410 when the history does not reach back that far."""
        if revision < self.floor:
            raise expired("The provided continue parameter or resourceVersion is too old to display a consistent list result.")
        undone: dict[str, Version | None] = {}
        for event in reversed(self._history):
            if event.version.revision <= revision:
                break
            undone[event.version.key] = event.previous
        if not undone:
            return self.scan(prefix=prefix, after=after)
        return self._scan_undone(undone, prefix=prefix, after=after)

    def _scan_undone(self, undone: dict[str, Version | None], *, prefix: str, after: str) -> Iterator[Version]:
        state: dict[str, Version | None] = {each.key: each for each in self.scan(prefix=prefix, after=after)}
        state.update({key: then for key, then in undone.items() if key.startswith(prefix) and key > after})
        for key in sorted(state):
            then = state[key]
            if then is not None:
                yield then


Listener: TypeAlias = Callable[[str, Event], None]
Fields: TypeAlias = Callable[[Json], Mapping[str, str]]


class Store:
    """All collections under one revision counter.

    `history`: events that each collection remembers. Listeners are called after watchers, in the writer's stack: they note and return.
    """

    def __init__(self, *, history: int = 20_000) -> None:
        self.revision = 1
        self._history = history
        self._collections: dict[str, Collection] = {}
        self._fields: dict[str, Fields] = {}
        self.listeners: list[Listener] = []

    def open(self, storage: str, fields: Fields) -> Collection:
        """The collection, made if new; `fields` gives an object's field-selector values beyond name and namespace."""
        self._fields[storage] = fields
        return self._collections.setdefault(storage, Collection(history=self._history, start=self.revision))

    def close(self, storage: str) -> None:
        """Serve a collection no more: it is forgotten, and its watches end."""
        collection = self._collections.pop(storage, None)
        self._fields.pop(storage, None)
        for watcher in collection.watchers if collection is not None else ():
            watcher.end()

    def collection(self, storage: str) -> Collection:
        return self._collections[storage]

    def collections(self) -> Mapping[str, Collection]:
        return self._collections

    def get(self, storage: str, key: str) -> Version | None:
        return self._collections[storage].entries.get(key)

    def check_reached(self, revision: int) -> None:
        if revision > self.revision:
            raise too_large(revision, self.revision)

    def compact(self) -> None:
        for collection in self._collections.values():
            collection.forget()

    def preview(self, storage: str, obj: Json) -> Version:
        """The version that a write would make, without making it (dry run)."""
        return self._version(storage, obj)

    def create(self, storage: str, obj: Json) -> Version:
        """Add an object that is not there (the caller has looked)."""
        collection = self._collections[storage]
        version = self._stamp(storage, obj)
        assert version.key not in collection.entries
        insort(collection.keys, version.key)
        collection.entries[version.key] = version
        self._announce(storage, Event(EventType.ADDED, version, None))
        return version

    def replace(self, storage: str, current: Version, obj: Json) -> Version:
        """Put a new state of an object in place of its `current` version (the caller has seen that they differ)."""
        collection = self._collections[storage]
        assert collection.entries[current.key] is current
        version = self._stamp(storage, obj)
        collection.entries[version.key] = version
        self._announce(storage, Event(EventType.MODIFIED, version, current))
        return version

    def remove(self, storage: str, current: Version, obj: Json | None = None) -> Version:
        """Take an object away; `obj` is its last state where that differs from the stored one."""
        collection = self._collections[storage]
        assert collection.entries[current.key] is current
        last = self._stamp(storage, current.load() if obj is None else obj)
        del collection.entries[current.key]
        del collection.keys[bisect_left(collection.keys, current.key)]
        self._announce(storage, Event(EventType.DELETED, last, current))
        return last

    def subscribe(self, storage: str, subscription: Subscription) -> None:
        self._collections[storage].watchers.append(subscription)

    def unsubscribe(self, storage: str, subscription: Subscription) -> None:
        collection = self._collections.get(storage)
        if collection is not None and subscription in collection.watchers:
            collection.watchers.remove(subscription)

    def _stamp(self, storage: str, obj: Json) -> Version:
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        return self._version(storage, obj)

    def _version(self, storage: str, obj: Json) -> Version:
        meta = obj["metadata"]
        namespace, name = meta.get("namespace", ""), meta["name"]
        return Version(
            key=f"{namespace}/{name}" if namespace else name,
            namespace=namespace,
            name=name,
            uid=meta["uid"],
            revision=int(meta.get("resourceVersion") or 0),
            labels=meta.get("labels") or _NOTHING,
            fields=self._fields[storage](obj),
            owners=tuple(each["uid"] for each in meta.get("ownerReferences") or ()),
            deleting="deletionTimestamp" in meta,
            body=_encode(obj),
        )

    def _announce(self, storage: str, event: Event) -> None:
        self._collections[storage].record(event)
        for listener in self.listeners:
            listener(storage, event)


def _restamped(version: Version, revision: int) -> Version:
    obj = version.load()
    obj["metadata"]["resourceVersion"] = str(revision)
    return msgspec.structs.replace(version, revision=revision, body=_encode(obj))
