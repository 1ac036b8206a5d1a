import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.kube.objects import Pod
from hbox_common.kube.reflector import (
    MAX_PAGES,
    REFUSALS_BEFORE_RELIST,
    Delta,
    DeltaKind,
    Emit,
    Expired,
    Failed,
    Lines,
    List,
    Page,
    Reflector,
    Sleep,
    StreamEnd,
    Tick,
    Watch,
)

from ....searching import examples


def pod(name: str, rv: int, *, uid: str | None = None, node: str = "", **metadata: Any) -> Any:
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": uid or f"uid-{name}", "resourceVersion": str(rv), **metadata},
        "spec": {"nodeName": node} if node else {},
    }


def page(*pods: Any, rv: int, more: str = "") -> Page:
    meta = {"resourceVersion": str(rv)} | ({"continue": more} if more else {})
    return Page(json.dumps({"kind": "PodList", "metadata": meta, "items": pods}).encode())


def line(kind: str, obj: Any) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode()


def bookmark(rv: int) -> bytes:
    return line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(rv)}})


def emitted(effects: list[Any]) -> list[Delta[Pod]]:
    return [delta for effect in effects if isinstance(effect, Emit) for delta in effect.deltas]


def changes(effects: list[Any]) -> list[tuple[str, str]]:
    return [(delta.kind.value, subject(delta).metadata.uid) for delta in emitted(effects)]


def subject(delta: Delta[Pod]) -> Pod:
    pod = delta.new or delta.old
    assert pod is not None
    return pod


def slept(effects: list[Any]) -> float:
    """Seconds that the only effect, a sleep, asks for."""
    (sleep,) = effects
    assert isinstance(sleep, Sleep)
    return sleep.seconds


def names(reflector: Reflector[Pod]) -> Any:
    return sorted(p.metadata.name for p in reflector.store.values())


@pytest.fixture
def reflector() -> Reflector[Pod]:
    return Reflector(Pod, Random(1))


@pytest.fixture
def watching(reflector: Reflector[Pod]) -> Reflector[Pod]:
    """A reflector that has listed a (5) and b (6) at 10 and watches from there."""
    reflector.start()
    assert reflector.step(page(pod("a", 5), pod("b", 6), rv=10))[-1] == Watch("10")
    return reflector


def test_the_first_list_is_read_from_the_cache_and_followed_page_by_page(reflector: Reflector[Pod]) -> None:
    assert reflector.start() == [List()]
    first = reflector.step(page(pod("a", 5), rv=10, more="next"))
    assert changes(first) == [("added", "uid-a")]
    assert not any(isinstance(effect, Emit) and effect.synced for effect in first)
    assert first[-1] == List("next")
    last = reflector.step(page(pod("b", 6), rv=10))
    assert changes(last) == [("added", "uid-b")]
    assert any(isinstance(effect, Emit) and effect.synced for effect in last)
    assert last[-1] == Watch("10")
    assert reflector.relists == 0


def test_an_empty_cluster_is_synced_too(reflector: Reflector[Pod]) -> None:
    reflector.start()
    emit, watch = reflector.step(Page(b'{"metadata":{"resourceVersion":"3"},"items":null}'))
    assert emit == Emit([], synced=True)
    assert watch == Watch("3")


def test_changes_carry_old_and_new(watching: Reflector[Pod]) -> None:
    a, b = watching.store["uid-a"], watching.store["uid-b"]
    effects = watching.step(Lines([line("MODIFIED", pod("a", 11, node="n1")), line("DELETED", pod("b", 12))]))
    moved = watching.store["uid-a"]
    assert moved.spec.node_name == "n1"
    assert emitted(effects) == [Delta(DeltaKind.MODIFIED, a, moved), Delta(DeltaKind.DELETED, b, None)]
    assert names(watching) == ["a"]
    assert watching.resource_version == "12"


def test_a_watch_ended_by_the_server_goes_on_from_the_last_version_without_a_list(watching: Reflector[Pod]) -> None:
    watching.step(Lines([line("ADDED", pod("c", 17))]))
    assert watching.step(StreamEnd(0.01)) == [Watch("17")]
    assert watching.relists == 0
    assert watching.watches == 2


def test_a_quiet_watch_that_ends_in_time_is_no_failure(watching: Reflector[Pod]) -> None:
    assert watching.step(StreamEnd(240.0)) == [Watch("10")]


def test_watches_that_end_at_once_are_paced(watching: Reflector[Pod]) -> None:
    slept(watching.step(StreamEnd(0.01)))
    assert watching.step(Tick()) == [Watch("10")]


