"""The kernel's log as raw records: /dev/kmsg of the node, or, of an emulated node, a file of records, one a line.

Container runtimes let only privileged containers open /dev/kmsg, also where it is mounted. The system call syslog(2) needs CAP_SYSLOG and no device: where the
device cannot be opened, the log is read by it. Its lines have priorities, with the facility, and times, but no sequence numbers.
"""

import ctypes
import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from hbox_common.clock import monotonic_s
from hbox_common.errors import Unavailable

#: Larger than any record of the kernel, which refuses smaller buffers with EINVAL.
_RECORD_BYTES = 16 * 1024
#: Of a file, at once; a record that is longer is skipped.
_FILE_BYTES = 256 * 1024
#: The mark that `hbox_common.health.lines` takes for overwritten records.
OVERWRITTEN = "!EPIPE"
KMSG = Path("/dev/kmsg")
#: Sequence numbers from here on are made of times; the kernel's own are below.
MADE = 2**52
#: Records of one microsecond with numbers of their own.
_AT_ONCE = 1000
#: Seconds between two calls, each of which copies the whole ring.
_CALL_S = 1.0
#: Actions of syslog(2).
_READ_ALL, _SIZE_BUFFER = 3, 10
_LINE = re.compile(rb"<(\d{1,10})>\[ *(\d{1,9})\.(\d{6})\](?:\[[^\]]{0,16}\])? (.*)", re.DOTALL)


class KernelRecords:
    """Records from the start of the boot on: the device begins with the oldest that the kernel still has. Never blocks. `emulated`: without a file there
    are no records, and another file is that of another boot."""

    def __init__(self, path: Path, *, emulated: bool = False) -> None:
        self._path, self._emulated = path, emulated
        self._fd: int | None = None
        self._device = False
        self._inode = 0
        self._rest = b""
        self._syslog: SystemCallRecords | None = None

    def new(self) -> Iterator[str]:
        """The records since the last call. Raises Unavailable, with the missing right or file."""
        if self._syslog is not None:
            yield from self._syslog.new()
            return
        if self._emulated and self._fd is None and not self._path.exists():
            return
        try:
            fd = self._opened()
        except Unavailable as e:
            if self._path != KMSG:
                raise
            syslog = SystemCallRecords(e)
            yield from syslog.new()
            self._syslog = syslog
            return
        yield from self._of_device(fd) if self._device else self._of_file(fd)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd, self._rest = None, b""

    def _opened(self) -> int:
        if self._fd is None:
            try:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as e:
                raise Unavailable(f"{self._path}: {e.strerror}", hint=_HINT) from e
            found = os.fstat(self._fd)
            self._device, self._inode = stat.S_ISCHR(found.st_mode), found.st_ino
        return self._fd

    def _of_device(self, fd: int) -> Iterator[str]:
        while True:
            try:
                record = os.read(fd, _RECORD_BYTES)
            except BlockingIOError:
                return
            except OSError as e:
                if e.errno == errno.EPIPE:
                    yield OVERWRITTEN
                    continue
                self.close()
                raise Unavailable(f"{self._path}: {e.strerror}", hint=_HINT) from e
            if not record:
                return
            yield record.decode(errors="replace")

    def _of_file(self, fd: int) -> Iterator[str]:
        try:
            replaced = self._path.stat().st_ino != self._inode
        except OSError:
            replaced = True
        if replaced and self._emulated:
            return  # another boot has a log of its own
        if replaced or os.fstat(fd).st_size < os.lseek(fd, 0, os.SEEK_CUR):
            self.close()
            yield OVERWRITTEN
            fd = self._opened()
        while part := os.read(fd, _FILE_BYTES):
            *lines, self._rest = (self._rest + part).split(b"\n")
            if len(self._rest) > _FILE_BYTES:
                self._rest = b""
            for line in lines:
                yield line.decode(errors="replace")


class SystemCallRecords:
    """Records by syslog(2), with sequence numbers made of their times: the same for the same record after a restart. `refused`: why not by
    the device."""

    def __init__(self, refused: Unavailable) -> None:
        self._refused = refused
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._last = -1
        self._text = b""
        self._called_at = -_CALL_S

    def new(self) -> Iterator[str]:
        if monotonic_s() - self._called_at < _CALL_S:
            return
        self._called_at = monotonic_s()
        size = self._libc.klogctl(_SIZE_BUFFER, None, 0)
        buffer = ctypes.create_string_buffer(max(size, 1))
        read = self._libc.klogctl(_READ_ALL, buffer, size)
        if size < 0 or read < 0:
            raise self._refused
        text = buffer.raw[:read]
        if text != self._text:
            self._text = text
            yield from self.records(text)

    def records(self, text: bytes) -> Iterator[str]:
        """Raw records of the ring's lines that are newer than those of the last call."""
        found: list[tuple[int, bytes, bytes]] = []
        usec = place = -1
        for line in text.split(b"\n"):
            if (match := _LINE.match(line)) is None:
                continue
            at = int(match[2]) * 10**6 + int(match[3])
            usec, place = at, place + 1 if at == usec else 0
            found.append((MADE + at * _AT_ONCE + min(place, _AT_ONCE - 1), match[1], match[4]))
        if found and 0 <= self._last < found[0][0]:
            yield OVERWRITTEN
        for seq, priority, message in found:
            if seq > self._last:
                self._last = seq
                yield f"{priority.decode()},{seq},{(seq - MADE) // _AT_ONCE},-;{message.decode(errors='replace')}"


_HINT = "the chart gives the container CAP_SYSLOG with services.node-agent.kernelLog.enabled"
