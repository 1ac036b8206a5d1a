"""The process that waits for NVML's events (`nvml_events`): started, supervised and ended by the agent.

state      entered when                                              left when
---------  --------------------------------------------------------  -----------------------------------------------------------------
starting   the process was started                                   it is ready; or it ended, hung or printed garbage (waiting)
ready      it receives events of cards                               as above, or SIGTERM of another program ended it (released)
waiting    it ended; the pause doubles from 1 s to a minute          the pause is over (starting), and no killed process is left
released   node-remedy resets a card, which nothing may have open    RELEASED_S later (starting)
unsupported  no card supports events                                 ten minutes later (starting)
"""

import asyncio
import fcntl
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from hbox_common.clock import monotonic_s, wall_s
from hbox_common.model.remedy import NVML_EVENTS

from .. import metrics
from ..core.nvmlevents import LINE_BYTES, MOST_EVENTS, NvmlEvent, line_of
from .nvml_events import WAIT_MS

log = logging.getLogger(__name__)

#: Without a line for so long a call into the driver hangs. Until it is ready: `start_s`.
HANGS_S = 3 * WAIT_MS / 1000
#: Pauses before the process is started again, and how long one has to be ready for the next pause to be the first again.
FIRST_PAUSE_S, LAST_PAUSE_S, WELL_S = 1.0, 60.0, 60.0
#: A reset begins within seconds after node-remedy ended the clients of NVML; what has a card open until then lets it fail.
RELEASED_S = 60.0
UNSUPPORTED_S = 600.0
#: Lines that are not the program's, and lines of one second, until it is killed.
MOST_GARBAGE, MOST_LINES = 16, 4096
_READ_BYTES = 16 * 1024
INTERPRETER = Path(sys.executable)
_ENDS_S = 2.0


class State(StrEnum):
    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"
    RELEASED = "released"
    UNSUPPORTED = "unsupported"


