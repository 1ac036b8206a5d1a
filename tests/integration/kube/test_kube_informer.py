import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from random import Random
from typing import Any

import pytest
from aiohttp import web

from hbox_common.errors import Conflict
from hbox_common.kube import PODS, Delta, Informer, KubeClient, Pod

from ...waiting import until

ALL = PODS.path()


def pod(name: str, rv: int) -> Any:
    return {"metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}", "resourceVersion": str(rv)}}


def page(*pods: Any, rv: int, more: str = "") -> Any:
    return {"metadata": {"resourceVersion": str(rv), "continue": more}, "items": list(pods)}


def line(kind: str, obj: Any) -> Any:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def named(delta: Delta[Pod]) -> str:
    seen = delta.new or delta.old
    assert seen is not None
    return seen.metadata.name


@pytest.fixture
def informer(client: KubeClient, impatient: Random) -> Callable[..., Informer[Pod]]:
    def make(**options: Any) -> Informer[Pod]:
        return Informer(client, PODS, Pod, rng=impatient, **options)

    return make


@asynccontextmanager
async def running(informer: Informer[Pod]) -> AsyncIterator[list[list[tuple[str, str]]]]:
    """Yields the batches handed on so far."""
    batches: list[list[tuple[str, str]]] = []

    async def handle(deltas: Sequence[Delta[Pod]]) -> None:
        batches.append([(d.kind.value, named(d)) for d in deltas])

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(informer.run(handle))
        try:
            yield batches
        finally:
            task.cancel()


