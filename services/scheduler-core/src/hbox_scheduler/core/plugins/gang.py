"""gang: a gang starts whole or not at all, and loses members only as long as it stays whole (sources: volcano-gang)."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..cluster.arrays import Ints
from ..cluster.entities import HOLDING, Gang, Member, Status, SubGang
from ..cluster.runningtable import RunningTable
from ..framework.hooks import (
    GangOrder,
    Pipelined,
    Preemptable,
    Readiness,
    Reclaimable,
    Starving,
    SubGangOrder,
    SubGangPipelined,
    SubGangReadiness,
    Validity,
    Vote,
)
from .arguments import Arguments

if TYPE_CHECKING:
    from ..framework.conf import PluginConf

_VALID = HOLDING | {Status.PENDING, Status.PIPELINED, Status.SUCCEEDED}


class GangPlugin(
    Validity,
    GangOrder,
    SubGangOrder,
    Readiness,
    SubGangReadiness,
    Pipelined,
    SubGangPipelined,
    Starving,
    Preemptable,
    Reclaimable,
):
    """Minimums: minMember of the gang, minTaskMember of each role, subGroupSize and minSubGroups. Role minimums count only where they are no
    more than minMember in all. No arguments."""

    name = "gang"
    guards = True
    guards_gangs = True
    guards_offline = True
    lone_keys_fixed = True

    def __init__(self, conf: "PluginConf") -> None:
        Arguments(conf).done()

    def valid(self, gang: Gang) -> str:
        if gang.plain and len(gang.members) >= gang.min_member:
            return ""
        there = gang.count(*_VALID)
        if there < gang.min_member:
            return f"GangIncomplete: the gang needs {gang.min_member} pods and {there} exist; create the missing ones or lower minMember"
        if roles_count(gang):
            roles = Counter(member.role for member in gang.of(*_VALID))
            for role, minimum in gang.min_task_member.items():
                if roles[role] < minimum:
                    return f"GangIncomplete: task {role or '(without a name)'} needs {minimum} pods and {roles[role]} exist"
        for policy in gang.sub_gang_policies:
            whole = [
                group
                for group in gang.sub_gangs
                if group.policy is policy and sum(member.status in _VALID for member in group.members) >= policy.size
            ]
            if len(whole) < policy.min_sub_gangs:
                return f"GangIncomplete: {policy.min_sub_gangs} sub-groups {policy.name} of {policy.size} are needed and {len(whole)} exist"
        return ""

    def sub_gang_key(self, sub_gang: SubGang) -> bool:
        return self.sub_gang_ready(sub_gang)

    def ready(self, gang: Gang) -> bool:
        if gang.ready < gang.min_member:
            return False
        return not (gang.min_task_member or gang.sub_gang_policies) or (
            _roles_hold(gang, waiting=False) and _sub_gangs_hold(gang, waiting=False)
        )

    gang_key = ready  # those that are not ready come first

    def lone_keys(self, table: RunningTable, slots: Ints) -> Ints:
        return np.where(table.min_member[slots] <= 1, 1, 0)

    def sub_gang_ready(self, sub_gang: SubGang) -> bool:
        return _there(sub_gang, waiting=False) >= _size(sub_gang)

    def pipelined(self, gang: Gang) -> Vote:
        enough = (
            gang.ready + gang.waiting >= gang.min_member
            and _roles_hold(gang, waiting=True)
            and _sub_gangs_hold(gang, waiting=True)
        )
        return Vote.PERMIT if enough else Vote.REJECT

    def sub_gang_pipelined(self, sub_gang: SubGang) -> Vote:
        return Vote.PERMIT if _there(sub_gang, waiting=True) >= _size(sub_gang) else Vote.REJECT

    def starving(self, gang: Gang) -> bool:
        """Whether it has not yet what it needs to run."""
        return (
            gang.served + gang.waiting < gang.min_member
            or not _roles_hold(gang, waiting=True)
            or not _sub_gangs_hold(gang, waiting=True)
        )

    def movable(self, preemptor: Member, candidates: Sequence[Member]) -> None:  # the hook's signature
        """No objection (None): a gang whose members move is broken only for a moment."""

    def preemptable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:  # noqa: ARG002  # the hook's signature
        """Members above their gang's minimum, where each chosen one counts; or all members of a gang, which may be evicted whole but never left below its
        minimum. (Volcano's gang plugin never evicts a whole gang, so a gang at its minimum keeps its place forever.)"""
        named: dict[Gang, int] = {}
        for member in candidates:
            named[member.gang] = named.get(member.gang, 0) + 1
        if all(count >= gang.holding for gang, count in named.items()):
            return list(candidates)
        left: dict[Gang, int] = {}
        groups: dict[Gang, _Groups] = {}
        roles: dict[Gang, Counter[str]] = {}
        whole: set[Gang] = set()
        victims: list[Member] = []
        for member in candidates:
            gang = member.gang
            if gang in whole:
                victims.append(member)
                continue
            if gang not in left:
                if named[gang] >= gang.holding:
                    whole.add(gang)
                    victims.append(member)
                    continue
                left[gang] = gang.ready
                if gang.sub_gang_policies:
                    groups[gang] = _Groups(gang)
                if gang.min_task_member:
                    roles[gang] = Counter(m.role for m in gang.members if _counts(m))
            if left[gang] <= gang.min_member:
                continue
            if roles_count(gang) and roles[gang][member.role] <= gang.min_task_member.get(member.role, 0):
                continue
            if gang in groups and not groups[gang].spare(member):
                continue
            if roles_count(gang):
                roles[gang][member.role] -= 1
            left[gang] -= 1
            victims.append(member)
        return victims

    reclaimable = preemptable


class _Groups:
    """The sub-gangs of a gang, as their members are counted off."""

    def __init__(self, gang: Gang) -> None:
        self._there = {id(group): _there(group, waiting=False) for group in gang.sub_gangs}
        self._whole = Counter(
            group.policy.name
            for group in gang.sub_gangs
            if group.policy is not None and self._there[id(group)] >= group.policy.size
        )

    def spare(self, member: Member) -> bool:
        """Count the member off, where enough sub-gangs of its policy stay whole without it. Returns whether they do."""
        group = member.sub_gang
        if group is None or (policy := group.policy) is None:
            return True
        breaks = self._there[id(group)] == policy.size
        if breaks and self._whole[policy.name] <= policy.min_sub_gangs:
            return False
        self._whole[policy.name] -= breaks
        self._there[id(group)] -= 1
        return True


def roles_count(gang: Gang) -> bool:
    """Whether the minimums of roles matter: Volcano ignores them where minMember is less than their sum."""
    return bool(gang.min_task_member) and gang.min_member >= sum(gang.min_task_member.values())


def _counts(member: Member) -> bool:
    return (
        member.status in HOLDING
        or member.status is Status.SUCCEEDED
        or (member.status is Status.PENDING and member.best_effort)
    )


def _there(sub_gang: SubGang, *, waiting: bool) -> int:
    gang = sub_gang.gang
    if len(gang.sub_gangs) == 1:
        return gang.ready + (gang.waiting if waiting else 0)
    return sum(_counts(member) or (waiting and member.status is Status.PIPELINED) for member in sub_gang.members)


def _size(sub_gang: SubGang) -> int:
    """What the sub-gang needs: its own size, and as the only one of its gang the gang's minimum."""
    return sub_gang.size if sub_gang.policy is not None or len(sub_gang.gang.sub_gangs) == 1 else 0


def _roles_hold(gang: Gang, *, waiting: bool) -> bool:
    if not roles_count(gang):
        return True
    roles = Counter(m.role for m in gang.members if _counts(m) or (waiting and m.status is Status.PIPELINED))
    return all(roles[role] >= minimum for role, minimum in gang.min_task_member.items())


def _sub_gangs_hold(gang: Gang, *, waiting: bool) -> bool:
    for policy in gang.sub_gang_policies:
        whole = sum(_there(group, waiting=waiting) >= policy.size for group in gang.sub_gangs if group.policy is policy)
        if whole < policy.min_sub_gangs:
            return False
    return True
