"""The kernel's log as raw records: /dev/kmsg of the node, or, of an emulated node, a file of records, one a line."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from hbox_common.errors import Unavailable

#: Larger than any record of the kernel, which refuses smaller buffers with EINVAL.
_RECORD_BYTES = 16 * 1024
#: Of a file, at once; a record that is longer is skipped.
_FILE_BYTES = 256 * 1024
#: The mark that `hbox_common.health.lines` takes for overwritten records.
OVERWRITTEN = "!EPIPE"


class KernelRecords:
    """Records from the start of the boot on: the device begins with the oldest that the kernel still has. Never blocks. `emulated`: without a file there
    are no records, and another file is that of another boot."""

    def __init__(self, path: Path, *, emulated: bool = False) -> None:
        self._path, self._emulated = path, emulated
        self._fd: int | None = None
        self._device = False
        self._inode = 0
        self._rest = b""

    def new(self) -> Iterator[str]:
        """The records since the last call. Raises Unavailable, with the missing right or file."""
        if self._emulated and self._fd is None and not self._path.exists():
            return
        fd = self._opened()
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
                raise Unavailable(f"{self._path}: {e.strerror}", hint=_HINTS.get(e.errno or 0, "")) from e
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
                raise Unavailable(f"{self._path}: {e.strerror}", hint=_HINTS.get(e.errno or 0, "")) from e
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


_HINTS = {
    errno.EPERM: "the container may not open the device, or has no CAP_SYSLOG while kernel.dmesg_restrict is 1",
    errno.EACCES: "the file is not readable for this user",
    errno.ENOENT: "the device is not in the container: the chart mounts it with services.node-agent.kernelLog.enabled",
}
