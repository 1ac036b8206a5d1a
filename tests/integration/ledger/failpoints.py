"""kill -9 at a chosen statement: a child process that counts what is sent to the database, and dies before the one that is named.

The hook is the test's alone; a COMMIT counts as a statement. Children are forked, so that hundreds of them take seconds.
"""

import asyncio
import itertools
import os
import signal
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import Engine, event

from hbox_common.store.pipeline import Pipeline
from hbox_common.store.prepared import Sent

Act = Callable[[Callable[[], None]], Awaitable[object]]


def killed_before(point: int, act: Act, *, commits: bool = False) -> bool:
    """Run `act(arm)` in a child that dies at statement `point` (from 1) after it has called `arm`. Returns whether it came so far.

    `commits`: of its COMMITs alone.
    """
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(_run(act, point, commits=commits))
        except BaseException:  # a child must not go on as a second pytest
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


def points(act: Act, *, fresh: Callable[[], object], each: int = 1) -> Iterator[int]:
    """Kill `act` before every COMMIT and every `each`-th statement, each time from what `fresh` makes. Yields how often, after each death.

    Between two COMMITs all deaths should leave the same: every COMMIT and some of the others find whether they do.
    """
    killed = 0
    for commits, step in ((True, 1), (False, each)) if each > 1 else ((False, 1),):
        for point in itertools.count(1, step):
            fresh()
            if not killed_before(point, act, commits=commits):
                break
            killed += 1
            yield killed


async def _run(act: Act, point: int, *, commits: bool) -> None:
    def arm() -> None:
        left = iter(range(1, point))

        def strike(*_: Any) -> None:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        send = Pipeline.send

        def struck(self: Pipeline, text: str, values: Sequence[str | None]) -> Sent:
            strike()
            return send(self, text, values)

        if not commits:
            setattr(Pipeline, "send", struck)  # noqa: B010  mypy lets nobody assign to a method; the child ends with this run
            event.listen(Engine, "before_cursor_execute", strike)
        event.listen(Engine, "commit", strike)

    await act(arm)
