"""The head of a pending job's explanation: code, what ends its wait, and who acts next.

Computed for each job that a session did not place, from what its reasons have found already and the room on empty nodes, which is kept by shape.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hbox_common.model import VENDORS, QueueName, Resources
from hbox_common.model.explanation import Outcome
from hbox_common.model.resources import add
from hbox_common.reasons import code_of_message

from ..cluster import Columns
from ..cluster.arrays import Bools, Ints
from ..cluster.entities import Gang, Member, Status
from ..cluster.task import Task
from ..explain.labels import Label
from ..explain.outcomes import (
    CARDS_RECLAIMED,
    CARDS_SPREAD,
    GANG_GATHERS,
    GANG_PARTLY_FITS,
    GANG_TOO_LARGE,
    INSUFFICIENT_RESOURCE,
    NO_NODES,
    NODES_OUT_OF_SERVICE,
    QUEUE_LIMIT_TOO_SMALL,
    RESOURCE_ABSENT,
    TOPOLOGY_TOO_SMALL,
    Headline,
    code_of_lack,
    judged,
)
from ..explain.reasons import first_failed
from ..framework import Session
from ..framework.basefits import FITS
from ..framework.waiting import WaitReason
from ..topology.constraints import concerned, constraint_of
from .emptycluster import Alone, EmptyCluster, is_decided_by_shape
from .emptyroom import EmptyRoom, EmptyRooms, chosen_rows, lasting_rules, rooms_by_node

#: Labels of nodes whose cards pods hold.
_HELD = (Label.CARDS_IN_USE, Label.CARDS_TOO_FEW, Label.CARD_EXCLUSIVE)


@dataclass(frozen=True, slots=True)
class Wants:
    """What has to start together: of each shape a member, and how many."""

    kinds: Sequence[tuple[Member, int]]

    @property
    def pods(self) -> int:
        return sum(count for _, count in self.kinds)


def wants_of(gang: Gang, members: Sequence[Member]) -> Wants:
    """Of the gang's pending members those that it needs to start. `members`: its pending ones, those that count first in front."""
    short = max(gang.min_member - gang.ready, 1)
    counted = (one for one in members[1:] if not one.best_effort)
    counts: Counter[int] = Counter()
    first: dict[int, Member] = {}
    for _, one in zip(range(short), (members[0], *counted), strict=False):
        first.setdefault(id(one.task), one)
        counts[id(one.task)] += 1
    return Wants([(one, counts[key]) for key, one in first.items()])


