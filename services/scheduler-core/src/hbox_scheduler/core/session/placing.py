"""Where one member can go, and which of those places is best.

A node takes a member where no plugin's filter fails it, its resources cover the request, and enough of its cards are free. Resources and cards are
the engine's own business and always hold; filters and scores are the policy's. `books` is either the columns as they are, or `columns.future()`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hbox_common.model import CardSlice, QueueName

from ..arrays import Bools, Floats, Ints
from ..devices.nvidia import ALL, Bounded, CardRoom, pick, slices_of
from ..explain.labels import Label
from ..explain.reasons import Reasons, tally
from ..plugins.nodeports import NodePorts
from ..plugins.resources import ResourceRoom
from ..state import Columns
from ..task import Task
from .nouns import Member

if TYPE_CHECKING:
    from .session import Session

#: What a node takes of members that ask for nothing.
_NO_LIMIT = 1 << 30

#: What the engine itself never over-books, in the order in which reasons are given.
ROOMS = (NodePorts(), ResourceRoom(cards=False), CardRoom(), ResourceRoom(cards=True))


@dataclass(frozen=True, slots=True)
class Room:
    """A place for a member: the row, and whether it is free now (else it has to wait for those who leave)."""

    row: int
    now: bool
    slices: tuple[CardSlice, ...]


#: Members about which filters that say that they are settled say the same, and that have room in the same places.
Likeness: TypeAlias = tuple[object, ...]


def likeness_of(member: Member) -> Likeness:
    """To be kept no longer than the member."""
    notes = (member.labels, member.annotations, member.gang.annotations)
    return (id(member.task), member.gang.queue, member.namespace, *(tuple(sorted(some.items())) for some in notes))


class Placing:
    """Answers about places, on the session's columns as they are when asked."""

    def __init__(self, session: "Session", *, later: bool = False) -> None:
        """`later`: the queue's limits are looked at as if all that leaves had left."""
        self._session = session
        self._columns = session.columns
        self._later = later

    def failures(self, member: Member, books: Columns) -> Iterator[tuple[str, Bools]]:
        """Label and mask `[N]`, all rules in the order in which reasons are given: filters, resources, cards, the count of cards."""
        for _, hook in self._session.filters():
            yield from hook(member, books)
        yield from self.room_failures(member, books)

    def room_failures(self, member: Member, books: Columns) -> Iterator[tuple[str, Bools]]:
        """As `failures`, but what is booked alone."""
        rows, task = slice(0, books.size), self.task(member)
        for room in ROOMS:
            yield from room.failures(books, rows, task)

    def allowed(self, member: Member, books: Columns) -> Bools:
        """`[N]`: alive nodes that no plugin's filter fails, whatever is booked there."""
        mask = books.alive[: books.size].copy()
        for _, hook in self._session.filters():
            for _, fails in hook(member, books):
                mask &= ~fails
        return mask

    def fits(self, member: Member, books: Columns) -> Bools:
        """`[N]`: nodes with room, by resources and cards alone."""
        return self.capacity(member, books) > 0

    def capacity(self, member: Member, books: Columns) -> Ints:
        """`[N]`: how many such members have room, by resources and cards alone."""
        rows, task = slice(0, books.size), self.task(member)
        least = np.full(books.size, _NO_LIMIT, dtype=np.int64)
        for room in ROOMS:
            capacity = room.capacity(books, rows, task)
            if capacity is not None:
                np.minimum(least, capacity, out=least)
        return np.maximum(least, 0, out=least)

    def scores(self, member: Member, books: Columns, candidates: Bools) -> Floats:
        """`[N]`: the sum over the plugins; meaningful at the candidates `[N]`."""
        total = np.zeros(books.size, dtype=np.float64)
        for _, _, score in self.scores_by_plugin(member, books, candidates):
            total += score
        return total

    def scores_by_plugin(self, member: Member, books: Columns, candidates: Bools) -> Iterator[tuple[str, str, Floats]]:
        """Plugin, hook, `[N]`."""
        for name, plugin, hook in self._session.scorers():
            score = hook(member, books, candidates) if name == "normalised" else hook(member, books)
            if score is not None:
                yield plugin.name, name, score

    def best(self, member: Member, candidates: Bools, books: Columns | None = None) -> int:
        """The best row of the candidates `[N]`, of which there must be one; equal ones by row."""
        scores = self.scores(member, books or self._columns, candidates)
        scores[~candidates] = -np.inf
        chosen = self._session.best_node(member, scores)
        return chosen if chosen is not None and candidates[chosen] else int(scores.argmax())

    def find(self, member: Member, within: Bools | None = None, *, future: bool = True) -> Room | None:
        """The best place for a member: one that is free now, else (`future`) one that will be. None = there is none.

        within: `[N]`, rows to be looked at; None = all.
        """
        columns = self._columns
        allowed = self.allowed(member, columns)
        if within is not None:
            allowed &= within
        if not allowed.any():
            return None
        free = columns.unpromised()
        now = allowed & self.fits(member, free)
        if member.nominated is not None and (row := self._session.row(member.nominated)) is not None and now[row]:
            return Room(row, True, self.slices(member, row, free))
        if now.any():
            row = self.best(member, now)
            return Room(row, True, self.slices(member, row, free))
        if not future:
            return None
        books = columns.future()
        later = allowed & self.fits(member, books)
        if not later.any():
            return None
        row = self.best(member, later, books)
        return Room(row, False, self.slices(member, row, books))

    def reasons(self, member: Member) -> Reasons:
        """Why one more member like this one finds no place that is free now."""
        columns = self._columns
        reasons = tally(self.failures(member, columns), self._session.rows, columns.size)
        walls = []
        if kept := reasons.counts.get(Label.QUEUE_MODEL, 0):
            walls.append(self._session.models.wall(member, kept))
        if Label.CARD_QUOTA in reasons.counts:
            walls.append(self._session.spaces.wall(member))
        return replace(reasons, wall="; ".join(walls)) if walls else reasons

    def task(self, member: Member) -> Task:
        """What it asks for, on cards that its namespace's quotas pay for and of models that its queue may have more of."""
        spaces, models = self._session.spaces, self._session.models
        task = spaces.task(member) if spaces else member.task
        return models.task(member, task, later=self._later) if models else task

    def admits(self, queue: QueueName, places: Iterable[tuple[int, Sequence[CardSlice]]]) -> bool:
        """Whether the queue's limits of card models allow all of these slices on these rows."""
        models = self._session.models
        return not models or models.admits(queue, places, later=self._later)

    def slices(self, member: Member, row: int, books: Columns) -> tuple[CardSlice, ...]:
        """The cards that the member takes on this row, which must have room for it."""
        if member.task.cards is None:
            return ()
        rows = np.array([row], dtype=np.int64)
        batch = pick(
            books, rows, np.array([1], dtype=np.int64), self.task(member), self._session.card_keys(member, books, rows)
        )
        return slices_of(books, batch, member.task.cards.count)[0]

    def future_cards(self, member: Member, row: int) -> tuple[CardSlice, ...] | None:
        """The cards that the member takes on this row once all that leaves has left; None = they are not there."""
        task, columns = self.task(member), self._columns
        request = task.cards
        if request is None:
            return ()
        if request.whole and not request.models and not isinstance(request, Bounded):
            free = columns.card_ok[row] & (columns.card_pods[row] == columns.card_pods_leaving[row])
            chosen = np.flatnonzero(free)[: request.count]
            if len(chosen) < request.count:
                return None
            return _whole(tuple(columns.card_index[row, chosen].tolist()), tuple(columns.card_memory[row, chosen].tolist()))
        view = columns.cards_of(row)
        capacity = CardRoom().capacity(view, slice(0, 1), task)
        return self.slices(member, 0, view) if capacity is not None and capacity[0] > 0 else None


@lru_cache(maxsize=4096)
def _whole(indexes: tuple[int, ...], memory_mib: tuple[int, ...]) -> tuple[CardSlice, ...]:
    return tuple(CardSlice(index, ALL, mib) for index, mib in zip(indexes, memory_mib, strict=True))
