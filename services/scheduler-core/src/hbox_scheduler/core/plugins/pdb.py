"""pdb: no more victims than the PodDisruptionBudgets allow (sources: volcano-pdb).

A pod under a budget that is used up, or under two budgets, with which the Eviction API never evicts, is never a victim: its eviction would only cost the time
until it is rejected. kube-scheduler takes such pods last instead, since it deletes its victims regardless of budgets (ADR 28).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..cluster.entities import Gang, Member, Status
from ..framework.hooks import Events, Evictable, Preemptable, Reclaimable, ShuffleGuard
from .arguments import Arguments

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session


class Pdb(ShuffleGuard, Preemptable, Reclaimable, Evictable, Events):
    """What the session evicts counts against the budgets. No arguments."""

    name = "pdb"
    guards = True
    guards_owners = True
    guards_offline = True

    def __init__(self, conf: "PluginConf") -> None:
        Arguments(conf).done()

    def open(self, session: "Session") -> None:
        self._budgets, self._kept = session.cluster.facts.budgets, session.outcome.under_budgets
        self._staying = session.cluster.facts.may_not_leave
        self._left = [budget.allowed for budget in self._budgets] + [0]
        self._named = {(budget.namespace, budget.name): number for number, budget in enumerate(self._budgets)}
        self._gone: set[int] = set()  # ids of members evicted in this session

    def may_leave(self, members: Sequence[Member]) -> list[Member]:
        """Each one named counts."""
        left, victims = list(self._left), []
        for member in members:
            if member.uid in self._staying:
                continue
            mine = self._of(member)
            if len(mine) < 2 and all(left[budget] > 0 for budget in mine):
                for budget in mine:
                    left[budget] -= 1
                victims.append(member)
            else:
                known = (
                    f"{one.namespace}/{one.name}"
                    for one in (self._budgets[number] for number in mine if number < len(self._budgets))
                )
                self._kept[member] = tuple(known)
        return victims

    def preemptable(self, preemptor: Member | Gang, candidates: Sequence[Member]) -> list[Member]:  # noqa: ARG002  # the hook's signature
        return self.may_leave(candidates)

    reclaimable = preemptable

    def evictable(self, preemptor: Gang, candidates: Sequence[Member], *, reclaim: bool) -> list[Member]:  # noqa: ARG002
        return self.may_leave(candidates)

    def placed(self, member: Member, row: int) -> None:  # noqa: ARG002
        """Also called when an eviction is reverted, and when a leaving member is nominated elsewhere: the latter gives no budget back."""
        if id(member) in self._gone and member.status is not Status.PIPELINED:
            self._gone.discard(id(member))
            self._count(member, 1)

    def placed_uniform(self, members: Sequence[Member]) -> None:
        for member in members if self._gone else ():
            self.placed(member, member.row)

    def displaced(self, member: Member, row: int) -> None:  # noqa: ARG002
        """Also called when a placement of this session is reverted: that costs no budget."""
        if member.status is Status.RELEASING and id(member) not in self._gone:
            self._gone.add(id(member))
            self._count(member, -1)

    def _count(self, member: Member, times: int) -> None:
        for budget in self._of(member):
            self._left[budget] += times

    def _of(self, member: Member) -> list[int]:
        if member.budgets is not None:  # a budget that is still unknown allows nothing
            return [self._named.get((member.namespace, name), len(self._budgets)) for name in member.budgets]
        return [
            number
            for number, budget in enumerate(self._budgets)
            if budget.namespace == member.namespace and budget.selector.items() <= member.labels.items()
        ]
