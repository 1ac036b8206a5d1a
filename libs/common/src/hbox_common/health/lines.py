"""Kernel messages as records: from /dev/kmsg, from dmesg, from a syslog file or the journal.

Only the kernel counts. Of /dev/kmsg that is facility 0: anything that may open the device can write "NVRM: Xid" with another facility. Of text it is the
tag `kernel:`, the facility `kern` of `dmesg -x`, or no tag. A message counts by how it begins, so quoted text (the name of a process, the command of an audit
record) is never an event.
"""

import json
import re
from calendar import timegm
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from . import kernelevents
from .records import Record, pci_of, same_card
from .sxid import parse_sxid
from .xid import parse_xid

#: A message without any of these is no event: the check that the reader of a busy log pays for each line.
MARKS = (
    "NVRM: ",
    "SXid (",
    "mlx5_core ",
    "AER: ",
    "PCIe Bus Error",
    "Hardware Error]",
    "BERT: ",
    "read-only",
    "readonly",
    "hutting down filesystem",
    "been shut down",
    "Killed process ",
    "blocked for more than ",
    "segfault at ",
    "traps: ",
    "nvidia-uvm: ",
)
_LONGEST = 4096  #: characters of a message; the kernel's own limit is below

_RAW = re.compile(r"(\d{1,10}),(\d{1,20}),(\d{1,20}),([^,;]{0,8})(?:,[^;]{0,64})?;(.*)", re.DOTALL)
_PREFIX = re.compile(
    r"""
      <(?P<priority>\d{1,4})>(?:1\s+)?\s*              # 1: the version of RFC 5424
    | (?P<facility>[a-z0-9]+)\s*:(?P<level>[a-z]+)\s*:\s+
    | \[\s*(?P<uptime>\d+\.\d+)(?:\s+<\s*\d+\.\d+>)?\]\s*
    | \[(?P<date>\w{3}\s+\w{3}\s+\d+\s+\d\d:\d\d:\d\d\s+\d{4})(?:\s+<\s*\d+\.\d+>)?\]\s*
    | \[(?:\s*\+\d+\.\d+|\w{3}\s*\d+\s\d\d:\d\d)\]\s*
    | \[\s*[TC]\d+\]\s*
    | (?:\w{3}\s)?(?P<iso>\d{4}-\d\d-\d\d[T\s]\d\d:\d\d:\d\d)(?P<part>[.,]\d+)?(?P<zone>Z|\s?[+-]\d\d:?\d\d|\s[A-Z]{3,4})?\s+
    | (?P<epoch>\d{9,10}\.\d{6})\s+
    | (?P<syslog>\w{3}\s+\d+\s\d\d:\d\d:\d\d)(?:\.\d+)?\s+
    | (?:[^\s:\[]+\s)?kernel(?:\[\d+\])?:\s+
    | [^\s:\[]+\skernel\s-\s(?:-|\w+)\s(?:-|\[[^\]]*\])\s+
    """,
    re.VERBOSE,
)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")  #: of dmesg
_LOST_HEAD = re.compile(r"NVRM: The NVIDIA GPU ([0-9a-fA-F:.]{7,20})(?:\s|$)")
_LOST_TAIL = "NVRM: fallen off the bus and is not responding to commands."


