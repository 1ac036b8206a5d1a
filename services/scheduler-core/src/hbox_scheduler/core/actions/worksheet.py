"""What of a gang is still to be placed in this session, and how much of it the gang needs."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..session.nouns import HOLDING, Gang, Member, Status, SubGang

if TYPE_CHECKING:
    from ..session.session import Session


@dataclass(slots=True, eq=False)
class Worksheet:
    """Members of a gang that are still to be tried in this session, by sub-gang."""

    gang: Gang
    pending: dict[SubGang, list[Member]] = field(default_factory=dict)

    @property
    def left(self) -> bool:
        return any(self.pending.values())

    def drop(self, members: Iterable[Member]) -> None:
        """They have been tried."""
        gone = set(map(id, members))
        for sub_gang, waiting in self.pending.items():
            self.pending[sub_gang] = [member for member in waiting if id(member) not in gone]


def worksheet_of(session: "Session", gang: Gang) -> Worksheet:
    sheet = Worksheet(gang)
    for sub_gang in gang.sub_gangs:
        members = [m for m in sub_gang.members if m.status is Status.PENDING and not m.best_effort]
        if members:
            sheet.pending[sub_gang] = sorted(members, key=session.member_key)
    return sheet


def needed(session: "Session", sheet: Worksheet) -> dict[SubGang, list[Member]]:
    """The members that would make the gang ready: minMember, the minimums of its roles, and as many whole sub-gangs as its policies ask for. Those
    served first come first. Empty where the pending ones are not enough."""
    gang = sheet.gang
    order = sorted(sheet.pending, key=session.sub_gang_key)
    wanted: dict[SubGang, list[Member]] = {}
    for policy in gang.sub_gang_policies:
        missing = policy.min_sub_gangs - sum(there(one) >= policy.size for one in gang.sub_gangs if one.policy is policy)
        for sub_gang in order:
            short = policy.size - there(sub_gang)
            if missing > 0 and sub_gang.policy is policy and 0 < short <= len(sheet.pending[sub_gang]):
                wanted[sub_gang] = sheet.pending[sub_gang][:short]
                missing -= 1
    roles = Counter(member.role for member in gang.members if _counts(member))
    roles.update(member.role for members in wanted.values() for member in members)
    short = gang.min_member - gang.ready - sum(map(len, wanted.values()))
    for sub_gang in order:
        for member in sheet.pending[sub_gang]:
            if roles[member.role] < gang.min_task_member.get(member.role, 0) and member not in wanted.get(sub_gang, ()):
                wanted.setdefault(sub_gang, []).append(member)
                roles[member.role] += 1
                short -= 1
    for whole in (True, False):
        for sub_gang in order:
            chosen = wanted.get(sub_gang, [])
            left = [member for member in sheet.pending[sub_gang] if member not in chosen]
            size = sub_gang.size - there(sub_gang) - len(chosen) if whole and sub_gang.policy is not None else short
            if short > 0 and left and size > 0 and (not whole or size <= len(left)):
                more = left[:size]
                wanted[sub_gang] = [*chosen, *more]
                short -= len(more)
    return wanted if short <= 0 else {}


def there(sub_gang: SubGang) -> int:
    """Members that count for the sub-gang's size."""
    return sum(_counts(member) for member in sub_gang.members)


def _counts(member: Member) -> bool:
    return (
        member.status in HOLDING
        or member.status is Status.SUCCEEDED
        or (member.status is Status.PENDING and member.best_effort)
    )
