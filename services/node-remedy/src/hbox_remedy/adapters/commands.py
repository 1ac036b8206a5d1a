"""Commands on the node. A command that does not end is killed, and abandoned if it hangs in the driver."""

import asyncio
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from ..core.plan import Command

_MOST_BYTES = 256 * 1024
#: For the rest of the output after the command ended, and for a killed command to end.
_AFTER_S = 2.0
#: Exit status of a shell and of nsenter for a program that is not there.
_NOT_FOUND = 127


@dataclass(frozen=True, slots=True)
class Result:
    status: int | None  #: None: it did not start, or did not end in time
    output: str

    @property
    def good(self) -> bool:
        return self.status == 0

    @property
    def line(self) -> str:
        """The last line of the output that is not empty."""
        return next((line.strip() for line in reversed(self.output.splitlines()) if line.strip()), "")

    @property
    def missing(self) -> bool:
        """Whether there is no such program: by the shell's status, which nsenter has too, or by the kernel."""
        return self.status == _NOT_FOUND

    @property
    def why(self) -> str:
        """Why it failed."""
        return self.line if self.status is None else f"exit status {self.status}: {self.line}"


class Commands:
    """`enter`: the command in front of every command."""

    def __init__(self, enter: tuple[str, ...]) -> None:
        self._enter = enter

    async def run(self, command: Command, environment: Mapping[str, str] | None = None) -> Result:
        """Standard output and error together. Never raises but when cancelled, and then the command is killed."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._enter, *command.args, env={**os.environ, **(environment or {})}, start_new_session=True,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
        except FileNotFoundError as e:
            return Result(_NOT_FOUND, f"{command.args[0]} does not start: {e.strerror}")
        except OSError as e:
            return Result(None, f"{command.args[0]} does not start: {e.strerror}")
        assert process.stdout is not None
        output = bytearray()
        reading = asyncio.create_task(_read(process.stdout, output))
        try:
            async with asyncio.timeout(command.timeout_s):
                await process.wait()
            await asyncio.wait([reading], timeout=_AFTER_S)
        except TimeoutError:
            await _kill(process)
            return Result(None, f"{command.args[0]} did not end within {command.timeout_s:g} s")
        finally:
            reading.cancel()
            await _kill(process)
        return Result(process.returncode, output.decode(errors="replace"))


async def _read(stream: asyncio.StreamReader, output: bytearray) -> None:
    while part := await stream.read(_MOST_BYTES):
        output += part[: _MOST_BYTES - len(output)]


async def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        async with asyncio.timeout(_AFTER_S):
            await process.wait()
    except TimeoutError:
        pass  # in a call of the driver
