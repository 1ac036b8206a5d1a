"""overcommit: `enqueue` admits somewhat more than the cluster has, so that pods exist when room becomes free (sources: volcano-overcommit). Gangs that would
not fit on empty nodes reserve nothing."""

from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model import GroupPhase, quantity

from ..cluster.arrays import Bools, Ints
from ..cluster.entities import HOLDING, Gang
from ..framework.hooks import Enqueueable, Vote
from .arguments import Arguments

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

_DEFAULT = 1.2


class Overcommit(Enqueueable):
    """Argument: overcommit-factor (1.2, which also replaces factors below 1)."""

    name = "overcommit"

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        factor = arguments.number("overcommit-factor", _DEFAULT)
        arguments.done()
        self._factor = factor if factor >= 1 else _DEFAULT

    def open(self, session: "Session") -> None:
        self._session = session
        used, self._waiting = session.zeros(), session.zeros()
        requested = session.running.requested
        used[: len(requested)] += requested
        self._waiting += session.vector(session.running.unmet)
        for gang in session.fresh:
            if gang.prepared and not gang.min_resources:
                continue
            held = sum((member.request for member in gang.of(*HOLDING)), start=session.zeros())
            used += held
            if gang.phase in (GroupPhase.INQUEUE, GroupPhase.RUNNING) and session.placeable(gang):
                self._waiting += np.maximum(session.vector(gang.counted_minimum) - held, 0)
        self._room = np.floor(session.total * self._factor).astype(np.int64) - used - session.vector(session.cluster.foreign)

    def enqueueable(self, gang: Gang) -> Vote:
        return Vote.REJECT if self._short(gang).any() else Vote.PERMIT

    def reject_reason(self, gang: Gang) -> str:
        short, minimum = self._short(gang), self._minimum(gang)
        columns = self._session.columns
        for name in sorted(gang.min_resources or {}, key=columns.resource):
            column = columns.resource(name)
            if short[column]:
                asked, waiting, room = (quantity(name, int(units[column])) for units in (minimum, self._waiting, self._room))
                return f"{asked} {name} asked for, {waiting} promised to others that wait, of {room} left ({self._factor:g} times what there is)"
        return ""

    def _short(self, gang: Gang) -> Bools:
        """`[R]`: what there is too little of."""
        minimum = self._minimum(gang)
        short: Bools = (minimum > 0) & self._session.counted & (self._waiting + minimum > self._room)
        return short

    def enqueued(self, gang: Gang) -> None:
        if self._session.placeable(gang):
            self._waiting += self._session.vector(gang.counted_minimum)

    def _minimum(self, gang: Gang) -> Ints:
        return self._session.vector(gang.min_resources or {})
