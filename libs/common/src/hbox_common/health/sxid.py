"""Errors of NVSwitches: the driver's SXid lines in the kernel log, and the fabric manager's own log.

The driver prints up to three lines for an error: the event, and two with details (`Data {...}`, `Severity N Engine instance ...`), in either order.
"""

import re

from .records import Record, pci_of

_SXID = re.compile(r"nvidia-nvswitch(\d{1,4}): SXid \((?:PCI:)?([0-9a-fA-F:.]{7,20})\): (\d{1,9}),?\s*(.*)", re.DOTALL)
_EVENT = re.compile(r"(Non-?fatal|Fatal)\b,?\s*(?:Link (-?\d+))?\s*(.*)", re.IGNORECASE | re.DOTALL)
_SEVERITY = re.compile(r"Severity (\d+)")
_FABRIC_MANAGER = re.compile(
    r"\bdetected NVSwitch (non-?fatal|fatal) error (\d{1,9})\b.{0,40}? pci bus id ([0-9a-fA-F:.]{7,20})(?: physical id (\d+))?(?: port (\d+))?",
    re.IGNORECASE,
)


def parse_sxid(text: str) -> Record | None:
    """The record of an SXid line whose prefix is removed: kind sxid for the event, sxid-detail for a line of details; None for any other text."""
    found = _SXID.match(text)
    pci = pci_of(found[2]) if found else None
    if found is None or pci is None:
        return None
    record: Record = {"kind": "sxid", "switch": int(found[1]), "pci": pci, "code": int(found[3])}
    rest = found[4]
    if event := _EVENT.match(rest):
        record["fatal"] = event[1].lower() == "fatal"
        if event[2] is not None and int(event[2]) >= 0:
            record["link"] = int(event[2])
        return record
    record["kind"] = "sxid-detail"
    if severity := _SEVERITY.match(rest):
        record["severity_number"] = int(severity[1])
    return record


def parse_fabric_manager(line: str) -> Record | None:
    """The record of an error of an NVSwitch in a line of the fabric manager's log; None for any other line."""
    found = _FABRIC_MANAGER.search(line) if "NVSwitch" in line else None
    pci = pci_of(found[3]) if found else None
    if found is None or pci is None:
        return None
    record: Record = {"kind": "sxid", "code": int(found[2]), "pci": pci, "fatal": found[1].lower() == "fatal"}
    if found[4] is not None:
        record["physical_id"] = int(found[4])
    if found[5] is not None:
        record["link"] = int(found[5])
    return record
