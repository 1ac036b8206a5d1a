from typing import Any

import pytest

from hbox_common.model import capacity_units, quantity
from hbox_ledger.core.queue_status import QueueStatus, change, contested

NONE = {"pending": 0, "inqueue": 0, "running": 0, "unknown": 0, "completed": 0}


@pytest.mark.parametrize(
    ("stands", "total", "written"),
    [
        ("", {}, "Open"),
        ("Open", {"pods": 1}, None),
        ("Closing", {"pods": 1}, None),
        ("Closing", {"pods": 0}, "Closed"),
        ("Closed", {}, None),
        ("Closed", {"pods": 1}, None),
        ("Unknown", {"pods": 1}, "Closing"),
    ],
)
def test_a_state_that_was_ordered_is_never_turned_into_the_other(
    stands: str, total: dict[str, int], written: str | None
) -> None:
    assert change(QueueStatus(stands, {}, NONE), total, {}).get("state") == written


def test_only_the_difference_is_written() -> None:
    stands = QueueStatus("Open", {"cpu": "1500m", "memory": "1024Mi", "pods": "1"}, NONE)
    same = {"cpu": 1500, "memory": 2**30, "pods": 1, "nvidia.com/gpu": 0}
    assert change(stands, same, {}) == {}
    more = {"memory": 3 * 2**30, "pods": 2, "nvidia.com/gpu": 4}
    assert change(stands, more, {"running": 1}) == {
        "allocated": {"memory": "3Gi", "pods": "2", "nvidia.com/gpu": "4", "cpu": None}, "running": 1,
    }  # fmt: skip


def test_what_nobody_has_counted_is_not_written_and_host_ports_are_no_amounts() -> None:
    assert change(QueueStatus(), {"hostport/TCP/80": 1, "pods": 1}, None) == {"state": "Open", "allocated": {"pods": "1"}}


def test_a_value_that_is_no_quantity_is_written_anew() -> None:
    assert change(QueueStatus("Open", {"pods": "many"}, NONE), {"pods": 2}, {}) == {"allocated": {"pods": "2"}}


@pytest.mark.parametrize(
    ("stands", "fields"),
    [
        ({}, []),
        ({"allocated": {"pods": 2.0}}, []),
        ({"allocated": {"pods": "3"}}, ["allocated"]),
        ({"allocated": {}}, ["allocated"]),
        ({"counts": NONE | {"running": 1}}, ["running"]),
        ({"state": "Closing"}, ["state"]),
        ({"state": "Open"}, []),  # an order
    ],
)
def test_who_else_writes_is_seen(stands: dict[str, Any], fields: list[str]) -> None:
    ours: dict[str, Any] = {"state": "Closed", "allocated": {"pods": "2"}, "counts": NONE}
    assert contested(QueueStatus(**ours), QueueStatus(**ours | stands)) == fields


@pytest.mark.parametrize("name", ["cpu", "memory", "nvidia.com/gpu", "pods"])
@pytest.mark.parametrize("units", [0, 1, 999, 1000, 1024, 2**20, 3 * 2**30, 2**30 + 1])
def test_quantities_are_read_as_they_are_written(name: str, units: int) -> None:
    assert capacity_units(name, quantity(name, units)) == units