class EventProcess:
    """Call `advance` at least every second, and whenever `on_line` was called. library: folder of NVML's library, if the loader does not find it."""

    def __init__(self, *, library: Path | None, start_s: float, on_line: Callable[[], None]) -> None:
        self._library, self._start_s, self._on_line = library, start_s, on_line
        self.state = State.WAITING
        self.cards, self.refused = 0, 0
        self.problem = ""  #: why no events are received; "" if they are, or if that is intended
        self.hangs_since = 0.0  #: seconds since the epoch; 0: it does not hang
        self.dropped = 0  #: events that were dropped since the last call of `taken`
        self._events: deque[NvmlEvent] = deque()
        self._process: asyncio.subprocess.Process | None = None
        self._pipe = -1
        self._rest = b""
        self._ended = False  #: the pipe's other end is closed
        self._garbage = self._lines = self._lines_of = 0
        self._line_at = self._ready_at = self._until = 0.0
        self._pause_s = FIRST_PAUSE_S

    @property
    def released(self) -> bool:
        return self.state is State.RELEASED

    def taken(self) -> tuple[list[NvmlEvent], int]:
        """The events since the last call, and how many were dropped."""
        found, dropped = list(self._events), self.dropped
        self._events.clear()
        self.dropped = 0
        return found, dropped

    async def advance(self) -> None:
        """Start the process, or end it, as its state demands. Does not raise."""
        now = monotonic_s()
        if self.state in (State.STARTING, State.READY):
            self._drain()
            await self._supervise(now)
        elif now >= self._until and (self._process is None or self._process.returncode is not None):
            await self._start(now)

    async def close(self) -> None:
        await self._kill()
        self.state = State.WAITING

    async def _start(self, now: float) -> None:
        environment = dict(os.environ)
        if self._library is not None:
            paths = [str(self._library), *environment.get("LD_LIBRARY_PATH", "").split(os.pathsep)]
            environment["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
        read, write = os.pipe()
        os.set_blocking(read, False)
        fcntl.fcntl(read, fcntl.F_SETPIPE_SZ, _READ_BYTES)
        # node-remedy finds the process by this name. Its folder is that of the interpreter, which locates its packages by it.
        name = str(INTERPRETER.with_name(NVML_EVENTS))
        try:
            self._process = await asyncio.create_subprocess_exec(
                name, "-m", "hbox_agent.adapters.nvml_events", executable=str(INTERPRETER), env=environment,
                stdin=asyncio.subprocess.DEVNULL, stdout=write, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as e:
            os.close(read)
            self._pauses(State.WAITING, f"it does not start: {e}", now)
            return
        finally:
            os.close(write)
        self.state, self._pipe, self._rest, self._ended, self._garbage = State.STARTING, read, b"", False, 0
        self._line_at = now
        asyncio.get_running_loop().add_reader(read, self._on_readable)

    def _on_readable(self) -> None:
        self._drain()
        self._on_line()

    def _drain(self) -> None:
        """At most one buffer at once: an endless writer delays no other task."""
        if self._pipe < 0 or self._ended:
            return
        try:
            part = os.read(self._pipe, _READ_BYTES)
        except BlockingIOError:
            return
        if not part:
            self._ended = True
            asyncio.get_running_loop().remove_reader(self._pipe)
        *lines, self._rest = (self._rest + part).split(b"\n")
        for raw in lines:
            self._take(raw)
        if len(self._rest) > LINE_BYTES:
            self._rest = b""
            self._garbage += 1

    def _take(self, raw: bytes) -> None:
        line = line_of(raw)
        second = int(monotonic_s())
        self._lines = self._lines + 1 if second == self._lines_of else 1
        self._lines_of = second
        if line.garbage or self._lines > MOST_LINES:
            self._garbage += 1
            metrics.NVML_EVENTS.labels("garbage").inc()
            return
        self._line_at = monotonic_s()
        if line.ready is not None:
            (self.cards, self.refused), self.state, self.problem, self.hangs_since = line.ready, State.READY, "", 0.0
            self._ready_at = self._line_at
        elif line.event is not None and len(self._events) >= MOST_EVENTS:
            self.dropped += 1
            metrics.NVML_EVENTS.labels("dropped").inc()
        elif line.event is not None:
            self._events.append(line.event)
        elif line.problem is not None:
            self.problem = line.problem

    async def _supervise(self, now: float) -> None:
        assert self._process is not None
        limit_s = self._start_s if self.state is State.STARTING else HANGS_S
        if self._garbage > MOST_GARBAGE:
            await self._ends("garbage", "it prints too much, or lines that are none of its own", now)
        elif self._ended:
            await self._exited(now)
        elif now - self._line_at >= limit_s:
            self.hangs_since = self.hangs_since or wall_s() - (now - self._line_at)
            await self._ends("hang", f"a call into the driver did not return within {limit_s:g} s", now)

    async def _exited(self, now: float) -> None:
        status = await self._kill()
        if status == 0 and self.cards == 0:
            metrics.NVML_EVENT_ENDS.labels("unsupported").inc()
            self.problem, self.state, self._until = "", State.UNSUPPORTED, now + UNSUPPORTED_S
        elif status == -signal.SIGTERM:
            metrics.NVML_EVENT_ENDS.labels("released").inc()
            log.info("NVML's events: another program ended the process, as node-remedy does before a reset of a card")
            self.problem, self.state, self._until, self._pause_s = "", State.RELEASED, now + RELEASED_S, FIRST_PAUSE_S
        else:
            self.hangs_since = 0.0
            how = f"signal {-status}" if status is not None and status < 0 else f"status {status}"
            await self._ends("ended", self.problem or f"its process ended, {how}", now)

    async def _ends(self, reason: str, why: str, now: float) -> None:
        metrics.NVML_EVENT_ENDS.labels(reason).inc()
        await self._kill()
        self._pauses(State.WAITING, why, now)

    def _pauses(self, state: State, why: str, now: float) -> None:
        if self.state is State.READY and now - self._ready_at >= WELL_S:
            self._pause_s = FIRST_PAUSE_S
        self.state, self.problem, self._until = state, why, now + self._pause_s
        self._pause_s = min(LAST_PAUSE_S, 2 * self._pause_s)

    async def _kill(self) -> int | None:
        """End the process. Its exit status; None of one in a call of the driver that cannot be interrupted: no other is started before it has ended."""
        if self._pipe >= 0:
            asyncio.get_running_loop().remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = -1
        process = self._process
        if process is None:
            return None
        try:
            async with asyncio.timeout(_ENDS_S):
                if self._ended:
                    return await process.wait()
        except TimeoutError:
            pass
        if process.returncode is None:
            process.kill()
        try:
            async with asyncio.timeout(_ENDS_S):
                return await process.wait()
        except TimeoutError:
            return None
