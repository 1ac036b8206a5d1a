"""reservation: large gangs start in time (requirements B4), and what runs in their gaps cannot push them back.

A gang that has waited for longer than `after`, and is large enough, gets a start: the earliest moment at which enough of those who run have ended, by what is
known of their run times. Nodes for it are set aside; others may use them only if they are known to end before that start, so that the start holds whatever
else is placed (conservative backfill, as Slurm's; reference peers). Where nobody knows when the others end there is no such moment: then the
emptiest nodes are held for the gang for a while, and given free again for as long, so that smaller work is delayed but never stopped.

Run times: annotation `hbox.io/walltime` (a duration) or `hbox.io/run-seconds`, on the pod or its PodGroup.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model import GroupPhase
from hbox_common.model.annotations import RUN_SECONDS, WALLTIME

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Ints
from ..cluster.entities import Gang, Member, Status
from ..cluster.task import Task
from ..explain.labels import Label
from ..framework.hooks import PodMask
from ..framework.placing import FITS
from .arguments import Arguments
from .durations import duration_s

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Reserved:
    """Rows set aside for a gang: `[N]`, until `start` (seconds since the epoch; inf = held without a known start)."""

    gang: Gang
    rows: Bools
    start: float


class Reservation(PodMask):
    """Arguments: after (duration, 10m), members (2: smaller gangs get no reservation), depth (1: gangs with one at a time), hold (duration, 30m)."""

    name = "reservation"
    sees_plain_pods = True
    asks_others = True

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        self._after_s = arguments.duration_s("after", "10m")
        self._hold_s = arguments.duration_s("hold", "30m")
        self.members = arguments.integer("members", 2, least=1)
        self._depth = arguments.integer("depth", 1, least=0)
        arguments.done()
        self.reserved: list[Reserved] = []
        self._now = 0.0

    def open(self, session: "Session") -> None:
        self._now = session.now
        self.reserved = []
        waiting = [
            gang
            for gang in session.gangs
            if gang.phase is not GroupPhase.PENDING
            and gang.queue in session.queues
            and self._now - gang.created_at >= self._after_s
            and gang.min_member >= self.members
            and gang.ready < gang.min_member <= gang.ready + gang.count(Status.PENDING)
        ]
        waiting.sort(key=session.gang_key)
        taken = np.zeros(session.columns.size, dtype=np.bool_)
        for gang in waiting[: self._depth]:
            reserved = self._reserve(session, gang, taken)
            if reserved is not None:
                self.reserved.append(reserved)
                taken |= reserved.rows

    def settled(self, member: Member) -> bool:  # noqa: ARG002  # the hook's signature
        """What is set aside does not change within a session."""
        return True

    def failures(self, member: Member, cluster: Columns) -> Iterator[tuple[str, Bools]]:  # noqa: ARG002
        for reserved in self.reserved:
            if member.gang is not reserved.gang and not self._ends_before(member, reserved.start):
                yield Label.RESERVED, reserved.rows

    def _ends_before(self, member: Member, start: float) -> bool:
        walltime_s = walltime_of(member)
        return walltime_s is not None and start < _NEVER and self._now + walltime_s <= start

    def _reserve(self, session: "Session", gang: Gang, taken: Bools) -> Reserved | None:
        """None where the gang fits now, or is of several kinds of members, or where it is the others' turn."""
        members = [member for member in gang.of(Status.PENDING) if not member.best_effort]
        need = gang.min_member - gang.ready
        task = members[0].task if members else None
        if task is None or any(member.task is not task for member in members):
            return None
        allowed = session.columns.alive[: session.columns.size] & ~taken
        for _, fails in session.masks(members[0], session.columns, but=self):
            allowed &= ~fails
        cluster = session.columns.future()
        free = _capacity(cluster, task) * allowed
        if free.sum() >= need:
            return None
        at = np.where(free > 0, self._now, _NEVER)
        for end, row, leaving in _ends(session, self._now):
            _release(cluster, row, leaving)
            fits = int(_capacity(cluster, task, np.array([row]))[0]) if allowed[row] else 0
            if fits > free[row]:
                free[row], at[row] = fits, end
            if free.sum() >= need:
                return Reserved(gang, _cover(free, at, need), end)
        if not self._hold_s or (self._now - gang.created_at - self._after_s) % (2 * self._hold_s) >= self._hold_s:
            return None
        emptiest = np.where(allowed, _idle(session.columns), -1.0)
        rows = np.zeros(len(free), dtype=np.bool_)
        whole = np.maximum(_capacity(_empty(session.columns), task) * allowed, 0)
        order = np.argsort(-emptiest, kind="stable")
        order = order[whole[order] > 0]
        enough = int(np.searchsorted(np.cumsum(whole[order]), need)) + 1
        rows[order[:enough]] = True
        return Reserved(gang, rows, _NEVER)