async def test_a_page_that_is_too_large_is_asked_for_again_as_a_smaller_one(
    api: Any, informer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A namespace's pods may have a megabyte each; one that is larger than a page all by itself is read all the same."""
    monkeypatch.setattr("hbox_common.kube.informer.PAGE_BYTES", 10_000)

    def large(name: str, rv: int, size: int) -> Any:
        made = pod(name, rv)
        return {"metadata": made["metadata"] | {"annotations": {"example.com/note": size * "x"}}}

    api.reply("GET", ALL, 200, page(*[large(f"p{i}", i, 4_000) for i in range(8)], rv=9))
    api.reply("GET", ALL, 200, page(*[large(f"p{i}", i, 4_000) for i in range(2)], rv=9, more="next"))
    api.reply("GET", ALL, 200, page(large("p2", 2, 20_000), large("p3", 3, 4_000), rv=9, more="more"))
    api.reply("GET", ALL, 200, page(large("p2", 2, 20_000), rv=9, more="last"))
    api.reply("GET", ALL, 200, page(pod("p3", 3), rv=9, more="end"))
    api.reply("GET", ALL, 200, page(pod("p4", 4), rv=9))
    pods = informer(page_size=8)
    async with running(pods) as batches:
        await pods.synced.wait()
    assert [name for batch in batches for _, name in batch] == ["p0", "p1", "p2", "p3", "p4"]
    asked = [(query["limit"], query.get("continue", "")) for query in api.queries("GET", ALL)]
    assert asked == [("8", ""), ("2", ""), ("2", "next"), ("1", "next"), ("1", "last"), ("2", "end")]
    assert not pods.relists


async def test_it_lists_in_pages_then_watches_from_there(api: Any, informer: Any) -> None:
    api.reply("GET", ALL, 200, page(pod("a", 1), pod("b", 2), rv=9, more="tok/en="))
    api.reply("GET", ALL, 200, page(pod("c", 3), rv=9))
    api.stream(ALL, line("MODIFIED", pod("a", 10)))
    pods = informer(page_size=2, field_selector="spec.schedulerName=hbox", label_selector="app in (x,y)")
    async with running(pods) as batches:
        await pods.synced.wait()
        await until(lambda: len(batches) == 3)
    assert batches == [[("added", "a"), ("added", "b")], [("added", "c")], [("modified", "a")]]
    selection = {"fieldSelector": "spec.schedulerName=hbox", "labelSelector": "app in (x,y)"}
    assert api.queries("GET", ALL) == [
        {**selection, "limit": "2"},
        {**selection, "limit": "2", "continue": "tok/en="},
    ]
    (watch,) = api.queries("WATCH", ALL)
    assert watch.items() >= {**selection, "resourceVersion": "9", "allowWatchBookmarks": "true"}.items()
    assert 6 <= int(watch["timeoutSeconds"]) <= 8


async def test_a_list_that_ignores_the_limit_is_handed_on_in_pages(api: Any, informer: Any) -> None:
    api.reply("GET", ALL, 200, page(*(pod(f"p{i}", i) for i in range(1, 6)), rv=9))
    api.stream(ALL)
    pods = informer(page_size=2)
    async with running(pods) as batches:
        await pods.synced.wait()
    assert [len(batch) for batch in batches] == [2, 2, 1]


@pytest.mark.parametrize("then", ["end", "reset"])
async def test_a_watch_ended_by_the_server_loses_nothing_and_lists_nothing(api: Any, informer: Any, then: str) -> None:
    api.reply("GET", ALL, 200, page(rv=9))
    api.stream(ALL, line("ADDED", pod("a", 10)), line("BOOKMARK", {"metadata": {"resourceVersion": "15"}}), then=then)
    api.stream(ALL, line("ADDED", pod("b", 16)), then=then)
    api.stream(ALL)
    pods = informer()
    async with running(pods) as batches:
        await until(lambda: pods.watches >= 3)
    assert [*chain.from_iterable(batches)] == [("added", "a"), ("added", "b")]
    assert len(api.queries("GET", ALL)) == 1
    if then == "end":  # a reset may overtake what was sent before it
        assert [q["resourceVersion"] for q in api.queries("WATCH", ALL)][:3] == ["9", "15", "16"]


async def test_410_as_status_lists_anew_with_a_consistent_read(api: Any, informer: Any) -> None:
    api.reply("GET", ALL, 200, page(pod("a", 1), pod("b", 2), rv=9))
    api.reply("GET", ALL, 200, page(pod("b", 2), pod("c", 20), rv=30))
    api.refuse("WATCH", ALL, 410, "Expired", "too old resource version")
    api.stream(ALL)
    pods = informer()
    async with running(pods) as batches:
        await until(lambda: pods.resource_version == "30" and pods.watches == 2)
    assert batches[1:] == [[("added", "c"), ("deleted", "a")]]
    assert "resourceVersion" not in api.queries("GET", ALL)[1]
    assert pods.relists == 1


async def test_410_in_the_stream_lists_anew(api: Any, informer: Any) -> None:
    api.reply("GET", ALL, 200, page(pod("a", 1), rv=9))
    api.reply("GET", ALL, 200, page(rv=30))
    api.stream(ALL, line("ERROR", {"kind": "Status", "code": 410, "reason": "Gone", "message": "too old"}))
    api.stream(ALL)
    pods = informer()
    async with running(pods) as batches:
        await until(lambda: pods.watches == 2)
        assert pods.store == {}
    assert batches[1:] == [[("deleted", "a")]]


async def test_an_expired_continue_token_starts_the_list_again(api: Any, informer: Any) -> None:
    api.reply("GET", ALL, 200, page(pod("a", 1), rv=9, more="t"))
    api.refuse("GET", ALL, 410, "Expired", "the provided continue parameter is too old")
    api.reply("GET", ALL, 200, page(pod("a", 1), pod("b", 2), rv=12))
    api.stream(ALL)
    pods = informer()
    async with running(pods) as batches:
        await pods.synced.wait()
    assert batches == [[("added", "a")], [("added", "b")]]


async def test_chunks_may_be_cut_anywhere(api: Any, informer: Any) -> None:
    api.reply("GET", ALL, 200, page(rv=9))
    raw = b"".join(line("ADDED", pod(f"p{i}", 10 + i)) for i in range(20))
    api.stream(ALL, *(raw[i : i + 7] for i in range(0, len(raw), 7)))
    pods = informer()
    async with running(pods):
        await until(lambda: len(pods.store) == 20)
    assert pods.decode_errors == 0


async def test_one_broken_object_does_not_stop_the_others(api: Any, informer: Any) -> None:
    api.reply("GET", ALL, 200, page({**pod("x", 1), "spec": 7}, pod("a", 2), rv=9))
    api.stream(ALL, line("ADDED", {**pod("y", 10), "spec": {"priority": "high"}}), line("ADDED", pod("b", 11)))
    pods = informer()
    async with running(pods) as batches:
        await until(lambda: len(batches) == 2)
    assert batches == [[("added", "a")], [("added", "b")]]
    assert pods.decode_errors == 2


async def test_a_silent_watch_is_begun_again_and_then_the_copy_is_listed_anew(
    api: Any, informer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays open, and nothing comes, not even its end: as a connection to a host that is gone."""
    monkeypatch.setattr("hbox_common.kube.informer.GRACE_S", 0.05)
    monkeypatch.setattr("hbox_common.kube.informer.DOUBTFUL_WATCH_S", 0)
    api.reply("GET", ALL, 200, page(pod("a", 1), rv=9))
    api.reply("GET", ALL, 200, page(pod("b", 2), rv=12))
    api.reply("SAMPLE", ALL, 200, page(rv=12))
    api.stream(ALL)
    pods = informer(watch_s=0)
    async with running(pods) as batches:
        await until(lambda: len(batches) > 1)
    assert pods.relists >= 1
    assert [watch["resourceVersion"] for watch in api.queries("WATCH", ALL)][:2] == ["9", "9"]
    assert batches == [[("added", "a")], [("added", "b"), ("deleted", "a")]]


async def test_a_watch_that_shows_where_the_store_stands_proves_the_copy(api: Any, informer: Any) -> None:
    api.reply("GET", ALL, 200, page(rv=9))
    api.reply("SAMPLE", ALL, 200, page(rv=12))
    shown = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await shown.wait()
        await response.write(line("BOOKMARK", {"metadata": {"resourceVersion": "12"}}))
        await api.closing.wait()
        return response

    api.script["WATCH", ALL].append(answer)
    pods = informer()
    async with running(pods):
        await pods.synced.wait()
        await until(lambda: api.queries("SAMPLE", ALL))
        await asyncio.sleep(0.2)
        assert pods.freshness().age_s > 0.2, "nothing proves it since the list"
        shown.set()
        await until(lambda: pods.resource_version == "12")
        await until(lambda: pods.freshness().age_s < 0.3)
        assert pods.freshness().why == ""


async def test_a_watch_whose_server_lags_is_told_and_its_copy_listed_anew(
    api: Any, informer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opens, brings bookmarks and ends in its time; only they never come to where the store stands."""
    monkeypatch.setattr("hbox_common.kube.informer.DOUBTFUL_WATCH_S", 0)
    api.reply("GET", ALL, 200, page(pod("a", 1), rv=9))
    api.reply("GET", ALL, 200, page(rv=20))
    api.reply("SAMPLE", ALL, 200, page(rv=20))

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(line("BOOKMARK", {"metadata": {"resourceVersion": "10"}}))
        await asyncio.sleep(0.1)
        return response

    api.script["WATCH", ALL].append(answer)
    pods = informer(watch_s=0)
    said: set[str] = set()
    async with running(pods) as batches:

        def listed_anew() -> bool:
            said.add(pods.freshness().why)
            return len(batches) > 1

        await until(listed_anew)
    assert any("lags" in why for why in said)
    assert batches[1] == [("deleted", "a")]


async def test_lists_that_are_refused_leave_a_watch_alone_and_the_copy_unproven(api: Any, informer: Any) -> None:
    api.reply("GET", ALL, 200, page(pod("a", 1), rv=9))
    api.refuse("SAMPLE", ALL, 503, "ServiceUnavailable")
    api.stream(ALL, then="end")
    pods = informer(watch_s=1)
    async with running(pods):
        # Three watches have come and gone by then, each of which would have proven it.
        await until(lambda: pods.watches > 2 and pods.freshness().age_s > 1)
        assert "cannot be proven" in pods.freshness().why
    assert pods.relists == 0


async def test_an_api_server_that_comes_and_goes_is_waited_for(api: Any, informer: Any) -> None:
    api.refuse("GET", ALL, 503, "ServiceUnavailable")
    api.reset("GET", ALL)
    api.refuse("GET", ALL, 403, "Forbidden")
    api.reply("GET", ALL, 200, page(pod("a", 1), rv=9))
    api.refuse("WATCH", ALL, 429, "TooManyRequests")
    api.stream(ALL, line("ADDED", pod("b", 10)))
    pods = informer()
    async with running(pods):
        await until(lambda: len(pods.store) == 2)
    assert pods.relists == 0
    assert pods.last_error == ""


async def test_the_first_change_is_handed_on_at_once_and_the_following_together(api: Any, informer: Any) -> None:
    api.reply("GET", ALL, 200, page(rv=9))
    released = asyncio.Event()
    first, *rest = (line("ADDED", pod(f"p{i}", 10 + i)) for i in range(10))
    pods = informer(window_s=0.05)
    sizes = []

    async def handle(deltas: Sequence[Delta[Pod]]) -> None:
        sizes.append(len(deltas))
        released.set()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(first)
        await released.wait()
        for chunk in rest:
            await response.write(chunk)
        await api.closing.wait()
        return response

    api.script["WATCH", ALL].append(answer)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(pods.run(handle))
        await until(lambda: len(pods.store) == 10)
        task.cancel()
    assert sizes[0] == 1
    assert sum(sizes) == 10
    assert len(sizes) <= 4


async def test_what_the_handler_raises_ends_the_informer(api: Any, informer: Any) -> None:
    api.reply("GET", ALL, 200, page(pod("a", 1), rv=9))
    api.stream(ALL, line("ADDED", pod("b", 10)))
    calls = []

    async def handle(deltas: Sequence[Delta[Pod]]) -> None:
        calls.append(deltas)
        if len(calls) == 2:
            raise Conflict("the handler's own")

    with pytest.raises(Conflict, match="the handler's own"):
        await informer().run(handle)
