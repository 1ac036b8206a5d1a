"""Lines of the process that waits for NVML's events, and which events the kernel log has, too."""

import json
from typing import Any

import pytest

from hbox_agent.core.nvmlevents import HOLD_S, MOST_HOLD_S, PAIR_S, Line, NvmlEvent, Pairing, line_of

UUID, PCI = "GPU-6a1f0c9e-3a5d-4a51-8c3e-1f2b3c4d5e6f", "0000:18:00"


def xid(code: int, pci: str = PCI) -> NvmlEvent:
    return NvmlEvent(8, code, UUID, pci)


def record(code: int, pci: str = PCI) -> dict[str, Any]:
    return {"kind": "xid", "code": code, "pci": pci}


def event(**fields: Any) -> bytes:
    found = {"type": 8, "data": 79, "uuid": UUID, "pci": "00000000:18:00.0", "gi": None, "ci": None} | fields
    return json.dumps({"event": found}).encode()


def test_lines_of_the_process_are_read() -> None:
    assert line_of(b'{"ready": {"cards": 7, "refused": 1}}').ready == (7, 1)
    assert line_of(b'{"beat": 3}').beat
    assert line_of(event()).event == xid(79)
    assert line_of(event(gi=2, ci=0)).event == NvmlEvent(8, 79, UUID, PCI, 2, 0)
    assert line_of(b'{"problem": "no library"}').problem == "no library"


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"\xff\xfe", b"NVRM: Xid 79", b"[]", b"{}", b"[" * 400, b'{"ready": 8}', b'{"ready": {"cards": -1, "refused": 0}}', b'{"event": 8}',
        b'{"beat": "1"}', b'{"beat": true}', event(type="8"), event(data=2**63), event(data=-1), event(uuid="x" * 600),
    ],
)  # fmt: skip
def test_garbage_of_the_process_is_no_event(raw: bytes) -> None:
    assert line_of(raw) == Line()
    assert line_of(raw).garbage


@pytest.mark.parametrize("fields", [{"uuid": 5, "pci": None}, {"uuid": "a\nb", "pci": "nowhere"}, {"uuid": "", "pci": ""}])
def test_an_event_of_an_unknown_card_is_one_of_the_node(fields: dict[str, Any]) -> None:
    found = line_of(event(**fields)).event
    assert found is not None
    observed = found.observation(5.0)
    assert (observed.entity, observed.code, observed.at) == ("node", "79", 5.0)


def test_without_the_kernel_log_an_xid_is_due_at_once() -> None:
    pairing = Pairing(log=False)
    pairing.add(xid(79), 1.0)
    assert pairing.due(1.0) == [(1.0, xid(79))]
    assert pairing.due(2.0) == []


def test_an_xid_waits_for_its_line_and_is_due_when_the_log_was_read_without_one() -> None:
    pairing = Pairing(log=True)
    pairing.add(xid(79), 10.0)
    pairing.lines([], 10.0 + HOLD_S / 2)
    assert pairing.due(10.0 + MOST_HOLD_S - 0.1) == []
    pairing.lines([], 10.0 + HOLD_S)
    assert pairing.due(10.0 + HOLD_S) == [(10.0, xid(79))]


def test_an_xid_is_due_if_the_log_cannot_be_read() -> None:
    pairing = Pairing(log=True)
    pairing.add(xid(79), 10.0)
    assert pairing.due(10.0 + MOST_HOLD_S - 0.1) == []
    assert pairing.due(10.0 + MOST_HOLD_S) == [(10.0, xid(79))]


@pytest.mark.parametrize("line_at", [10.0 - PAIR_S, 10.0, 10.0 + HOLD_S])
def test_an_xid_with_a_line_of_its_card_and_code_is_dropped(line_at: float) -> None:
    pairing = Pairing(log=True)
    steps = sorted([(line_at, False), (10.0, True)])
    for at, is_event in steps:
        if is_event:
            pairing.add(xid(79), at)
        else:
            pairing.lines([record(79)], at)
    assert pairing.due(10.0 + MOST_HOLD_S) == []
    assert pairing.paired == 1


@pytest.mark.parametrize(
    "other", [record(78), record(79, "0000:19:00"), {"kind": "sxid", "code": 79, "pci": PCI}, {"kind": "xid"}]
)
def test_a_line_of_another_card_or_code_is_not_its_line(other: dict[str, Any]) -> None:
    pairing = Pairing(log=True)
    pairing.add(xid(79), 10.0)
    pairing.lines([other], 10.0 + HOLD_S)
    assert pairing.due(10.0 + HOLD_S) == [(10.0, xid(79))]


def test_a_line_is_not_that_of_an_event_long_after_it() -> None:
    pairing = Pairing(log=True)
    pairing.lines([record(79)], 1.0)
    pairing.add(xid(79), 1.0 + PAIR_S + 1)
    assert len(pairing.due(1.0 + PAIR_S + MOST_HOLD_S + 1)) == 1


def test_an_event_that_is_no_xid_waits_for_no_line() -> None:
    pairing = Pairing(log=True)
    pairing.add(NvmlEvent(2, 0, UUID, PCI), 1.0)
    assert len(pairing.due(1.0)) == 1


@pytest.mark.parametrize(
    ("type_", "data", "changes"),
    [(8, 79, True), (8, 31, False), (8, 13, False), (1, 0, False), (2, 0, True), (0x8000, 1, True)],
)
def test_errors_of_programs_and_corrected_errors_change_no_state(type_: int, data: int, changes: bool) -> None:
    assert NvmlEvent(type_, data, UUID, PCI).about_state is changes
