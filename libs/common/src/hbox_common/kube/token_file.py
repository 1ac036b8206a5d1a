"""Tokens that another process renews in a file: a kubeconfig's `tokenFile`.

The official client reads the file once, when it loads the kubeconfig, and keeps using a token that expires. Here the file is checked before each request (a
stat, two microseconds) and read if it changed, so that a renewed token is used at once.
"""

from pathlib import Path
from typing import Any

from hbox_common.errors import InvalidRequest
from hbox_common.yamltext import settings_of


class TokenFile:
    """A bearer token in a file. Raises InvalidRequest when there is none at the start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: tuple[int, int, int] | None = None
        self._token = ""
        try:
            self._read()
        except OSError as e:
            raise InvalidRequest(f"token file {path}: {e.strerror}", hint="name a tokenFile that exists and may be read") from e
        if not self._token:
            raise InvalidRequest(f"token file {path} is empty", hint="the process that renews the token has to write it first")

    async def authorize(self, headers: dict[str, str]) -> None:
        """Adds the token as it is in the file now. A file that is away or empty leaves the last one in use: it may still be good."""
        try:
            self._read()
        except OSError:
            pass
        headers["Authorization"] = f"Bearer {self._token}"

    def _read(self) -> None:
        stat = self._path.stat()
        version = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if version != self._version:
            self._token = self._path.read_text().strip() or self._token
            self._version = version


def token_file_of(kubeconfig: str) -> TokenFile | None:
    """The `tokenFile` of the current context's user, which takes precedence over a `token`, as with kubectl; None if there is none.

    Relative paths are relative to the kubeconfig. Expects a kubeconfig that could be loaded. Raises InvalidRequest as `TokenFile`.
    """
    path = Path(kubeconfig).expanduser()
    content: dict[str, Any] = settings_of(path)
    contexts = {entry["name"]: entry["context"] for entry in content.get("contexts") or ()}
    users = {entry["name"]: entry.get("user") or {} for entry in content.get("users") or ()}
    user = users.get((contexts.get(content.get("current-context")) or {}).get("user")) or {}
    named = user.get("tokenFile")
    return TokenFile(path.parent / Path(named).expanduser()) if named else None
