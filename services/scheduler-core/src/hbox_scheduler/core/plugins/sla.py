"""sla: a longest waiting time (sources: volcano-sla). It orders gangs by their deadlines and enqueues a gang whose deadline has passed; it reserves nothing."""

from typing import TYPE_CHECKING

import numpy as np

from hbox_common.errors import InvalidRequest
from hbox_common.model.annotations import WAITING_TIME

from ..cluster.arrays import Floats, Ints
from ..cluster.entities import Gang
from ..cluster.runningtable import RunningTable
from ..framework.hooks import Enqueueable, GangOrder, Pipelined, Vote
from .arguments import Arguments
from .durations import duration_s

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

_NEVER = float("inf")


class Sla(GangOrder, Enqueueable, Pipelined):
    """Argument: sla-waiting-time, a duration such as 30m, for gangs without an annotation of that name."""

    name = "sla"
    time_dependent = True  # past its deadline a gang counts as pipelined

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        text = arguments.text(WAITING_TIME)
        arguments.done()
        self._default_s: float | None = None
        if text:
            self._default_s = duration_s(text)
            if self._default_s is None and not text.lstrip("-").isdigit():
                raise InvalidRequest(
                    f"plugin sla, argument {WAITING_TIME}: {text!r} is not a duration", hint="write it as 30m or 1h30m"
                )

    def open(self, session: "Session") -> None:
        self._now = session.now

    def gang_key(self, gang: Gang) -> float:
        return self._deadline(gang)

    def lone_keys(self, table: RunningTable, slots: Ints) -> Floats:
        """Such jobs have no annotations of their own gang."""
        if self._default_s is None:
            return np.full(len(slots), _NEVER)
        return table.created_at[slots] + self._default_s

    def enqueueable(self, gang: Gang) -> Vote:
        return Vote.PERMIT if self._deadline(gang) < self._now else Vote.ABSTAIN

    pipelined = enqueueable

    def _deadline(self, gang: Gang) -> float:
        waiting_s = None
        for key in (WAITING_TIME, f"volcano.sh/{WAITING_TIME}"):
            if key in gang.annotations:
                waiting_s = duration_s(gang.annotations[key])
        if waiting_s is None or waiting_s <= 0:
            waiting_s = self._default_s
        return _NEVER if waiting_s is None else gang.created_at + waiting_s
