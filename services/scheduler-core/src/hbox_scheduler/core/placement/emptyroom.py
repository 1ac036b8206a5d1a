"""Room for a pending pod if nothing ran on any node: whether its wait can end by itself.

It depends on what the nodes are and not on what runs on them, so that it is kept by shape until a node is described anew.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from ..cluster import Columns
from ..cluster.arrays import Bools, Ints
from ..cluster.columns import CONDITION_TAINTS
from ..cluster.entities import Member
from ..cluster.task import Task
from ..explain.labels import Label
from ..explain.outcomes import CHOICES, PERMANENT, RETURNING
from ..explain.reasons import first_failed
from ..framework import Session
from ..framework.basefits import FITS, capacity_when_empty, capacity_when_vacant
from ..framework.hooks import ShapeRoom
from ..plugins.taints import HARD, untolerated


@dataclass(frozen=True, slots=True)
class EmptyRoom:
    """How many such pods all nodes would hold: `most_ever` with all nodes in service and all cards sound, `most_in_service` as nodes and cards are. `lacking`:
    nodes that would hold none, by the first rule that they fail."""

    most_ever: int
    most_in_service: int
    lacking: Mapping[str, int]


class EmptyRooms:
    """Of the shapes of pending pods."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._known: WeakKeyDictionary[Task, EmptyRoom] = WeakKeyDictionary()
        self._described = -1

    def of(self, session: Session, member: Member) -> EmptyRoom:
        """For pods like this one."""
        if not session.by_shape(member) or (member.task.aligned is not None and session.columns.zones.strict):
            return _empty_room(session, member)
        if self._described != self._columns.described.end:
            self._described = self._columns.described.end
            self._known.clear()
        found = self._known.get(member.task)
        if found is None:
            found = self._known[member.task] = _empty_room(session, member)
        return found


def _empty_room(session: Session, member: Member) -> EmptyRoom:
    columns = session.columns
    ever, in_service = rooms_by_node(session, member)
    none = columns.alive[: columns.size] & (in_service == 0)
    lacking = _lacking(session, member, none) if none.any() else {}
    most = int(ever.sum())
    return EmptyRoom(most, most if in_service is ever else int(in_service.sum()), lacking)


def rooms_by_node(session: Session, member: Member) -> tuple[Ints, Ints]:
    """`[N]`: how many such pods each node would hold, as of `EmptyRoom`: ever, and in service."""
    columns, task = session.columns, member.task
    rows = slice(0, columns.size)
    ever = capacity_when_empty(columns, task)
    lasting, out = lasting_rules(session, member)
    never = np.zeros(columns.size, dtype=np.bool_)
    for _, fails in lasting:
        never |= fails
    ever = np.where(never, 0, ever) if never.any() else ever
    for keeper in keepers(session, task):
        ever = np.minimum(ever, np.maximum(keeper.shape_room(columns.emptied(), rows, task), 0))
    sound = bool((columns.card_ok[rows] == (columns.card_index[rows] >= 0)).all())
    now = ever if sound else np.minimum(capacity_when_vacant(columns, task), ever)
    return ever, np.where(out, 0, now) if out.any() else now


def _lacking(session: Session, member: Member, rows: Bools) -> Mapping[str, int]:
    """Of these nodes the first rule that each fails, if nothing runs there."""
    columns = session.columns
    masks = [found for found in session.masks(member, columns) if found[0] in PERMANENT or found[0] in RETURNING]
    vacant = columns.vacant()
    fits = [found for fit in FITS for found in fit.failures(vacant, slice(0, columns.size), member.task)]
    first, _, labels = first_failed([*masks, *fits], columns.size)
    return Counter(labels[number] for number in first[rows].tolist() if number >= 0)


def lasting_rules(session: Session, member: Member) -> tuple[list[tuple[str, Bools]], Bools]:
    """Label and mask `[N]` of the plugins' rules that no pod, time or repair changes; and `[N]` nodes that are out of service."""
    columns = session.columns
    found: list[tuple[str, Bools]] = []
    out = np.zeros(columns.size, dtype=np.bool_)
    if session.pools and (there := session.pools.allowed(member)) is not None:
        found.append((str(Label.NODE_POOL), ~there))
    for label, fails in session.masks(member, columns):
        if label in RETURNING:
            out |= fails
        elif label == Label.UNTOLERATED_TAINT:
            by_condition = fails & _tolerates_but_conditions(columns, member.task)
            out |= by_condition
            found.append((label, fails & ~by_condition))
        elif label in PERMANENT:
            found.append((label, fails))
    for keeper in keepers(session, member.task):
        room = keeper.shape_room(columns.emptied(), slice(0, columns.size), member.task)
        found.append((keeper.label, room <= 0))
    return found, out


def keepers(session: Session, task: Task) -> Sequence[ShapeRoom]:
    """The plugins that keep cpu and memory of such pods for idle cards: on empty nodes all cards are idle."""
    return [one for one in session.plugins(ShapeRoom) if one.label == Label.PROPORTION_KEPT and one.limits(task)]


def chosen_rows(rules: Iterable[tuple[str, Bools]], columns: Columns) -> Bools:
    """`[N]`: nodes that the pod's own pool, selector and affinity choose; all nodes if they choose none. `rules`: as of `lasting_rules`."""
    found = columns.alive[: columns.size].copy()
    for label, fails in rules:
        if label in CHOICES:
            found &= ~fails
    return found if found.any() else columns.alive[: columns.size]


def _tolerates_but_conditions(columns: Columns, task: Task) -> Bools:
    """`[N]`: nodes that the pod would tolerate without the taints that mark a node's condition."""
    lasting = [[taint for taint in taints if taint.key not in CONDITION_TAINTS] for taints in columns.descriptions.taint_sets]
    allowed = [not untolerated(taints, task.tolerations, HARD) for taints in lasting]
    return np.array(allowed, dtype=np.bool_)[columns.descriptions.taints[: columns.size]]
