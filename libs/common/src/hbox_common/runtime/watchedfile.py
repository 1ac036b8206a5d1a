"""A file of rules: read at the start, and checked again while the service runs.

A mounted ConfigMap swaps a symlink and an editor may write a file in two steps, so content counts only if it is the same in two successive checks. Invalid
content changes nothing: the previous rules stay in force.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, NoReturn, TypeVar

from ..errors import InvalidRequest
from ..yamltext import MAX_SETTINGS_BYTES

log = logging.getLogger(__name__)

EVERY_S = 0.5

T = TypeVar("T")


class WatchedFile(Generic[T]):
    """`value` is in force; `problem`: why the present content is rejected; "" = it is in force."""

    def __init__(
        self,
        path: Path,
        parse: Callable[[str], T],
        *,
        setting: str,
        what: str,
        refused: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """`parse` raises InvalidRequest. `setting` names the file in errors, `what` describes its content, and `refused` is called with whether it is rejected.

        Raises InvalidRequest if the file cannot be read, or is invalid.
        """
        self._path, self._make, self._setting, self._what, self._refused = path, parse, setting, what, refused
        self._seen: bytes | str = self._read()
        self._judged = self._seen
        self.value = self._parse(self._seen)
        self.problem = ""

    async def watch(self, changed: Callable[[T], None]) -> NoReturn:
        """Call `changed` with each new value, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            if await asyncio.to_thread(self._look):
                changed(self.value)

    def _look(self) -> bool:
        """Whether there is a new value."""
        before, self._seen = self._seen, self._read()
        if self._seen != before or self._seen == self._judged:
            return False
        self._judged = self._seen
        try:
            value = self._parse(self._seen)
        except InvalidRequest as e:
            self.problem = str(e)
            self._refused(True)
            log.error("%s; what was in force stays so", self.problem)
            return False
        self.problem = ""
        self._refused(False)
        if value == self.value:
            return False
        self.value = value
        log.info("%s: new content is active", self._path)
        return True

    def _read(self) -> bytes | str:
        """The content, or why there is none."""
        try:
            with self._path.open("rb") as file:
                content = file.read(MAX_SETTINGS_BYTES + 1)
        except OSError as e:
            return e.strerror or str(e)
        return content if len(content) <= MAX_SETTINGS_BYTES else f"larger than {MAX_SETTINGS_BYTES >> 20} MiB"

    def _parse(self, content: bytes | str) -> T:
        try:
            if isinstance(content, str):
                raise InvalidRequest(f"cannot be read: {content}", hint=f"name {self._what}")
            return self._make(content.decode())
        except UnicodeDecodeError as e:
            raise InvalidRequest(f"{self._setting}: {self._path}: {e}", hint="it has to be YAML in UTF-8") from e
        except InvalidRequest as e:
            raise InvalidRequest(f"{self._setting}: {self._path}: {e.message}", hint=e.hint) from e
