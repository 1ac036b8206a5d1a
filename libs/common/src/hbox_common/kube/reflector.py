"""The pure half of an informer: keeps a copy of one kind by list and watch, and never does I/O itself.

Theory of operation. `start` and `step(event)` return the effects for the shell to execute, in order: deltas to deliver (`Emit`), then exactly
one of `List`, `Watch` or `Sleep`, or nothing while a watch continues. The shell executes them and reports the result as an event.

    List --Page--> List(continue) ... --Page--> Watch --Lines--> (more lines) --StreamEnd--> Watch from the last resourceVersion
    any --Failed--> Sleep --Tick--> retry of the failed effect    any --Expired--> List, consistent this time

Rules:
 1. Every list is consistent (resourceVersion=""): one from an API server's cache may be older than the copy, and objects missing in it would be deleted.
 2. The end of a watch does not cause a list: the API server ends watches of clients that lag (sources: real-api-bench).
 3. Objects missing in a complete list were deleted meanwhile: synthetic DELETED, by uid.
 4. One object that cannot be decoded is counted and skipped; its resourceVersion still counts, and it is not treated as deleted.
 5. A line that is not JSON means a broken stream: return to the last resourceVersion, because events may be lost in it.
 6. Waits grow until a watch makes progress; a successful list alone does not prove that the next watch will work. After a 410, only a watch that ends without
    another 410 is progress; an event or two before one are not, or a server that forgets at once would be listed without a pause.
 7. History has one direction: a watch may be opened at an API server that lags behind the previous one; its events and bookmarks from before our
    resourceVersion are skipped. Otherwise a repeated DELETED of a former object would delete the present object of the same name.
 8. A list answered with 200 but without resourceVersion is not a list, and the number of pages is limited: no object is deleted because of either.
 9. A watch that ended without proof of freshness (`freshness`) is reopened from the last resourceVersion, for a shorter time; after two of them in a row the
    copy is listed again: then every list is a proof, while no watch is.
10. If a continue token expires in the middle of a list, the next list is requested without pages, as in client-go: if history is kept for less time than a
    list takes, no paged list would ever be complete.
11. An object that is nested deeper than the decoder follows is taken without its deepest values (`nesting`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any, Generic, TypeVar

import msgspec

from hbox_common.pacing import Backoff

from .freshness import older
from .nesting import decoded
from .objects import KubeObject, Metadata
from .status import Status, retry_after_s

T = TypeVar("T", bound=KubeObject)

REFUSALS_BEFORE_RELIST = 5  #: a server restored from a backup refuses resourceVersions from its future for ever
MAX_PAGES = 5000  #: of one list; two million objects
UNPROVEN_BEFORE_RELIST = 2  #: watches in a row that did not show that they were alive
QUIET_WATCH_S = 1.0  #: a watch that lasted this long without an event was a quiet one, not a failure


class DeltaKind(StrEnum):
    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Delta(Generic[T]):
    """One change of the copy. ADDED has `new`, DELETED has `old` (as last seen), MODIFIED both."""

    kind: DeltaKind
    old: T | None
    new: T | None


# --- events


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to `List`."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Lines:
    """Some complete lines of the watch."""

    lines: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The watch is over, for whatever reason but a refusal. `lasted_s`: seconds since it was opened; `unproven`: why it does not count as alive."""

    lasted_s: float
    unproven: str = ""


@dataclass(frozen=True, slots=True)
class Expired:
    """410 to a list or a watch."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The list or the watch failed. `refused`: the server rejected it; otherwise it did not answer or asked to retry later."""

    reason: str
    refused: bool = False
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """The sleep is over."""


Event = Page | Lines | StreamEnd | Expired | Failed | Tick

# --- effects


@dataclass(frozen=True, slots=True)
class List:
    """A consistent one."""

    continue_token: str = ""  #: when set, the resourceVersion is in it
    whole: bool = False  #: in one page