def test_a_bookmark_moves_the_version_and_nothing_else(watching: Reflector[Pod]) -> None:
    assert watching.step(Lines([bookmark(99)])) == []
    assert watching.resource_version == "99"
    assert watching.step(StreamEnd(0.01)) == [Watch("99")]


def test_after_an_interruption_it_goes_on_from_the_last_version(watching: Reflector[Pod]) -> None:
    watching.step(Lines([line("ADDED", pod("c", 17))]))
    assert watching.start() == [Watch("17")]


def test_410_as_http_status_lists_anew_and_deletes_what_is_no_more(watching: Reflector[Pod]) -> None:
    assert watching.step(Expired()) == [List()]
    effects = watching.step(page(pod("a", 5), pod("c", 20), rv=30))
    assert changes(effects) == [("added", "uid-c"), ("deleted", "uid-b")]
    assert effects[-1] == Watch("30")
    assert watching.relists == 1


def test_410_in_the_stream_lists_anew_after_handing_on_what_came_before(watching: Reflector[Pod]) -> None:
    gone = line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"})
    effects = watching.step(Lines([line("ADDED", pod("c", 11)), gone, line("ADDED", pod("d", 12))]))
    assert changes(effects) == [("added", "uid-c")]
    assert effects[-1] == List()


def test_an_expired_continue_token_lists_from_the_start_without_losing_or_inventing_anything(reflector: Reflector[Pod]) -> None:
    reflector.start()
    reflector.step(page(pod("a", 5), pod("b", 6), rv=10, more="next"))
    assert reflector.step(Expired()) == [List(whole=True)]
    effects = reflector.step(page(pod("b", 6), pod("c", 7), rv=12))
    assert changes(effects) == [("added", "uid-c"), ("deleted", "uid-a")]
    assert names(reflector) == ["b", "c"]


def test_a_server_that_always_answers_410_is_not_asked_in_a_hot_loop(watching: Reflector[Pod]) -> None:
    assert watching.step(Expired()) == [List()]
    assert watching.step(page(rv=30))[-1] == Watch("30")
    slept(watching.step(Expired()))
    assert watching.step(Tick()) == [List()]


def test_events_before_a_410_do_not_make_a_hot_loop_of_lists(watching: Reflector[Pod]) -> None:
    gone = line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"})
    waits = []
    for rv in range(11, 211):
        effects = watching.step(Lines([bookmark(rv), gone]))
        watching.proven()
        if isinstance(effects[-1], Sleep):
            waits.append(effects[-1].seconds)
            effects = watching.step(Tick())
        assert effects == [List()]
        watching.step(page(pod("a", 5), rv=rv))
    assert len(waits) == 199
    assert sum(waits[20:]) / 179 > 2
    assert watching.step(StreamEnd(6.0)) == [Watch("210")], "a watch that is told nothing of the kind until its end"
    assert watching.step(Expired()) == [List()]


def test_lists_whose_tokens_always_expire_are_asked_for_whole_until_one_is_complete(watching: Reflector[Pod]) -> None:
    watching.step(Expired())
    watching.step(page(pod("a", 5), rv=20, more="next"))
    slept(watching.step(Expired()))
    assert watching.step(Tick()) == [List(whole=True)]
    slept(watching.step(Failed("it took too long")))
    assert watching.step(Tick()) == [List(whole=True)]
    assert watching.step(page(pod("a", 5), rv=21))[-1] == Watch("21")
    watching.step(Expired())
    assert watching.step(Tick()) == [List()]


def test_a_server_that_comes_back_without_its_history_is_listed_at_once(watching: Reflector[Pod]) -> None:
    for _ in range(10):
        slept(watching.step(Failed("connection refused")))
        watching.step(Tick())
    assert watching.step(Expired()) == [List()]
    assert watching.step(page(rv=30))[-1] == Watch("30")
    assert slept(watching.step(Expired())) <= 1.6


def test_a_failed_page_is_asked_for_again_with_its_token(reflector: Reflector[Pod]) -> None:
    reflector.start()
    reflector.step(page(pod("a", 5), rv=10, more="next"))
    slept(reflector.step(Failed("connection refused")))
    assert reflector.step(Tick()) == [List("next")]


def test_waits_grow_to_five_seconds_with_full_jitter_and_reset_on_progress(watching: Reflector[Pod]) -> None:
    waits = []
    for _ in range(200):
        waits.append(slept(watching.step(Failed("connection refused"))))
        watching.step(Tick())
    assert waits[0] <= 0.8
    assert 4 < max(waits) <= 5
    assert min(waits[10:]) < 1
    watching.step(Lines([bookmark(50)]))
    assert slept(watching.step(Failed("connection refused"))) <= 0.8
    assert watching.last_error == "connection refused"


