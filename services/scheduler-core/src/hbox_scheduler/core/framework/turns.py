"""Order of turns: the queue to serve next, and its gang to serve next. Queue keys are refreshed every turn, because each outcome changes shares; a gang's key
depends on the gang only and is refreshed when its turn comes or when it loses members.

Nominated gangs come before all others, because victims were evicted for them. Offline work of all queues comes last.
"""

from collections import Counter
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

from hbox_common.model import QueueName

from ..cluster.entities import Gang, QueueInfo, Status
from .hooks import Key

if TYPE_CHECKING:
    from .session import Session

#: Whether the queue has no nominated gang, and the branch of the queue.
_Side: TypeAlias = tuple[bool, QueueName]

#: Key, number of the entry, gang.
_Entry: TypeAlias = tuple[tuple[object, ...], int, Gang]


class ServiceOrder:
    """Gangs that wait for their turn, by queue. Gangs whose queue does not exist are ignored."""

    def __init__(self, session: "Session", gangs: Iterable[Gang], outside: Iterable[QueueName] = ()) -> None:
        """`outside`: queues with further waiting gangs outside this session: such a queue keeps its turns after its gangs of this session are served."""
        self._session = session
        self._heaps: dict[QueueName, list[_Entry]] = {}
        self._waiting: set[Gang] = set()
        self._in_queue: Counter[QueueName] = Counter()
        self._nominated_in: Counter[QueueName] = Counter()  #: waiting gangs with nominations
        self._nominated: set[Gang] = set()
        self._number = count()
        self._read = len(session.departures)
        #: heap of sides with the part of their branch; entries that differ from `QueueRanking.part` are stale
        self._sides: list[tuple[bool, Key, QueueName]] = []
        self._part_of: dict[_Side, Key] = {}  #: the part with which a side was added last
        #: by side, heap of queues with the rest of their key; entries that differ from `QueueRanking.rest` are stale
        self._turns: dict[_Side, list[tuple[Key, QueueName]]] = {}
        self._seen = len(session.ranking.changed), len(session.ranking.branches_changed)
        self.at_last = False  #: whether only offline work is left
        self._last: list[Gang] = []  #: offline work, served after all others
        for gang in gangs:
            if gang.queue in session.queues:
                if gang.offline:
                    self._last.append(gang)
                    continue
                self._enrol(gang)
                self._heaps.setdefault(gang.queue, []).append(self._entry(gang))
        for heap in self._heaps.values():
            heapify(heap)
        for name in self._in_queue:
            self._enter(name)
        for name in outside:
            if name in self._in_queue:
                self._in_queue[name] += 1

    def next(self) -> Gang | None:
        """Remove and return the gang to serve next."""
        queue = self.next_queue()
        return None if queue is None else self.of(queue)

    def next_queue(self) -> QueueInfo | None:
        """The queue to serve next among those with waiting gangs."""
        if not self._in_queue and self._last:
            self._enrol_last()
        if len(self._in_queue) == 1:
            (name,) = self._in_queue
            return self._session.queues[name]
        ranking = self._session.ranking
        ranking.refresh()
        queues_seen, branches_seen = self._seen
        self._seen = len(ranking.changed), len(ranking.branches_changed)
        for name in ranking.changed[queues_seen:]:
            if name in self._in_queue:
                self._enter(name)
        for branch in ranking.branches_changed[branches_seen:]:
            for side in ((False, branch), (True, branch)):
                if side in self._turns:
                    self._enter_side(side)
        while self._sides:
            plain, part, branch = self._sides[0]
            if (turns := self._turns.get((plain, branch))) and part == ranking.part(branch):
                while turns:
                    rest, name = turns[0]
                    if name in self._in_queue and plain is not bool(self._nominated_in[name]) and rest == ranking.rest(name):
                        return self._session.queues[name]
                    heappop(turns)
                del self._turns[plain, branch], self._part_of[plain, branch]
            heappop(self._sides)
        return None

    def _enrol_last(self) -> None:
        last, self._last, self.at_last = self._last, [], True
        for gang in last:
            self._wait(gang)
        for name in self._in_queue:
            self._enter(name)

    def _enter(self, name: QueueName) -> None:
        """Add a turn of the queue by its current key; entries with older keys become stale."""
        ranking = self._session.ranking
        side = not self._nominated_in[name], ranking.branch(name)
        heappush(self._turns.setdefault(side, []), (ranking.rest(name), name))
        self._enter_side(side)

    def _enter_side(self, side: _Side) -> None:
        part = self._session.ranking.part(side[1])
        if self._part_of.get(side) != part:
            self._part_of[side] = part
            heappush(self._sides, (side[0], part, side[1]))

    def left(self) -> set[Gang]:
        """The gangs that still wait for their turn."""
        return self._waiting.union(self._last)

    def of(self, queue: QueueInfo) -> Gang | None:
        """Remove and return the queue's gang to serve next. None: all its gangs of this session were served."""
        self._push_again()
        heap = self._heaps.get(queue.name, [])
        while heap:
            key, _, gang = heappop(heap)
            if gang not in self._waiting:
                continue
            if (gang.holding or gang.waiting) and (now := self._key(gang)) != key:
                heappush(heap, (now, next(self._number), gang))
                continue
            self._waiting.discard(gang)
            self._leave(queue.name)
            if gang in self._nominated:
                self._nominated_in[queue.name] -= 1
                self._nominated.discard(gang)
            if len(self._in_queue) > 1 and queue.name in self._in_queue:
                self._enter(queue.name)
            return gang
        return None

    def put_back(self, gang: Gang) -> None:
        """Add the gang again for another turn."""
        self._wait(gang)
        self._enter(gang.queue)

    def _wait(self, gang: Gang) -> None:
        self._enrol(gang)
        self._push(gang)

    def _enrol(self, gang: Gang) -> None:
        self._waiting.add(gang)
        self._in_queue[gang.queue] += 1
        if not gang.prepared and _nominated(gang):
            self._nominated.add(gang)
            self._nominated_in[gang.queue] += 1

    def drop(self, queue: QueueInfo) -> None:
        """Remove the queue with all its gangs."""
        for _, _, gang in self._heaps.pop(queue.name, ()):
            self._waiting.discard(gang)
            self._nominated.discard(gang)
        del self._in_queue[queue.name], self._nominated_in[queue.name]

    def _leave(self, name: QueueName) -> None:
        self._in_queue[name] -= 1
        if not self._in_queue[name]:
            del self._in_queue[name]

    def _push(self, gang: Gang) -> None:
        heappush(self._heaps.setdefault(gang.queue, []), self._entry(gang))

    def _entry(self, gang: Gang) -> _Entry:
        return self._key(gang), next(self._number), gang

    def _key(self, gang: Gang) -> tuple[object, ...]:
        return (gang not in self._nominated, *self._session.gang_key(gang))

    def _push_again(self) -> None:
        """Push waiting gangs that lost members since the last call again: their keys may have decreased."""
        departures = self._session.departures
        if self._read == len(departures):
            return
        losers = {member.gang: None for members in departures[self._read :] for member in members}
        self._read = len(departures)
        for gang in losers:
            if gang in self._waiting:
                self._push(gang)


def _nominated(gang: Gang) -> bool:
    return any(member.nominated is not None and member.status is Status.PENDING for member in gang.members)
