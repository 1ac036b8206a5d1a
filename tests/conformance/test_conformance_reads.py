"""Lists, watches, selectors (checklist items 2, 3 and 4)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ..waiting import until
from .kube_world import Json, Raw, a_binding, a_pod


def names(body: Json) -> list[str]:
    return [each["metadata"]["name"] for each in body["items"]]


def of_type(kind: str, count: int = 1) -> Callable[[list[Json]], bool]:
    return lambda events: sum(each["type"] == kind for each in events) >= count


def told(events: list[Json]) -> list[tuple[str, str]]:
    return [(each["type"], each["object"]["metadata"].get("name", "")) for each in events if each["type"] != "BOOKMARK"]


async def test_a_lists_version_is_at_least_that_of_its_items(raw: Raw, pods: str) -> None:
    for name in "ab":
        await raw.made(pods, a_pod(name))
    status, body = await raw.get(pods)
    assert (status, body["kind"], body["apiVersion"], names(body)) == (200, "PodList", "v1", ["a", "b"])
    assert int(body["metadata"]["resourceVersion"]) >= max(int(each["metadata"]["resourceVersion"]) for each in body["items"])


async def test_pages_show_one_state_whatever_happens_between_them(raw: Raw, pods: str) -> None:
    for name in "abcde":
        await raw.made(pods, a_pod(name))
    _, page = await raw.get(pods, limit="2")
    assert names(page) == ["a", "b"]
    assert page["metadata"]["remainingItemCount"] == 3
    version = page["metadata"]["resourceVersion"]
    await raw.delete(f"{pods}/c")
    await raw.made(pods, a_pod("bb"))
    await raw.patch(f"{pods}/d", {"metadata": {"labels": {"x": "new"}}})
    _, page = await raw.get(pods, **{"limit": "2", "continue": page["metadata"]["continue"]})
    assert names(page) == ["c", "d"]
    assert page["items"][1]["metadata"].get("labels", {}) == {}
    assert page["metadata"]["resourceVersion"] == version
    _, page = await raw.get(pods, **{"limit": "2", "continue": page["metadata"]["continue"]})
    assert names(page) == ["e"]
    assert "continue" not in page["metadata"]


async def test_an_expired_continue_token_is_gone(emulator: object, raw: Raw, pods: str) -> None:
    for name in "abc":
        await raw.made(pods, a_pod(name))
    _, page = await raw.get(pods, limit="1")
    await raw.made(pods, a_pod("d"))
    await raw.post("/_sandbox/compact", {})
    status, body = await raw.get(pods, **{"limit": "1", "continue": page["metadata"]["continue"]})
    assert (status, body["reason"]) == (410, "Expired")


async def test_a_broken_continue_token_is_a_bad_request(raw: Raw, pods: str) -> None:
    status, body = await raw.get(pods, **{"limit": "1", "continue": "nonsense"})
    assert (status, body["reason"]) == (400, "BadRequest")


async def test_an_exact_version_lists_the_past(raw: Raw, pods: str) -> None:
    await raw.made(pods, a_pod("a"))
    _, before = await raw.get(pods)
    await raw.made(pods, a_pod("b"))
    version = before["metadata"]["resourceVersion"]
    _, body = await raw.get(pods, resourceVersion=version, resourceVersionMatch="Exact")
    assert names(body) == ["a"]
    _, body = await raw.get(pods, resourceVersion=version, resourceVersionMatch="NotOlderThan")
    assert names(body) in (["a"], ["a", "b"]), "of that moment or a later one, as far as the watch cache has come"
    status, body = await raw.get(pods, resourceVersion="0")
    assert status == 200


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 422),
        ({"resourceVersionMatch": "Sometimes", "resourceVersion": "5"}, 422),
        ({"sendInitialEvents": "true"}, 422),
        ({"watch": "1", "sendInitialEvents": "true", "allowWatchBookmarks": "true"}, 422),
        ({"watch": "1", "resourceVersionMatch": "NotOlderThan"}, 422),
        ({"limit": "many"}, 400),
    ],
)
async def test_combinations_of_list_options_that_make_no_sense_are_refused(
    raw: Raw, pods: str, params: dict[str, str], expected: int
) -> None:
    status, body = await raw.get(pods, **params)
    assert (status, body["kind"]) == (expected, "Status")


async def test_a_version_from_the_future_times_out(raw: Raw, pods: str) -> None:
    status, body = await raw.get(pods, resourceVersion="999999999999", resourceVersionMatch="NotOlderThan")
    assert (status, body["reason"]) == (504, "Timeout")
    assert body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_a_watch_without_a_version_begins_with_what_is_there(raw: Raw, pods: str) -> None:
    await raw.made(pods, a_pod("a"))
    unversioned: list[dict[str, Any]] = [{}, {"resourceVersion": "0"}]
    for params in unversioned:
        events = await raw.watch(pods, until=of_type("ADDED"), **params)
        assert told(events) == [("ADDED", "a")]


async def test_a_watch_continues_strictly_after_its_version(raw: Raw, pods: str) -> None:
    await raw.made(pods, a_pod("a"))
    made = await raw.made(pods, a_pod("b"))
    await raw.patch(f"{pods}/a", {"metadata": {"labels": {"x": "1"}}})
    await raw.delete(f"{pods}/b")
    await raw.made(pods, a_pod("c"))
    events = await raw.watch(pods, until=of_type("ADDED"), resourceVersion=made["metadata"]["resourceVersion"])
    assert told(events) == [("MODIFIED", "a"), ("MODIFIED", "b"), ("DELETED", "b"), ("ADDED", "c")]
    versions = [int(each["object"]["metadata"]["resourceVersion"]) for each in events]
    assert versions == sorted(versions)
    assert "deletionTimestamp" in events[1]["object"]["metadata"]
    assert versions[0] > int(made["metadata"]["resourceVersion"])


async def test_a_watch_on_a_forgotten_version_is_gone(raw: Raw, pods: str, kube_api: object) -> None:
    if getattr(kube_api, "emulated", False):
        await raw.made(pods, a_pod("a"))
        await raw.post("/_sandbox/compact", {})
    events = await raw.watch(pods, until=of_type("ERROR"), resourceVersion="1")
    assert events[0]["type"] in ("ERROR", "HTTP")
    assert (events[0]["object"]["code"], events[0]["object"]["reason"]) == (410, "Expired")


async def test_a_watch_ends_after_its_timeout(raw: Raw, pods: str) -> None:
    assert told(await raw.watch(pods, until=lambda _: False, timeoutSeconds="1")) == []


async def test_bookmarks_carry_a_version_and_nothing_else(raw: Raw, pods: str) -> None:
    made = await raw.made(pods, a_pod("a"))
    events = await raw.watch(pods, until=of_type("BOOKMARK"), timeout_s=10, allowWatchBookmarks="true", timeoutSeconds="5")
    bookmark = next(each for each in events if each["type"] == "BOOKMARK")["object"]
    assert bookmark["kind"] == "Pod"
    assert "name" not in bookmark["metadata"]
    assert int(bookmark["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])


async def test_before_its_end_a_watch_shows_where_the_store_stands(raw: Raw, pods: str) -> None:
    """By this informers prove their watches: also where nothing of their kind happened, and others moved the store."""
    _, listed = await raw.get(pods)
    await raw.made(
        pods.replace("/pods", "/configmaps"), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "moves"}}
    )
    _, sample = await raw.get(pods, limit="1")
    version = listed["metadata"]["resourceVersion"]
    events = await raw.watch(
        pods, until=of_type("BOOKMARK"), timeout_s=10, allowWatchBookmarks="true", timeoutSeconds="4", resourceVersion=version
    )
    stands = int(sample["metadata"]["resourceVersion"])
    assert stands > int(version)
    assert int(events[-1]["object"]["metadata"]["resourceVersion"]) >= stands


async def test_initial_events_end_with_an_annotated_bookmark(raw: Raw, pods: str) -> None:
    for name in "ab":
        await raw.made(pods, a_pod(name))
    options: dict[str, Any] = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    events = await raw.watch(pods, until=of_type("BOOKMARK"), **options)
    assert told(events) == [("ADDED", "a"), ("ADDED", "b")]
    assert events[-1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_an_object_that_leaves_the_selection_is_deleted_and_one_that_enters_it_added(raw: Raw, pods: str) -> None:
    made = await raw.made(pods, a_pod("a", labels={"queue": "x", "keep": "1"}))
    await raw.patch(f"{pods}/a", {"metadata": {"labels": {"keep": "2"}}})
    await raw.patch(f"{pods}/a", {"metadata": {"labels": {"queue": "y"}}})
    await raw.patch(f"{pods}/a", {"metadata": {"labels": {"queue": "x"}}})
    await raw.delete(f"{pods}/a")
    version = str(int(made["metadata"]["resourceVersion"]) - 1)
    events = await raw.watch(pods, until=of_type("DELETED", 2), labelSelector="queue=x", resourceVersion=version)
    assert [each["type"] for each in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "MODIFIED", "DELETED"]
    left = events[2]["object"]["metadata"]
    assert left["labels"]["queue"] == "x"
    assert int(left["resourceVersion"]) > int(events[1]["object"]["metadata"]["resourceVersion"])


async def test_a_bound_pod_leaves_the_watch_on_unbound_pods(raw: Raw, pods: str) -> None:
    made = await raw.made(pods, a_pod("a"))
    await raw.post(f"{pods}/a/binding", a_binding("a", "n1"))
    version = made["metadata"]["resourceVersion"]
    events = await raw.watch(pods, until=of_type("DELETED"), fieldSelector="spec.nodeName=", resourceVersion=version)
    assert told(events) == [("DELETED", "a")]
    events = await raw.watch(pods, until=of_type("ADDED"), fieldSelector="spec.nodeName=n1", resourceVersion=version)
    assert told(events) == [("ADDED", "a")]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", "abc"),
        ("tier=gold", "a"),
        ("tier==gold", "a"),
        ("tier!=gold", "bc"),
        ("tier in (gold, silver)", "ab"),
        ("tier notin (gold)", "bc"),
        ("tier", "ab"),
        ("!tier", "c"),
        ("tier,zone=z1", "a"),
        ("rank>1", "b"),
        ("rank<2", "a"),
    ],
)
async def test_label_selectors(raw: Raw, pods: str, selector: str, expected: str) -> None:
    await raw.made(pods, a_pod("a", labels={"tier": "gold", "zone": "z1", "rank": "1"}))
    await raw.made(pods, a_pod("b", labels={"tier": "silver", "rank": "2"}))
    await raw.made(pods, a_pod("c"))
    _, body = await raw.get(pods, labelSelector=selector)
    assert "".join(names(body)) == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=a", "a"),
        ("metadata.name!=a", "b"),
        ("spec.nodeName=", "b"),
        ("spec.nodeName=n1", "a"),
        ("spec.schedulerName=hbox", "b"),
        ("status.phase=Pending", "ab"),
        ("status.phase!=Pending", ""),
        ("spec.nodeName=,spec.schedulerName=hbox", "b"),
    ],
)
async def test_field_selectors_of_pods(raw: Raw, pods: str, selector: str, expected: str) -> None:
    await raw.made(pods, a_pod("a"))
    await raw.made(pods, a_pod("b", schedulerName="hbox"))
    await raw.post(f"{pods}/a/binding", a_binding("a", "n1"))
    _, body = await raw.get(pods, fieldSelector=selector)
    assert "".join(names(body)) == expected


async def test_field_selectors_of_nodes_and_events(raw: Raw, namespace: str) -> None:
    for name, spec in ((f"{namespace}-a", {}), (f"{namespace}-b", {"unschedulable": True})):
        await raw.made("/api/v1/nodes", {"metadata": {"name": name, "labels": {"of": namespace}}, "spec": spec})
    _, body = await raw.get("/api/v1/nodes", fieldSelector="spec.unschedulable=true", labelSelector=f"of={namespace}")
    assert names(body) == [f"{namespace}-b"]
    await raw.delete("/api/v1/nodes", labelSelector=f"of={namespace}")
    events = f"/api/v1/namespaces/{namespace}/events"
    about = {"kind": "Pod", "namespace": namespace, "name": "a", "uid": "u1"}
    await raw.made(events, {"metadata": {"name": "e1"}, "involvedObject": about, "reason": "Why"})
    for selector, expected in (("involvedObject.name=a,reason=Why", ["e1"]), ("involvedObject.uid=u2", [])):
        _, body = await raw.get(events, fieldSelector=selector)
        assert names(body) == expected


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("fieldSelector", "spec.priority=1"),
        ("fieldSelector", "nonsense"),
        ("labelSelector", "a in b"),
        ("labelSelector", "a=b=c"),
    ],
)
async def test_selectors_that_cannot_be_read_are_bad_requests(raw: Raw, pods: str, what: str, value: str) -> None:
    status, body = await raw.get(pods, **{what: value})
    assert (status, body["reason"]) == (400, "BadRequest")


async def test_a_watch_on_one_name_sees_that_object_alone(raw: Raw, pods: str) -> None:
    for name in "ab":
        await raw.made(pods, a_pod(name))
    events = await raw.watch(f"{pods}", until=of_type("ADDED"), fieldSelector="metadata.name=b")
    assert told(events) == [("ADDED", "b")]


async def test_a_watch_over_all_namespaces_sees_every_one(raw: Raw, pods: str, namespace: str) -> None:
    made = await raw.made(pods, a_pod("a"))
    await raw.made(pods, a_pod("b"))
    events = await raw.watch("/api/v1/pods", until=of_type("ADDED"), resourceVersion=made["metadata"]["resourceVersion"])
    assert (events[0]["object"]["metadata"]["namespace"], events[0]["object"]["metadata"]["name"]) == (namespace, "b")


async def test_lines_of_a_watch_may_be_cut_anywhere(emulator: object, raw: Raw, pods: str) -> None:
    await raw.made(pods, a_pod("a"))
    plan = {"seed": 1, "rules": [{"verb": "watch", "resource": "pods", "watch_chunk": 7}]}
    await raw.put("/_sandbox/faults", plan)
    try:
        async with raw.session.get(raw.base + pods, params={"watch": "1"}) as response:
            chunk, complete = await anext(aiter(response.content.iter_chunks()))
            assert len(chunk) <= 7
            line = chunk + await response.content.readline()
            assert json.loads(line)["object"]["metadata"]["name"] == "a"
            assert complete
    finally:
        await raw.put("/_sandbox/faults", {})


async def test_many_watchers_see_the_same_events(raw: Raw, pods: str) -> None:
    async def all_told() -> bool:
        events = await raw.watch(pods, until=of_type("ADDED", 20))
        return len(told(events)) == 20

    for number in range(20):
        await raw.made(pods, a_pod(f"p{number}"))
    assert await until(all_told)
