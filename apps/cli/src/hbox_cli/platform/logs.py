"""The services' log files, followed: warnings and errors become short lines for the person at the terminal."""

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from hbox_common.visible import visible

_POLL_S = 0.3
_MOST_BYTES = 2**20

#: Seconds before the same message of the same service is printed again.
_REPEAT_S = 10.0

_LOUD = ("warning", "error", "critical")


async def follow(logs: Mapping[str, Path], notify: Callable[[str], None], *, calm: Callable[[], bool]) -> None:
    """Print new errors and warnings of the log files until cancelled; warnings only while `calm()`: at the start the services wait for each other."""
    loop = asyncio.get_running_loop()
    offsets = {name: _size(path) for name, path in logs.items()}
    printed: dict[tuple[str, str], float] = {}
    while True:
        await asyncio.sleep(_POLL_S)
        for name, path in logs.items():
            text, offsets[name] = _read(path, offsets[name])
            for line in text.splitlines():
                found = parse(line)
                if found.level not in _LOUD or (found.level == "warning" and not calm()):
                    continue
                # Digits differ from one repetition to the next; the sentence is what repeats.
                key = (name, "".join(c for c in found.message if not c.isdigit()))
                if loop.time() - printed.get(key, float("-inf")) >= _REPEAT_S:
                    printed[key] = loop.time()
                    notify(visible(f"{name}: {found.level}: {found}"))


class Line(NamedTuple):
    """One line of a log; the level is empty if the line is no record."""

    level: str
    message: str
    hint: str = ""  #: what to do about it

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


def last_error(path: Path, since: int) -> Line:
    """Why a process ended, by the end of its log, from byte `since` on: its last error, else its last line; empty for none."""
    text, _ = _read(path, max(since, _size(path) - _MOST_BYTES))
    parsed = [parse(line) for line in text.splitlines() if line.strip()]
    for level in ("critical", "error"):
        for found in reversed(parsed):
            if found.level == level:
                return found
    return parsed[-1] if parsed else Line("", "")


def parse(line: str) -> Line:
    """A JSON record, the head of a Go program's stack, or any other text."""
    if line.startswith("panic: "):
        return Line("critical", line)
    if line.startswith("{"):
        try:
            record = json.loads(line)
            message = str(record["message"] if "message" in record else record["msg"])
            return Line(str(record["level"]).lower(), message, str(record.get("hint", "")))
        except (ValueError, KeyError, RecursionError):
            pass
    return Line("", line.strip())


def _read(path: Path, offset: int) -> tuple[str, int]:
    """Whole lines from `offset` on, and the offset of their end; from the beginning if the file was truncated. At most a MiB at a time, so that many logs do
    not delay the supervisor. Each MiB of a longer line counts as a line."""
    try:
        with path.open("rb") as file:
            if offset > file.seek(0, os.SEEK_END):
                offset = 0
            file.seek(offset)
            raw = file.read(_MOST_BYTES)
    except OSError:
        return "", offset
    end = raw.rfind(b"\n") + 1
    if len(raw) == _MOST_BYTES:
        end = end or len(raw)
    return raw[:end].decode("utf-8", "replace"), offset + end


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
