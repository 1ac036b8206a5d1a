"""Where a service's main thread spends its processor time: written to a file at the end, when HBOX_PROFILE names a folder.

`python -m pstats FILE` reads it. Function calls cost about twice as much while it is on: compare shares, not seconds.
"""

import cProfile
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def profiled(service: str, folder: str | None) -> Iterator[None]:
    """Profile the block into `folder`/SERVICE-PID.pstats; without a folder, do nothing."""
    if folder is None:
        yield
        return
    profiler = cProfile.Profile(time.thread_time)  # wall time on a busy machine would include other processes
    profiler.enable()
    try:
        yield
    finally:
        profiler.disable()
        profiler.dump_stats(Path(folder) / f"{service}-{os.getpid()}.pstats")
