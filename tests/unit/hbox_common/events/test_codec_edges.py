"""Whatever is encoded decodes; what cannot be carried is refused where it is written; one bad item costs its message nothing else."""

import struct
from dataclasses import replace
from typing import Any

import msgpack
import pytest

from hbox_common.bus.parts import emptied, parts
from hbox_common.errors import InvalidRequest
from hbox_common.events import CONTENT_TYPE, JobsPage, JobsPending, PodsObserved, codec, decode, encode, halves, token_of
from hbox_common.events.base import TOKEN_BYTES
from hbox_common.model import (
    CardSlice,
    ClaimId,
    Job,
    JobId,
    NodeName,
    PodFact,
    PodGroupTask,
    PodPhase,
    PodRef,
    PodUid,
    QueueName,
)


def fact(called: str, **fields: Any) -> PodFact:
    uid = f"uid-{called}"
    base = PodFact(PodUid(uid), "ml", called, PodPhase.BOUND, NodeName("n1"), JobId(uid), QueueName("q"), 0, {"cpu": 1000})
    return replace(base, **fields)


def job(name: str, **fields: Any) -> Job:
    task = PodGroupTask(name, {"cpu": 1000, "pods": 1}, (PodRef(PodUid(name), name, "1"),))
    return replace(Job(JobId(name), "ml", name, QueueName("q"), 0, 1, 1, 0, 1.0, 1, (task,)), **fields)


def header(event: Any) -> dict[str, str]:
    return {"ce-type": event.ce_type(), "content-type": CONTENT_TYPE}


UNFIT = [
    {"claim": ClaimId("x" * 70_000)},
    {"priority": 2**63},
    {"priority": 2**70},
    {"priority": -(2**70)},
    {"slices": (CardSlice(0, 1, 2**64 - 1),)},
    {"created_at": float("nan")},
    {"created_at": float("-inf")},
    {"name": "\ud800"},
    {"requests": {f"r{n}": 1 for n in range(20_001)}},
]