@dataclass(slots=True)
class KernelLog:
    """Reads messages in order. A record is returned once no further line can belong to it; `flush` returns what is left."""

    _seq: int = -1  #: of the last raw record
    _overwritten: bool = False
    _losing: str | None = None  #: the card of a lost-card message whose end has not come yet
    _previous_boot: bool = False
    _held: Record | None = field(default=None)  #: a record that the next line may extend

    def raw(self, record: str) -> list[Record]:
        """One record of /dev/kmsg. `!EPIPE` states that the kernel overwrote records before they were read."""
        if record.startswith("!EPIPE"):
            self._overwritten = True
            return []
        found = _RAW.match(record[: 2 * _LONGEST])
        if found is None:
            return []  # a continuation line: a dictionary of the record before
        seq = int(found[2])
        out = self._gap(seq)
        self._seq = seq
        if int(found[1]) >> 3 != 0:
            return out
        text = found[5].partition("\n")[0]
        if not any(word in text for word in MARKS):
            return out + (self.flush() if self._held else [])
        stamp: Record = {"seq": seq, "at": int(found[3]) / 1e6}
        lines = text.replace("\\x0a", "\n").split("\n")
        # Only a lost card is a message of several lines. In any other, a line break comes from quoted text.
        if len(lines) > 1 and _LOST_HEAD.match(lines[0]):
            return out + [r for line in lines for r in self._message(line, stamp)]
        return out + self._message(lines[0], stamp)

    def _gap(self, seq: int) -> list[Record]:
        if not self._overwritten:
            return []
        self._overwritten = False
        lost: Record = {"kind": "records-lost", "to": seq - 1}
        return [{"kind": "records-lost", "from": self._seq + 1, "to": seq - 1}] if 0 <= self._seq < seq else [lost]

    def line(self, line: str) -> list[Record]:
        """One line of text, with any prefix."""
        if not any(word in line for word in MARKS):
            return self.flush() if self._held else []
        line = line[:_LONGEST].rstrip("\r\n")
        if "\x1b" in line:
            line = _COLOUR.sub("", line)
        if line.startswith(('{"', '{ "')):
            text, at = _journal_entry(line)
        else:
            text, at = _without_prefix(line)
        if text is None:
            return []
        return self._message(text, {} if at is None else {"at": at})

    def flush(self) -> list[Record]:
        held, self._held = self._held, None
        return [held] if held else []

    def _message(self, text: str, stamp: Record) -> list[Record]:
        text = text[:_LONGEST]
        if self._held is not None and self._extends(self._held, text):
            return []
        record = self._parse(text)
        if record is None:
            return self.flush()
        record |= stamp
        out = self.flush()
        if record["kind"] in {"sxid", "sxid-detail", "cper"} or (record["kind"] == "aer" and "driver" not in record):
            self._held = record
            return out
        return [*out, record]

    def _extends(self, held: Record, text: str) -> bool:
        """Whether the text is a further line of the record that is held."""
        if held["kind"] == "cper":
            return kernelevents.extend_cper(held, text)
        if held["kind"] == "aer":
            error = kernelevents.aer_error(text)
            if error is None or not same_card(error, held) or error["severity"] != held["severity"]:
                return False
            held.update({k: v for k, v in error.items() if k != "count"})
            return True
        detail = parse_sxid(text)
        if detail is None or detail["kind"] != "sxid-detail" or held["kind"] != "sxid":
            return False
        if (detail["switch"], detail["code"]) != (held["switch"], held["code"]):
            return False
        held.update({k: v for k, v in detail.items() if k == "severity_number"})
        return True

    def _parse(self, text: str) -> Record | None:
        if text.startswith("NVRM: "):
            return self._driver(text)
        if sxid := parse_sxid(text):
            return self._switch(sxid)
        if kernelevents.boot_error(text):
            self._previous_boot = True
            return None
        return kernelevents.cper(text, previous_boot=self._previous_boot) or kernelevents.aer_received(text) or _other(text)

    def _driver(self, text: str) -> Record | None:
        if head := _LOST_HEAD.match(text):
            self._losing = head[1]
            return None
        if text.startswith(_LOST_TAIL):
            pci, self._losing = pci_of(self._losing or ""), None
            return {"kind": "gpu-lost"} | ({"pci": pci} if pci else {})
        return parse_xid(text) or _other(text)

    def _switch(self, record: Record) -> Record:
        """The event takes the details that came before it."""
        held = self._held
        if held is None or (held["kind"], record["kind"]) != ("sxid-detail", "sxid"):
            return record
        if (held["switch"], held["code"]) != (record["switch"], record["code"]):
            return record
        self._held = None
        return {**{k: v for k, v in held.items() if k == "severity_number"}, **record}


def _other(text: str) -> Record | None:
    for word, parsers in kernelevents.PARSERS:
        if word in text:
            for parse in parsers:
                if record := parse(text):
                    return record
    return None


def _without_prefix(line: str) -> tuple[str | None, float | None]:
    """The message without date, host, tag, level and thread, and its time; None if its facility is not the kernel's. The host and tag of a program remain, so
    that no event begins there."""
    at: float | None = None
    position = 0
    while found := _PREFIX.match(line, position):
        parts = found.groupdict()
        if parts["priority"] is not None and int(parts["priority"]) >> 3 != 0:
            return None, None
        if parts["facility"] is not None and parts["facility"] != "kern":
            return None, None
        at = _time(parts) if at is None or parts["uptime"] is not None else at
        position = found.end()
    return line[position:], at


def _time(parts: dict[str, str | None]) -> float | None:
    """Seconds from the boot, or from the epoch: only differences within one log count."""
    try:
        if seconds := parts["uptime"] or parts["epoch"]:
            return float(seconds)
        if parts["date"] is not None:
            return float(
                timegm(
                    datetime.strptime(" ".join(parts["date"].split()), "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC).timetuple()
                )
            )
        if parts["iso"] is not None:
            return datetime.fromisoformat(parts["iso"]).replace(tzinfo=UTC).timestamp() + float(
                (parts["part"] or "0").replace(",", ".")
            )
        if parts["syslog"] is not None:
            day = datetime.strptime("2000 " + " ".join(parts["syslog"].split()), "%Y %b %d %H:%M:%S").replace(tzinfo=UTC)
            return day.timestamp()
    except ValueError:
        pass  # a date that no calendar has; the message may still be an event
    return None


def _journal_entry(line: str) -> tuple[str | None, float | None]:
    """Message and time of one entry of `journalctl -o json`, if the kernel wrote it. The identifier proves nothing: any program may choose it."""
    try:
        entry: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(entry, dict) or entry.get("_TRANSPORT") != "kernel" or not isinstance(entry.get("MESSAGE"), str):
        return None, None
    if str(entry.get("SYSLOG_FACILITY", "0")) != "0":
        return None, None
    stamp = entry.get("_SOURCE_MONOTONIC_TIMESTAMP", entry.get("__MONOTONIC_TIMESTAMP"))
    at = int(stamp) / 1e6 if isinstance(stamp, str) and stamp.isascii() and stamp.isdigit() and len(stamp) < 20 else None
    return entry["MESSAGE"].partition("\n")[0], at


def read_text(text: str) -> list[Record]:
    """All records of a log as text; each with the number of its `line`."""
    return _read(text, KernelLog().line)


def read_raw(text: str) -> list[Record]:
    """All records of raw records as text, one a line; each with the number of its `line`."""
    return _read(text, KernelLog().raw)


def _read(text: str, feed: Any) -> list[Record]:
    out: list[Record] = []
    number = 0
    for number, line in enumerate(text.split("\n"), start=1):
        out += [{**record, "line": number} for record in feed(line)]
    return out + [{**record, "line": number} for record in feed.__self__.flush()]