def test_the_servers_wish_to_wait_is_honoured(watching: Reflector[Pod]) -> None:
    assert slept(watching.step(Failed("too many requests", retry_after_s=17.0))) == 17.0


def test_unreachable_servers_never_cause_a_list_but_repeated_refusals_do(watching: Reflector[Pod]) -> None:
    for _ in range(50):
        watching.step(Failed("connection refused"))
        assert watching.step(Tick()) == [Watch("10")]
    for _ in range(REFUSALS_BEFORE_RELIST - 1):
        watching.step(Failed("Too large resource version", refused=True))
        assert watching.step(Tick()) == [Watch("10")]
    watching.step(Failed("Too large resource version", refused=True))
    assert watching.step(Tick()) == [List()]


def test_another_error_in_the_stream_watches_again_from_the_last_version(watching: Reflector[Pod]) -> None:
    error = line("ERROR", {"kind": "Status", "code": 500, "message": "etcd is sorry"})
    slept(watching.step(Lines([error])))
    assert watching.last_error == "etcd is sorry"
    assert watching.step(Tick()) == [Watch("10")]


def test_an_object_that_cannot_be_read_is_skipped_counted_and_its_version_kept(watching: Reflector[Pod]) -> None:
    broken = pod("a", 11)
    broken["spec"]["nodeName"] = 7
    effects = watching.step(Lines([line("MODIFIED", broken), line("ADDED", pod("c", 12))]))
    assert changes(effects) == [("added", "uid-c")]
    assert watching.decode_errors == 1
    watching.step(Lines([line("MODIFIED", {**broken, "metadata": {**broken["metadata"], "resourceVersion": "13"}})]))
    assert watching.resource_version == "13"
    assert watching.store["uid-a"].metadata.resource_version == "5"


def test_a_deletion_is_understood_even_when_its_object_cannot_be_read(watching: Reflector[Pod]) -> None:
    broken = pod("a", 11)
    broken["spec"]["nodeName"] = 7
    assert changes(watching.step(Lines([line("DELETED", broken)]))) == [("deleted", "uid-a")]
    assert watching.decode_errors == 0


def test_an_unreadable_object_in_a_list_is_skipped_and_not_taken_for_deleted(watching: Reflector[Pod]) -> None:
    broken = pod("a", 11)
    broken["spec"]["tolerations"] = "none"
    watching.step(Expired())
    assert changes(watching.step(page(broken, pod("b", 6), pod("c", 12), rv=20))) == [("added", "uid-c")]
    assert names(watching) == ["a", "b", "c"]
    assert watching.decode_errors == 1


def test_an_unknown_kind_of_line_is_skipped(watching: Reflector[Pod]) -> None:
    assert watching.step(Lines([line("SURPRISE", pod("c", 11))])) == []
    assert watching.decode_errors == 1


def test_a_line_that_is_not_json_means_a_broken_stream(watching: Reflector[Pod]) -> None:
    effects = watching.step(Lines([line("ADDED", pod("c", 11)), b'{"type":"ADDED","obj', line("ADDED", pod("d", 13))]))
    assert changes(effects) == [("added", "uid-c")]
    assert isinstance(effects[-1], Sleep)
    assert watching.step(Tick()) == [Watch("11")]


def test_a_list_that_cannot_be_read_is_asked_for_again(reflector: Reflector[Pod]) -> None:
    reflector.start()
    slept(reflector.step(Page(b"<html>bad gateway</html>")))
    assert reflector.step(Tick()) == [List()]


def test_a_namesake_ends_the_old_object_before_it_begins(watching: Reflector[Pod]) -> None:
    watching.step(Expired())
    effects = watching.step(page(pod("a", 40, uid="uid-a2"), pod("b", 6), rv=50))
    assert changes(effects) == [("deleted", "uid-a"), ("added", "uid-a2")]


def test_repeated_events_are_not_handed_on_twice(watching: Reflector[Pod]) -> None:
    watching.step(Lines([line("ADDED", pod("c", 11))]))
    assert watching.step(Lines([line("ADDED", pod("c", 11)), line("DELETED", pod("z", 12))])) == []


