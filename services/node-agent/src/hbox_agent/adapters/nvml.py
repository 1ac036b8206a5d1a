"""NVIDIA's management library, asked by a process of its own each time (`nvml_reader`)."""

import asyncio
import os
import sys
from pathlib import Path

from hbox_common.model import NodeNvml

from ..core import nvml_of

_MOST_BYTES = 2**20


class Nvml:
    """library: the folder of libnvidia-ml.so.1, where it is not where the loader looks."""

    def __init__(self, *, library: Path | None, timeout_s: float) -> None:
        self._library, self._timeout_s = library, timeout_s
        self._stuck: asyncio.subprocess.Process | None = None
        self._last = NodeNvml()

    async def ask(self) -> NodeNvml:
        """NVML's current answer; if it does not answer, the last one with the reason. Raises only when cancelled, and takes at most `timeout_s`."""
        self._last = await self._ask()
        return self._last

    async def _ask(self) -> NodeNvml:
        if self._stuck is not None and self._stuck.returncode is None:
            return nvml_of([], self._last, problem="a call into the driver does not come back, and cannot be ended")
        environment = dict(os.environ)
        if self._library is not None:
            environment["LD_LIBRARY_PATH"] = os.pathsep.join(
                [str(self._library), *environment.get("LD_LIBRARY_PATH", "").split(os.pathsep)]
            )
        try:
            reader = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "hbox_agent.adapters.nvml_reader", env=environment, limit=_MOST_BYTES,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as e:
            return nvml_of([], self._last, problem=f"its reader does not start: {e}")
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
        return nvml_of(lines, self._last, problem=problem)

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
