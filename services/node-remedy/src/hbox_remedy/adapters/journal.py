"""The journal of remedies: a file of lines in JSON, by which each decision is executed at most once.

The line about a beginning is on the disk before the remedy changes anything. A kill leaves either no line, and nothing was changed, or a beginning without an
end: the remedy was interrupted, or it was the reboot. One process at a time has the journal open.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.model.remedy import Decision

from ..core.plan import Ended

#: Entries are kept for so long: no decision is valid that long, and no limit counts further back.
KEPT_S = 60 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Entry:
    decision: Decision
    boot_id: str
    at: float  #: of its beginning or, if it did not begin, of its refusal; seconds since the epoch
    begun: bool = True
    restore: tuple[tuple[str, ...], ...] = ()  #: commands to execute after it, in any case
    ended: Ended | None = None
    ended_at: float = 0.0
    published: bool = False  #: its end


_ENTRY, _ENDED = TypeAdapter(Entry), TypeAdapter(Ended)


class Journal:
    def __init__(self, folder: Path, *, now: float) -> None:
        """Raises InvalidRequest if the file is not readable as a journal, Unavailable if another process has it open or the folder cannot be written."""
        self._path, self._entries = folder / "journal.jsonl", dict[str, Entry]()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            content = self._path.read_bytes() if self._path.exists() else b""
            whole = content[: content.rfind(b"\n") + 1]  # what a kill left of a line is dropped: its remedy did not begin
            for number, line in enumerate(whole.splitlines(), 1):
                self._take(number, line)
            kept = {id: entry for id, entry in self._entries.items() if entry.at >= now - KEPT_S or entry.ended is None}
            if len(whole) != len(content) or len(kept) != len(self._entries):
                self._entries = kept
                new = self._path.with_suffix(".new")
                new.write_bytes(b"".join(_line(entry=asdict(entry)) for entry in kept.values()))
                _sync(new)
                new.replace(self._path)
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._size = os.fstat(self._file).st_size
            _sync(folder)
        except OSError as e:
            raise Unavailable(f"the journal {self._path} cannot be opened: {e.strerror}") from e

    def close(self) -> None:
        os.close(self._file)
        os.close(self._lock)

    def __getitem__(self, id: str) -> Entry:
        return self._entries[id]

    def __contains__(self, id: str) -> bool:
        return id in self._entries

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def add(self, entry: Entry) -> None:
        """Raises Unavailable if the entry is not on the disk: then the remedy must not begin. An entry that has ended counts in memory all the same."""
        if entry.ended is not None:
            self._entries[entry.decision.id] = entry
        self._write(_line(entry=asdict(entry)))
        self._entries[entry.decision.id] = entry

    def end(self, id: str, ended: Ended, *, at: float) -> None:
        """Raises Unavailable; the end counts in memory all the same."""
        self._entries[id] = replace(self._entries[id], ended=ended, ended_at=at)
        self._write(_line(end=id, ended=asdict(ended), at=at))

    def published(self, id: str) -> None:
        """As `end`."""
        self._entries[id] = replace(self._entries[id], published=True)
        self._write(_line(published=id))

    def _write(self, line: bytes) -> None:
        try:
            if os.write(self._file, line) != len(line):
                raise OSError(0, "no space left")
            os.fsync(self._file)
        except OSError as e:
            try:
                os.ftruncate(self._file, self._size)
            except OSError:
                pass  # the next start drops a line without its end
            raise Unavailable(f"the journal {self._path} cannot be written: {e.strerror}") from e
        self._size += len(line)

    def _take(self, number: int, line: bytes) -> None:
        try:
            match json.loads(line):
                case {"entry": values}:
                    entry = _ENTRY.validate_python(values)
                    self._entries[entry.decision.id] = entry
                case {"end": str(id), "ended": values, "at": float(at)}:
                    self._entries[id] = replace(self._entries[id], ended=_ENDED.validate_python(values), ended_at=at)
                case {"published": str(id)}:
                    self._entries[id] = replace(self._entries[id], published=True)
                case _:
                    raise ValueError("no line of a journal")
        except (ValueError, KeyError) as e:
            raise InvalidRequest(
                f"line {number} of the journal {self._path} cannot be read: {e}",
                hint="check which remedies were executed, then move the file away",
            ) from e


def _line(**content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
