"""What of a gang is still to be placed in this session, and how much of it the gang needs."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..cluster.entities import HOLDING, Gang, Member, Status, SubGang

if TYPE_CHECKING:
    from ..framework.session import Session


@dataclass(slots=True, eq=False)
class PendingMembers:
    """Members of a gang that are still to be tried in this session, by sub-gang."""

    gang: Gang
    by_sub_gang: dict[SubGang, list[Member]] = field(default_factory=dict)

    @property
    def left(self) -> bool:
        return any(self.by_sub_gang.values())

    def drop(self, members: Iterable[Member]) -> None:
        """They have been tried."""
        gone = set(map(id, members))
        if len(gone) == sum(map(len, self.by_sub_gang.values())):
            self.by_sub_gang.clear()
        for sub_gang, untried in self.by_sub_gang.items():
            self.by_sub_gang[sub_gang] = [member for member in untried if id(member) not in gone]


def pending_members_of(session: "Session", gang: Gang) -> PendingMembers:
    waiting = PendingMembers(gang)
    if len(gang.members) == 1 and gang.prepared:
        if not gang.members[0].best_effort:
            waiting.by_sub_gang[gang.sub_gangs[0]] = [gang.members[0]]
        return waiting
    if gang.prepared and not any(member.best_effort for member, _ in gang.shapes):
        waiting.by_sub_gang[gang.sub_gangs[0]] = session.members_in_order(gang.sub_gangs[0].members)
        return waiting
    for sub_gang in gang.sub_gangs:
        members = [m for m in sub_gang.members if m.status is Status.PENDING and not m.best_effort]
        if members:
            waiting.by_sub_gang[sub_gang] = session.members_in_order(members)
    return waiting


def needed(session: "Session", waiting: PendingMembers) -> dict[SubGang, list[Member]]:
    """The members that would make the gang ready: minMember, the minimums of its roles, and as many whole sub-gangs as its policies ask for. Those
    served first come first. Empty where the pending ones are not enough."""
    gang = waiting.gang
    order = sorted(waiting.by_sub_gang, key=session.sub_gang_key) if len(waiting.by_sub_gang) > 1 else list(waiting.by_sub_gang)
    wanted: dict[SubGang, list[Member]] = {}
    chosen: set[int] = set()
    short = gang.min_member - gang.ready
    if len(order) == 1 and not gang.sub_gang_policies and not gang.min_task_member:
        members = waiting.by_sub_gang[order[0]]
        return {order[0]: members[:short]} if 0 < short <= len(members) else {}

    def take(sub_gang: SubGang, members: list[Member]) -> int:
        wanted.setdefault(sub_gang, []).extend(members)
        chosen.update(map(id, members))
        return len(members)

    for policy in gang.sub_gang_policies:
        missing = policy.min_sub_gangs - sum(there(one) >= policy.size for one in gang.sub_gangs if one.policy is policy)
        for sub_gang in order:
            lacking = policy.size - there(sub_gang)
            if missing > 0 and sub_gang.policy is policy and 0 < lacking <= len(waiting.by_sub_gang[sub_gang]):
                short -= take(sub_gang, waiting.by_sub_gang[sub_gang][:lacking])
                missing -= 1
    if gang.min_task_member:
        roles = Counter(member.role for member in gang.members if _counts(member) or id(member) in chosen)
        for sub_gang in order:
            for member in waiting.by_sub_gang[sub_gang]:
                if roles[member.role] < gang.min_task_member.get(member.role, 0) and id(member) not in chosen:
                    short -= take(sub_gang, [member])
                    roles[member.role] += 1
    for sub_gang in order if gang.sub_gang_policies else ():
        left = [member for member in waiting.by_sub_gang[sub_gang] if id(member) not in chosen]
        lacking = sub_gang.size - there(sub_gang) - len(wanted.get(sub_gang, ()))
        if short > 0 and sub_gang.policy is not None and 0 < lacking <= len(left):
            short -= take(sub_gang, left[:lacking])
    for sub_gang in order:
        if short > 0:
            left = [member for member in waiting.by_sub_gang[sub_gang] if id(member) not in chosen]
            short -= take(sub_gang, left[:short])
    return {sub_gang: members for sub_gang, members in wanted.items() if members} if short <= 0 else {}


def there(sub_gang: SubGang) -> int:
    """Members that count for the sub-gang's size."""
    return sum(map(_counts, sub_gang.members))


def _counts(member: Member) -> bool:
    return (
        member.status in HOLDING
        or member.status is Status.SUCCEEDED
        or (member.status is Status.PENDING and member.best_effort)
    )
