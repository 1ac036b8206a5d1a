"""Jobs that cannot start now, kept so that they cost nothing until something that they wait for changes.

Jobs of the same kind (queue, requests, pods that have to start together) form a lot. A lot is looked at only when rows rose or its queue
freed something; then as many of its jobs are woken, first come first, as the room found could hold. Whether one of them really starts is decided by the
next attempt.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice

from hbox_common.model import JobId, QueueName

from .arrays import Ints, Rows
from .devices.nvidia import free_percent
from .jobs import Entry, JobState, Kind, Order
from .modelwalls import most, within
from .paying import Payer
from .queues import Queues
from .state import Columns
from .task import Task
from .view import Views

#: Jobs of a lot that are shown to who may make room for them.
SHOWN = 512


class Rise:
    """The most that any of the risen rows has left, dimension by dimension: a cheap test that most lots fail."""

    def __init__(self, columns: Columns, risen: Ints | None) -> None:
        rows: Rows = slice(0, columns.size) if risen is None else risen
        self._free = (columns.allocatable[:, rows] - columns.used[:, rows]).max(axis=1, initial=0).tolist()
        self._idle_cards = int(((columns.card_pods[rows] == 0) & columns.card_ok[rows]).sum(axis=1).max(initial=0))
        self._percent = int(free_percent(columns, rows).max(initial=0))

    def may_hold(self, task: Task) -> bool:
        """False only where none of the risen rows can take one pod of the task."""
        if any(column >= len(self._free) or units > self._free[column] for column, units in task.amount):
            return False
        if task.cards is None:
            return True
        return self._idle_cards >= task.cards.count if task.cards.whole else self._percent >= task.cards.cores


@dataclass(slots=True)
class Lot:
    """`waiting` is a heap; entries that have left are skipped when they come up. `sizes`: pods of the first job, by task."""

    waiting: list[Order] = field(default_factory=list)
    sizes: tuple[int, ...] = ()
    recheck: bool = False


class Parking:
    """All lots."""

    def __init__(self, columns: Columns, views: Views, queues: Queues, payer: Payer) -> None:
        self._columns = columns
        self._views = views
        self._queues = queues
        self._payer = payer
        self._lots: dict[Kind, Lot] = {}
        self._risen = columns.risen.end
        self._rechecks = False

    @property
    def lots(self) -> int:
        return len(self._lots)

    def park(self, entry: Entry) -> None:
        """Let a job that failed in this cycle wait for others of its kind to be possible."""
        kind = entry.kind_of()
        lot = self._lots.get(kind)
        if lot is None:
            lot = self._lots[kind] = Lot()
        lot.sizes = tuple(len(pods) for _, pods in entry.pending)
        if entry.woken is not None and entry.woken != kind:
            self.recheck(entry)
        entry.state, entry.kind, entry.woken = JobState.PARKED, kind, None
        heappush(lot.waiting, entry.order)

    def recheck(self, entry: Entry) -> None:
        """A woken job did not use the room for which it was woken: somebody else of its kind may."""
        if entry.woken is not None and (lot := self._lots.get(entry.woken)) is not None:
            lot.recheck = self._rechecks = True
        entry.woken = None

    def wake(self, entries: dict[JobId, Entry], freed: set[QueueName], changed: set[QueueName], paid: set[str]) -> list[Entry]:
        """Jobs that may be able to start since rows rose, or since the queues `freed`, and all below them, or the quotas of the namespaces `paid` allow more;
        they leave the parking.

        Of the queues `changed` and all below them every job leaves: where it cannot start, why it waits may be something else now.
        """
        if not self._lots:
            self._risen = self._columns.risen.end
            return []
        rise = Rise(self._columns, self._columns.risen.since(self._risen)) if self._risen != self._columns.risen.end else None
        self._risen = self._columns.risen.end
        if rise is None and not freed and not paid and not self._rechecks:
            return []
        self._rechecks = False
        woken: list[Entry] = []
        for kind, lot in list(self._lots.items()):
            if self._queues.among(kind[0], changed):
                woken.extend(self._first(kind, lot, entries, len(lot.waiting)))
                del self._lots[kind]
            elif (
                lot.recheck
                or self._queues.among(kind[0], freed)
                or any(task.namespace in paid for task in kind[1])
                or (rise is not None and any(rise.may_hold(task) for task in kind[1]))
            ):
                lot.recheck = False
                woken.extend(self._wake_of(kind, lot, entries))
                if not lot.waiting:
                    del self._lots[kind]
        return woken

    def _wake_of(self, kind: Kind, lot: Lot, entries: dict[JobId, Entry]) -> list[Entry]:
        queue, tasks, need, preemptable = kind
        need = max(need, 1)
        while lot.waiting and not self._here(lot.waiting[0], kind, entries):
            heappop(lot.waiting)
        if not lot.waiting:
            return []
        room = 0
        for task, size in zip(tasks, lot.sizes, strict=True):
            allowance = self._queues.allowance(queue, task.requests, preemptable=preemptable)
            if allowance.pods == 0:
                continue
            kept, paid = task, None
            if task.namespace:
                together = need if len(tasks) == 1 else 1
                kept, paid = self._payer.payable(task, self._payer.purse(task.namespace), together=together)
            models = self._queues.left_of_models(queue, preemptable=preemptable)
            kept, _ = within(kept, models)
            paid = min((n for n in (paid, most(task, models)) if n is not None), default=None)
            fits = self._views.of(kept).total()
            fits = fits if len(tasks) == 1 else min(fits, size)
            fits = fits if paid is None else min(fits, paid)
            room += fits if allowance.pods is None else min(fits, allowance.pods)
        count = room // need
        if len(tasks) > 1:  # they share the room in ways that only an attempt can tell: one job at a time
            count = min(count, 1)
        elif tasks[0].cards is not None and tasks[0].cards.count > 1 and room:  # their room is a lower bound
            count = max(count, 1)
        return self._first(kind, lot, entries, count)

    def _first(self, kind: Kind, lot: Lot, entries: dict[JobId, Entry], count: int) -> list[Entry]:
        woken: list[Entry] = []
        while lot.waiting and len(woken) < count:
            order = heappop(lot.waiting)
            if self._here(order, kind, entries):
                entry = entries[order[2]]
                entry.state, entry.kind, entry.woken = JobState.EAGER, None, kind
                woken.append(entry)
        return woken

    def left(self, entries: dict[JobId, Entry], freed: set[QueueName]) -> Iterator[Iterator[Entry]]:
        """By lot, the first one first, some of the jobs that wait on though their queue, or one above it, is among `freed`."""
        for kind, lot in self._lots.items():
            if self._queues.among(kind[0], freed):
                yield (entries[order[2]] for order in islice(lot.waiting, SHOWN) if self._here(order, kind, entries))

    @staticmethod
    def _here(order: Order, kind: Kind, entries: dict[JobId, Entry]) -> bool:
        entry = entries.get(order[2])
        return entry is not None and entry.state is JobState.PARKED and entry.kind == kind and entry.order == order
