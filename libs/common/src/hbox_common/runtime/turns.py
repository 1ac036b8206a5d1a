"""The longest turn of a process's event loop: while a turn lasts, the process answers and acknowledges no message.

Theory of operation. A turn is one iteration of the loop: all callbacks that run before the loop looks at its sockets and timers again. The loop (uvloop, or
asyncio's own) does not report its iterations, and timing every callback would cost several percent. So a timer of the loop fires every BEAT_S: two beats that
are further apart than that had a long turn in between. The figure is at most BEAT_S too large, and never too small. It is recorded by two clocks: if the
processor's is much shorter, the process waited for its disk, or for a processor.

What ran is known only while it runs: a thread looks at the time of the last beat, and notes the functions on the loop's stack when a turn has lasted half of
the limit. Beats and looks cost about 0.1 % of a core.
"""

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType

from hbox_common.clock import monotonic_s, thread_s
from hbox_common.telemetry import gauge

log = logging.getLogger(__name__)

BEAT_S = 0.02
#: A turn counts in the metric for one to two windows: longer than the interval of scrapes, however many clients scrape.
WINDOW_S = 60.0
#: A turn that waits for a processor or a disk is logged from this multiple of the limit, as the alert HBoxLoopBlocked counts it.
WALL_FACTOR = 10.0
#: Minimum seconds between two log lines; the later line counts the turns since the earlier one.
LOG_EVERY_S = 10.0
#: Innermost functions of HBox that a log line names.
MAX_FUNCTIONS = 6

LONGEST = gauge(
    "loop_longest_turn_seconds",
    "longest turn of the event loop within the last one to two minutes, by wall clock (clock=wall) and by processor time (clock=processor)",
    ["clock"],
)


class Window:
    """The maximum of the values of the last one to two windows of `length_s`."""

    def __init__(self, length_s: float) -> None:
        self._length_s = length_s
        self._number, self._current, self._previous = 0, 0.0, 0.0

    def put(self, value: float, now: float) -> None:
        self._roll(now)
        self._current = max(self._current, value)

    def value(self, now: float) -> float:
        self._roll(now)
        return max(self._current, self._previous)

    def _roll(self, now: float) -> None:
        number = int(now // self._length_s)
        if number != self._number:
            self._previous = self._current if number == self._number + 1 else 0.0
            self._number, self._current = number, 0.0


class LoopTurns:
    """Measures the turns of the running loop for as long as the context lasts. `limit_s`: turns that take more processor time, or
    WALL_FACTOR times as long by the wall clock, are logged. `stage`: what the service is
    doing, for the log."""

    def __init__(self, service: str, *, limit_s: float, stage: Callable[[], str] = lambda: "") -> None:
        self._service, self._limit_s, self._stage = service, limit_s, stage
        self._wall, self._processor = Window(WINDOW_S), Window(WINDOW_S)
        self._at, self._used = monotonic_s(), thread_s()
        self._timer: asyncio.TimerHandle | None = None
        self._stop = threading.Event()
        self._seen = (0.0, "")  #: the beat after which a turn took long, and the functions that ran in it
        self._logged_at = float("-inf")
        self._unlogged = 0
        self.longest_s = self.longest_processor_s = 0.0  #: since the context began

    async def __aenter__(self) -> "LoopTurns":
        self._at, self._used = monotonic_s(), thread_s()
        LONGEST.labels("wall").set_function(lambda: self._wall.value(monotonic_s()))
        LONGEST.labels("processor").set_function(lambda: self._processor.value(monotonic_s()))
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat)
        threading.Thread(target=self._look, args=(threading.get_ident(),), name="turns", daemon=True).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._stop.set()

    # On the loop.

    def _beat(self) -> None:
        now, used = monotonic_s(), thread_s()
        wall_s, processor_s = now - self._at, used - self._used
        if processor_s > self._limit_s or wall_s > WALL_FACTOR * self._limit_s + BEAT_S:
            self._report(wall_s, processor_s, now)
        self._wall.put(wall_s, now)
        self._processor.put(processor_s, now)
        self.longest_s, self.longest_processor_s = max(self.longest_s, wall_s), max(self.longest_processor_s, processor_s)
        self._at, self._used = monotonic_s(), thread_s()
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _report(self, wall_s: float, processor_s: float, now: float) -> None:
        if now - self._logged_at < LOG_EVERY_S:
            self._unlogged += 1
            return
        beat, functions = self._seen
        log.info(
            "a turn of %s took %.0f ms, %.0f ms of them on a processor: %s",
            self._service,
            1000 * wall_s,
            1000 * processor_s,
            functions if beat == self._at and functions else "functions unknown",
            extra={"stage": self._stage(), "long_turns_not_logged": self._unlogged},
        )
        self._logged_at, self._unlogged = now, 0

    # In the thread.

    def _look(self, loop_thread: int) -> None:
        while True:
            beat = self._at
            wait_s = beat + self._limit_s / 2 - monotonic_s()
            if self._stop.wait(wait_s if wait_s > 0 else self._limit_s / 4):
                return
            if wait_s <= 0 and beat == self._at and self._seen[0] != beat:
                self._seen = beat, functions_of(sys._current_frames().get(loop_thread))


def functions_of(frame: FrameType | None) -> str:
    """The innermost functions of HBox on a stack, outermost first."""
    return " > ".join(reversed([*_names(frame)]))


def _names(frame: FrameType | None) -> Iterator[str]:
    found = 0
    while frame is not None and found < MAX_FUNCTIONS:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("hbox_") and module != __name__:
            yield f"{module}.{frame.f_code.co_qualname}"
            found += 1
        frame = frame.f_back
