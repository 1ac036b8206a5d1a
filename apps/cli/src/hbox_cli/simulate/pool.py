"""Many independent simulations over all processors, behind everything else that the machine does."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context
from typing import TypeVar

from hbox_common.errors import Unavailable

from ..platform.child import die_with

Work = TypeVar("Work")
Answer = TypeVar("Answer")

NICE = 10


def processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(run: Callable[[Work], Answer], works: Sequence[Work], *, jobs: int) -> Iterator[tuple[Work, Answer]]:
    """Each work with its answer, as they come, from `jobs` processes. `run` and its arguments must be picklable.

    What a run raises ends all of them and is raised here. Raises Unavailable when a process is killed, as for want of memory.
    """
    if jobs == 1 or len(works) == 1:
        for work in works:
            yield work, run(work)
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one process a processor is enough
    pool = ProcessPoolExecutor(
        min(jobs, len(works)), mp_context=get_context("spawn"), initializer=_enter, initargs=(os.getpid(),)
    )
    try:
        waiting: dict[Future[Answer], Work] = {pool.submit(run, work): work for work in works}
        for done in as_completed(waiting):
            yield waiting[done], done.result()
    except BrokenProcessPool as e:
        raise Unavailable(
            "a simulating process was killed", hint="most likely memory ran out: try fewer at once with --jobs"
        ) from e
    except BaseException:  # interrupted, or the caller stopped: discard partial results
        for child in active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _enter(parent: int) -> None:
    os.nice(NICE)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    die_with(parent)
