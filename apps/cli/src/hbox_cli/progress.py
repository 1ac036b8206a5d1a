"""Progress of a long command, on standard error: a bar on a terminal, else a line every few seconds."""

import sys
import time
from types import TracebackType
from typing import Any, Self

from hbox_sandbox.replay import Progress

from .stdio import uncensored

_EVERY_S = 5.0


def shown() -> "Lines | Bar":
    return Bar() if sys.stderr.isatty() else Lines()


class Lines:
    """For logs and pipes."""

    def __init__(self) -> None:
        self._printed_at = 0.0
        self._stage = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.stage == self._stage and now - self._printed_at < _EVERY_S:
            return
        self._printed_at, self._stage = now, progress.stage
        print(text(progress), file=sys.stderr, flush=True)


class Bar:
    """For terminals."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415  only on a terminal
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
        from rich.progress import Progress as RichProgress  # noqa: PLC0415

        self._bars: Any = RichProgress(
            TextColumn("{task.description:>8}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[bound]} bound"),
            TimeElapsedColumn(),
            console=Console(file=uncensored(sys.stderr)),
            refresh_per_second=4,
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()

    def __call__(self, progress: Progress) -> None:
        task = self._tasks.get(progress.stage)
        if task is None:
            task = self._tasks[progress.stage] = self._bars.add_task(progress.stage, total=progress.total, bound=0)
        self._bars.update(task, completed=progress.done, total=progress.total, bound=progress.bound)


def text(progress: Progress) -> str:
    return f"{progress.elapsed_s:5.0f} s  {progress.stage:8}  {progress.done}/{progress.total}  {progress.bound} bound"
