"""Events of NVML: the lines of its process, and which of them the kernel log has, too. Pure.

The driver writes most XIDs to the kernel log as well, with details that the event lacks (registers, processes). Where the log is read, an XID of an event
waits until the log was read HOLD_S after it, and is dropped if the log had or gets a line of that card and code within PAIR_S. If the log cannot be read, it
waits MOST_HOLD_S.
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hbox_common.health.records import card_of, pci_of
from hbox_common.health.report import NODE, Check
from hbox_common.model.bounds import ID_BYTES, INT64_MAX, is_plain

from .reports import Observation

XID, CORRECTED = 0x8, 0x1
#: Codes that the card's job caused: nothing of NVML's state changes.
USER_XIDS = frozenset({13, 31, 43, 45, 137})
#: Seconds for which an XID waits for its line, and between both. The log is read four times a second, by syslog(2) once.
HOLD_S, MOST_HOLD_S, PAIR_S = 1.0, 10.0, 5.0
#: Of the process: bytes of a line, and events that wait.
LINE_BYTES, MOST_EVENTS = 512, 1024


@dataclass(frozen=True, slots=True)
class NvmlEvent:
    type: int
    data: int
    uuid: str
    pci: str  #: without function; "": unknown
    gi: int | None = None
    ci: int | None = None

    @property
    def about_state(self) -> bool:
        """Whether NVML's state of the card changed, too."""
        return self.type != CORRECTED and not (self.type == XID and self.data in USER_XIDS)

    def observation(self, at: float) -> Observation:
        entity = f"gpu:{self.uuid or self.pci}" if self.uuid or self.pci else NODE
        instance: dict[str, Any] = {key: one for key, one in (("gi", self.gi), ("ci", self.ci)) if one is not None}
        if self.type == XID:
            value: dict[str, Any] = {"kind": "xid", "code": self.data, "pci": self.pci or None} | instance
            text = f"XID {self.data}, an event of NVML"
            return Observation(Check.NVML_EVENTS, entity, str(self.data), value, text, at, event=True)
        value = {"type": self.type, "data": self.data, "pci": self.pci or None} | instance
        text = f"event {self.type:#x} of NVML"
        return Observation(Check.NVML_EVENTS, entity, "event", value, text, at, event=True)


@dataclass(frozen=True, slots=True)
class Line:
    """One of them is set; all None: not a line of the program."""

    ready: tuple[int, int] | None = None  #: cards whose events are received, and those that support none
    beat: bool = False
    event: NvmlEvent | None = None
    problem: str | None = None

    @property
    def garbage(self) -> bool:
        return self == Line()


def line_of(raw: bytes) -> Line:
    """Never raises: the process calls a library of the driver, which may write anything."""
    try:
        fields = json.loads(raw) if len(raw) <= LINE_BYTES else None
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        return Line()
    if isinstance(problem := fields.get("problem"), str):
        return Line(problem=problem)
    if isinstance(ready := fields.get("ready"), dict):
        cards, refused = _number(ready.get("cards")), _number(ready.get("refused"))
        return Line() if cards is None or refused is None else Line(ready=(cards, refused))
    if _number(fields.get("beat")) is not None:
        return Line(beat=True)
    return Line(event=_event(fields["event"])) if isinstance(fields.get("event"), dict) else Line()


def _event(fields: Mapping[str, Any]) -> NvmlEvent | None:
    type_, data = _number(fields.get("type")), _number(fields.get("data"))
    if type_ is None or data is None:
        return None
    uuid, address = fields.get("uuid"), fields.get("pci")
    return NvmlEvent(
        type_,
        data,
        uuid if isinstance(uuid, str) and is_plain(uuid, ID_BYTES) else "",
        (pci_of(address, function=False) or "") if isinstance(address, str) else "",
        _number(fields.get("gi")),
        _number(fields.get("ci")),
    )


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT64_MAX else None


class Pairing:
    """`log`: whether the kernel log is read."""

    def __init__(self, *, log: bool) -> None:
        self._log = log
        self._waiting: deque[tuple[float, NvmlEvent]] = deque()
        self._lines: dict[tuple[str, int], float] = {}
        self._read_at = float("-inf")
        self.paired = 0  #: events that were dropped, since the log has their line

    def lines(self, records: Iterable[Mapping[str, Any]], now: float) -> None:
        """The log was read to its end, with these new records."""
        self._read_at = now
        for record in records:
            code = record.get("code")
            if record.get("kind", "xid") == "xid" and isinstance(code, int) and (card := card_of(record)):
                self._lines[card, code] = now
        for key in [key for key, at in self._lines.items() if now - at > PAIR_S]:
            del self._lines[key]

    def add(self, event: NvmlEvent, now: float) -> None:
        self._waiting.append((now, event))

    def due(self, now: float) -> list[tuple[float, NvmlEvent]]:
        """Events that are published now, with their times. Such of one card and code keep their order."""
        out: list[tuple[float, NvmlEvent]] = []
        kept: deque[tuple[float, NvmlEvent]] = deque()
        for at, event in self._waiting:
            line = self._lines.get((event.pci, event.data)) if event.type == XID else None
            if line is not None and abs(line - at) <= PAIR_S:
                self.paired += 1
            elif self._log and event.type == XID and self._read_at < at + HOLD_S and now < at + MOST_HOLD_S:
                kept.append((at, event))
            else:
                out.append((at, event))
        self._waiting = kept
        return out
