"""The driver's XID lines: `NVRM: Xid (PCI:0000:3a:00): 31, pid=7, name=python3, Ch 00000008, ...`.

The driver prints the command of a process between code and text. A command has at most 15 characters, may contain anything, and is never evidence: details are
read only after it, and only those that belong to the code.
"""

import re
from collections.abc import Callable
from typing import Any

from .records import Record, pci_of

#: nvmlDeviceGpuRecoveryAction_t by the words of XID 154, which differ by driver.
ACTION_NAMES = {
    "none": 0,
    "gpu reset required": 1,
    "gpu reset": 1,
    "pf flr": 1,
    "node reboot required": 2,
    "node reboot": 2,
    "os reboot": 2,
    "drain p2p": 3,
    "drain and reset": 4,
    "recover imex domain": 5,
    "bus reset": 6,
    "system reboot": 7,
}

_XID = re.compile(r"NVRM: (?:GPU\d+ )?Xid \(([^)]{1,64})\): (\d{1,9})(?![\w.])[,:]?\s*(.*)", re.DOTALL)
_DEVICE = re.compile(r"(?:PCI:)?([0-9a-fA-F:.]+)(?:\s+GPU-I:(\w+))?(?:\s+GPU-CI:(\w+))?")
_PID = re.compile(r"pid=(?:'?<unknown>'?|(\d{1,10}))(?:,\s*|$)")
_NAME = re.compile(r"name=(.*?)(?:, |,$|$)")
_CHANNEL = re.compile(r"\b[Cc]h(?:annel)?(?: ?I[Dd])?\s+(0x[0-9a-fA-F]+|[0-9a-fA-F]{8})\b")
_PLACE = re.compile(r"\(GPC (\d+)(?:, TPC (\d+))?(?:, SM (\d+))?\)")
_LINK_REGISTERS = re.compile(r"on link (-?\d+)\s*(?:\(([^)]*)\))?")
_UNIT = re.compile(
    r"(?P<unit>\S.{0,60}?)\s+(?P<fatal>Fatal|Non-?fatal)\b.{0,40}?\bLink\s+(?P<link>-?\d+)\s*(?:\((?P<registers>[^)]*)\))?",
    re.IGNORECASE,
)
_NO_LINK = re.compile(r"(?P<unit>\S.{0,60}?)\s+(?P<fatal>Fatal|Non-?fatal)\b", re.IGNORECASE)
_CHANGED = re.compile(r"changed from (.{1,60}?) to (.{1,60})", re.DOTALL)
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_ROW = re.compile(r"\brows? \(?(0x[0-9a-fA-F]+)", re.IGNORECASE)
_CONTAINED = re.compile(r"(?:Unc|C)ontained:\s*([^(.]*?)\s*(?:\(|\.|$)")
_RST = re.compile(r"(?<![-\w])RST:\s*(Yes|No)", re.IGNORECASE)
_D_RST = re.compile(r"D-RST:\s*(Yes|No)", re.IGNORECASE)
_CAUSED = re.compile(r"caused by previous Xid (\d{1,9})")
_ERROR_STRING = re.compile(r"errorString (.+?)(?:, Info (\S+?))?[,.]?$")
_FUNCTION = re.compile(r"Expected function (\d+)(?: \((\w+)\))?")
_FRAMEBUFFER = re.compile(r"\b(framebuffer|frame buffer|FB|DRAM|HBM)\b", re.IGNORECASE)
_SRAM = re.compile(r"\b(SRAM|L1|L2|LTC|SM|cache|register file|shared memory|texture|GPCMMU|GCC|ICC)\b", re.IGNORECASE)


