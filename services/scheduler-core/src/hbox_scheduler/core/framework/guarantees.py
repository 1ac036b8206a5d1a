"""What others are guaranteed, in a session: what a queue that gives nothing back may have beside it (S4, `hbox_common.model.lending`).

Asked with every placement, as limits are, whatever plugins the policy has: of one pool and one model there may be too little left, and enough of another. What
the session gives such queues, and whom it has leave them, counts at once; all of it is taken back when the session closes.
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
    """What of guarantees is lent to these gangs' members, as they are when it is counted: of those that leave nothing is held any more."""

    def held() -> Iterator[Held]:
        for member in (member for gang in gangs for member in gang.members):
            if member.status in HOLDING and member.row >= 0:
                yield held_of(member, columns)

    return Lending(queues, held, columns.described_nodes)


def held_of(member: Member, columns: Columns) -> Held:
    """What a member with a place holds."""
    models = cards_by_model(columns.states[member.row], member.slices) if member.slices else {}
    amounts = amounts_in(member.account, {**member.task.requests, **models})
    return Held(member.gang.queue, columns.names[member.row], amounts, member.preemptable and member.gang.preemptable)


class Guarantees:
    """False where every queue gives back, or nobody is guaranteed anything: then it has no say, and costs nothing."""

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
        """How many members like this one, and `most` at most, leave others what they are guaranteed: where, and on what model, it is tried now."""
        if member.gang.queue not in self._keeping or member.task.offline or most <= 0:
            return most
        times = self._times(member.gang.queue, self._amounts(member))
        return most if times is None else min(most, times)

    def withheld_reason(self, members: Sequence[Member]) -> str:
        """Why all of these members of one gang together would leave others too little; "" = they would not."""
        queue, asked = members[0].gang.queue, Resources()
        if queue not in self._keeping or members[0].task.offline:
            return ""
        for member in members:
            add(asked, self._amounts(member))
        headroom = self._lending.headroom(queue, asked)
        return f"{Label.QUEUE_GUARANTEES}: {headroom.message}" if headroom.times == 0 else ""

    def left_of_models(self, queue: QueueName, pool: str) -> Resources:
        """How many cards more the queue may have of each model that anybody is guaranteed in this pool."""
        if queue not in self._keeping:
            return {}
        found: Resources = {}
        for name in self._lending.guaranteed:
            resource, where = by_pool(name)
            if where == pool and is_model(resource) and (times := self._times(queue, {name: 1})) is not None:
                found[resource] = times
        return found

    def admits(self, queue: QueueName, places: Iterable[tuple[int, Sequence[CardSlice]]]) -> bool:
        """Whether the queue may have the models of all of these cards. places: rows and slices."""
        if queue not in self._keeping:
            return True
        asked: Resources = {}
        for row, slices in places:
            for model, cards in cards_by_model(self._columns.states[row], slices).items():
                name = in_pool(model, self._columns.pool_of(row))
                asked[name] = asked.get(name, 0) + cards
        return self._times(queue, asked) != 0

    def book(self, member: Member, row: int, times: int = 1) -> None:
        """It has a place on the row now; `times=-1`: no more."""
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
