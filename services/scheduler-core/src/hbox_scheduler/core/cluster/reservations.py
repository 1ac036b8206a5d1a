"""Nodes that are set aside for a gang that waits, so that it starts though smaller work comes and goes; and who may use them all the same."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from hbox_common.model import JobId, QueueName
from hbox_common.model.rights import may_preempt

from .arrays import Bools


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """`start`: when the gang is expected to start, in seconds since the epoch; inf where nobody knows when those on its nodes end."""

    gang: JobId
    queue: QueueName
    priority: int
    pods: int  #: that have to start together
    bit: int  #: in `Columns.reserved` and `Task.passes`
    rows: Bools  #: `[N]`
    start: float
    entitled: bool  #: all that it waits for is within what its queue deserves
    own_queue: bool  #: so far work of its own queue alone is held back
    sure: bool  #: it has waited for so long that nobody is let in who might not have ended by its start
    words: str  #: for the gang: where, from when, and who is there
    notice: str  #: for those whom it holds back

    def passed(
        self,
        gang: JobId,
        queue: QueueName,
        priority: int,
        *,
        ends: Callable[[bool], float],
        entitled: Callable[[], bool],
        now: float,
    ) -> bool:
        """Whether the nodes are open to a pod of this gang. `ends`: when it has ended, if it starts now, for sure or (False) more likely than not; `entitled`:
        whether its queue has less than it deserves.

        A reservation gives no more than running there would: who could take the nodes back from the running gang is not kept from them.
        """
        if gang == self.gang or (now < self.start < inf and ends(self.sure) <= self.start):
            return True
        if queue == self.queue:
            return bool(may_preempt(priority, self.priority))
        return self.own_queue or (not self.entitled and entitled())
