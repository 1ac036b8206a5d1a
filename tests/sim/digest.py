"""The digest of a run: a hash of all messages, writes and commits with their times."""

from hashlib import blake2b
from typing import IO

from .loop import VirtualLoop


class Digest:
    """`trace`: a file that gets a line for each part, to compare two runs by."""

    def __init__(self, loop: VirtualLoop, trace: IO[str] | None = None) -> None:
        self._loop, self._trace = loop, trace
        self._hash = blake2b(digest_size=16)
        self.count = 0

    def add(self, *parts: object) -> None:
        """Parts have a `repr` that depends on their content alone."""
        line = f"{self._loop.now:.7f} {parts!r}\n"
        self.count += 1
        self._hash.update(line.encode())
        if self._trace is not None:
            self._trace.write(line)

    def hex(self) -> str:
        return self._hash.hexdigest()
