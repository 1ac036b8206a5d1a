"""NVIDIA's management library, asked by a process of its own each time (`nvml_reader`)."""

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .host import bytes_of

_MOST_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Answer:
    """`lines`: what the reader printed, as JSON; `problem`: why it ended too early, "" if it did not."""

    lines: Sequence[str] = ()
    problem: str = ""


class Nvml:
    """library: the folder of libnvidia-ml.so.1, where it is not where the loader looks."""

    def __init__(self, *, library: Path | None, timeout_s: float) -> None:
        self._library, self._timeout_s = library, timeout_s
        self._stuck: asyncio.subprocess.Process | None = None

    async def ask(self, *, inforom: bool = False) -> Answer:
        """NVML's current answer. Raises only when cancelled, and takes at most `timeout_s`. `inforom`: verify the checksums of the cards' InfoROMs, too."""
        if self._stuck is not None and self._stuck.returncode is None:
            return Answer(problem="a call into the driver does not come back, and cannot be ended")
        environment = dict(os.environ)
        if self._library is not None:
            environment["LD_LIBRARY_PATH"] = os.pathsep.join(
                [str(self._library), *environment.get("LD_LIBRARY_PATH", "").split(os.pathsep)]
            )
        try:
            reader = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "hbox_agent.adapters.nvml_reader", *(["--inforom"] if inforom else []), env=environment, limit=_MOST_BYTES,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as e:
            return Answer(problem=f"its reader does not start: {e}")
        assert reader.stdout is not None
        lines: list[str] = []
        problem = ""
        try:
            async with asyncio.timeout(self._timeout_s):
                size = 0
                while size <= _MOST_BYTES and (line := await reader.stdout.readline()):
                    size += len(line)
                    lines.append(line.decode(errors="replace"))
                if size > _MOST_BYTES:
                    problem = "its answer does not end"
                elif (status := await reader.wait()) < 0:
                    problem = f"its library crashes the calling process (signal {-status})"
        except TimeoutError:
            problem = f"no answer within {self._timeout_s:g} s"
        except ValueError:  # a line without end
            problem = "its answer does not end"
        finally:
            await self._end(reader)
        return Answer(lines, problem)

    async def _end(self, reader: asyncio.subprocess.Process) -> None:
        """A process in a driver call may not end before the call does: leave it, and start no other meanwhile."""
        if reader.returncode is not None:
            return
        reader.kill()
        try:
            async with asyncio.timeout(2.0):
                await reader.wait()
        except TimeoutError:
            self._stuck = reader


class NvmlFile:
    """Of an emulated node: a file with the lines that the reader would print."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def ask(self, *, inforom: bool = False) -> Answer:
        """Nothing if there is no such file. `inforom` has no effect: the file has the values or not."""
        del inforom
        found = bytes_of(self._path, _MOST_BYTES)
        return Answer() if found is None else Answer(found.decode(errors="replace").splitlines())
