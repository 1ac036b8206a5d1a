"""Guard of calls of the core: finds the suspects of an error, and stops a call that does not end."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from hbox_common.errors import Bug, HBoxError
from hbox_common.model import NodeState

from .suspects import Suspect, place_in, place_of, suspects

#: Processor time of a cycle, after which it is ended: on the largest clusters it takes a tenth of a second. A lease ends after 15 s.
CYCLE_S = 8.0
#: Processor time of one input: a state of 100,000 pods takes some seconds. The kubelet's liveness probes tolerate a minute.
INPUT_S = 40.0


class TookTooLong(Exception):
    """A call of the core used more processor time than any should; `place`: where it was then."""

    def __init__(self, most_s: float, frame: FrameType | None) -> None:
        super().__init__(f"more than {most_s:g} s of processor time")
        self.place = "nowhere" if frame is None else place_in(frame.f_code.co_filename, frame.f_lineno)


class SchedulingFault(Bug):
    """The core failed, with these at hand: nearest to the error first. `place`: where, equal for equal errors. `kind`: the error's type and place, without its
    text, in which another job may be named. What it holds may be half changed."""

    def __init__(self, error: Exception, found: tuple[Suspect, ...]) -> None:
        self.place = error.place if isinstance(error, TookTooLong) else place_of(error)
        message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        self.kind = f"{error if isinstance(error, TookTooLong) else type(error).__name__} at {self.place}"
        super().__init__(f"{message} ({self.place})")
        self.suspects = found


class Guard:
    """`states`: of the nodes by row, as the core has them. Calls made elsewhere than on the main thread have no bound in time."""

    def __init__(self, states: Callable[[], Sequence[NodeState | None]]) -> None:
        self._states = states
        self._on, self._most_s = False, INPUT_S
        self._bounded = threading.current_thread() is threading.main_thread()
        if self._bounded:
            signal.signal(signal.SIGVTALRM, self._late)

    def _late(self, _signal: int, frame: FrameType | None) -> None:
        if self._on:
            self._on = False
            raise TookTooLong(self._most_s, frame)

    @contextmanager
    def __call__(self, most_s: float = INPUT_S) -> Iterator[None]:
        """Raises SchedulingFault for an error with suspects; other errors, and HBoxErrors, unchanged. `most_s`: maximum processor time."""
        self._on, self._most_s = True, most_s
        if self._bounded:
            signal.setitimer(signal.ITIMER_VIRTUAL, most_s)
        try:
            yield
        except HBoxError:
            raise
        except Exception as e:
            self._on = False
            if found := suspects(e, self._states()):
                raise SchedulingFault(e, found) from e
            raise
        finally:
            self._on = False
            if self._bounded:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