def parse_xid(text: str) -> Record | None:
    """The record of an XID line whose prefix is removed; None for any other text."""
    found = _XID.match(text)
    if found is None:
        return None
    device = _DEVICE.fullmatch(found[1].strip())
    pci = pci_of(device[1], function=False) if device else None
    if device is None or pci is None:
        return None
    code, rest = int(found[2]), found[3]
    record: Record = {"kind": "xid", "code": code, "pci": pci}
    if device[2]:
        record["gpu_instance"] = int(device[2], 10) if device[2].isdigit() else device[2]
    if device[3]:
        record["compute_instance"] = int(device[3], 10) if device[3].isdigit() else device[3]
    if pid := _PID.match(rest):
        record["pid"] = int(pid[1]) if pid[1] else None
        rest = rest[pid.end() :]
    if name := _NAME.match(rest):
        if name[1].strip("'") not in {"", "<unknown>"}:
            record["name"] = name[1]
        rest = rest[name.end() :]
    if channel := _CHANNEL.search(rest):
        record["channel"] = channel[1].lower()
    if details := _DETAILS.get(code):
        record.update(details(rest))
    return record


def _graphics(rest: str) -> dict[str, Any]:
    places = [[int(n) if n is not None else None for n in place.groups()] for place in _PLACE.finditer(rest)]
    return {"places": places} if places else {}


def _double_bit(rest: str) -> dict[str, Any]:
    if _FRAMEBUFFER.search(rest):
        return {"memory": "framebuffer"}
    return {"memory": "sram"} if _SRAM.search(rest) else {}


def _row(rest: str) -> dict[str, Any]:
    row = _ROW.search(rest)
    return {"row": row[1].lower()} if row else {}


def _link(rest: str) -> dict[str, Any]:
    found = _LINK_REGISTERS.search(rest)
    if found is None:
        return {}
    out: dict[str, Any] = {"link": _link_number(found[1])}
    if found[2] is not None:
        out["registers"] = _hex(found[2])
    return out


def _unit(rest: str) -> dict[str, Any]:
    found = _UNIT.match(rest) or _NO_LINK.match(rest)
    if found is None:
        return {}
    parts = found.groupdict()
    out: dict[str, Any] = {"unit": " ".join(parts["unit"].split()), "fatal": parts["fatal"].lower() == "fatal"}
    if parts.get("link") is not None:
        out["link"] = _link_number(parts["link"])
    registers = _hex(parts.get("registers") or "")
    if registers:
        out["registers"] = registers
        out["intr"] = registers[0]
    if len(registers) > 1:
        out["status"] = registers[1]
    return out


def _contained(rest: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if (unit := _CONTAINED.search(rest)) and unit[1]:
        out["unit"] = unit[1]
    if rst := _RST.search(rest):
        out["rst"] = rst[1].lower() == "yes"
    if d_rst := _D_RST.search(rest):
        out["d_rst"] = d_rst[1].lower() == "yes"
    return out


def _recovery(rest: str) -> dict[str, Any]:
    found = _CHANGED.search(rest)
    return {"from": _action(found[1]), "to": _action(found[2])} if found else {}


def _action(text: str) -> int | None:
    """The number; the words only where the driver prints no number."""
    if number := _HEX.search(text):
        return int(number[0], 16)
    return ACTION_NAMES.get(" ".join(text.strip(" ().,\n").lower().split()))


def _cause(rest: str) -> dict[str, Any]:
    found = _CAUSED.search(rest)
    return {"caused_by": int(found[1])} if found else {}


def _error_string(rest: str) -> dict[str, Any]:
    found = _ERROR_STRING.search(rest)
    if found is None:
        return {}
    return {"error_string": found[1]} | ({"info": found[2].lower()} if found[2] else {})


def _function(rest: str) -> dict[str, Any]:
    found = _FUNCTION.search(rest)
    return {"function": int(found[1])} | ({"function_name": found[2]} if found[2] else {}) if found else {}


def _hex(text: str) -> list[str]:
    return [number.lower() for number in _HEX.findall(text)]


def _link_number(text: str) -> int | None:
    """-1 is no link: the error is of the whole unit."""
    number = int(text)
    return number if number >= 0 else None


_DETAILS: dict[int, Callable[[str], dict[str, Any]]] = {
    13: _graphics,
    45: _cause,
    48: _double_bit,
    63: _row,
    64: _row,
    74: _link,
    94: _contained,
    95: _contained,
    109: _error_string,
    119: _function,
    **dict.fromkeys(range(144, 151), _unit),
    154: _recovery,
    171: lambda _: {"memory": "framebuffer"},
    172: lambda _: {"memory": "sram"},
}
