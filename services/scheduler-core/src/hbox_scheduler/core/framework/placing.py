"""Where one member can go, and which of those places is best.

A node takes a member where no plugin's filter fails it, its resources cover the request, and enough of its cards are free. Resources and cards are
the engine's own business and always hold; filters and scores are the policy's. `columns` are either those of the session, or their `future()`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hbox_common.model import CardSlice, QueueName
from hbox_common.model.hostports import WHOLE

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Ints
from ..cluster.entities import Member
from ..cluster.task import Task
from ..cluster.zones import Seen
from ..devices import ALL, TIE_BREAK, Bounded, CardFit, node_cards, pick, ranked_by_devices, slices_of
from ..explain.cards import CardReasons, card_reasons
from ..explain.labels import Label
from ..explain.reasons import Reasons, tally
from .basefits import FITS, NO_LIMIT, most_when_empty
from .equalnodes import first_of_equals
from .zones import REFUSALS, strict_rows

if TYPE_CHECKING:
    from .session import Session

#: Name of the vendors' node ranking among the scores of an explanation.
DEVICES = "devices"


@dataclass(frozen=True, slots=True)
class NodePlacement:
    """A place for a member: the row, and whether it is free now (else the member waits for the pods that leave)."""

    row: int
    now: bool
    slices: tuple[CardSlice, ...]


#: Members about which filters that say that they are settled say the same, and that have room in the same places.
FilterKey: TypeAlias = tuple[object, ...]


def filter_key_of(member: Member) -> FilterKey:
    """To be kept no longer than the member."""
    labels = (member.labels, member.annotations, member.gang.annotations)
    return (id(member.task), member.gang.queue, member.namespace, *(tuple(sorted(some.items())) for some in labels))


class Placing:
    """Answers about places, on the session's columns as they are when asked."""

    def __init__(self, session: "Session", *, later: bool = False) -> None:
        """`later`: judge the queue's limits as if all leaving pods had left."""
        self._session = session
        self._columns = session.columns
        self._later = later

    def failures(self, member: Member, columns: Columns) -> Iterator[tuple[str, Bools]]:
        """Label and mask `[N]`, all rules in the order in which reasons are given: filters, resources, cards, the count of cards."""
        yield from self._session.masks(member, columns)
        yield from self.fit_failures(member, columns)

    def fit_failures(self, member: Member, columns: Columns) -> Iterator[tuple[str, Bools]]:
        """As `failures`, but what is booked alone."""
        rows, task = slice(0, columns.size), self.task(member)
        for fit in FITS:
            yield from fit.failures(columns, rows, task)

    def allowed(self, member: Member, columns: Columns) -> Bools:
        """`[N]`: alive nodes that no plugin's filter fails, whatever is booked there."""
        mask = columns.alive[: columns.size].copy()
        for _, fails in self._session.masks(member, columns):
            mask &= ~fails
        if self._session.pools and (there := self._session.pools.allowed(member)) is not None:
            mask &= there
        return mask

    def fits(self, member: Member, columns: Columns) -> Bools:
        """`[N]`: nodes with room, by what is booked alone."""
        return self.capacity(member, columns) > 0

    def capacity(self, member: Member, columns: Columns) -> Ints:
        """`[N]`: how many such members have room, by resources, cards, and what plugins keep of them for others."""
        rows, task = slice(0, columns.size), self.task(member)
        least = np.full(columns.size, NO_LIMIT, dtype=np.int64)
        for fit in FITS:
            capacity = fit.capacity(columns, rows, task)
            if capacity is not None:
                np.minimum(least, capacity, out=least)
        if (room := self._session.room_on(task, columns)) is not None:
            np.minimum(least, room, out=least)
        return np.maximum(least, 0, out=least)

    def scores(self, member: Member, columns: Columns, candidates: Bools) -> Floats:
        """`[N]`: the sum over the plugins; meaningful at the candidates `[N]`."""
        return sum((score for _, score in self._terms(member, columns, candidates)), np.zeros(columns.size, dtype=np.float64))

    def _terms(self, member: Member, columns: Columns, candidates: Bools) -> list[tuple[str, Floats]]:
        """Name and score `[N]` of each opinion. Where vendors' rules rank the nodes, all others decide among those that are equal to these."""
        terms = [(plugin.name, score) for plugin, score in self._session.scores(member, columns, candidates)]
        own = ranked_by_devices(columns, slice(0, columns.size), member.task)
        return terms if own is None else [(DEVICES, own), *((name, TIE_BREAK * score) for name, score in terms)]

    def best(self, member: Member, candidates: Bools, columns: Columns | None = None) -> int:
        """The best row of the candidates `[N]`, which must not be empty; plugins order equal scores, then the row does."""
        seen = columns or self._columns
        terms = self._terms(member, seen, candidates)
        scores = sum((score for _, score in terms), np.zeros(seen.size, dtype=np.float64))
        scores[~candidates] = -np.inf
        chosen = self._session.best_node(member, scores)
        if chosen is None or not candidates[chosen]:
            chosen = first_of_equals(self._session.equal_nodes, seen, scores, int(scores.argmax()))
        row = chosen
        if (choices := self._columns.choices) is not None:
            choices.of_pod(member.uid, row, scores, terms)
        return row

    def find(self, member: Member, within: Bools | None = None, *, future: bool = True) -> NodePlacement | None:
        """The best place for a member: one that is free now, else (`future`) one that will be. None = there is none. within: `[N]`, rows to examine; None =
        all."""
        columns, session = self._columns, self._session
        if within is None and member.nominated is None and not session.promises and session.by_shape(member):
            assert session.views is not None
            view = session.views.of(self.task(member))
            rows, _ = view.best(1)
            if len(rows):
                return NodePlacement(int(rows[0]), True, self.slices(member, int(rows[0]), columns))
            if not future or not columns.moving:
                return None
            return self._find_later(member, view.allowed[: columns.size])
        allowed = self.allowed(member, columns)
        if within is not None:
            allowed &= within
        if not allowed.any():
            return None
        free = columns.not_nominated()
        now = allowed & self.fits(member, free)
        if member.nominated is not None and (row := self._session.row(member.nominated)) is not None and now[row]:
            return NodePlacement(row, True, self.slices(member, row, free))
        if now.any():
            row = self.best(member, now)
            return NodePlacement(row, True, self.slices(member, row, free))
        return self._find_later(member, allowed) if future else None

    def _find_later(self, member: Member, allowed: Bools) -> NodePlacement | None:
        """The best place of those that will be free once all that leaves has left. allowed: `[N]`."""
        future = self._columns.future()
        later = allowed & self.fits(member, future)
        if not later.any():
            return None
        row = self.best(member, later, future)
        return NodePlacement(row, False, self.slices(member, row, future))

    def reasons(self, member: Member) -> Reasons:
        """Why one more member like this one finds no place that is free now and not promised to another member."""
        columns = self._unpromised()
        withheld = self._withheld(member)
        kept_back = [(label, columns.in_pool(pool, slice(0, columns.size))) for pool, (label, _) in withheld.items()]
        reasons = tally(chain(kept_back, self.failures(member, columns)), self._session.rows, columns.size)
        limits = list(dict.fromkeys(why for _, why in withheld.values()))
        if kept := reasons.counts.get(Label.QUEUE_MODEL, 0):
            limits.append(self._session.models.limit_message(member, kept))
        if Label.CARD_QUOTA in reasons.counts:
            limits.append(self._session.namespace_quotas.limit_message(member))
        if kept := reasons.counts.get(Label.PROPORTION_KEPT, 0):
            limits.append(
                f"{kept} nodes keep cores and memory for idle cards"
                if kept > 1
                else "1 node keeps cores and memory for idle cards"
            )
            rows = self._kept_out(member, (Label.PROPORTION_KEPT,))
            if explanation := self._session.room_explanation(Label.PROPORTION_KEPT, member, columns, rows):
                limits.append(explanation)
        if any(label in reasons.counts for label in REFUSALS):
            limits += self._zone_explanations(member)
        if Label.RESERVED in reasons.counts:
            limits += self._reserved_for(member)
        too_large = not reasons.fitting and not most_when_empty(columns, member.task)
        return replace(reasons, limit="; ".join(limits), too_large=too_large)

    def _unpromised(self) -> Columns:
        """The columns without room that is promised to members of this session: `find` gives that to no other member."""
        return self._columns.not_nominated() if self._session.promises else self._columns

    def card_reasons(self, member: Member) -> CardReasons:
        """What the cards say of each node that takes it but for these and its other resources."""
        columns = self._unpromised()
        rows = np.flatnonzero(self.allowed(member, columns))
        found = node_cards(columns, rows, self.task(member))
        known = [one for one in found if one is not None]
        return card_reasons(known, len(found) - len(known))

    def _zone_explanations(self, member: Member) -> list[str]:
        """Of one node that its kubelet's topology manager alone keeps from the member: what its zones have."""
        columns, task = self._columns, self.task(member)
        if task.aligned is None:
            return []
        refused = [row for _, row in strict_rows(columns, slice(0, columns.size)) if not columns.zones.room(row, task.aligned)]
        if not refused:
            return []
        by_zones = self._kept_out(member, REFUSALS)
        row = next((row for row in by_zones.tolist() if row in refused), refused[0])
        return [f"{self._session.node(row)}: {columns.zones.refusal(row, task.aligned)[1]}"]

    def _kept_out(self, member: Member, labels: Sequence[str]) -> Ints:
        """Rows that do not take the member for one of these reasons, those first that nothing else keeps it from."""
        columns = self._columns
        fails, others = np.zeros(columns.size, dtype=np.bool_), ~columns.alive[: columns.size]
        for label, failing in self.failures(member, columns):
            if label in labels:
                fails |= failing
            else:
                others |= failing
        return np.concatenate((np.flatnonzero(fails & ~others), np.flatnonzero(fails & others)))

    def _reserved_for(self, member: Member) -> list[str]:
        """Notices of the reservations whose nodes the member may not use: gang and expected start."""
        passed = self._session.task(member).passes
        kept = [one for one in self._session.reservations if not one.bit & passed]
        return [f"{np.count_nonzero(one.rows)} {one.notice}" for one in kept]

    def _withheld(self, member: Member) -> dict[str, tuple[str, str]]:
        """If the queue may have no more in some of several pools: the label, and why."""
        session = self._session
        choices = session.pools.choices(member) if session.pools else ()
        found = {pool: session.pools_withheld((member,), pool).partition(": ") for pool in choices}
        return {pool: (label, why) for pool, (label, _, why) in found.items() if why}

    def task(self, member: Member) -> Task:
        """The member's request, limited to cards that its namespace's quotas cover and to models of which its queue may have more."""
        namespace_quotas, models = self._session.namespace_quotas, self._session.models
        task = namespace_quotas.task(member) if namespace_quotas else member.task
        task = models.task(member, task, later=self._later) if models else task
        task = self._session.passing(member, task) if self._session.reservations else task
        return self._session.pools.task(member, task) if self._session.pools else task

    def most(self, member: Member, most: int) -> int:
        """Of `most` members like this one, how many the limits of card models and the quotas of its namespace leave cards for."""
        session = self._session
        if session.models and (by_model := session.models.most(member)) is not None:
            most = min(most, by_model)
        if session.namespace_quotas and (by_quota := session.namespace_quotas.most(member)) is not None:
            most = min(most, by_quota)
        return most

    def admits(self, queue: QueueName, places: Iterable[tuple[int, Sequence[CardSlice]]]) -> bool:
        """Whether the queue's limits of card models allow all of these slices on these rows."""
        models = self._session.models
        return not models or models.admits(queue, places, later=self._later)

    def slices(self, member: Member, row: int, columns: Columns) -> tuple[CardSlice, ...]:
        """The cards that the member takes on this row, which must have room for it."""
        if member.task.cards is None:
            return ()
        rows = np.array([row], dtype=np.int64)
        batch = pick(
            columns, rows, np.array([1], dtype=np.int64), self.task(member), self._session.card_keys(member.task, columns, rows)
        )
        return slices_of(columns, batch, member.task.cards.count)[0]

    def future_cards(self, member: Member, row: int) -> tuple[CardSlice, ...] | None:
        """The cards that the member takes on this row once all that leaves has left; None = they are not there, its host ports are taken, or its kubelet
        would refuse it."""
        task, columns = self.task(member), self._columns
        request = task.cards
        for name, units in task.ports:
            if columns.ports.held(name, row) - columns.ports_leaving.held(name, row) + units > WHOLE:
                return None
        if (
            (ask := task.aligned) is not None
            and row in columns.zones.strict
            and not columns.zones.seen_as(Seen.LATER).room(row, ask)
        ):
            return None
        if request is None:
            return ()
        plain = request.devices is None and not isinstance(request, Bounded) and not columns.card_judged[row]
        if plain and request.whole and not request.models and not task.rdma:
            free = columns.card_ok[row] & (columns.card_pods[row] == columns.card_pods_leaving[row])
            chosen = np.flatnonzero(free)[: request.count]
            if len(chosen) < request.count:
                return None
            return _whole(tuple(columns.card_index[row, chosen].tolist()), tuple(columns.card_memory[row, chosen].tolist()))
        view = columns.cards_of(row)
        capacity = CardFit().capacity(view, slice(0, 1), task)
        return self.slices(member, 0, view) if capacity is not None and capacity[0] > 0 else None


@lru_cache(maxsize=4096)
def _whole(indexes: tuple[int, ...], memory_mib: tuple[int, ...]) -> tuple[CardSlice, ...]:
    return tuple(CardSlice(index, ALL, mib) for index, mib in zip(indexes, memory_mib, strict=True))