class Headlines:
    """Of the jobs of one scheduler."""

    def __init__(self, columns: Columns) -> None:
        self._rooms = EmptyRooms(columns)
        self._empty = EmptyCluster()

    def of(
        self,
        session: Session,
        member: Member,
        waiting: WaitReason,
        *,
        revision: int,
        known: dict[object, Headline] | None = None,
    ) -> Headline:
        """Of the gang of this member, which waits for this reason. `revision`: of its job; `known`: what this session found for equal gangs, to be extended."""
        gang = member.gang
        if known is None or not gang.interchangeable or len(gang.shapes) > 1:
            return self._of(session, member, waiting, revision)
        key = member.task, member.status, gang.queue, gang.namespace, gang.min_member - gang.ready, waiting.message
        found = known.get(key)
        if found is None:
            found = known[key] = self._of(session, member, waiting, revision)
        return found

    def pending(self, session: Session, gang: Gang) -> Sequence[Member]:
        """The gang's members that wait, those first with which it can start: if it needs fewer pods than wait, pods of shapes that fit no node do not count."""
        members = list(gang.of(Status.PENDING)) or gang.members[:1]
        if gang.min_member - gang.ready >= len(members) or len({id(one.task) for one in members}) == 1:
            return members
        rooms = {id(one.task): one for one in members}
        rank = {key: self._rank(self._rooms.of(session, one)) for key, one in rooms.items()}
        return sorted(members, key=lambda one: rank[id(one.task)])

    @staticmethod
    def _rank(room: EmptyRoom) -> int:
        return 0 if room.most_in_service else 1 if room.most_ever else 2

    def wants(self, session: Session, gang: Gang) -> Wants:
        """The pods with which the gang can start, if any can."""
        return wants_of(gang, self.pending(session, gang))

    def alone(self, session: Session, gang: Gang, waiting: WaitReason, revision: int) -> Alone:
        """What becomes of the gang on an empty cluster, where its shapes do not decide that."""
        if is_decided_by_shape(session, gang, waiting, len(self.wants(session, gang).kinds)):
            return Alone()
        return self._empty.of(session, gang, revision)

    def _of(self, session: Session, member: Member, waiting: WaitReason, revision: int) -> Headline:
        if member.status is Status.PIPELINED:
            return judged(CARDS_RECLAIMED if member.task.cards is not None else INSUFFICIENT_RESOURCE, Outcome.WAIT)
        if member.status is Status.ALLOCATED:
            return judged(GANG_GATHERS, Outcome.WAIT)
        message = code_of_message(waiting.message)
        if message is not None and message.outcome is not Outcome.WAIT:
            return Headline(message.name, message.outcome, message.owner)
        if not len(session.rows):
            return judged(NO_NODES, Outcome.ESCALATE)
        wants = self.wants(session, member.gang)
        rooms = [self._rooms.of(session, one) for one, _ in wants.kinds]
        if (code := never(session, wants, rooms)) is not None:
            return judged(code, Outcome.CHANGE)
        if exceeded_limit(session, wants) is not None:
            return judged(QUEUE_LIMIT_TOO_SMALL, Outcome.CHANGE)
        alone = self.alone(session, member.gang, waiting, revision)
        if alone.never is not None:
            return judged(alone.never.code, Outcome.CHANGE)
        room = not _too_few(wants, [room.most_in_service for room in rooms]) and not _apart(session, wants, in_service=True)
        if not room or not alone.in_service:
            return judged(NODES_OUT_OF_SERVICE, Outcome.ESCALATE)
        if message is not None:
            return Headline(message.name, message.outcome, message.owner)
        return judged(_waits_for(session, member, waiting, rooms[0]), Outcome.WAIT)


def _too_few(wants: Wants, rooms: Sequence[int]) -> bool:
    """Whether nodes with this room in all hold too few of the pods."""
    return any(room < count for room, (_, count) in zip(rooms, wants.kinds, strict=True))


def _apart(session: Session, wants: Wants, *, in_service: bool) -> bool:
    """Whether none of the domains in one of which the gang has to be would have room for its pods if it were empty."""
    if (allowed := domains(session, wants)) is None:
        return False
    sums = [session.tree.sums(rooms_by_node(session, one)[in_service])[allowed] for one, _ in wants.kinds]
    return any(not (room >= count).any() for room, (_, count) in zip(sums, wants.kinds, strict=True))


def domains(session: Session, wants: Wants) -> Ints | None:
    """Domains of the fabric of which the gang has to be in one; None: it may be anywhere."""
    gang = wants.kinds[0][0].gang
    if not concerned(gang) or not session.topological or session.tree.root == 0:
        return None
    constraint = constraint_of(session.tree, gang)
    if constraint is None or not constraint.hard:
        return None
    return np.flatnonzero(session.tree.tiers <= constraint.ceiling)


def never(session: Session, wants: Wants, rooms: Sequence[EmptyRoom]) -> str | None:
    """The code of the rule for which the pods do not fit even on empty nodes; None: they fit."""
    for (one, _), room in zip(wants.kinds, rooms, strict=True):
        if not room.most_ever:
            return lack_of(session, one).code
    if _too_few(wants, [room.most_ever for room in rooms]):
        return GANG_TOO_LARGE
    return TOPOLOGY_TOO_SMALL if _apart(session, wants, in_service=False) else None


def exceeded_limit(session: Session, wants: Wants) -> tuple[QueueName, str, int, int] | None:
    """The queue, on the path of the gang's, of which the pods alone exceed a limit: its name, the resource, what they request and the limit."""
    gang = wants.kinds[0][0].gang
    need: Resources = {}
    for one, count in wants.kinds:
        add(need, {name: count * units for name, units in one.task.requests.items()})
    name: QueueName | None = gang.queue
    seen: set[QueueName] = set()
    while name is not None and name not in seen and (queue := session.queues.get(name)) is not None:
        seen.add(name)
        for resource, most in queue.capability.items():
            if need.get(resource, 0) > most:
                return name, resource, need[resource], most
        name = queue.parent
    return None


