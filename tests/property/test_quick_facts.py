"""Facts that msgspec reads are those that pydantic reads, and neither accepts more than the other."""

from typing import Any, ClassVar

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from hbox_common.events import HealthReport
from hbox_common.events.base import Event
from hbox_common.health.report import Fact
from hbox_common.model.bounds import INT64_MAX


class Plain(Event):
    """As HealthReport, of pydantic alone."""

    about: ClassVar = HealthReport.about
    facts: tuple[Fact, ...]


numbers = st.sampled_from(
    [0, 1, -1, INT64_MAX, -INT64_MAX - 1, INT64_MAX + 1, 2**64 - 1, 1.0, -0.0, 0.5, 1e308, float("nan"), float("inf")]
)
scalars = st.one_of(
    numbers, st.booleans(), st.none(), st.sampled_from(["", "a", "1", "true", "x" * 65_536, "x" * 65_537, "é"]), st.just(b"raw")
)
keys = st.one_of(st.sampled_from(["a", "b", "", "x" * 65_537]), st.just(1), st.none())
lists = st.lists(st.one_of(scalars, st.lists(scalars, max_size=2), st.just({"a": 1})), max_size=3)
maps = st.dictionaries(
    keys, st.one_of(scalars, st.dictionaries(keys, st.one_of(scalars, st.just([1])), max_size=2), lists), max_size=3
)
values = st.one_of(st.dictionaries(keys, st.one_of(scalars, lists, maps), max_size=4), scalars, lists)
usual = {"seq": 1, "at": 5.0, "check": "nvml", "entity": "gpu:GPU-0", "code": "card", "value": {}, "text": ""}


@st.composite
def facts(draw: st.DrawFn) -> dict[str, Any]:
    fact: dict[str, Any] = usual | {"value": draw(values)}
    for name in draw(st.sets(st.sampled_from([*usual, "other"]), max_size=2)):
        if name in fact and draw(st.booleans()):
            del fact[name]
        else:
            fact[name] = draw(scalars)
    return fact


def read(event: type[Event], fact: Any) -> str:
    body = {"node": "n1", "boot_id": "b1", "agent": "a", "facts": [fact]}
    try:
        return repr(event.model_validate(body).facts)  # type: ignore[attr-defined]  # repr: 1, 1.0 and True differ, lists and tuples too
    except ValidationError as e:
        return repr([(one["loc"], one["type"]) for one in e.errors()])


@settings(max_examples=300, deadline=None)
@given(facts())
@example(usual | {"value": {"at": float("nan")}})
@example(usual | {"at": 5, "value": {"rows": ["a", ["b", 1]], "units": {"a": {"b": 1.0}}}})
@example(usual | {"seq": True})
def test_a_fact_reads_as_pydantic_reads_it(fact: dict[str, Any]) -> None:
    assert read(HealthReport, fact) == read(Plain, fact)
