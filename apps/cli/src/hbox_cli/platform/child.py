"""A child process that cannot outlive us.

On Linux the kernel kills it when the supervisor is gone, even by kill -9 (PR_SET_PDEATHSIG; every child of ours survives a kill -9 of itself,
so nothing is lost by it). Each child leads a session of its own, so that Ctrl-C at the terminal reaches the supervisor alone and the
stop is orderly.
"""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from hbox_common.errors import InvalidRequest

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15

# Resolved before any fork: between fork and exec nothing may be imported or loaded.
_prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None


class Child(Protocol):
    """A process that was started, by exec or by fork."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


def die_with(parent: int) -> None:
    """In a new process: be killed when `parent` ends."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # it ended before the kernel was asked


def rename(name: str) -> None:
    """How `ps -o comm` and `top` call this process: the first 15 characters."""
    if _prctl is not None:
        _prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


async def spawn(argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> asyncio.subprocess.Process:
    """Starts the program; its output is appended to `log`. Raises InvalidRequest where there is no such program."""
    with log.open("ab") as file:
        return await execute(argv, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=file.fileno(), stderr=file.fileno())


async def execute(
    argv: Sequence[str], *, env: Mapping[str, str], stdin: int, stdout: int, stderr: int
) -> asyncio.subprocess.Process:
    """As `spawn`, with streams as given. Raises InvalidRequest."""
    parent = os.getpid()
    try:
        return await asyncio.create_subprocess_exec(
            *argv,
            env=dict(env),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=lambda: die_with(parent),
        )
    except OSError as e:
        raise InvalidRequest(f"{argv[0]} cannot be started: {e.strerror}", hint="run `make install` again") from e


async def stop(process: Child, *, grace_s: float) -> None:
    """SIGTERM, and SIGKILL where that did not help within `grace_s`."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), grace_s)
    except TimeoutError:
        process.kill()
        await process.wait()


def ended(returncode: int) -> str:
    """How a process ended, in words."""
    if returncode < 0:
        try:
            return f"killed by {signal.Signals(-returncode).name}"
        except ValueError:
            return f"killed by signal {-returncode}"
    return f"exit status {returncode}"