@dataclass(frozen=True, slots=True)
class Watch:
    """`doubtful`: the one before did not show that it was alive; this one should do so soon."""

    resource_version: str
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Sleep:
    seconds: float


@dataclass(frozen=True, slots=True)
class Emit(Generic[T]):
    deltas: Sequence[Delta[T]]
    synced: bool = False  #: with these, the copy is complete


Effect = List | Watch | Sleep | Emit[T]

# --- what comes over the wire


class _ListMeta(msgspec.Struct, gc=False, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, Generic[T]):
    metadata: _ListMeta
    items: list[T] | None = None


class _RawPage(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _RawLine(msgspec.Struct):
    object: msgspec.Raw


class _Added(msgspec.Struct, Generic[T], tag_field="type", tag="ADDED"):
    object: T


class _Modified(msgspec.Struct, Generic[T], tag_field="type", tag="MODIFIED"):
    object: T


class _Deleted(msgspec.Struct, tag_field="type", tag="DELETED"):
    object: KubeObject


class _BookmarkMeta(msgspec.Struct, rename="camel"):
    resource_version: str


class _BookmarkObject(msgspec.Struct):
    metadata: _BookmarkMeta


class _Bookmark(msgspec.Struct, tag_field="type", tag="BOOKMARK"):
    object: _BookmarkObject


class _Error(msgspec.Struct, tag_field="type", tag="ERROR"):
    object: Status


class _Unreadable(msgspec.Struct):
    """The readable metadata of a line whose object does not fit its type."""

    object: KubeObject


_UNREADABLE = msgspec.json.Decoder(_Unreadable)
_ONLY_METADATA = msgspec.json.Decoder(KubeObject)
_RAW_PAGE = msgspec.json.Decoder(_RawPage)
_RAW_LINE = msgspec.json.Decoder(_RawLine)


class Reflector(Generic[T]):
    """The state: the copy, its resourceVersion, and the effect whose result is pending."""

    def __init__(
        self,
        type_: type[T],
        rng: Random,
        *,
        keep: Callable[[T], T] | None = None,
        enrich: Callable[[T, bytes], T] | None = None,
    ) -> None:
        """`keep`: reduces an object to what the copy stores, if its consumer stores the rest in its own form; the metadata must still identify it.

        `enrich`: adds to a decoded object information that only its bytes contain.
        """
        self._keep, self._enrich = keep, enrich
        self.store: dict[str, T] = {}  #: by uid
        self.resource_version = ""  #: up to which the copy is complete; "" before the first list
        self.relists = 0  #: lists begun anew, after the first
        self.watches = 0  #: watches begun
        self.decode_errors = 0
        self.last_error = ""  #: of the last failure, cleared by progress
        self._type = type_
        self._page: msgspec.json.Decoder[_Page[T]] = msgspec.json.Decoder(_Page[type_])  # type: ignore[valid-type]
        self._object: msgspec.json.Decoder[T] = msgspec.json.Decoder(type_)
        self._line: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
            _Added[type_] | _Modified[type_] | _Deleted | _Bookmark | _Error  # type: ignore[valid-type]
        )
        self._names: dict[tuple[str, str], str] = {}  # (namespace, name) -> uid
        self._seen: set[str] = set()  # uids of the list that is under way
        self._list_version = ""
        self._whole = False  # the next list is asked for in one page
        self._pages = 0  # of the list that is under way, but for the last
        self._synced = False
        self._backoff = Backoff(rng)
        self._expired = False  #: since there was progress
        self._refusals = 0
        self._watch_from = ""
        self._unproven = 0  # watches in a row
        self._doing: List | Watch = List()  # what to do again after a sleep

    def start(self) -> list[Effect[T]]:
        """The first effects, also when resuming after an interruption."""
        if isinstance(self._doing, Watch):
            return [self._begin(self._watch())]
        return [self._doing]

    def step(self, event: Event) -> list[Effect[T]]:
        """What follows from `event`."""
        match event:
            case Page(body):
                return self._on_page(body)
            case Lines(lines):
                return self._on_lines(lines)
            case StreamEnd():
                return self._on_stream_end(event)
            case Expired():
                self.last_error = "the server has forgotten our resourceVersion (410)"
                if not self._expired:  # the server answered, perhaps after an outage, whose length does not matter any more
                    self._expired = True
                    self._backoff.reset()
                self._whole |= isinstance(self._doing, List) and bool(self._doing.continue_token)
                return self._list_anew()
            case Failed():
                return self._on_failed(event)
            case Tick():
                return [self._begin(self._doing)]

    # --- listing

    def _list_anew(self) -> list[Effect[T]]:
        self.relists += 1
        self._seen.clear()
        self._refusals = self._unproven = 0
        self._doing = List(whole=self._whole)
        if self._backoff.failures == 0:
            self._backoff.failures = 1
            return [self._doing]
        return [Sleep(self._backoff.next_s())]

    def _on_page(self, body: bytes) -> list[Effect[T]]:
        assert isinstance(self._doing, List)
        deltas: list[Delta[T]] = []
        try:
            meta = self._take_page(body, deltas)
        except msgspec.DecodeError as e:
            return self._on_failed(Failed(f"a list that cannot be read: {e}", refused=True))
        if not meta.resource_version:
            # A Status, or any other object: taken for a list it would be an empty one, and the end of all that is known.
            failed = self._on_failed(Failed("what answered the list is no list: it has no resourceVersion", refused=True))
            return [Emit(deltas), *failed] if deltas else failed
        if not self._doing.continue_token:
            self._list_version, self._pages = meta.resource_version, 0
        if meta.continue_:
            self._pages += 1
            if meta.continue_ == self._doing.continue_token or self._pages >= MAX_PAGES:
                self._doing = List()
                failed = self._on_failed(Failed(f"a list that does not end, after {self._pages} pages", refused=True))
                return [Emit(deltas), *failed]
            self._doing = List(meta.continue_)
            return [Emit(deltas), self._doing]
        for uid in [uid for uid in self.store if uid not in self._seen]:
            self._remove(uid, deltas)
        self._seen.clear()
        self._refusals = 0
        self._synced, self._whole = True, False
        # The first page's version: watching from there repeats only changes that later pages may contain already.
        self.resource_version = self._list_version
        return [Emit(deltas, synced=True), self._begin(self._watch())]

    def _take_page(self, body: bytes, deltas: list[Delta[T]]) -> _ListMeta:
        if self._enrich is not None:
            return self._take_page_one_by_one(body, deltas)
        try:
            page = decoded(self._page, body)
        except msgspec.ValidationError:
            return self._take_page_one_by_one(body, deltas)
        for item in page.items or ():
            self._seen.add(item.metadata.uid)
            self._upsert(item, deltas)
        return page.metadata

    def _take_page_one_by_one(self, body: bytes, deltas: list[Delta[T]]) -> _ListMeta:
        page = decoded(_RAW_PAGE, body)
        for raw in page.items or ():
            try:
                item = decoded(self._object, raw)
            except msgspec.ValidationError as e:
                self._skip(e)
                try:
                    self._seen.add(decoded(_ONLY_METADATA, raw).metadata.uid)
                except msgspec.ValidationError:
                    continue
            else:
                self._seen.add(item.metadata.uid)
                self._upsert(item if self._enrich is None else self._enrich(item, raw), deltas)
        return page.metadata

    # --- watching

    def _watch(self) -> Watch:
        return Watch(self.resource_version, doubtful=self._unproven > 0)

    def proven(self) -> None:
        """The watch has shown that it is alive."""
        self._unproven = 0
        self._progress()

    def _begin(self, effect: List | Watch) -> List | Watch:
        self._doing = effect
        if isinstance(effect, Watch):
            self.watches += 1
            self._watch_from = effect.resource_version
        return effect

    def _on_lines(self, lines: Sequence[bytes]) -> list[Effect[T]]:
        deltas: list[Delta[T]] = []
        then: list[Effect[T]] = []
        for line in lines:
            try:
                event = decoded(self._line, line)
            except msgspec.ValidationError as e:
                self._skip_line(line, e)
                continue
            except msgspec.DecodeError as e:
                then = self._on_failed(Failed(f"a watch line that is not JSON: {e}", refused=True))
                break
            if isinstance(event, _Error):
                then = self._on_error_line(event.object)
                break
            if older(event.object.metadata.resource_version, self.resource_version):
                continue
            self.resource_version = event.object.metadata.resource_version
            if isinstance(event, _Added | _Modified):
                new = event.object if self._enrich is None else self._enrich(event.object, decoded(_RAW_LINE, line).object)
                self._upsert(new, deltas)
            elif isinstance(event, _Deleted):
                self._remove(event.object.metadata.uid, deltas)
        if not then and self.resource_version != self._watch_from:
            self._progress()
        return [Emit(deltas), *then] if deltas else then

    def _on_error_line(self, status: Status) -> list[Effect[T]]:
        if status.expired:
            return self.step(Expired())
        reason = status.message or status.reason or "the watch failed"
        return self._on_failed(Failed(reason, refused=status.code != 429, retry_after_s=retry_after_s(None, status)))

    def _on_stream_end(self, end: StreamEnd) -> list[Effect[T]]:
        if end.unproven:
            self._unproven += 1
            self.last_error = end.unproven
            if self._unproven >= UNPROVEN_BEFORE_RELIST:
                return self._list_anew()
            return [self._begin(self._watch())]
        again = self._watch()
        if self.resource_version != self._watch_from or end.lasted_s >= QUIET_WATCH_S:
            self._expired = False
            self._progress()
            return [self._begin(again)]
        self._doing = again
        return [Sleep(self._backoff.next_s())]

    def _progress(self) -> None:
        if not self._expired:
            self._backoff.reset()
        self._refusals = 0
        self.last_error = ""

    def _on_failed(self, event: Failed) -> list[Effect[T]]:
        self.last_error = event.reason
        self._refusals += event.refused
        if isinstance(self._doing, Watch):
            if self._refusals >= REFUSALS_BEFORE_RELIST:
                return self._list_anew()
            self._doing = self._watch()
        return [Sleep(self._backoff.next_s(at_least_s=event.retry_after_s))]

    # --- the copy

    def _upsert(self, new: T, deltas: list[Delta[T]]) -> None:
        meta = new.metadata
        old = self.store.get(meta.uid)
        if old is not None:
            if old.metadata.resource_version == meta.resource_version:
                return
            self.store[meta.uid] = self._kept(new)
            deltas.append(Delta(DeltaKind.MODIFIED, old, new))
            return
        # A new object replaced one of the same name between two lists: consumers that use names as keys need the DELETED of the old one first, although a list
        # shows it only by its absence.
        namesake = self._names.get((meta.namespace, meta.name))
        if namesake is not None:
            self._remove(namesake, deltas)
        self.store[meta.uid] = self._kept(new)
        self._names[meta.namespace, meta.name] = meta.uid
        deltas.append(Delta(DeltaKind.ADDED, None, new))

    def _kept(self, new: T) -> T:
        return new if self._keep is None else self._keep(new)

    def _remove(self, uid: str, deltas: list[Delta[T]]) -> None:
        old = self.store.pop(uid, None)
        if old is None:
            return
        meta: Metadata = old.metadata
        del self._names[meta.namespace, meta.name]
        deltas.append(Delta(DeltaKind.DELETED, old, None))

    # --- what cannot be read

    def _skip_line(self, line: bytes, error: msgspec.ValidationError) -> None:
        self._skip(error)
        try:
            version = decoded(_UNREADABLE, line).object.metadata.resource_version
        except msgspec.DecodeError:
            return
        if version and not older(version, self.resource_version):
            self.resource_version = version

    def _skip(self, error: msgspec.ValidationError) -> None:
        self.decode_errors += 1
        self.last_error = f"an object that is no {self._type.__name__} was skipped: {error}"