def test_a_server_that_lags_does_not_take_the_copy_back(watching: Reflector[Pod]) -> None:
    """A pod was deleted and created again under its name. A repeated DELETED of the former one does not remove the present one."""
    again = [line("MODIFIED", pod("a", 11)), line("DELETED", pod("a", 12)), line("ADDED", pod("a", 13, uid="uid-a2"))]
    watching.step(Lines(again))
    assert watching.step(Lines([bookmark(9)])) == []
    assert watching.step(StreamEnd(3.0, "it lags")) == [Watch("13", doubtful=True)]
    assert watching.step(Lines(again)) == []
    assert {p.metadata.uid for p in watching.store.values()} == {"uid-a2", "uid-b"}


def test_an_old_line_that_cannot_be_read_does_not_take_it_back_either(watching: Reflector[Pod]) -> None:
    watching.step(Lines([line("MODIFIED", {**pod("a", 8), "spec": 5})]))
    assert watching.resource_version == "10"


def test_a_store_that_was_set_back_is_listed_as_it_is(watching: Reflector[Pod]) -> None:
    watching.step(Expired())
    effects = watching.step(page(pod("a", 3), rv=4))
    assert changes(effects) == [("modified", "uid-a"), ("deleted", "uid-b")]
    assert watching.resource_version == "4"


# --- against a model of the server


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 5)),
        st.tuples(st.just("delete"), st.integers(0, 5)),
        st.tuples(st.just("lag"), st.integers(0, 5)),
        st.tuples(st.sampled_from(["read", "end", "expire", "fail", "bookmark"]), st.just(0)),
    ),
    max_size=60,
)


@given(actions=ACTIONS, page_size=st.integers(1, 3))
@examples(200)
def test_whatever_the_network_does_the_copy_and_the_deltas_end_equal_to_the_server(actions: Any, page_size: int) -> None:
    server: dict[str, Any] = {}
    history: list[tuple[int, bytes]] = []
    version = births = 0
    reflector = Reflector(Pod, Random(0))
    told: dict[str, Pod] = {}  # what a consumer that knows only the deltas has
    offset = 0  # how much of history the open watch has delivered

    def obey(effects: list[Any]) -> None:
        """Does what is asked at once: lists from the live server, sleeps no time."""
        nonlocal offset
        while effects:
            for effect in effects:
                if isinstance(effect, Emit):
                    for d in effect.deltas:
                        assert (d.old is None) == (d.kind is DeltaKind.ADDED)
                        if d.old is not None:
                            assert told.pop(d.old.metadata.uid) == d.old
                        if d.kind is DeltaKind.DELETED:
                            assert subject(d).metadata.uid not in {p["metadata"]["uid"] for p in server.values()}
                        if d.new is not None:
                            told[d.new.metadata.uid] = d.new
            last = effects[-1]
            if isinstance(last, Sleep):
                effects = reflector.step(Tick())
            elif isinstance(last, List):
                start = int(last.continue_token or 0)
                live = sorted(server.values(), key=lambda p: p["metadata"]["name"])
                more = str(start + page_size) if start + page_size < len(live) else ""
                effects = reflector.step(page(*live[start : start + page_size], rv=version, more=more))
            elif isinstance(last, Watch):
                offset = next((i for i, (rv, _) in enumerate(history) if rv > int(last.resource_version)), len(history))
                return
            else:
                return

    def read() -> None:
        nonlocal offset
        lines, offset = [text for _, text in history[offset:]], len(history)
        obey(reflector.step(Lines(lines)))

    obey(reflector.start())
    for action, n in actions:
        name = f"p{n}"
        if action == "put":
            version += 1
            births += name not in server
            uid = server[name]["metadata"]["uid"] if name in server else f"u{births}"
            kind = "MODIFIED" if name in server else "ADDED"
            server[name] = pod(name, version, uid=uid)
            history.append((version, line(kind, server[name])))
        elif action == "delete" and name in server:
            version += 1
            last = server.pop(name)
            history.append((version, line("DELETED", pod(name, version, uid=last["metadata"]["uid"]))))
        elif action == "read":
            read()
        elif action == "end":
            obey(reflector.step(StreamEnd(0.0)))
        elif action == "expire":
            obey(reflector.step(Expired()))
        elif action == "fail":
            obey(reflector.step(Failed("reset")))
        elif action == "lag":  # a server that lags `n` versions behind what was delivered answers one watch
            obey(reflector.step(Lines([bookmark(max(0, int(reflector.resource_version) - n))])))
            obey(reflector.step(StreamEnd(6.0, "it lags")))
        elif action == "bookmark" and offset == len(history):
            obey(reflector.step(Lines([bookmark(version)])))
    read()
    want = {p["metadata"]["uid"]: p["metadata"]["resourceVersion"] for p in server.values()}
    assert {uid: p.metadata.resource_version for uid, p in reflector.store.items()} == want
    assert told == reflector.store


