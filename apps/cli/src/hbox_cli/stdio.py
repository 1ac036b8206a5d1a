"""Standard output and error that write everything, also to a non-blocking file, and that show control characters of tenants as text.

This is the only place that makes control characters in names, messages and Events visible (`hbox_common.visible`). HBox's own colours stay, and so do its
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
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from hbox_common.redaction import redacted
from hbox_common.visible import visible_lines

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class ReaderGone(Exception):
    """The reader closed standard output (`hbox jobs | head`)."""


#: Of `Output.coloured`. A name that contains these is printed in colour.
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


def flush_data() -> None:
    """Write the data so far, if standard output accepts it: messages that share its pipe or file then follow it."""
    if sys.stdout is None:  # closed by the caller (`hbox jobs >&-`)
        return
    with suppress(OSError, ReaderGone):
        sys.stdout.flush()


def take_over() -> None:
    """Replaces sys.stdout and sys.stderr, where they are files of the system. Lines of the latter are seen at once, as Python has it."""
    sys.stdout = _patient(sys.stdout, by_line=False)
    sys.stderr = _patient(sys.stderr, by_line=True)
    atexit.register(_let_go)


def _let_go() -> None:
    """Discard messages to a closed standard error, so that Python's own exit handling does not change the exit status."""
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
    options: dict[str, Any] = {
        "encoding": stream.encoding,
        "errors": _errors(stream),
        "line_buffering": by_line or os.isatty(fd),
    }
    shown = _Shown(whole, **options)
    shown.bare = io.TextIOWrapper(whole, **options)
    return shown
