"""Where graphs come from: one small interface, and the sources that are files."""

import asyncio
import errno
import gzip
import io
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from hbox_common.errors import InvalidRequest, Unavailable
from hbox_common.model.fabric import Snapshot

from ..core.fabric.ibnetdiscover import parse_ibnetdiscover
from ..core.fabric.lldp import snapshot_of

#: A file is looked at again after so long.
FILE_POLL_S = 5.0
MAX_TEXT = 512 << 20
MAX_MACHINE = 1 << 20
MAX_MACHINES = 50_000


@dataclass(frozen=True, slots=True)
class Reading:
    """`snapshot` None: nothing changed since the last one."""

    snapshot: Snapshot | None
    failovers: int = 0  #: of the fabric's manager, since the last reading
    downs: int = 0  #: links, nodes and switches that the manager has reported as down since
    at: float | None = None  #: when the fabric was seen so, seconds since the epoch; None = now


class Source(Protocol):
    """Something that knows how a fabric is cabled."""

    @property
    def kind(self) -> str: ...

    @property
    def poll_s(self) -> float: ...

    async def read(self) -> Reading:
        """Read the fabric. Raises Unavailable if a retry may help, InvalidRequest if the settings have to change."""
        ...

    def forget(self) -> None:
        """The next reading has a snapshot, whether anything changed or not."""
        ...

    async def close(self) -> None: ...


class IbnetdiscoverSource:
    """A file with the output of ibnetdiscover. Its modification time is the time of the reading."""

    kind = "ibnetdiscover"
    poll_s = FILE_POLL_S

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None

    async def read(self) -> Reading:
        return await asyncio.to_thread(self._read)

    def _read(self) -> Reading:
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_size)
            if seen == self._seen:
                return Reading(None, at=status.st_mtime)
            with _regular(self._path) as file:
                content = (gzip.GzipFile(fileobj=file) if self._path.suffix == ".gz" else file).read(MAX_TEXT + 1)
        except (OSError, EOFError) as e:
            raise Unavailable(f"{self._path}: {getattr(e, 'strerror', None) or e}") from e
        if len(content) > MAX_TEXT:
            raise InvalidRequest(f"{self._path} has more than {MAX_TEXT >> 20} MiB of text")
        try:
            snapshot = parse_ibnetdiscover(io.StringIO(content.decode("utf-8", errors="replace")))
        except InvalidRequest as e:
            raise InvalidRequest(f"{self._path}: {e.message}", hint=e.hint) from e
        self._seen = seen
        return Reading(snapshot, at=status.st_mtime)

    def forget(self) -> None:
        self._seen = None

    async def close(self) -> None:
        pass


class LldpSource:
    """A folder of <machine>.json, each the output of `lldpcli -f json show neighbors` on that machine."""

    kind = "lldp"
    poll_s = FILE_POLL_S

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: Mapping[str, int] | None = None

    async def read(self) -> Reading:
        return await asyncio.to_thread(self._read)

    def _read(self) -> Reading:
        try:
            files = sorted(islice(self._path.glob("*.json"), MAX_MACHINES))
            seen = {path.name: path.stat().st_mtime_ns for path in files}
            if seen == self._seen:
                return Reading(None)
            snapshot = snapshot_of((path.stem, _document(path)) for path in files)
        except OSError as e:
            raise Unavailable(f"{self._path}: {e.strerror or e}") from e
        self._seen = seen
        return Reading(snapshot)

    def forget(self) -> None:
        self._seen = None

    async def close(self) -> None:
        pass


def _regular(path: Path) -> BinaryIO:
    """The file, opened. A pipe in its place, which would keep us waiting for ever, raises OSError."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "is no file", str(path))
    return file


def _document(path: Path) -> Any:
    """The file's JSON; None if it is malformed. The machine is then left out, with a warning."""
    with _regular(path) as file:
        content = file.read(MAX_MACHINE + 1)
    try:
        return json.loads(content) if len(content) <= MAX_MACHINE else None
    except (ValueError, RecursionError):
        return None
