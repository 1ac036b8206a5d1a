"""Progress of many runs, on standard error: a bar where a person watches, a line every few seconds otherwise."""

import sys
import time
from types import TracebackType
from typing import Any, Self

from ..stdio import uncensored

_EVERY_S = 5.0


class Runs:
    """Call it after each run, or with how many have ended; as a context it shows and takes away the bar."""

    def __init__(self, total: int, what: str) -> None:
        self._total, self._what = total, what
        self._done = 0
        self._began = self._printed_at = time.monotonic()
        self._bars: Any = None
        self._bar: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich import progress as rich  # noqa: PLC0415  only on a terminal
            from rich.console import Console  # noqa: PLC0415

            self._bars = rich.Progress(
                rich.TextColumn("{task.description}"),
                rich.BarColumn(),
                rich.MofNCompleteColumn(),
                rich.TimeElapsedColumn(),
                rich.TimeRemainingColumn(),
                console=Console(file=uncensored(sys.stderr)),
                refresh_per_second=4,
            )
            self._bar = self._bars.add_task(self._what, total=self._total)
            self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, ended: int = 1) -> None:
        self._done += ended
        now = time.monotonic()
        if self._bars is not None:
            self._bars.update(self._bar, completed=self._done)
        elif now - self._printed_at >= _EVERY_S or self._done == self._total:
            self._printed_at = now
            print(f"{now - self._began:5.0f} s  {self._what} {self._done}/{self._total}", file=sys.stderr, flush=True)
