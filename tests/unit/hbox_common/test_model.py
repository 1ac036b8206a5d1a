"""Quantities, card requests, and the one rule that says whether a claim fits."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.errors import InvalidRequest
from hbox_common.model import (
    Card,
    CardRequest,
    CardSlice,
    Generation,
    NodeAllocation,
    NodeName,
    NodeState,
    RefusalReason,
    Verdict,
    capacity_units,
    format_slices,
    parse_quantity,
    parse_slices,
    request_units,
    validate_claim,
)
from hbox_common.model.resources import MOST


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", "0.5"),
        ("2Gi", 2**31),
        ("1e3", 1000),
        (4, 4),
        ("1.5", "1.5"),
        ("100Ki", 102400),
        ("5E", "5e18"),
        ("12E6", "12e6"),
        (".5", "0.5"),
        ("-1", -1),
        ("1.", 1),
    ],
)
def test_quantities_mean_what_kubernetes_says(text: str | int, value: str | int) -> None:
    assert parse_quantity(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "abc", "1Zi", "-", "1 Gi", "NaN", "Infinity", "0x10", "1e999999999", "1ki", "m"])
def test_what_kubernetes_would_refuse_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a quantity"):
        parse_quantity(text)


def test_memory_is_compared_to_the_byte_as_kubernetes_does() -> None:
    assert 10 * request_units("memory", "1G") == capacity_units("memory", "10G") == 10**10
    assert request_units("ephemeral-storage", "1Ki") == 1024


def test_amounts_beyond_all_measure_are_one_amount() -> None:
    assert request_units("memory", "9Ei") == capacity_units("cpu", "1e18") == MOST


def test_rounding_never_over_books() -> None:
    assert request_units("memory", "1500m") == 2
    assert capacity_units("memory", "1500m") == 1
    assert request_units("cpu", "0.0001") == 1
    assert capacity_units("cpu", "1.9999") == 1999
    with pytest.raises(InvalidRequest, match="negative"):
        request_units("cpu", "-1")


slices = st.builds(CardSlice, index=st.integers(0, 15), cores=st.integers(0, 100), memory_mib=st.integers(0, 10**6))


@given(st.lists(slices, max_size=8).map(tuple))
def test_slices_survive_the_annotation(given_slices: tuple[CardSlice, ...]) -> None:
    assert parse_slices(format_slices(given_slices)) == given_slices


@pytest.mark.parametrize("text", ["x", "1:2", "1:2:3:4", "1:2:3,", "::", "0:-50:100", "0:101:100", "-1:50:100", "0:50:-1"])
def test_a_forged_annotation_is_a_value_error(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        parse_slices(text)


def node(**changes: object) -> NodeState:
    fields: dict[str, object] = {
        "name": NodeName("n"),
        "uid": "u",
        "generation": Generation(1),
        "ready": True,
        "allocatable": {"cpu": 8000, "memory": 1000, "pods": 10, "nvidia.com/gpu": 20},
        "cards": (
            Card(0, "a", "T4", 16000, shares=10),
            Card(1, "b", "T4", 16000, shares=2),
            Card(2, "c", "T4", 16000, healthy=False),
        ),
    }
    return NodeState(**{**fields, **changes})  # type: ignore[arg-type]


def refused(
    books: NodeAllocation,
    requests: dict[str, int],
    *slices: CardSlice,
    state: NodeState | None = None,
    verdict: Verdict | None = None,
) -> str:
    found = validate_claim(state or node(), verdict, books, requests, slices)
    return found.reason if found else ""


WHOLE = CardSlice(0, 100, 16000)
HALF = CardSlice(0, 50, 8000)


def test_a_claim_fits_beside_what_is_booked_and_not_beyond() -> None:
    books = NodeAllocation()
    assert refused(books, {"cpu": 8000}, HALF) == ""
    books.book({"cpu": 8000}, [HALF])
    assert refused(books, {"cpu": 1}) == RefusalReason.NODE_RESOURCES
    assert refused(books, {"rdma/hca": 1}) == RefusalReason.NODE_RESOURCES
    assert refused(books, {}, HALF) == ""
    assert refused(books, {}, WHOLE) == RefusalReason.CARD_TAKEN
    assert refused(books, {}, CardSlice(0, 51, 10)) == RefusalReason.CARD_TAKEN
    assert refused(books, {}, CardSlice(0, 10, 8001)) == RefusalReason.CARD_TAKEN
    books.book({"cpu": 8000}, [HALF], times=-1)
    assert refused(books, {"cpu": 8000}, WHOLE) == ""


def test_a_whole_card_excludes_everyone_even_a_pod_that_asks_for_no_compute() -> None:
    books = NodeAllocation()
    books.book({}, [WHOLE])
    assert refused(books, {}, CardSlice(0, 0, 0)) == RefusalReason.CARD_TAKEN


def test_a_card_takes_no_more_pods_than_its_shares() -> None:
    books = NodeAllocation()
    for _ in range(2):
        assert refused(books, {}, CardSlice(1, 10, 10)) == ""
        books.book({}, [CardSlice(1, 10, 10)])
    assert refused(books, {}, CardSlice(1, 10, 10)) == RefusalReason.CARD_TAKEN


def test_what_is_unknown_sick_or_cordoned_takes_nothing() -> None:
    books = NodeAllocation()
    assert refused(books, {}, CardSlice(2, 10, 10)) == RefusalReason.CARD_UNHEALTHY
    assert refused(books, {}, CardSlice(9, 10, 10)) == RefusalReason.CARD_UNKNOWN
    assert refused(books, {}, HALF, HALF) == RefusalReason.CARD_UNKNOWN
    assert refused(books, {}, state=node(ready=False)) == RefusalReason.NODE_NOT_READY
    assert refused(books, {}, state=node(unschedulable=True)) == RefusalReason.NODE_NOT_READY
    assert refused(books, {}, state=node(gone=True)) == RefusalReason.NODE_UNKNOWN
    sick = Verdict(NodeName("n"), Generation(1), healthy=False, reason="XID 79")
    assert refused(books, {}, verdict=sick) == RefusalReason.NODE_UNHEALTHY
    one = Verdict(NodeName("n"), Generation(1), healthy=True, bad_cards=(0,))
    assert refused(books, {}, HALF, verdict=one) == RefusalReason.CARD_UNHEALTHY


def test_memory_asked_for_in_percent_is_rounded_down_on_the_card_chosen() -> None:
    assert CardRequest(1, cores=30, memory_percent=33).memory_on(16001) == 5280
    assert CardRequest(1, cores=30, memory_mib=4096, memory_percent=0).memory_on(16000) == 4096
    assert CardRequest(2).whole
    assert not CardRequest(1, cores=0, memory_mib=4096).whole
