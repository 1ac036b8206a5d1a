"""Bytes on the bus: the same as ever for every message, back to what they were, and harmless whatever they are."""

import builtins
import dataclasses
import json
import struct
import tracemalloc
import types
from enum import Enum
from time import monotonic
from types import NoneType
from typing import Annotated, Any, NewType, get_args, get_origin, get_type_hints

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.errors import InvalidRequest
from hbox_common.events import (
    REGISTRY,
    CloudEvent,
    Event,
    HealthChanged,
    HealthVerdict,
    JobsPage,
    JobsWaiting,
    JobsWithdrawn,
    NodeStateChanged,
    decode,
    encode,
    headers,
)
from hbox_common.model import JobId

from ..searching import examples
from .wire_examples import EXAMPLES, GOLDEN, golden_of

TYPES = sorted(REGISTRY.values(), key=lambda t: t.__name__)


def header_of(event: type[Event]) -> dict[str, str]:
    return headers(event, source="test", message_id="m", now=0.0)


def test_every_type_has_one_example_and_every_golden_file_a_type() -> None:
    assert sorted(type(event).__name__ for event in EXAMPLES) == [t.__name__ for t in TYPES]
    assert {path.name for path in GOLDEN.iterdir()} == {golden_of(t).name for t in TYPES}


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_the_bytes_of_a_message_are_those_of_before_and_read_back_as_the_message(event: Event) -> None:
    golden = golden_of(type(event)).read_bytes()
    assert encode(event) == golden, "a change of the wire: see wire_examples.py"
    assert decode(golden, header_of(type(event))) == event


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_an_example_has_something_in_every_field(event: Event) -> None:
    """Else the golden bytes would not notice that a field with a default was renamed."""
    assert event.model_fields_set >= {name for name, field in type(event).model_fields.items() if not field.is_required()}


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_a_reader_of_today_stands_fields_of_tomorrow(event: Event) -> None:
    read, write = (
        (json.loads, lambda one: json.dumps(one).encode())
        if isinstance(event, CloudEvent)
        else (msgpack.unpackb, msgpack.packb)
    )
    newer = read(golden_of(type(event)).read_bytes()) | {"a_field_of_tomorrow": {"x": [1, 2]}}
    assert decode(write(newer), header_of(type(event))) == event


def value_of(hint: Any) -> st.SearchStrategy[Any]:
    """Any value that a field annotated like this may have; collections of at most two, since jobs are deep."""
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: st.text(max_size=8),
        bool: st.booleans(),
        int: st.integers(-(2**63), 2**63 - 1),
        float: st.floats(allow_nan=False, allow_infinity=False),
        bytes: st.binary(max_size=8),
        NoneType: st.none(),
    }
    if hint in plain:
        return plain[hint]
    if isinstance(hint, NewType):
        return value_of(hint.__supertype__)
    if get_origin(hint) is Annotated:
        bounds = {type(one).__name__: one for one in getattr(hint.__metadata__[0], "metadata", ())}
        return (
            st.integers(bounds["Ge"].ge, bounds["Le"].le) if bounds else value_of(hint.__origin__)
        )  # else: with a reader of its own
    arguments = get_args(hint)
    match get_origin(hint):
        case types.UnionType:
            return st.one_of([value_of(argument) for argument in arguments])
        case builtins.tuple:
            if arguments[1:] != (...,):
                return st.tuples(*map(value_of, arguments))
            return st.lists(value_of(arguments[0]), max_size=2).map(tuple)
        case builtins.dict:
            return st.dictionaries(value_of(arguments[0]), value_of(arguments[1]), max_size=2)
    if issubclass(hint, Enum):
        return st.sampled_from(hint)
    hints = get_type_hints(hint, include_extras=True)
    fields = hint.model_fields if issubclass(hint, Event) else {field.name for field in dataclasses.fields(hint)}
    return st.builds(hint, **{name: value_of(hints[name]) for name in fields})


@pytest.mark.parametrize("event", TYPES, ids=lambda t: t.__name__)
def test_any_message_reads_back_as_it_was(event: type[Event]) -> None:
    @examples(25, database=None)
    @given(value_of(event))
    def reads_back(message: Event) -> None:
        assert decode(encode(message), header_of(type(message))) == message

    reads_back()