def test_a_copy_may_keep_less_than_it_hands_on() -> None:
    def name_of(pod: Pod) -> Pod:
        return Pod(metadata=pod.metadata)

    reflector = Reflector(Pod, Random(1), keep=name_of)
    reflector.start()
    [emit, _] = reflector.step(page(pod("a", 5, node="n1"), pod("b", 6), rv=10))
    assert isinstance(emit, Emit)
    assert [delta.new and delta.new.spec.node_name for delta in emit.deltas] == ["n1", ""]
    assert reflector.store["uid-a"].spec.node_name == ""
    assert reflector.step(Lines([line("ADDED", pod("a", 5, node="n1"))])) == []  # known in this version
    assert changes(reflector.step(Lines([line("MODIFIED", pod("a", 11)), line("DELETED", pod("b", 12))]))) == [
        ("modified", "uid-a"),
        ("deleted", "uid-b"),
    ]


# --- lists that are none


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 503}',
        b'{"kind": "PodList", "metadata": {}, "items": []}',
        b'{"metadata": {"resourceVersion": ""}, "items": null}',
        b"<html>log in first</html>",
        b"[]",
        b"{}",
    ],
)
def test_an_answer_that_is_no_list_is_not_the_end_of_all_that_is_known(watching: Reflector[Pod], body: bytes) -> None:
    """A proxy's page, or a Status under 200: as an empty list it would delete every pod of the cluster."""
    before = names(watching)
    watching.step(Expired())
    effects = watching.step(Page(body))
    assert before
    assert slept(effects) >= 0
    assert names(watching) == before
    watching.step(Tick())
    assert changes(watching.step(page(pod("a", 5), pod("b", 6), rv=30))) == []
    assert watching.resource_version == "30"


def test_what_came_in_an_answer_without_a_version_is_handed_on_all_the_same(reflector: Reflector[Pod]) -> None:
    reflector.start()
    effects = reflector.step(Page(json.dumps({"metadata": {}, "items": [pod("a", 5)]}).encode()))
    assert changes(effects) == [("added", "uid-a")]
    assert isinstance(effects[-1], Sleep)


def test_a_list_that_goes_on_with_the_token_that_it_was_asked_with_begins_anew_after_a_pause(reflector: Reflector[Pod]) -> None:
    reflector.start()
    reflector.step(page(pod("a", 5), rv=10, more="again"))
    effects = reflector.step(page(pod("a", 5), rv=10, more="again"))
    assert isinstance(effects[-1], Sleep)
    assert reflector.step(Tick()) == [List()]
    assert names(reflector) == ["a"]


def test_a_list_without_end_begins_anew_after_a_pause(reflector: Reflector[Pod]) -> None:
    reflector.start()
    for number in range(MAX_PAGES - 1):
        assert reflector.step(page(rv=10, more=str(number)))[-1] == List(str(number))
    assert isinstance(reflector.step(page(rv=10, more="on"))[-1], Sleep)
    assert reflector.step(Tick()) == [List()]
    effects = reflector.step(page(pod("a", 5), rv=20))
    assert isinstance(effects[-1], Watch)


def deep(rv: int) -> bytes:
    """A pod with a field that is nested as deeply as the API server allows."""
    inner = b'{"a":' * 9_990 + b"1" + b"}" * 9_990
    return json.dumps(pod("deep", rv)).encode()[:-1] + b',"unknown":' + inner + b"}"


def test_deeply_nested_object_of_a_list_is_taken_with_the_others() -> None:
    reflector: Reflector[Pod] = Reflector(Pod, Random(0))
    reflector.start()
    others = page(pod("a", 5), pod("b", 6), rv=7).body
    body = others.replace(b'"items": [', b'"items": [' + deep(4) + b",")
    assert changes(reflector.step(Page(body))) == [("added", "uid-deep"), ("added", "uid-a"), ("added", "uid-b")]


def test_deeply_nested_object_of_a_watch_is_taken() -> None:
    reflector: Reflector[Pod] = Reflector(Pod, Random(0))
    reflector.start()
    reflector.step(page(rv=3))
    effects = reflector.step(Lines([b'{"type":"ADDED","object":' + deep(4) + b"}", line("ADDED", pod("a", 5))]))
    assert changes(effects) == [("added", "uid-deep"), ("added", "uid-a")]
    assert reflector.resource_version == "5"
