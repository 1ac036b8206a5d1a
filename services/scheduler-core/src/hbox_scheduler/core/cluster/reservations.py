"""Nodes reserved for a pending gang, so that smaller jobs do not delay its start, and the rules for other pods on these nodes."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from hbox_common.model import JobId, QueueName
from hbox_common.model.rights import may_preempt

from .arrays import Bools


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """`start`: expected start of the gang, in seconds since the epoch; inf if the end of the pods on its nodes is unknown."""

    gang: JobId
    queue: QueueName
    priority: int
    pods: int  #: number of pods that start together
    bit: int  #: in `Columns.reserved` and `Task.passes`
    rows: Bools  #: `[N]`
    start: float
    entitled: bool  #: the pending pods fit within the deserved amount of its queue
    own_queue: bool  #: at present the reservation blocks only jobs of its own queue
    sure: bool  #: after a long wait, only pods that end before `start` for sure are admitted
    message: str  #: reason for the gang: nodes, expected start, and pods on them
    notice: str  #: reason for jobs that the reservation blocks

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
        """Whether a pod of this gang may use the nodes. `ends`: returns when the pod ends if it starts now, for sure or (False) probably; `entitled`: whether
        its queue is below its deserved amount.

        A reservation protects no more than running there would: a gang that could evict the running gang may use the nodes.
        """
        if gang == self.gang or (now < self.start < inf and ends(self.sure) <= self.start):
            return True
        if queue == self.queue:
            return bool(may_preempt(priority, self.priority))
        return self.own_queue or (not self.entitled and entitled())