@dataclass(frozen=True, slots=True)
class Lack:
    """The rule that keeps the member from all nodes even when they are empty and in service. `rows`: `[N]`, the nodes that it keeps the member from first, of
    those that come nearest to holding it: statements about the rule are true of these nodes. `label`: of the rule; "" = unknown; `absent`: the resource that no
    node has at all."""

    member: Member
    label: str
    rows: Bools
    absent: str = ""

    @property
    def code(self) -> str:
        if self.absent:
            return RESOURCE_ABSENT
        if self.label:
            return code_of_lack(self.label, ever=True)
        return str(Label.CARDS_TOO_FEW) if self.member.task.cards is not None else INSUFFICIENT_RESOURCE


def lack_of(session: Session, member: Member) -> Lack:
    """Of the nodes that the pod chooses itself, if there are any, the rule that most of those fail that fail the fewest."""
    columns, task = session.columns, member.task
    empty, rows = columns.emptied(), slice(0, columns.size)
    lasting, _ = lasting_rules(session, member)
    fits = [found for fit in FITS for found in fit.failures(empty, rows, task)]
    first, failed, labels = first_failed([*lasting, *fits], columns.size)
    relevant = chosen_rows(lasting, columns) & (first >= 0)
    if task.cards is not None and (with_cards := relevant & _has_cards(columns, task)).any():
        relevant = with_cards
    alone = relevant & (failed == 1)
    nearest = alone if alone.any() else relevant
    if not nearest.any():
        return Lack(member, "", nearest)
    number = int(np.bincount(first[nearest]).argmax())
    return Lack(member, labels[number], nearest & (first == number), _absent(columns, task, labels[number]))


def _absent(columns: Columns, task: Task, label: str) -> str:
    """The resource that a rule with this label misses, if no node has any of it."""
    resource = label.removeprefix("Insufficient ")
    if label == Label.DEVICE_INSUFFICIENT and (vendor := VENDORS.of(task.requests)) is not None:
        resource = vendor.cards
    elif resource == label:
        return ""
    return "" if columns.allocatable[columns.resource(resource)][columns.alive].any() else resource


def _has_cards(columns: Columns, task: Task) -> Bools:
    """`[N]`: nodes with cards of the kind that the pod requests."""
    vendor = VENDORS.of(task.requests)
    there = np.asarray((columns.card_index[: columns.size] >= 0).any(axis=1))
    return (
        there
        if vendor is None
        else np.asarray(there & (columns.allocatable[columns.resource(vendor.cards), : columns.size] > 0))
    )


def _waits_for(session: Session, member: Member, waiting: WaitReason, room: EmptyRoom) -> str:
    """The code of what running pods hold: of the nodes that would have room if they were empty."""
    reasons, task = waiting.reasons, member.task
    if reasons is None or not reasons.counts or reasons.fitting:
        return GANG_PARTLY_FITS
    counts = Counter(reasons.counts)
    counts.subtract(room.lacking)
    label, _ = counts.most_common(1)[0]
    if task.cards is not None and label in _HELD:
        spread = Label.CARDS_TOO_FEW in counts and _free_where_too_few(session, member) >= task.cards.count
        return CARDS_SPREAD if spread else str(Label.CARDS_IN_USE)
    return code_of_lack(label, ever=False)


def _free_where_too_few(session: Session, member: Member) -> int:
    """Free cards of all nodes that would have room for the pod if they were empty, and have fewer free than it requests."""
    task = member.task
    assert task.cards is not None
    free = free_cards(session.columns, task)
    return int(free[(rooms_by_node(session, member)[1] > 0) & (free < task.cards.count)].sum())


def free_cards(columns: Columns, task: Task) -> Ints:
    """`[N]`: sound cards without a pod, of the models that the pod may use."""
    rows = slice(0, columns.size)
    free = columns.card_ok[rows] & (columns.card_pods[rows] == 0)
    if task.cards is not None and task.cards.models:
        free = free & columns.models_allowed(task.cards.models)[columns.card_model[rows]]
    return np.asarray(free.sum(axis=1), dtype=np.int64)
