"""drf: dominant resource fairness among gangs; with enableHierarchy among queues of a weighted tree (sources: volcano-drf)."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model import QueueName

from ..cluster.arrays import Floats, Ints
from ..cluster.entities import HOLDING, Gang, Member, QueueInfo, Status
from ..cluster.runningtable import RunningTable
from ..framework.hooks import Events, GangOrder, Preemptable, QueueOrder, Reclaimable
from .arguments import Arguments
from .hierarchicaldrf import ShareTree

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

_EQUAL = 1e-6
_HAVING = HOLDING | {Status.PIPELINED}
_ASKING = _HAVING | {Status.PENDING}


class Drf(GangOrder, QueueOrder, Preemptable, Reclaimable, Events):
    """A gang's share is the largest part that it has of any resource of the cluster. No arguments."""

    name = "drf"

    def __init__(self, conf: "PluginConf") -> None:
        Arguments(conf).done()
        self._hierarchy = self.demand_dependent = conf.hierarchy  # in a tree, a queue that asks for nothing more is saturated

    def open(self, session: "Session") -> None:
        self._scale: Floats = np.where((session.total > 0) & session.counted, 1.0 / np.maximum(session.total, 1), 0.0)
        self._zeros = session.zeros()
        self._known: dict[Gang, Ints] = {}  #: what gangs have, of those that were asked for
        self._shares: dict[Gang, float] = {}
        self._tree: ShareTree | None = None
        self._stale = True
        if self._hierarchy:
            for other in session.plugins(QueueOrder):
                if other.demand_dependent and other is not self:
                    session.outcome.warn(
                        f"drf with enableHierarchy and {other.name} both define shares of queues: the first in the policy decides"
                    )
            self._gangs = session.gangs
            self._wanted = {gang: self._sum(gang, _ASKING) * self._scale for gang in session.gangs}
            self._tree = ShareTree(session.queues.values(), session.gangs, session.refuse)

    def gang_key(self, gang: Gang) -> float:
        if not gang.holding and not gang.waiting:
            return 0.0
        share = self._shares.get(gang)
        if share is None:
            share = self._shares[gang] = self._share(self._used(gang))
        return share

    def lone_keys(self, table: RunningTable, slots: Ints) -> Floats:
        """Of each task once: `pods`, which requests of members leave out, count nothing here."""
        codes, of = np.unique(table.task[slots], return_inverse=True)
        return np.array([self._share(table.amounts[code]) for code in codes.tolist()], dtype=np.float64)[of.reshape(-1)]

    def queue_key(self, queue: QueueInfo) -> tuple[object, ...]:
        """In a tree, at the highest level at which two paths differ: those that can grow first, then the smaller share by weight."""
        return tuple(branch.key for branch in self._current().path(queue.name)) if self._tree is not None else ()

    def preemptable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        """Members whose gang has no smaller share after the loss than the preemptor's gang after the gain; each one named counts."""
        own = self._share(self._used(preemptor.gang) + preemptor.request)
        left: dict[Gang, Ints] = {}
        victims: list[Member] = []
        for member in candidates:
            gang = member.gang
            if gang is preemptor.gang:
                continue
            after = left.get(gang, self._used(gang)) - member.request
            if own <= self._share(after) + _EQUAL:
                left[gang] = after
                victims.append(member)
        return victims

    def related(self, queue: QueueInfo) -> Iterable[QueueName] | None:
        """Only a tree orders queues by what others hold too."""
        return (queue.name,) if self._tree is None else None

    def reclaimable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member] | None:
        """In a tree: members of queues that are ahead of the preemptor's."""
        if self._tree is None:
            return None
        tree = self._current()
        own = [branch.key for branch in tree.path(preemptor.gang.queue)]
        return [member for member in candidates if [branch.key for branch in tree.path(member.gang.queue)] > own]

    def placed(self, member: Member, row: int) -> None:  # noqa: ARG002  # the hook's signature
        self._change(member, 1)

    def placed_uniform(self, members: Sequence[Member]) -> None:
        self._change(members[0], len(members))

    def displaced(self, member: Member, row: int) -> None:  # noqa: ARG002
        self._change(member, -1)

    def _change(self, member: Member, times: int) -> None:
        used = self._known.get(member.gang)
        if used is not None:
            used += times * member.request
            self._shares.pop(member.gang, None)
        self._stale = True

    def _current(self) -> ShareTree:
        assert self._tree is not None
        if self._stale:
            self._tree.update({gang: self._used(gang) * self._scale for gang in self._gangs}, self._wanted)
            self._stale = False
        return self._tree

    def _share(self, used: Ints) -> float:
        return float((used * self._scale).max(initial=0.0))

    def _used(self, gang: Gang) -> Ints:
        """`[R]`, first summed when it is asked for: most gangs never are."""
        used = self._known.get(gang)
        if used is None:
            used = self._known[gang] = self._sum(gang, _HAVING)
        return used

    def _sum(self, gang: Gang, statuses: frozenset[Status]) -> Ints:
        return sum((member.request for member in gang.of(*statuses)), start=self._zeros.copy())
