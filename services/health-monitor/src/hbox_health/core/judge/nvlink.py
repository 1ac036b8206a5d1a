"""NVLink: the registers of XID 74 (A100, H100), and NVIDIA's decode table of XIDs 144 to 150 (Blackwell)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .finding import Action, Blame, Finding, Scope, Severity
from .rules import BUCKETS, CodeRule, Decoded, Rules, Unit

#: The registers of XID 74, counted from 1, and what their bits mean (bucket WORKFLOW_NVLINK_ERR of NVIDIA's catalogue).
_HARDWARE = {1: (8, 9, 12, 16, 17, 24, 28)}
_SIGNAL = {1: (21, 22)}
_REPEATED = {1: (27, 29), 3: (17, 18)}
_REPEATED_DIAGNOSE = {3: (16, 19)}
_PARITY = {1: (4, 5), 3: (0, 1, 2, 6), 5: (18, 19, 21, 22, 24, 25, 27, 28)}
_ECC_THRESHOLD = {5: (20, 23, 26, 29)}
_SYMPATHETIC = {1: (1, 20), 4: (16, 17)}
_IGNORED = {1: (0, 23, 30)}
_NEVER = {3: (13,)}
_FABRIC_RESET = {4: (18,)}

#: More than so many parity errors on one link are reported to NVIDIA; as many repetitions of the others.
PARITY_LIMIT = 2

WORKFLOW_74 = "nvidia-workflow-nvlink-err"
DECODE = "nvidia-xid-144-150-decode"


def nvlink4(record: Mapping[str, Any], finding: Finding, repeats: int) -> Finding:
    """XID 74 by its registers; `repeats`: how often the same bits came on the same link, this line included."""
    registers = [int(r, 16) for r in record.get("registers", ())]
    link = f" on link {record['link']}" if record.get("link") is not None else ""
    finding = replace(finding, authority=WORKFLOW_74, scope=Scope.MULTI_GPU, blame=Blame.HARDWARE)

    def decided(severity: Severity, action: Action, why: str, also: Action | None = None) -> Finding:
        return replace(finding, severity=severity, action=action, also=also, why=f"{why}{link}.")

    again = repeats > PARITY_LIMIT
    if not any(registers):
        return decided(Severity.DEGRADED, Action.READ_RECOVERY_ACTION, "An NVLink error whose registers are not in the line")
    if _has(registers, _NEVER):
        return decided(Severity.FATAL_GPU, Action.TICKET, "A bit is set that must never be", Action.MULTI_GPU_OFF)
    if _has(registers, _HARDWARE):
        why = "A mechanical or hardware fault of the link: reseat the card, then field diagnostics"
        return decided(Severity.FATAL_GPU, Action.RUN_DIAGNOSTICS, why, Action.MULTI_GPU_OFF)
    if _has(registers, _FABRIC_RESET):
        return decided(Severity.FATAL_GPU, Action.RESET, "The fabric has to be reset")
    if _has(registers, _SIGNAL):
        return decided(Severity.DEGRADED, Action.MULTI_GPU_OFF, "The signal is too weak: check the connection", Action.TICKET)
    if _has(registers, _PARITY):
        action = Action.TICKET if again else Action.WATCH
        return decided(Severity.DEGRADED, action, f"A parity error, seen {repeats} times" if again else "A parity error")
    if _has(registers, _REPEATED_DIAGNOSE):
        return decided(
            Severity.DEGRADED, Action.RUN_DIAGNOSTICS if again else Action.WATCH, "An error that counts when it repeats"
        )
    if _has(registers, _REPEATED):
        return decided(Severity.DEGRADED, Action.TICKET if again else Action.WATCH, "An error that counts when it repeats")
    if _has(registers, _ECC_THRESHOLD):
        return decided(Severity.INFO, Action.WATCH, "A threshold of corrected errors: work continues")
    if _has(registers, _SYMPATHETIC):
        return decided(Severity.INFO, Action.REPORT, "An error that follows another; alone it is reported")
    if _has(registers, _IGNORED) and _only(registers, _IGNORED):
        return decided(Severity.INFO, Action.NONE, "Only bits that NVIDIA ignores")
    return decided(Severity.DEGRADED, Action.READ_RECOVERY_ACTION, "Bits that NVIDIA's workflow does not name")


def _has(registers: Sequence[int], bits: Mapping[int, tuple[int, ...]]) -> bool:
    return any(number <= len(registers) and registers[number - 1] >> bit & 1 for number, of in bits.items() for bit in of)


def _only(registers: Sequence[int], bits: Mapping[int, tuple[int, ...]]) -> bool:
    rest = list(registers)
    for number, of in bits.items():
        for bit in of:
            if number <= len(rest):
                rest[number - 1] &= ~(1 << bit)
    return not any(rest)


def decode(record: Mapping[str, Any], rules: Rules, driver: int | None) -> Decoded | None:
    """The row of the decode table for a line of XIDs 144 to 150; None if the line is cut off or the table has no such row."""
    if "intr" not in record or "status" not in record:
        return None
    intr, status = int(record["intr"], 16), int(record["status"], 16)
    name = str(record.get("unit", ""))
    units = [unit for unit in rules.units if unit.xid == record["code"] and _fits(unit, intr, driver)]
    named = [unit for unit in units if name in unit.names or name == "/".join(unit.names)]
    for unit in named or units:
        if row := _row(unit, intr >> 20 & 0x3F, status):
            return row
    return None


def _fits(unit: Unit, intr: int, driver: int | None) -> bool:
    """Whether the interrupt info names the unit; a driver that is not known may have either form."""
    masks = (unit.old, unit.new) if driver is None else (unit.new,) if driver >= 575 else (unit.old,)
    return any(intr & mask == value for mask, value in masks)


def _row(unit: Unit, state: int, status: int) -> Decoded | None:
    rows = [row for row in unit.rows if row.state == state]
    for row in rows:
        if not row.status or status in row.status:
            return row
    # Where each value is one bit, several may be set: the worst of them counts.
    if all(value.bit_count() == 1 for row in rows for value in row.status):
        set_ = [row for row in rows if any(status & value for value in row.status)]
        return min(set_, key=lambda row: BUCKETS.index(row.bucket), default=None)
    return None


_BLAMES = {"HW": Blame.HARDWARE, "FW": Blame.HARDWARE, "SW": Blame.SOFTWARE, "NA": Blame.NONE}


def nvlink5(record: Mapping[str, Any], rule: CodeRule, finding: Finding, row: Decoded | None) -> Finding:
    """XIDs 144 to 150 by the decode table. The word Fatal in the line does not count: the bucket does."""
    finding = replace(finding, authority=DECODE, scope=Scope.MULTI_GPU)
    link = "the whole unit" if record.get("link") is None else f"link {record['link']}"
    if row is None:
        why = f"{record.get('unit', rule.name)}: the registers are not in the line, or not in NVIDIA's table."
        return replace(finding, severity=Severity.DEGRADED, blame=Blame.UNKNOWN, action=Action.READ_RECOVERY_ACTION, why=why)
    blame = _BLAMES.get(row.fault, Blame.UNKNOWN)
    what = f"{record.get('unit', rule.name)} on {link}: NVIDIA's table asks for {row.bucket}"
    if row.bucket == "RESET_GPU":
        # A dead link stops only what uses it; an error of the card's own unit stops the card.
        action, scope = (Action.DRAIN_AND_RESET, Scope.MULTI_GPU) if row.fatal == "link" else (Action.RESET, Scope.GPU)
        also = Action.REPORT if row.investigate == "INVESTIGATE_PEER_DEVICE" else None
        why = f"{what}, and to look at the other end of the link." if also else f"{what}."
        return replace(finding, severity=Severity.FATAL_GPU, blame=blame, scope=scope, action=action, also=also, why=why)
    if row.bucket == "XID_154_EVAL":
        why = f"{what}: the recovery action decides; without one the program restarts."
        return replace(finding, severity=Severity.INFO, blame=blame, scope=Scope.JOB, action=Action.NOTIFY_OWNER, why=why)
    action = Action.NONE if row.investigate == "IGNORE" and not row.second else Action.REPORT
    return replace(finding, severity=Severity.INFO, blame=blame, action=action, why=f"{what}.")
