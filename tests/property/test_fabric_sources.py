"""Answers of UFM and LLDP as no version of theirs says them: whatever is in them is read, left out or refused, and what is read has a sound tree."""

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.errors import HBoxError
from hbox_sandbox.fabric import FabricPlan
from hbox_sandbox.fabric.rows import ports, systems
from hbox_topology.adapters.jsonrows import read_rows
from hbox_topology.core.fabric.build import build
from hbox_topology.core.fabric.lldp import snapshot_of
from hbox_topology.core.fabric.ufm import UfmReading, event_of, port_row, system_row, versions_of

from ..searching import examples
from .test_fabric_properties import sound

SNAPSHOT = FabricPlan(hosts=(2,), rails=2).snapshot()
SYSTEMS, PORTS = list(systems(SNAPSHOT)), list(ports(SNAPSHOT))

#: Values as they come in JSON, and those at the edges of what the readers take for numbers, GUIDs and names.
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=True),
    st.text(max_size=20),
    st.sampled_from(
        [
            "",
            "N/A",
            "0" * 16,
            "f" * 16,
            "g" * 16,
            "0x1",
            "1" * 300,
            "_",
            "a_1",
            "\x1b[2J",
            "\u202e",
            "\ud800",
            "Switch",
            "aggregation node",
        ]
    ),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
)


@st.composite
def bent(draw: st.DrawFn, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Right rows, of which some lack a key, say anything under one, or what another row says."""
    out = [dict(row) for row in rows]
    for _ in range(draw(st.integers(0, 10))):
        row = draw(st.sampled_from(out))
        key = draw(st.sampled_from(sorted(rows[0])))
        match draw(st.integers(0, 3)):
            case 0:
                row.pop(key, None)
            case 1:
                row[key] = draw(ODD)
            case 2:
                row[key] = draw(st.sampled_from(rows)).get(key)
            case _:
                out.append(dict(draw(st.sampled_from(rows))))
    return draw(st.permutations(out))


@given(bent(SYSTEMS), bent(PORTS))
def test_any_rows_of_ufm_have_a_sound_tree(some_systems: list[dict[str, Any]], some_ports: list[dict[str, Any]]) -> None:
    reading = UfmReading()
    for row in some_systems:
        reading.system(system_row(row))
    for row in some_ports:
        reading.port(port_row(row))
    sound(build(reading.snapshot()))


@given(st.dictionaries(st.sampled_from(["id", "type", "event_type", "ports_version", "links_version", "x"]), ODD))
def test_any_event_and_counters_are_read_or_nothing(row: dict[str, Any]) -> None:
    event = event_of(row)
    assert event is None or event.number >= 0
    found = versions_of(row)
    assert found is None or max(found) >= 0


@examples(100, dear=True)
@given(bent(PORTS), st.data())
def test_any_body_is_read_or_refused_and_no_row_is_made_up(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    text = json.dumps({"num_of_pages": 1, "data": rows} if data.draw(st.booleans()) else rows).encode()
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(text)))
        text = (
            text[:at]
            + data.draw(st.sampled_from([b"", b"]", b"[", b'"', b"{}", b",", b"\xff", b" " * 50, b"1e999"]))
            + text[at + 1 :]
        )
    size = data.draw(st.integers(1, 4000))

    async def chunks() -> AsyncIterator[bytes]:
        for first in range(0, len(text), size):
            yield text[first : first + size]

    taken: list[Any] = []
    try:
        found = asyncio.run(read_rows(chunks(), taken.append))
    except HBoxError:
        return
    assert found.count == len(taken) <= text.count(b"{")


_ABOUT = {
    "chassis": {"leaf": {"id": {"type": "mac", "value": "b8:ce:f6:00:00:01"}}},
    "port": {"id": {"type": "ifname", "value": "etp4"}},
}


@given(st.data())
def test_any_lldp_is_read_or_told(data: st.DataObject) -> None:
    machines = {host: copy.deepcopy({"lldp": {"interface": [{"e0": _ABOUT}, {"e1": _ABOUT}]}}) for host in ("a", "b", "c")}
    for _ in range(data.draw(st.integers(0, 6))):
        place: Any = data.draw(st.sampled_from([machines[host] for host in sorted(machines)]))
        while isinstance(place, dict | list) and place:
            key = (
                data.draw(st.sampled_from(sorted(place)))
                if isinstance(place, dict)
                else data.draw(st.integers(0, len(place) - 1))
            )
            if data.draw(st.booleans()) or not isinstance(place[key], dict | list):
                place[key] = data.draw(ODD)
                break
            place = place[key]
    snapshot = snapshot_of(machines.items())
    assert {link.host for link in snapshot.hosts} <= set("abc")
    sound(build(snapshot))
