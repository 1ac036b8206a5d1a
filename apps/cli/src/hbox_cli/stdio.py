"""Standard output and error that are written whole, whatever whoever gave them to us has done to them, and that show what tenants wrote as text.

This is the one place where what a terminal would obey is taken out of names, messages and Events (`hbox_common.visible`). Our own colours stay, and our
progress bars, which write to `uncensored`.

A pipe that we share with a program that works without blocking (a parent's event loop, `ssh`, a test harness) may be O_NONBLOCK: the flag belongs to
the open file, not to our end of it. Python then loses what did not fit and raises BlockingIOError; 2 MiB of JSON end after the first 128 KiB. Clearing
the flag would block that other program instead, so we wait until there is room.
"""

import atexit
import io
import os
import re
import select
import sys
from typing import TYPE_CHECKING, Any, TextIO

from hbox_common.redaction import redacted
from hbox_common.visible import visible_lines

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class ReaderGone(Exception):
    """Nobody reads standard output any more (`hbox jobs | head`)."""


#: Of `Output.coloured`. Whoever writes these into a name gets a coloured name.
COLOURS = ("\x1b[31m", "\x1b[32m", "\x1b[0m")
_OURS = re.compile("(" + "|".join(map(re.escape, COLOURS)) + ")")


class _Patient(io.RawIOBase):
    """A file descriptor; each write takes something, or waits. Raises ReaderGone."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def writable(self) -> bool:
        return True

    def write(self, data: "ReadableBuffer", /) -> int:
        while True:
            try:
                return os.write(self._fd, data)
            except BlockingIOError:
                select.select([], [self._fd], [])
            except BrokenPipeError as e:
                raise ReaderGone from e


class _Shown(io.TextIOWrapper):
    """Text that may be anybody's, and hold addresses with passwords. `bare`: the file below."""

    bare: TextIO

    def write(self, text: str, /) -> int:
        text = redacted(text)
        parts = _OURS.split(text) if "\x1b" in text else [text]
        return super().write("".join([part if part in COLOURS else visible_lines(part) for part in parts]))


def uncensored(stream: TextIO) -> TextIO:
    """The same file, for what moves the cursor on purpose, and holds no text of anybody else's."""
    return getattr(stream, "bare", stream)


def take_over() -> None:
    """Replaces sys.stdout and sys.stderr, where they are files of the system. Lines of the latter are seen at once, as Python has it."""
    sys.stdout = _patient(sys.stdout, by_line=False)
    sys.stderr = _patient(sys.stderr, by_line=True)
    atexit.register(_let_go)


def _let_go() -> None:
    """Messages that nobody can be told any more do not change the exit status, as Python would have it."""
    try:
        sys.stderr.flush()
    except (OSError, ReaderGone):
        sys.stderr = None


def _errors(stream: TextIO) -> str | None:
    """What an encoding has no sign for, as Latin 1 for our bars and UTF-8 for names of files that are none, is written as `\\u2588`: no reason to fail."""
    return "backslashreplace" if stream.errors == "strict" else stream.errors


def _patient(stream: TextIO, *, by_line: bool) -> TextIO:
    try:
        fd = stream.fileno()
    except (AttributeError, OSError, ValueError):  # closed at our start, or replaced by a test's
        return stream
    stream.flush()
    whole = io.BufferedWriter(_Patient(fd), 65_536)
    told: dict[str, Any] = {"encoding": stream.encoding, "errors": _errors(stream), "line_buffering": by_line or os.isatty(fd)}
    shown = _Shown(whole, **told)
    shown.bare = io.TextIOWrapper(whole, **told)
    return shown