@pytest.mark.parametrize("fields", UNFIT)
def test_what_no_reader_would_take_is_refused_by_the_writer(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        encode(PodsObserved(pods=(fact("a", **fields),)))


@pytest.mark.parametrize("fields", [{"claim": ClaimId("x" * 65_536)}, {"priority": 2**63 - 1}, {"name": "\U0001f600" * 60_000}])
def test_what_is_written_is_read_back_the_same(fields: dict[str, Any]) -> None:
    event = PodsObserved(pods=(fact("a", **fields), fact("b")))
    assert decode(encode(event), header(event)) == event


@pytest.mark.parametrize("fields", UNFIT)
def test_one_item_that_nobody_can_carry_keeps_no_other_back(fields: dict[str, Any]) -> None:
    event = PodsObserved(pods=(*(fact(f"a{n}") for n in range(10)), fact("bad", **fields), *(fact(f"b{n}") for n in range(9))))
    refused: list[Any] = []
    said = [decode(body, header(part)) for part, body in parts(event, 2**20, lambda one, why: refused.append((one, why)))]
    assert [pod.name for part in said for pod in part.pods] == [*(f"a{n}" for n in range(10)), *(f"b{n}" for n in range(9))]  # type: ignore[attr-defined]
    [(one, why)] = refused
    assert [len(one.pods), bool(why.message)] == [1, True]


def test_a_message_is_divided_by_its_bytes() -> None:
    notes = {"volcano.sh/revocable-zone": "x" * 60_000}
    event = JobsPage(
        complete=True, jobs=tuple(job(f"j{n}", annotations=notes) for n in range(300)), priority_classes={"high": 5}
    )
    said = list(parts(event, 4 * 2**20, lambda one, why: pytest.fail(str(why))))
    assert all(len(body) <= 4 * 2**20 for _, body in said)
    pages = [decode(body, header(part)) for part, body in said]
    assert [one.id for page in pages for one in page.jobs] == [f"j{n}" for n in range(300)]  # type: ignore[attr-defined]
    assert all(page.complete for page in pages)  # type: ignore[attr-defined]
    assert [page.priority_classes for page in pages if page.priority_classes is not None] == [{"high": 5}]  # type: ignore[attr-defined]
    assert emptied(event) == JobsPage(complete=True, priority_classes={"high": 5})
    assert halves(JobsPending(jobs=(job("a"),))) is None


def test_a_reader_sets_the_bad_item_aside_and_takes_the_rest() -> None:
    raw = PodsObserved(pods=tuple(fact(f"p{n}") for n in range(20))).model_dump()
    raw["pods"][3]["claim"] = "x" * 70_000
    raw["pods"][7]["priority"] = 2**64 - 1
    raw["pods"][9]["phase"] = "flying"
    reasons: list[str] = []
    found = decode(msgpack.packb(raw), header(PodsObserved), set_aside=reasons.append)
    assert isinstance(found, PodsObserved)
    assert [pod.name for pod in found.pods] == [f"p{n}" for n in range(20) if n not in (3, 7, 9)]
    assert any("pods.7.priority" in reason for reason in reasons)
    with pytest.raises(InvalidRequest):
        decode(msgpack.packb(raw), header(PodsObserved))
    with pytest.raises(InvalidRequest, match="pods"):
        decode(msgpack.packb({"pods": 7}), header(PodsObserved), set_aside=reasons.append)


def test_a_body_is_read_the_same_whichever_way_it_was_written() -> None:
    event = PodsObserved(pods=tuple(fact(f"p{n}", created_at=n / 7, priority=-n) for n in range(40)))
    ours, body = event.model_dump(), encode(event)
    assert msgpack.packb(ours) == body
    longer = body.replace(b"\xa2p1", b"\xd9\x02p1")  # as no writer of ours does
    assert longer != body
    assert decode(longer, header(event)) == event == decode(body, header(event))


#: Written with the byte that begins a list of 65,536 items and more.
LIKE_A_LARGE_LIST = struct.unpack(">d", b"\x41\xdd\x00\x00\x00\x00\x00\x00")[0]


def test_a_number_that_looks_like_a_large_list_costs_no_walk_over_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    event = PodsObserved(pods=(fact("p", created_at=LIKE_A_LARGE_LIST),))
    body = encode(event)
    assert b"\xdd" in body
    monkeypatch.setattr(codec, "_no_duplicates", pytest.fail)
    assert decode(body, header(event)) == event


def test_beside_such_a_number_a_key_twice_is_refused_all_the_same() -> None:
    twice = b"\x82" + 2 * (msgpack.packb("pods") + msgpack.packb([LIKE_A_LARGE_LIST]))
    with pytest.raises(InvalidRequest, match="a key occurs twice"):
        decode(twice, header(PodsObserved))


BROKEN = {
    "a key twice": b"\x82" + msgpack.packb("pods") + b"\x90" + msgpack.packb("pods") + b"\x90",
    "a key twice in an item": b"\x81" + msgpack.packb("pods") + b"\x91\x82\xa1a\x01\xa1a\x01",
    "a list that is longer than it is": b"\x81" + msgpack.packb("pods") + b"\xdd\x7f\xff\xff\xff",
    "a map that is longer than it is": b"\x81" + msgpack.packb("pods") + b"\xdf\x7f\xff\xff\xff",
    "something behind it": msgpack.packb({"pods": []}) + b"\x00",
    "half of it": msgpack.packb({"pods": []})[:-1],
    "a list": msgpack.packb([1]),
    "no text": b"\x81\xa4pods\xa2\xff\xff",
    "a number as key": msgpack.packb({1: 2}),
    "a hundred thousand levels": b"\x81\xa4pods" + b"\x91" * 100_000 + b"\x01",
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_message_is_refused(what: str) -> None:
    with pytest.raises(InvalidRequest):
        decode(BROKEN[what], header(PodsObserved))


def test_a_token_of_any_text_is_short_and_its_own() -> None:
    names = ["\U0001f600" * 253, "\U0001f600" * 252 + "\U0001f601", "a" * 640, "a" * 641, "a" * 642, "\ud800" * 300, ""]
    tokens = [token_of(name) for name in names]
    assert len(set(tokens)) == len(names)
    assert all(0 < len(token) <= TOKEN_BYTES for token in tokens)
    assert token_of("ab.cd") == "ab_2e_cd"