NODE = header_of(NodeStateChanged)
HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "the byte that msgpack never uses": b"\xc1",
    "no map": msgpack.packb([1, 2, 3]),
    "a number": b"\x01",
    "an array that claims 2^32 - 1 items": b"\xdd\xff\xff\xff\xff",
    "a map that claims 2^32 - 1 entries": b"\xdf\xff\xff\xff\xff",
    "a text that claims 2^32 - 1 bytes": b"\xdb\xff\xff\xff\xff",
    "an extension that claims 2^32 - 1 bytes": b"\xc9\xff\xff\xff\xff\x01",
    "arrays 200,000 deep": b"\x81\xa4node" + b"\x91" * 200_000 + b"\xc0",
    "maps 100,000 deep": b"\x81\xa4node" + b"\x81\xa1x" * 80_000 + b"\xc0",
    "250,000 empty maps": b"\x81\xa4node\xdd" + struct.pack(">I", 250_000) + b"\x80" * 250_000,
    "a key twice": b"\x82\xa4node\xc0\xa4node\xc0",
    "a key that is no text": b"\x81\x01\xc0",
    "a key that is an array": b"\x81\x91\x01\xc0",
    "text that is not UTF-8": b"\x81\xa4node\xa2\xff\xfe",
    "two messages in one": msgpack.packb({"node": None}) * 2,
    "cut off in the middle": golden_of(NodeStateChanged).read_bytes()[:-3],
    "an extension type": b"\x81\xa4node" + msgpack.packb(msgpack.ExtType(5, b"x")),
    "a time stamp out of range": b"\x81\xa4node\xc7\x0c\xff" + b"\xff" * 12,
    "an integer above every number we have": b"\x81\xa4node\xcf" + b"\xff" * 8,
    "too large": b"\x81\xa4node\xdb" + struct.pack(">I", 300_000) + b"x" * 300_000,
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_bytes_are_refused_quickly_in_little_memory_and_in_words(body: bytes) -> None:
    began = monotonic()
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest) as raised:
            decode(body, NODE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "node.state" in raised.value.message
    assert len(raised.value.message) < 500
    assert peak < 32 * 2**20
    assert monotonic() - began < 2.0


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_refused_at_the_top_and_inside(number: float) -> None:
    health = msgpack.unpackb(golden_of(HealthChanged).read_bytes()) | {"at": number}
    with pytest.raises(InvalidRequest, match="at: Input should be a finite number"):
        decode(msgpack.packb(health), header_of(HealthChanged))
    pending_type = next(t for t in TYPES if t.__name__ == "JobsPending")
    pending = msgpack.unpackb(golden_of(pending_type).read_bytes())
    pending["jobs"][0]["created_at"] = number
    with pytest.raises(InvalidRequest, match="created_at"):
        decode(msgpack.packb(pending), header_of(pending_type))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ce-type": "io.hbox.v9.unheard.of"}, "unknown message type"),
        ({"ce-type": ""}, "unknown message type"),
        ({"content-type": "application/json"}, "content-type is 'application/json'"),
    ],
)
def test_headers_that_disagree_with_the_body_are_refused(change: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        decode(golden_of(NodeStateChanged).read_bytes(), NODE | change)


def test_a_message_without_any_header_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="unknown message type"):
        decode(golden_of(NodeStateChanged).read_bytes(), {})


def test_a_body_above_its_limit_is_refused_by_the_writer_and_unseen_by_the_reader() -> None:
    limit = JobsWithdrawn.about.max_bytes
    with pytest.raises(InvalidRequest, match="smaller batches"):
        encode(JobsWithdrawn(jobs=(JobId("x" * 65_000),) * (limit // 65_000 + 1), revisions=()))
    with pytest.raises(InvalidRequest, match=f"{limit} are allowed"):
        decode(b"\xc1" * (limit + 1), header_of(JobsWithdrawn))


@examples(300, database=None)
@given(st.binary(max_size=200), st.sampled_from(TYPES))
def test_random_bytes_are_a_message_or_refused(body: bytes, event: type[Event]) -> None:
    _message_or_refused(body, event)


@examples(500, database=None)
@given(st.sampled_from(TYPES), st.data())
def test_messages_with_some_bytes_changed_are_a_message_or_refused(event: type[Event], data: st.DataObject) -> None:
    body = bytearray(golden_of(event).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    _message_or_refused(bytes(body), event)


def _message_or_refused(body: bytes, event: type[Event]) -> None:
    try:
        message = decode(body, header_of(event))
    except InvalidRequest as e:
        assert e.message  # noqa: PT017  any other error fails the test by itself
    else:
        assert isinstance(message, event)


def test_verdicts_of_older_schedulers_have_an_empty_code() -> None:
    waiting = next(t for t in TYPES if t.__name__ == "JobsWaiting")
    older = msgpack.unpackb(golden_of(waiting).read_bytes())
    for name in ("code", "outcome", "owner"):
        assert older["verdicts"][0].pop(name)
    message = decode(msgpack.packb(older), header_of(waiting))
    assert isinstance(message, JobsWaiting)
    verdict = message.verdicts[0]
    assert (verdict.code, verdict.outcome, verdict.owner) == ("", "", "")


def test_pages_of_older_job_controllers_are_read() -> None:
    page = next(t for t in TYPES if t.__name__ == "JobsPage")
    older = msgpack.unpackb(golden_of(page).read_bytes())
    assert older.pop("waits")
    del older["computed"]
    message = decode(msgpack.packb(older), header_of(page))
    assert isinstance(message, JobsPage)
    assert (message.waits, message.computed) == ((), True)


def test_verdicts_of_older_health_monitors_restrict_no_rail_and_no_kind_of_job() -> None:
    older = msgpack.unpackb(golden_of(HealthVerdict).read_bytes())
    for name in ("rails_off", "multi_gpu", "multi_node", "incidents", "boot_id"):
        del older["verdict"][name]
    message = decode(msgpack.packb(older), header_of(HealthVerdict))
    assert isinstance(message, HealthVerdict)
    verdict = message.verdict
    assert (verdict.rails_off, verdict.multi_gpu, verdict.multi_node, verdict.incidents, verdict.boot_id) == (
        (),
        True,
        True,
        (),
        "",
    )
