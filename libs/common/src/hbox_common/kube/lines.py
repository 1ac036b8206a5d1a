"""Chunks of a socket to lines, wherever the chunks are cut."""

from hbox_common.errors import Unavailable

MAX_LINE_BYTES = 8 * 2**20  #: etcd keeps objects under 1.5 MiB; a longer line is no watch event


class LineSplitter:
    """Keeps the unfinished end of one chunk for the next."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without their ends and without empty ones. Raises Unavailable for an endless line."""
        head, newline, tail = chunk.partition(b"\n")
        self._rest.append(head)
        if not newline:
            if sum(map(len, self._rest)) > MAX_LINE_BYTES:
                raise Unavailable(f"a line of a watch is longer than {MAX_LINE_BYTES} bytes")
            return []
        lines = [b"".join(self._rest)]
        if tail:
            lines += tail.split(b"\n")
            self._rest = [lines.pop()]
        else:
            self._rest = []
        return [line for line in lines if line]
