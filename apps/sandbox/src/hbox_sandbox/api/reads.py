"""Lists and watches: which versions a query means. Pure: what comes out is versions, events and byte strings; `handlers` sends them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import msgspec

from .cluster import Cluster
from .errors import ApiError, Json, bad_request, cause, invalid
from .resources import ResourceType
from .selectors import match_for
from .store import Event, EventType, Match, Subscription, Version, watch_line

_PIECE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Query:
    """ListOptions. `limit` 0: all; `timeout_s` 0: the server's choice; `initial_events` None: not set."""

    match: Match | None = None
    limit: int = 0
    token: str = ""
    revision: str = ""
    revision_match: str = ""
    timeout_s: float = 0.0
    bookmarks: bool = False
    initial_events: bool | None = None
    selective: bool = False


def query_from(resource: ResourceType, namespace: str, name: str, params: Mapping[str, str]) -> Query:
    """Checked query parameters; 400 for what cannot be read, 422 for combinations that the API forbids."""
    fields = params.get("fieldSelector", "")
    if name:
        fields = f"{fields},metadata.name={name}" if fields else f"metadata.name={name}"
    labels = params.get("labelSelector", "")
    initial = params.get("sendInitialEvents")
    query = Query(
        match=match_for(resource, namespace=namespace, labels=labels, fields=fields),
        limit=_number(params, "limit"),
        token=params.get("continue", ""),
        revision=params.get("resourceVersion", ""),
        revision_match=params.get("resourceVersionMatch", ""),
        timeout_s=_number(params, "timeoutSeconds"),
        bookmarks=params.get("allowWatchBookmarks") in ("true", "1"),
        initial_events=None if initial is None else initial in ("true", "1"),
        selective=bool(labels or fields),
    )
    if query.revision and not query.revision.isdigit():
        causes = [
            cause(
                "resourceVersion",
                f'Invalid value: "{query.revision}": strconv.ParseUint: parsing "{query.revision}": invalid syntax',
            )
        ]
        raise invalid("ListOptions", "meta.k8s.io", "", causes)
    _check_match(query, watching=params.get("watch") in ("true", "1"))
    return query


def _number(params: Mapping[str, str], name: str) -> int:
    text = params.get(name, "") or "0"
    if not text.lstrip("-").isdigit():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax ({name})')
    return max(0, int(text))


