"""Reload of credentials, authorities and API server addresses whose files are renewed while a service runs.

Kubelet renews the authorities of a service account, cert-manager renews client certificates, people edit kubeconfigs. So the files are checked on use, at most
once a second, and read if they changed. If an API server rejects our credentials (401), or its certificate is not trusted, the files are read again
unconditionally: an exec plugin is called again, and a change between reading and checking is found. If the new content cannot be used, such as a file half
written or a key that does not match its certificate, the previous content stays in use. Tokens are handled by `token_file`.
"""

import logging
from pathlib import Path

from hbox_common.clock import Clock, monotonic_s
from hbox_common.errors import HBoxError

from .access import Access, find_access

log = logging.getLogger(__name__)

LOOK_S = 1.0
#: Between two readings of files that have not changed, while the server refuses us.
REFUSED_S = 10.0

_Version = tuple[tuple[int, int, int] | None, ...]


class Renewal:
    """`access`, found by `find_access(kubeconfig)`, for as long as it is good."""

    def __init__(self, kubeconfig: str | None, access: Access, *, clock: Clock = monotonic_s) -> None:
        self._kubeconfig, self._access, self._clock = kubeconfig, access, clock
        self._seen: _Version | None = _version(access.files)
        self._look_at = clock() + LOOK_S
        self._read_at = float("-inf")
        self._refused = self._reading = False
        self._problem = ""

    def refused(self) -> None:
        """The server does not know us (any more), or we do not know it."""
        if self._clock() >= self._read_at + REFUSED_S:
            self._refused = True

    async def access(self) -> Access:
        """Access according to the files; a new object if their content changed."""
        now = self._clock()
        if self._reading or (now < self._look_at and not self._refused):
            return self._access
        self._look_at = now + LOOK_S
        version = _version(self._access.files)
        if version == self._seen and not self._refused:
            return self._access
        self._reading, self._refused, self._read_at = True, False, now
        try:
            access = await find_access(self._kubeconfig)
        except HBoxError as e:
            if str(e) != self._problem:
                self._problem = str(e)
                log.warning("%s; what was read before stays in use", e)
            return self._access
        finally:
            self._reading = False
        if version != self._seen or self._problem:
            log.info("credentials and authorities for the Kubernetes API were read anew")
        # Files that were not checked before may have changed meanwhile: they are read once more.
        self._seen = version if access.files == self._access.files else None
        self._access, self._problem = access, ""
        return access


def _version(files: tuple[Path, ...]) -> _Version:
    return tuple(_stat(file) for file in files)


def _stat(file: Path) -> tuple[int, int, int] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
