"""NVLink errors by registers: XID 74, and NVIDIA's decode table of XIDs 144 to 150."""

from typing import Any

import pytest

from hbox_health.core.judge.assess import Context, xid_finding
from hbox_health.core.judge.finding import Action, Scope
from hbox_health.core.judge.nvlink import decode
from hbox_health.data import shipped_rules

RULES = shipped_rules()
H100 = Context(RULES.profile("H100"))


def of_74(register: int, bit: int, repeats: int = 1) -> tuple[str, str]:
    registers = ["0x0"] * 7
    registers[register - 1] = hex(1 << bit)
    finding = xid_finding({"code": 74, "pci": "0000:18:00", "link": 1, "registers": registers}, RULES, H100, repeats=repeats)
    assert (finding.scope, finding.authority) == (Scope.MULTI_GPU, "nvidia-workflow-nvlink-err")
    return finding.severity, finding.action


@pytest.mark.parametrize(
    ("register", "bits", "once", "again"),
    [
        (1, (0, 23, 30), "none", "none"),
        (1, (1, 20), "report", "report"),
        (1, (4, 5), "watch", "ticket"),
        (1, (8, 9, 12, 16, 17, 24, 28), "run-diagnostics", "run-diagnostics"),
        (1, (21, 22), "multi-gpu-off", "multi-gpu-off"),
        (1, (27, 29), "watch", "ticket"),
        (3, (0, 1, 2, 6), "watch", "ticket"),
        (3, (13,), "ticket", "ticket"),
        (3, (16, 19), "watch", "run-diagnostics"),
        (3, (17, 18), "watch", "ticket"),
        (4, (16, 17), "report", "report"),
        (4, (18,), "reset", "reset"),
        (5, (18, 19, 21, 22, 24, 25, 27, 28), "watch", "ticket"),
        (5, (20, 23, 26, 29), "watch", "watch"),
    ],
)
def test_74_is_decided_by_its_bits_and_by_more_than_two_on_one_link(
    register: int, bits: tuple[int, ...], once: str, again: str
) -> None:
    for bit in bits:
        assert of_74(register, bit)[1] == once
        assert of_74(register, bit, repeats=2)[1] == once
        assert of_74(register, bit, repeats=3)[1] == again


def test_74_without_registers_asks_for_the_recovery_action() -> None:
    finding = xid_finding({"code": 74, "pci": "0000:18:00", "link": 1}, RULES, H100)
    assert finding.action is Action.READ_RECOVERY_ACTION


def line(code: int, unit: str, intr: int, status: int, **more: Any) -> dict[str, Any]:
    return {"code": code, "pci": "0000:18:00", "unit": unit, "intr": hex(intr), "status": hex(status), "fatal": True, **more}


def test_the_sub_code_is_read_by_the_version_of_the_driver() -> None:
    old, new = line(145, "RLW_REMAP", 0x82, 0x40), line(145, "RLW_REMAP", 0x4, 0x40)
    assert [decode(old, RULES, driver) is not None for driver in (570, 574, 575, None)] == [True, True, False, True]
    assert [decode(new, RULES, driver) is not None for driver in (574, 575, 580, None)] == [False, True, True, True]


@pytest.mark.parametrize("unit", ["TLW_RX", "TLW_RX_PIPE0", "TLW_RX/TLW_RX_PIPE0"])
def test_a_unit_is_found_by_each_of_its_names(unit: str) -> None:
    row = decode(line(146, unit, 0xA, 0x4), RULES, 580)
    assert row is not None
    assert row.bucket == "RESET_GPU"


def test_several_status_bits_count_as_the_worst_of_them() -> None:
    row = decode(line(145, "RLW_REMAP", 0x4, 0x100 | 0x40), RULES, 575)
    assert row is not None
    assert row.bucket == "RESET_GPU"


@pytest.mark.parametrize(
    ("record", "severity", "action", "also"),
    [
        (line(144, "SAW_MVB", 0x1, 0x2, link=3), "fatal-gpu", "reset", None),
        (line(149, "NETIR", 0x18, 0x0, link=None), "fatal-gpu", "drain-and-reset", None),
        (line(149, "NETIR_LINK_DOWN", 0b010101 << 20 | 0x11, 0x0, link=3), "fatal-gpu", "drain-and-reset", "report"),
        (line(149, "NETIR_LINK_DOWN", 0b100110 << 20 | 0x11, 0x0, link=3), "info", "report", None),
        (line(149, "NETIR_LINK_DOWN", 0b101000 << 20 | 0x11, 0x0, link=3), "info", "report", None),
        (line(145, "RLW_REMAP", 0x4, 0x1, link=3), "info", "tell-owner", None),
        (line(145, "RLW_REMAP", 0x4, 0x100, link=3), "info", "none", None),
        ({"code": 145, "pci": "0000:18:00", "unit": "RLW_REMAP", "fatal": True}, "degraded", "read-recovery-action", None),
        (line(145, "NEW_UNIT", 0x7F, 0x1), "degraded", "read-recovery-action", None),
    ],
)
def test_144_to_150_are_decided_by_their_bucket_and_not_by_the_word_fatal(
    record: dict[str, Any], severity: str, action: str, also: str | None
) -> None:
    finding = xid_finding(record, RULES, Context(RULES.profile("B200"), 580))
    assert (finding.severity, finding.action, finding.also) == (severity, action, also)