def _check_match(query: Query, *, watching: bool) -> None:
    """k8s.io/apimachinery pkg/apis/meta/internalversion/validation."""
    if watching:
        if query.initial_events is not None and query.revision_match != "NotOlderThan":
            _forbid("resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        if query.initial_events is None and query.revision_match:
            _forbid("resourceVersionMatch", "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
        if query.initial_events and not query.bookmarks:
            _forbid("sendInitialEvents", "sendInitialEvents requires allowWatchBookmarks")
        return
    if query.initial_events is not None:
        _forbid("sendInitialEvents", "sendInitialEvents is forbidden for list")
    if not query.revision_match:
        if query.token and query.revision not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        return
    if query.token:
        _forbid("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
    if not query.revision:
        _forbid("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided")
    if query.revision_match not in ("Exact", "NotOlderThan"):
        message = f'Unsupported value: "{query.revision_match}": supported values: "Exact", "NotOlderThan", ""'
        raise invalid("ListOptions", "meta.k8s.io", "", [cause("resourceVersionMatch", message, "FieldValueNotSupported")])
    if query.revision_match == "Exact" and query.revision == "0":
        _forbid("resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')


def _forbid(field: str, text: str) -> None:
    raise invalid("ListOptions", "meta.k8s.io", "", [cause(field, f"Forbidden: {text}", "FieldValueForbidden")])


def read_body(resource: ResourceType, version: Version) -> bytes:
    """An object's JSON in the form of the type by which it was asked for."""
    return version.body if resource.from_stored is None else msgspec.json.encode(resource.from_stored(version.load()))


@dataclass(frozen=True, slots=True)
class Selection:
    """What a list means: its versions in key order, and the metadata of its document."""

    versions: list[Version]
    meta: Json


def select(cluster: Cluster, resource: ResourceType, namespace: str, query: Query, *, stale_at: int | None = None) -> Selection:
    """The versions of a list; 410 for an old token or revision. `stale_at`: the revision of the cache of a lagging server; its consistent reads are
    current."""
    collection = cluster.store.collection(resource.storage)
    prefix = f"{namespace}/" if namespace else ""
    revision, after = cluster.store.revision, ""
    if query.token:
        revision, after = _read_token(query.token)
    elif query.revision == "0" and stale_at is not None:
        revision = stale_at
    elif query.revision not in ("", "0"):
        asked = int(query.revision)
        cluster.store.check_reached(asked)
        if query.revision_match == "Exact" or (query.limit and not query.revision_match):
            revision = asked
    present = collection.scan_at(revision, prefix=prefix, after=after)
    selected: Iterable[Version] = present if query.match is None else filter(query.match, present)
    limit = (
        query.limit
        if query.limit and not (query.revision == "0" and not query.token and query.limit >= len(collection.keys))
        else 0
    )
    chosen = list(islice(selected, limit + 1 if limit else None))
    more = limit > 0 and len(chosen) > limit
    meta: Json = {"resourceVersion": str(revision)}
    if more:
        chosen.pop()
        meta["continue"] = _token(revision, chosen[-1].key)
        if not query.selective:
            meta["remainingItemCount"] = 1 + sum(1 for _ in selected)
    return Selection(chosen, meta)


def list_pieces(resource: ResourceType, selection: Selection) -> list[bytes] | Iterator[bytes]:
    """The list document in pieces of about 256 KiB."""
    head = b'{"kind":"%sList","apiVersion":"%s","metadata":' % (resource.kind.encode(), resource.api_version.encode())
    return _pieces(head + msgspec.json.encode(selection.meta) + b',"items":[', resource, selection.versions)


def _pieces(head: bytes, resource: ResourceType, versions: list[Version]) -> list[bytes] | Iterator[bytes]:
    if sum(len(each.body) for each in versions) <= 2 * _PIECE_BYTES:
        return [head + b",".join([read_body(resource, each) for each in versions]) + b"]}"]
    return _many_pieces(head, resource, versions)


def _many_pieces(head: bytes, resource: ResourceType, versions: list[Version]) -> Iterator[bytes]:
    waiting, size = [head], len(head)
    for at, version in enumerate(versions):
        body = read_body(resource, version)
        waiting += [b",", body] if at else [body]
        size += len(body)
        if size > _PIECE_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join([*waiting, b"]}"])


def _token(revision: int, last_key: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([revision, last_key])).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)), type=tuple[int, str])
    except (binascii.Error, msgspec.MsgspecError, ValueError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error


def open_watch(
    cluster: Cluster, resource: ResourceType, query: Query, subscription: Subscription, *, until: int | None = None
) -> list[Event]:
    """Subscribe, and return the events to send first: present objects, or the events since the revision asked for; 410 when that is too old.
    Nothing can happen in between, so no event is lost or doubled. `until`: of a server that lags, the last revision that it knows."""
    store, collection = cluster.store, cluster.store.collection(resource.storage)
    if query.revision not in ("", "0"):
        store.check_reached(int(query.revision))
    wants_state = query.initial_events if query.initial_events is not None else query.revision in ("", "0")
    if wants_state:
        present = collection.scan(prefix="", after="")
        events = [Event(EventType.ADDED, each, None) for each in present if query.match is None or query.match(each)]
    elif query.revision in ("", "0"):
        events = []
    else:
        since = collection.since(int(query.revision))
        seen = (subscription.narrow(event) for event in since if until is None or event.version.revision <= until)
        events = [event for event in seen if event is not None]
    store.subscribe(resource.storage, subscription)
    return events


def event_line(resource: ResourceType, event: Event) -> bytes:
    return event.line() if resource.from_stored is None else watch_line(event.type, read_body(resource, event.version))


def bookmark(resource: ResourceType, revision: int, *, initial_end: bool = False) -> bytes:
    meta: Json = {"resourceVersion": str(revision), "creationTimestamp": None}
    if initial_end:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return watch_line(
        "BOOKMARK", msgspec.json.encode({"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta})
    )


def error_line(error: ApiError) -> bytes:
    return watch_line("ERROR", msgspec.json.encode(error.status()))
