"""task-topology: roles of a gang that should share nodes, or should not (sources: volcano-task-topology).

Members are put into buckets: each joins the bucket to whose members it is drawn most (and pushed away from least); balanced by size where nothing speaks for
one. Larger buckets are placed first, and a node scores by how much of the member's bucket it already has or still can take.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model.annotations import TASK_AFFINITY, TASK_ANTI_AFFINITY, TASK_ORDER

from ..cluster import Columns
from ..cluster.arrays import Floats, Ints
from ..cluster.entities import Gang, Member, Status
from ..devices import CardFit
from ..framework.hooks import MemberOrder, PodScore
from ..framework.resources import ResourceFit
from .arguments import Arguments

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

_SELF_ANTI, _INTER_AFF, _SELF_AFF, _INTER_ANTI = 4, 3, 2, 1


@dataclass(slots=True, eq=False)
class _Bucket:
    index: int
    members: list[Member] = field(default_factory=list)
    roles: Counter[str] = field(default_factory=Counter)

    def put(self, member: Member) -> None:
        self.members.append(member)
        self.roles[member.role] += 1


@dataclass(frozen=True, slots=True)
class _TaskRules:
    """Pairs of roles: how much one is drawn to the other; negative = pushed away."""

    pull: Mapping[tuple[str, str], int]
    order: tuple[str, ...]

    def of(self, member: Member, bucket: _Bucket) -> int:
        return sum(count * self.pull.get((member.role, role), 0) for role, count in bucket.roles.items())


class TaskTopology(MemberOrder, PodScore):
    """Arguments: task-topology.weight (1). The rules are annotations of the PodGroup: groups of roles with `;` between, roles with `,`."""

    name = "task-topology"
    sees_plain_pods = False

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        self._weight = arguments.number("task-topology.weight", 1, least=0)
        arguments.done()
        self._bucket_of: dict[Member, _Bucket] = {}
        self._largest: dict[Gang, int] = {}
        self._rooms = (ResourceFit(cards=False), CardFit())

    def open(self, session: "Session") -> None:
        for gang in session.gangs:
            rules = _rules_of(gang)
            if rules is not None:
                buckets = _form(gang, rules)
                self._largest[gang] = max((len(bucket.members) for bucket in buckets), default=1)
                self._bucket_of.update((member, bucket) for bucket in buckets for member in bucket.members)

    def concerns(self, member: Member) -> bool:
        return member in self._bucket_of

    def member_key(self, member: Member) -> tuple[int, int]:
        """Larger buckets first, whole bucket by whole bucket."""
        bucket = self._bucket_of.get(member)
        return (0, 0) if bucket is None else (-len(bucket.members), bucket.index)

    def score(self, member: Member, columns: Columns) -> Floats | None:
        bucket = self._bucket_of.get(member)
        if bucket is None or not self._weight:
            return None
        there: Ints = np.zeros(columns.size, dtype=np.int64)
        waiting: list[Member] = []
        for other in bucket.members:
            if other.row >= 0:
                there[other.row] += 1
            elif other.status is Status.PENDING:
                waiting.append(other)
        rules = _rules_of(member.gang)
        assert rules is not None
        pushed: Ints = np.zeros(columns.size, dtype=np.int64)
        for other in member.gang.members:
            if other.row >= 0 and self._bucket_of.get(other) is not bucket and rules.pull.get((member.role, other.role), 0) < 0:
                pushed[other.row] += 1
        room = self._room(member, columns)
        fits = np.minimum(room, len(waiting))
        return self._weight * 100.0 * (there - pushed + fits) / self._largest[member.gang]

    def _room(self, member: Member, columns: Columns) -> Ints:
        """`[N]`: pods like the member that fit."""
        room: Ints | None = None
        for plugin in self._rooms:
            capacity = plugin.capacity(columns, slice(0, columns.size), member.task)
            if capacity is not None:
                room = capacity if room is None else np.minimum(room, capacity)
        return np.zeros(columns.size, dtype=np.int64) if room is None else np.maximum(room, 0)


def _groups(text: str) -> list[list[str]]:
    return [[role.strip() for role in group.split(",") if role.strip()] for group in text.split(";") if group.strip()]


def _rules_of(gang: Gang) -> _TaskRules | None:
    annotations = gang.annotations
    if TASK_AFFINITY not in annotations and TASK_ANTI_AFFINITY not in annotations:
        return None
    pull: dict[tuple[str, str], int] = {}
    for groups, own, between in (
        (_groups(annotations.get(TASK_AFFINITY, "")), _SELF_AFF, _INTER_AFF),
        (_groups(annotations.get(TASK_ANTI_AFFINITY, "")), -_SELF_ANTI, -_INTER_ANTI),
    ):
        for roles in groups:
            if len(roles) == 1:
                pull[roles[0], roles[0]] = pull.get((roles[0], roles[0]), 0) + own
            for one in roles:
                for other in roles:
                    if one != other:
                        pull[one, other] = pull.get((one, other), 0) + between
    return _TaskRules(pull, tuple(role for group in _groups(annotations.get(TASK_ORDER, "")) for role in group))


def _form(gang: Gang, rules: _TaskRules) -> list[_Bucket]:
    """Members in the order of the roles join the bucket that draws them most, or open one."""
    rank = {role: number for number, role in enumerate(rules.order)}
    bound: Counter[str] = Counter(role for pair in rules.pull for role in pair)
    members = [member for member in gang.members if bound[member.role]]
    members.sort(key=lambda m: (rank.get(m.role, len(rank)), m.role, m.created_at, m.uid))
    buckets: list[_Bucket] = []
    for member in members:
        drawn = [(rules.of(member, bucket), -len(bucket.members), -bucket.index, bucket) for bucket in buckets]
        best = max(drawn, key=lambda item: item[:3], default=None)
        if best is None or best[0] < 0 or (best[0] == 0 and not member.row >= 0):
            buckets.append(_Bucket(len(buckets)))
            buckets[-1].put(member)
        else:
            best[3].put(member)
    return buckets
