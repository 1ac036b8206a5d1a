"""Door of time and chance: an event loop that never waits, and clocks, ids and draws that come from one seed.

Theory of operation. `VirtualLoop` runs what is ready; if nothing is, it sets its clock to the next timer. A turn of the loop takes TURN_S of virtual time, so
that a task that polls the clock makes progress. Each service runs in a context of its own (`PROCESS`): the loop drops the callbacks of a process that was
killed, so that none of its clean-up runs, and keeps those of a process that is paused until it continues.

`virtual` replaces, while it is entered: the clocks of `hbox_common.clock`, `secrets`, uuids, generators without a seed, `asyncio.to_thread` and the sets of
tasks in `asyncio.TaskGroup`, whose order depends on addresses in memory.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterator, MutableSet
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Any, TypeVar
from uuid import UUID

import hbox_common.bus.micro
import hbox_common.clock
import hbox_common.kube.informer
import hbox_common.kube.lease

T = TypeVar("T")

#: Virtual seconds that a turn of the loop takes.
TURN_S = 1e-6
#: So many turns of the loop within so many virtual seconds mean that tasks wake each other without end: busy seconds have a tenth.
_LOOK_TURNS, _SPIN_S = 100_000, 1.0
#: Seconds since the epoch at which virtual time begins.
EPOCH_S = 1_800_000_000.0
#: Monotonic seconds at which virtual time begins: services compare with 0 and with minus infinity.
UPTIME_S = 1_000.0


class Standstill(Exception):
    """Virtual time does not advance."""


@dataclass(eq=False, slots=True)
class Process:
    """One run of one service. `skew_s`: of its wall clock against the world's."""

    service: str
    instance: str
    skew_s: float = 0.0
    alive: bool = True
    paused: bool = False
    held: "list[_Handle]" = field(default_factory=list)  #: callbacks that became ready while it was paused
    task: asyncio.Task[None] | None = None


#: The service that runs now; None: the world outside of the services.
PROCESS: ContextVar[Process | None] = ContextVar("sim-process", default=None)


class _Handle:
    """What of `asyncio.TimerHandle` is used: a third of its time."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context", "_when")

    def __init__(self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> None:
        self._when, self._callback, self._args = when, callback, args
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = _no_callback, ()

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when


def _no_callback() -> None:
    """In place of a callback that was cancelled."""


class VirtualLoop(asyncio.BaseEventLoop):
    """`now`: virtual seconds since the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.turns = 0
        self._clock_resolution = 1e-9
        self._ready: deque[_Handle]
        self._due: list[tuple[float, int, _Handle]] = []  #: a heap; of equal times the first one made comes first
        self._timers = 0
        self._looked_at = 0.0

    def time(self) -> float:
        return self.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        handle = _Handle(0.0, callback, args, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        timer = _Handle(when, callback, args, context)
        self._timers += 1
        heappush(self._due, (when, self._timers, timer))
        return timer

    def _run_once(self) -> None:
        due, ready = self._due, self._ready
        while due and due[0][2]._cancelled:
            heappop(due)
        if ready:
            self.now += TURN_S
        elif due:
            self.now = max(self.now, due[0][0])
        else:
            raise Standstill("no timer is left")
        now = self.now
        while due and due[0][0] <= now:
            timer = heappop(due)[2]
            if not timer._cancelled:
                ready.append(timer)
        self.turns += 1
        if self.turns % _LOOK_TURNS == 0:
            if now - self._looked_at < _SPIN_S:
                raise Standstill(f"{_LOOK_TURNS} turns of the loop within {now - self._looked_at:.3f} s")
            self._looked_at = now
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process: Process | None = handle._context.get(PROCESS)
            if process is not None:
                if not process.alive:
                    continue
                if process.paused:
                    process.held.append(handle)
                    continue
            try:
                handle._context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as e:
                self.call_exception_handler({"message": f"Exception in callback {handle._callback}", "exception": e})

    def resume(self, process: Process) -> None:
        """Continue a paused process with everything that became ready meanwhile."""
        process.paused = False
        self._ready.extend(process.held)
        process.held.clear()

    def _write_to_self(self) -> None:
        """There is no selector to wake."""

    def _process_events(self, event_list: object) -> None:
        """There are no sockets."""


class _OrderedSet(MutableSet[T]):
    """A set that is iterated in the order of insertion."""

    def __init__(self) -> None:
        self._items: dict[T, None] = {}

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, value: T) -> None:
        self._items[value] = None

    def discard(self, value: T) -> None:
        self._items.pop(value, None)


class _TaskGroup(asyncio.TaskGroup):
    def __init__(self) -> None:
        super().__init__()
        self._tasks = _OrderedSet()  # type: ignore[assignment]


class _Time:
    """In place of the module `time` of `hbox_common.clock`."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def time(self) -> float:
        process = PROCESS.get()
        return EPOCH_S + self._loop.now + (0.0 if process is None else process.skew_s)

    def monotonic(self) -> float:
        return UPTIME_S + self._loop.now

    process_time = monotonic


async def _in_place(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    await asyncio.sleep(0)
    return function(*args, **kwargs)


@contextmanager
def replaced(*places: tuple[object, str, object]) -> Iterator[None]:
    """Attributes (owner, name, value) in place of what is there."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    for owner, name, value in places:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


@contextmanager
def virtual(loop: VirtualLoop, chance: Random) -> Iterator[None]:
    """Time and chance of this process are those of `loop` and of `chance`."""

    def token_bytes(count: int | None = None) -> bytes:
        return chance.randbytes(32 if count is None else count)

    def token_hex(count: int | None = None) -> str:
        return token_bytes(count).hex()

    def uuid4() -> UUID:
        return UUID(int=chance.getrandbits(128), version=4)

    def generator(seed: object = None) -> Random:
        return Random(chance.getrandbits(64))

    with replaced(
        (hbox_common.clock, "time", _Time(loop)),
        (hbox_common.clock, "uuid4", uuid4),
        (hbox_common.bus.micro, "perf_counter_ns", lambda: int(loop.now * 1e9)),
        (hbox_common.bus.rpc, "perf_counter_ns", lambda: int(loop.now * 1e9)),
        (hbox_common.kube.informer, "Random", generator),
        (hbox_common.kube.lease, "Random", generator),
        (secrets, "token_bytes", token_bytes),
        (secrets, "token_hex", token_hex),
        (asyncio, "to_thread", _in_place),
        (asyncio, "TaskGroup", _TaskGroup),
    ):
        yield
