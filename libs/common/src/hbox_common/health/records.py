"""A record: what one line or one raw value states. A plain mapping, since it is published as JSON in a fact.

Keys (only those that the text states): `kind`, `code`, `pci` (domain:bus:device in lower case, with a domain of 4 digits; of an XID without function), `pid`,
`name`, `channel`, `link`, `unit`, `fatal` (as the line states it), `intr`, `status`, `registers`, `places` ([gpc, tpc, sm]), `row`, `memory`, `caused_by`,
`from`, `to`, `count` and others by kind. Hexadecimal numbers stay as written, in lower case. `at` is the time of the line in seconds, from any origin.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

Record = dict[str, Any]

#: Lines of one fault follow each other within this time; the same line later is another fault.
BURST_S = 60.0

#: Keys in which the lines of one fault may differ.
_VARYING = frozenset({"places", "count", "line", "seq", "at", "text"})

_PCI = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(\.[0-9a-fA-F])?")


def pci_of(text: str, *, function: bool = True) -> str | None:
    """The PCI address in a form that compares equal for the same device: "00000000:3A:00.0" is "0000:3a:00.0"."""
    found = _PCI.fullmatch(text.strip())
    if found is None:
        return None
    domain, bus, device, of = found.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}{of or '' if function else ''}".lower()


def merged(records: Iterable[Record]) -> list[Record]:
    """The records with repetitions of one fault (same device, code, process and details) in one record, with `count`."""
    out: list[Record] = []
    last: dict[str, Record] = {}
    ends: dict[str, float | None] = {}
    for record in records:
        key = repr(sorted((k, v) for k, v in record.items() if k not in _VARYING))
        first, at = last.get(key), record.get("at")
        if first is None or _apart(ends[key], at):
            last[key] = dict(record)
            out.append(last[key])
        else:
            first["count"] = first.get("count", 1) + record.get("count", 1)
            places = first.get("places", []) + [p for p in record.get("places", ()) if p not in first.get("places", ())]
            if places:
                first["places"] = places
        ends[key] = at
    return out


def _apart(before: float | None, at: float | None) -> bool:
    return before is not None and at is not None and abs(at - before) > BURST_S


def same_card(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both name the same PCI device; the function of an address is that of the whole card."""
    return card_of(one) is not None and card_of(one) == card_of(other)


def card_of(record: Mapping[str, Any]) -> str | None:
    """The PCI address of the record without function, by which lines of different kinds name the same card."""
    pci = record.get("pci")
    return pci.partition(".")[0] if isinstance(pci, str) else None
