"""The supervisor's side of the zygote, which forks the services and reports their ends."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL, SIGTERM

from hbox_common.errors import Unavailable

from . import child
from .early import ONE_THREAD, Early

_READY_S = 60.0
_PAUSE_S = 2.0  #: after one that ended before it was ready
_FORK_S = 60.0  #: with imports before the first


@dataclass(slots=True)
class Forked:
    """A forked service; a `child.Child`."""

    pid: int
    returncode: int | None = None
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def end(self, returncode: int) -> None:
        self.returncode = returncode
        self._ended.set()

    def terminate(self) -> None:
        self._signal(SIGTERM)

    def kill(self) -> None:
        self._signal(SIGKILL)

    def _signal(self, sig: int) -> None:
        if self.returncode is None:
            try:
                os.kill(self.pid, sig)
            except ProcessLookupError:
                pass  # it has ended; the zygote's report follows


class Forks:
    """Starts services by fork, while `running`. A zygote that dies takes its services along, and is started again at the next order.

    `early`: one that is there already.
    """

    def __init__(self, env: Mapping[str, str], log: Path, early: Early | None = None) -> None:
        self._env = dict(env) | ONE_THREAD
        self._log, self._early = log, early
        self._process: child.Child | None = None
        self._orders = -1  #: the zygote's standard input
        self._reports = asyncio.StreamReader()  #: its standard output
        self._wanted = asyncio.Event()
        self._ready = asyncio.Event()
        self._born: dict[str, asyncio.Future[Forked]] = {}
        self._alive: dict[int, Forked] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Forks"]:
        """Start the zygote, without waiting for it, and receive its reports until the end of the block, also if the block fails."""
        await self._start()
        async with asyncio.TaskGroup() as tasks:
            hearing = tasks.create_task(self._hear_all(), name="zygote")
            try:
                yield self
            finally:
                await self.stop()
                hearing.cancel()

    async def _start(self) -> None:
        if self._early is not None:
            early, self._early = self._early, None
            early.send({"log": str(self._log)})
            self._process, self._orders, answers = early, os.dup(early.orders), os.dup(early.answers)
        else:
            reads, self._orders = os.pipe()
            answers, writes = os.pipe()
            with self._log.open("ab") as log:
                self._process = await child.execute(
                    [sys.executable, "-m", "hbox_cli.platform.zygote"],
                    env=self._env,
                    stdin=reads,
                    stdout=writes,
                    stderr=log.fileno(),
                )
            os.close(reads)
            os.close(writes)
        self._reports = asyncio.StreamReader()
        message = self._reports
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(message), os.fdopen(answers, "rb", buffering=0)
        )

    async def _hear_all(self) -> None:
        while True:
            assert self._process is not None
            async for line in self._reports:
                self._hear(json.loads(line))
            await self._process.wait()
            os.close(self._orders)
            was_ready = self._ready.is_set()
            self._bury()
            if was_ready:
                self._wanted.clear()
            else:  # who wanted it still waits
                await asyncio.sleep(_PAUSE_S)
            await self._wanted.wait()
            await self._start()

    async def spawn(self, name: str, module: str, *, env: Mapping[str, str], log: Path) -> Forked:
        """Forks `python -m module`. Raises Unavailable when the zygote does not come up."""
        self._wanted.set()
        try:
            async with asyncio.timeout(_READY_S):
                await self._ready.wait()
            born: asyncio.Future[Forked] = asyncio.get_running_loop().create_future()
            self._born[name] = born
            order = {"name": name, "module": module, "env": dict(env), "log": str(log)}
            with suppress(BrokenPipeError):  # it has just ended, and we are about to hear of it
                os.write(self._orders, json.dumps(order).encode() + b"\n")
            async with asyncio.timeout(_FORK_S):
                return await born
        except TimeoutError as e:
            raise Unavailable(f"{name} could not be forked in time", hint=f"see {self._log}") from e
        finally:
            self._born.pop(name, None)

    async def stop(self) -> None:
        if self._process is not None:
            await child.stop(self._process, grace_s=2.0)

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def _hear(self, message: dict[str, object]) -> None:
        match message:
            case {"ready": True}:
                self._ready.set()
            case {"name": str(name), "pid": int(pid)}:
                forked = self._alive[pid] = Forked(pid)
                if (born := self._born.get(name)) is not None and not born.done():
                    born.set_result(forked)
            case {"name": str(name), "error": str(why)}:
                if (born := self._born.get(name)) is not None and not born.done():
                    born.set_exception(Unavailable(f"{name} could not be forked: {why}", hint=f"see {self._log}"))
            case {"ended": int(pid), "returncode": int(returncode)}:
                if (gone := self._alive.pop(pid, None)) is not None:
                    gone.end(returncode)

    def _bury(self) -> None:
        """The zygote has ended, and with it, by the kernel's hand, all that it forked."""
        self._ready.clear()
        for forked in self._alive.values():
            forked.end(-SIGKILL)
        self._alive.clear()
        for born in self._born.values():
            if not born.done():
                born.set_exception(Unavailable("the process that forks the services ended", hint=f"see {self._log}"))
