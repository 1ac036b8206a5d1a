"""Records a scheduler's inputs and decisions, for `hbox simulate replay`.

The scheduler's inputs are wrapped at the edge of the service: each call is encoded when it is done, on the loop, and put in a queue that a thread of its own
writes to the file a few times a second. So the loop does not wait for a disk. If something cannot be written (a full disk, a disk that is too slow, a value
without an encoding), the record ends, which is logged once and counted; the scheduler continues.

One file a start, in a folder. A file ends at half of the bound, and older files are removed until they fit in the other half.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

from hbox_common.errors import HBoxError

from .. import metrics
from ..core import Proposals, Scheduler
from ..core.framework.webhooks import Ask, Question
from ..core.record.record import INPUTS, Asked, Call, Decided, Encoder, Framer, Head, collected
from ..core.record.replay import error_of

log = logging.getLogger(__name__)

SUFFIX = ".hboxrecord"
WRITE_EVERY_S = 0.25
#: What may wait to be written: beyond it the disk is too slow.
MOST_WAITING = 64 * 2**20


class Recorder:
    """From `attach` until `close`."""

    def __init__(self, folder: Path, *, most_mib: int) -> None:
        self._folder, self._most = folder, most_mib * 2**20 // 2
        self._encoder = Encoder()
        self._framer = Framer()
        self._queue: deque[bytes] = deque()
        self._put = self._taken = self._written = 0  #: bytes, the first by the loop alone and the others by the thread alone
        self._inside = False
        self._asked: list[Asked] = []
        self._ended = ""  #: why nothing is recorded any more
        self._full = False
        self._close = threading.Event()
        self._thread: threading.Thread | None = None
        self.path: Path | None = None

    def attach(self, scheduler: Scheduler, head: Head) -> None:
        """Record this scheduler's inputs from now on. It has to be new."""
        began = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(head.wall))
        self.path = self._folder / f"{began}-{head.scheduler}{SUFFIX}"
        self._append(lambda: self._encoder.head(head))
        for name in INPUTS:
            setattr(scheduler, name, self._recorded(name, getattr(scheduler, name)))
        self._thread = threading.Thread(target=self._write, name="recorder", daemon=True)
        self._thread.start()

    def asking(self, ask: Ask) -> Ask:
        """`ask`, with its answers recorded with the call in which they were given."""

        def recorded(question: Question, /) -> Mapping[str, Any] | None:
            try:
                answer = ask(question)
            except HBoxError as e:
                self._asked.append(Asked(question.url, question.body, None, e.message))
                raise
            self._asked.append(Asked(question.url, question.body, answer))
            return answer

        return recorded

    def close(self) -> None:
        """Write what is left and end the record."""
        if self._thread is not None:
            self._end("the service was stopped")
            self._close.set()
            self._thread.join(timeout=5.0)
            self._thread = None

    # On the loop.

    def _recorded(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._inside or self._ended:  # inputs that an input calls are its own doing
                self._asked.clear()
                return method(*args, **kwargs)
            arguments = collected(name, args, kwargs)
            result, error = None, ""
            self._inside = True
            try:
                result = method(**arguments)
            except Exception as e:
                error = error_of(e)
                raise
            finally:
                self._inside = False
                decided = Decided.of(result) if isinstance(result, Proposals) else result
                asked, self._asked = self._asked, []
                self._append(lambda: self._encoder.call(Call(name, arguments, decided, asked, error)))
            return result

        return call

    def _append(self, encode: Callable[[], bytes]) -> None:
        try:
            entry = encode()
        except Exception as e:  # noqa: BLE001  whatever it is, it must not reach the scheduler
            self._stop(f"an input cannot be written down ({error_of(e)})")
            return
        if self._put - self._taken + len(entry) > MOST_WAITING:
            self._stop("the disk is too slow: what waits to be written takes too much memory")
            return
        self._put += len(entry)
        self._queue.append(entry)

    def _stop(self, why: str) -> None:
        self._end(why)
        self._complain(why)

    def _end(self, why: str) -> None:
        if not self._ended:
            self._ended = why
            self._queue.append(self._encoder.end(why))

    def _complain(self, why: str) -> None:
        metrics.RECORD_STOPPED.inc()
        log.error("recording to %s stops: %s; scheduling continues", self.path, why)

    # In the thread.

    def _write(self) -> None:
        assert self.path is not None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._make_room()
            with self.path.open("xb", buffering=0) as file:
                self._whole(file.fileno(), Framer.opening())
                log.info("recording to %s", self.path)
                while not self._close.wait(WRITE_EVERY_S):
                    self._flush(file.fileno())
                self._flush(file.fileno())
        except OSError as e:
            self._ended = self._ended or (e.strerror or str(e))
            self._queue.clear()
            self._complain(e.strerror or str(e))

    def _flush(self, file: int) -> None:
        entries: list[bytes] = []
        while self._queue:
            entries.append(self._queue.popleft())
        data = b"".join(entries)
        self._taken += len(data)
        if not data or self._full:
            return
        frame = self._framer.frame(data)
        if self._written + len(frame) >= self._most:
            self._full = True
            self._ended = f"{self._most >> 20} MiB are written, half of HBOX_RECORD_MOST_MIB"
            frame += self._framer.frame(Encoder().end(self._ended))
            self._complain(self._ended)
        self._whole(file, frame)

    def _whole(self, file: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        self._written += len(data)
        metrics.RECORD_BYTES.inc(len(data))

    def _make_room(self) -> None:
        """Remove the oldest records until the others are within their half of the bound."""
        found = [(path, path.stat().st_size) for path in sorted(self._folder.glob(f"*{SUFFIX}"))]
        left = sum(size for _, size in found)
        for path, size in found:
            if left <= self._most:
                return
            path.unlink(missing_ok=True)
            left -= size
