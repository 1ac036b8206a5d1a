"""priority: order gangs and members by priority; preempt lower priorities only (sources: volcano-priority)."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hbox_common.model.annotations import TASK_PRIORITY
from hbox_common.model.rights import may_preempt

from ..cluster.arrays import Ints
from ..cluster.entities import Gang, Member, Status
from ..cluster.runningtable import RunningTable
from ..framework.hooks import Evictable, GangOrder, MemberOrder, Preemptable, Starving
from .arguments import Arguments

if TYPE_CHECKING:
    from ..framework.conf import PluginConf

#: Priorities have 32 bits.
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")


class PriorityPlugin(GangOrder, MemberOrder, Starving, Preemptable, Evictable):
    """Gangs by their priority class, members by the pod's priority. Equal priority is never a victim. No arguments."""

    name = "priority"
    ranks_priorities = True
    lone_keys_fixed = True

    def __init__(self, conf: "PluginConf") -> None:
        Arguments(conf).done()

    def gang_key(self, gang: Gang) -> int:
        return -gang.priority

    def lone_keys(self, table: RunningTable, slots: Ints) -> Ints:
        return -table.priority[slots]

    def member_key(self, member: Member) -> int:
        return -priority_of(member)

    def starving(self, gang: Gang) -> bool:
        return gang.served + gang.waiting < len(gang.members) - gang.count(Status.GATED)

    def preemptable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        """Members of gangs of lower priority; within one gang members of lower priority."""
        return [
            member
            for member in candidates
            if (
                may_preempt(preemptor.gang.priority, member.gang.priority)
                if member.gang is not preemptor.gang
                else may_preempt(priority_of(preemptor), priority_of(member))
            )
        ]

    def evictable(self, preemptor: Gang, candidates: Sequence[Member], *, reclaim: bool) -> list[Member] | None:
        return None if reclaim else [m for m in candidates if may_preempt(preemptor.priority, m.gang.priority)]


def priority_of(member: Member) -> int:
    """The member's priority within its gang: its annotation if that is a whole number, else the pod's priority."""
    written = member.annotations.get(TASK_PRIORITY) if member.annotations else None
    if written is not None and _WHOLE_NUMBER.fullmatch(written):
        return int(written)
    return member.priority
