"""The object store: versions, history, narrowed watches; and that a cache fed by a watch equals the store."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_sandbox.api.errors import ApiError
from hbox_sandbox.api.store import Event, EventType, Store, Subscription, Version

THINGS = "things."


def a_store(history: int = 1000) -> Store:
    store = Store(history=history)
    store.open(THINGS, lambda _: {})
    return store


def a_thing(name: str, value: int = 0, *, namespace: str = "ns", selected: bool = True) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": {"on": "1"} if selected else {}},
        "value": value,
    }


def names(store: Store, revision: int, *, prefix: str = "", after: str = "") -> list[str]:
    return [each.key for each in store.collection(THINGS).scan_at(revision, prefix=prefix, after=after)]


def test_every_write_takes_the_next_revision_and_stores_it_in_the_object() -> None:
    store = a_store()
    first = store.create(THINGS, a_thing("a"))
    second = store.replace(THINGS, first, a_thing("a", 1))
    assert second.revision == first.revision + 1
    assert second.load()["metadata"]["resourceVersion"] == str(second.revision)


def test_keys_come_in_order_within_their_namespace_alone() -> None:
    store = a_store()
    for name, namespace in (("b", "ns"), ("a", "ns"), ("c", "ns-2"), ("d", "n")):
        store.create(THINGS, a_thing(name, namespace=namespace))
    assert names(store, store.revision, prefix="ns/") == ["ns/a", "ns/b"]
    assert names(store, store.revision) == ["n/d", "ns-2/c", "ns/a", "ns/b"]
    assert names(store, store.revision, prefix="ns/", after="ns/a") == ["ns/b"]


def test_a_forgotten_past_is_gone() -> None:
    store = a_store(history=2)
    for name in "abcd":
        store.create(THINGS, a_thing(name))
    collection = store.collection(THINGS)
    assert len(collection.since(store.revision - 2)) == 2
    with pytest.raises(ApiError) as refused:
        collection.since(store.revision - 3)
    assert (refused.value.code, refused.value.reason) == (410, "Expired")
    with pytest.raises(ApiError):
        names(store, store.revision - 3)


def test_a_watcher_that_falls_behind_is_ended() -> None:
    store = a_store()
    woken: list[bool] = []
    slow = Subscription(match=None, wake=lambda: woken.append(True), capacity=2)
    store.subscribe(THINGS, slow)
    for name in "abc":
        store.create(THINGS, a_thing(name))
    assert slow.ended
    assert not slow.events
    assert len(woken) == 3


def test_the_line_of_an_event_is_made_once() -> None:
    store = a_store()
    seen = [Subscription(match=None, wake=lambda: None) for _ in range(2)]
    for each in seen:
        store.subscribe(THINGS, each)
    store.create(THINGS, a_thing("a"))
    assert seen[0].events[0].line() is seen[1].events[0].line()


Step = tuple[str, int, bool]
STEPS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.booleans()), max_size=40)


def take(store: Store, step: Step) -> None:
    """Create, change or remove the thing `step` names."""
    name, value, selected = step
    current = store.get(THINGS, f"ns/{name}")
    if current is None:
        store.create(THINGS, a_thing(name, value, selected=selected))
    elif value == 3:
        store.remove(THINGS, current)
    else:
        store.replace(THINGS, current, a_thing(name, value, selected=selected))


def is_on(version: Version) -> bool:
    return "on" in version.labels


def follow(cache: dict[str, dict[str, Any]], event: Event) -> None:
    """What a careful client does, and may expect of the server."""
    shown = msgspec.json.decode(event.line())
    obj, name = shown["object"], shown["object"]["metadata"]["name"]
    match event.type:
        case EventType.ADDED:
            assert name not in cache
        case EventType.MODIFIED | EventType.DELETED:
            assert int(cache[name]["metadata"]["resourceVersion"]) < int(obj["metadata"]["resourceVersion"])
    if event.type is EventType.DELETED:
        del cache[name]
    else:
        cache[name] = obj


@given(before=STEPS, after=STEPS, selective=st.booleans())
def test_a_cache_that_follows_a_watch_equals_the_store(before: list[Step], after: list[Step], selective: bool) -> None:
    store = a_store()
    for step in before:
        take(store, step)
    watcher = Subscription(match=is_on if selective else None, wake=lambda: None)
    present = store.collection(THINGS).entries.values()
    cache = {each.name: each.load() for each in present if not selective or is_on(each)}
    since = store.revision
    store.subscribe(THINGS, watcher)
    for step in after:
        take(store, step)
    for event in watcher.events:
        follow(cache, event)
    assert cache == {
        each.name: each.load() for each in store.collection(THINGS).entries.values() if not selective or is_on(each)
    }
    replayed = [watcher.narrow(event) for event in store.collection(THINGS).since(since)]
    assert [each.line() for each in replayed if each is not None] == [each.line() for each in watcher.events]


@given(steps=STEPS)
def test_any_remembered_revision_can_be_listed_as_it_was(steps: list[Step]) -> None:
    store = a_store()
    then = {store.revision: [each.body for each in store.collection(THINGS).scan(prefix="", after="")]}
    for step in steps:
        take(store, step)
        then[store.revision] = [each.body for each in store.collection(THINGS).scan(prefix="", after="")]
    for revision, bodies in then.items():
        assert [each.body for each in store.collection(THINGS).scan_at(revision, prefix="", after="")] == bodies
        rest = [key for key in names(store, revision) if key > "ns/b"]
        assert names(store, revision, after="ns/b") == rest, "the page behind ns/b"