def walltime_of(member: Member) -> float | None:
    """Seconds that it may run, if that is written anywhere."""
    for annotations in (member.annotations, member.gang.annotations):
        if WALLTIME in annotations:
            return duration_s(annotations[WALLTIME])
        text = annotations.get(RUN_SECONDS, "")
        if text.replace(".", "", 1).isdigit():
            return float(text)
    return None


def _ends(session: "Session", now: float) -> list[tuple[float, int, Member]]:
    """Who is known to end when, and where; in order of time."""
    ends = []
    for gang in session.gangs:
        for member in gang.of(Status.RUNNING, Status.BOUND):
            walltime_s = walltime_of(member)
            if walltime_s is not None and member.started_at is not None and member.row >= 0:
                ends.append((max(member.started_at + walltime_s, now), member.row, member))
    return sorted(ends, key=lambda item: (item[0], item[1]))


def _release(cluster: Columns, row: int, member: Member) -> None:
    """Take a member off a copy of the columns."""
    for column, units in member.task.amount:
        cluster.used[column, row] -= units
    index = cluster.card_index[row].tolist()
    for s in member.slices:
        if s.index in index:
            position = index.index(s.index)
            cluster.card_cores_used[row, position] -= s.cores
            cluster.card_memory_used[row, position] -= s.memory_mib
            cluster.card_pods[row, position] -= 1


def _capacity(cluster: Columns, task: Task, rows: Ints | None = None) -> Ints:
    """Pods of the task that fit on each of the rows, or on all of them."""
    which = slice(0, cluster.size) if rows is None else rows
    room: Ints | None = None
    for plugin in FITS:
        fits = plugin.capacity(cluster, which, task)
        if fits is not None:
            room = fits if room is None else np.minimum(room, fits)
    count = cluster.size if rows is None else len(rows)
    return np.full(count, 1 << 30, dtype=np.int64) if room is None else np.maximum(room, 0)


def _cover(free: Ints, at: Floats, need: int) -> Bools:
    """Rows that together hold `need`: the roomiest first, of equal ones those that come free last, so that least is kept idle."""
    order = np.lexsort((-at, -free))
    enough = int(np.searchsorted(np.cumsum(free[order]), need)) + 1
    rows = np.zeros(len(free), dtype=np.bool_)
    rows[order[:enough]] = True
    return rows & (free > 0)


def _idle(columns: Columns) -> Floats:
    """`[N]`: idle cards; on nodes without cards the free share of cpu, which is less than one card."""
    size = columns.size
    cards = ((columns.card_pods[:size] == 0) & columns.card_ok[:size]).sum(axis=1).astype(np.float64)
    column = columns.resource("cpu")
    use = columns.used[column, :size] / np.maximum(columns.allocatable[column, :size], 1)
    return np.asarray(cards + 0.9 * (1.0 - np.minimum(use, 1.0)))


def _empty(columns: Columns) -> Columns:
    cluster = columns.future()
    for field in ("used", "card_cores_used", "card_memory_used", "card_pods"):
        setattr(cluster, field, np.zeros_like(getattr(cluster, field)))
    return cluster
