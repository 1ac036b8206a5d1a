"""Processes that a command forks of itself before it has an event loop: the zygote, and the emulated cluster.

Supervisor, zygote and cluster import the same libraries, which takes most of a second of CPU in each. Forked from one process they import them once. A fork is
safe only while there is one thread and no event loop, so these processes are forked first and wait for an order: a line on their standard input with
their program and its arguments. A process without an order ends with this one. The supervisor restarts an ended process by exec, as it starts one that was not
forked early.
"""

import asyncio
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any, NoReturn

from . import child, zygote

#: No service multiplies matrices; threads of a library would make a fork unsafe.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
#: Where the kernel has no pidfd.
_LOOK_AGAIN_S = 0.05


@dataclass(slots=True)
class Early:
    """A forked process that waits for its order; a `child.Child`. `orders`, `answers`: our ends of its standard input and output."""

    pid: int
    orders: int
    answers: int
    returncode: int | None = None

    def send(self, order: dict[str, Any]) -> None:
        """Send the order, unless the process has ended."""
        with suppress(BrokenPipeError):
            os.write(self.orders, json.dumps(order).encode() + b"\n")

    async def wait(self) -> int:
        while not self._reap():
            try:
                pidfd = os.pidfd_open(self.pid)
            except (AttributeError, OSError):  # the kernel has no pidfd, or another waiter has just reaped it
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            loop, ended = asyncio.get_running_loop(), asyncio.Event()
            loop.add_reader(pidfd, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(pidfd)
                os.close(pidfd)
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        self._signal(SIGTERM)

    def kill(self) -> None:
        self._signal(SIGKILL)

    def _signal(self, sig: int) -> None:
        if self.returncode is None:  # the kernel does not reuse the pid until the process is reaped, below
            os.kill(self.pid, sig)

    def _reap(self, options: int = os.WNOHANG) -> bool:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode is not None

    def close(self) -> None:
        """Clean up a process that has ended or never got an order."""
        self.kill()
        self._reap(0)
        os.close(self.orders)
        os.close(self.answers)


@dataclass(frozen=True, slots=True)
class Forked:
    """What a platform can have of processes that are there already."""

    zygote: Early | None = None
    cluster: Early | None = None


@contextmanager
def forked(*, cluster: bool) -> Iterator[Forked]:
    """Call it before there is an event loop; where there are threads, be they a library's, or no Linux, there is nothing. `cluster`: whether an emulated one
    is needed."""
    if sys.platform != "linux" or len(list(Path("/proc/self/task").iterdir())) > 1:
        yield Forked()
        return
    for module in zygote.SHARED:
        importlib.import_module(module)
    made = [_fork(zygote.main)]
    if cluster:
        made.append(_fork(zygote.become_as_ordered))
    try:
        yield Forked(*made)
    finally:
        for one in made:
            one.close()


def _fork(run: Callable[[], NoReturn]) -> Early:
    parent = os.getpid()
    reads, orders = os.pipe()
    answers, writes = os.pipe()
    pid = os.fork()
    if pid:
        os.close(reads)
        os.close(writes)
        return Early(pid, orders, answers)
    child.die_with(parent)
    os.setsid()
    os.environ.update(ONE_THREAD)
    os.umask(0o077)  # as that of the processes that are started later (`Layout.prepare`)
    os.dup2(reads, 0)
    os.dup2(writes, 1)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    # Not those of a command, which take out what a terminal would obey.
    assert sys.__stdout__ is not None
    assert sys.__stderr__ is not None
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    try:
        run()
    except Exception:  # noqa: BLE001  the command would take it for its own
        traceback.print_exc()
    sys.exit(1)
