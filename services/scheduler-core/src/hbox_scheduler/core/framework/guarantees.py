"""Guarantees of queues in a session: they limit the amounts that non-reclaimable queues may use (S4, `hbox_common.model.lending`).

Checked for every placement, as limits are, under every policy, by pool and by card model. Placements and evictions in such queues count at once; all of them
are reverted when the session closes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hbox_common.model import (
    CardSlice,
    Held,
    Lending,
    QueueName,
    QueueTree,
    Resources,
    amounts_in,
    by_pool,
    cards_by_model,
    in_pool,
    is_model,
)
from hbox_common.model.resources import add

from ..cluster import Columns
from ..cluster.entities import HOLDING, Gang, Member
from ..cluster.snapshot import Cluster
from ..explain.labels import Label

_NOTHING: Final[frozenset[QueueName]] = frozenset()


def lending_of(gangs: Sequence[Gang], queues: QueueTree, columns: Columns) -> Lending:
    """The guaranteed amounts lent to members of these gangs, evaluated at the time of counting. Members that are being evicted hold nothing."""

    def held() -> Iterator[Held]:
        for member in (member for gang in gangs for member in gang.members):
            if member.status in HOLDING and member.row >= 0:
                yield held_of(member, columns)

    return Lending(queues, held, columns.described_nodes)


def held_of(member: Member, columns: Columns) -> Held:
    """The amounts that a placed member holds."""
    models = cards_by_model(columns.states[member.row], member.slices) if member.slices else {}
    amounts = amounts_in(member.account, {**member.task.requests, **models})
    return Held(member.gang.queue, columns.names[member.row], amounts, member.preemptable and member.gang.preemptable)


class Guarantees:
    """Truth value: whether guarantees limit any queue. False if every queue is reclaimable or no queue has a guarantee; checks are skipped then."""

    def __init__(self, columns: Columns, cluster: Cluster) -> None:
        self._columns = columns
        self._keeping = cluster.roster.keeping if cluster.lending else _NOTHING
        self._limited = cluster.limited_by_guarantees
        self._booked: dict[int, tuple[Held, int]] = {}
        self._names: dict[int, str] = {}
        if self._keeping and cluster.lending is not None and cluster.lending.guaranteed:
            self._lending: Lending = cluster.lending
            self._names = {column: name for name, column in columns.resources.items() if is_model(by_pool(name)[0])}
        else:
            self._keeping = _NOTHING

    def __bool__(self) -> bool:
        return bool(self._keeping)

    def room(self, member: Member, most: int) -> int:
        """How many members equal to this one, at most `most`, leave other queues their guarantees, in the pool and on the model that it is tried on."""
        if member.gang.queue not in self._keeping or member.task.offline or most <= 0:
            return most
        times = self._times(member.gang.queue, self._amounts(member))
        return most if times is None else min(most, times)

    def withheld_reason(self, members: Sequence[Member]) -> str:
        """Why these members of one gang together would violate guarantees of other queues; "" = they would not."""
        queue, asked = members[0].gang.queue, Resources()
        if queue not in self._keeping or members[0].task.offline:
            return ""
        for member in members:
            add(asked, self._amounts(member))
        headroom = self._lending.headroom(queue, asked)
        return f"{Label.QUEUE_GUARANTEES}: {headroom.message}" if headroom.times == 0 else ""

    def left_of_models(self, queue: QueueName, pool: str) -> Resources:
        """Further cards that the queue may use of each model with guarantees in this pool."""
        if queue not in self._keeping:
            return {}
        found: Resources = {}
        for name in self._lending.guaranteed:
            resource, where = by_pool(name)
            if where == pool and is_model(resource) and (times := self._times(queue, {name: 1})) is not None:
                found[resource] = times
        return found

    def admits(self, queue: QueueName, places: Iterable[tuple[int, Sequence[CardSlice]]]) -> bool:
        """Whether guarantees allow the queue all of these cards, by model. places: rows and slices."""
        if queue not in self._keeping:
            return True
        asked: Resources = {}
        for row, slices in places:
            for model, cards in cards_by_model(self._columns.states[row], slices).items():
                name = in_pool(model, self._columns.pool_of(row))
                asked[name] = asked.get(name, 0) + cards
        return self._times(queue, asked) != 0

    def book(self, member: Member, row: int, times: int = 1) -> None:
        """Book the member on the row; `times=-1` reverts it."""
        if member.gang.queue not in self._keeping or row < 0:
            return
        found = self._booked.pop(id(member), None)
        if found is not None:
            self._book(found[0], -found[1])
            return
        held = Held(member.gang.queue, self._columns.names[row], self._amounts(member), preemptable=True)
        self._booked[id(member)] = held, times
        self._book(held, times)

    def close(self) -> None:
        """As before the session."""
        for held, times in self._booked.values():
            self._book(held, -times)
        self._booked.clear()

    def _book(self, held: Held, times: int) -> None:
        with self._lending.uneased():
            self._lending.book(held, times)

    def _times(self, queue: QueueName, asked: Resources) -> int | None:
        times = self._lending.headroom(queue, asked).times
        if times is not None:
            self._limited.add(queue)
        return times

    def _amounts(self, member: Member) -> Resources:
        """What it counts, where it is or is tried."""
        models = {by_pool(self._names[column])[0]: cards for column, cards in member.models if column in self._names}
        return amounts_in(member.account, {**member.task.requests, **models} if models else member.task.requests)
