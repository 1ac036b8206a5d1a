"""Victim search of preempt and reclaim: which pods to evict so that the members of a gang fit.

For each member the search rates every node by its victims: the node's candidates in the order of eviction, until they free the missing amounts. The node
with the least important victims comes first: by queue and priority, then by the number of lost members, then by the sum of their priorities, then by the
order of service. Array operations rate all nodes once, and later only nodes that changed, so a gang of equal members costs one pass. The ratings cover only as
many queues as necessary, in the order of eviction: a node that needs victims of these queues only precedes all nodes that need a victim of a later queue.

The search then tries a node in the statement: the plugins must agree to each victim on the current state, and after the evictions the member must pass every
filter. The search releases victims that turn out to be unnecessary, and reverts a failed attempt.

A victim is evicted alone if its gang keeps its minimum, else together with the rest of its gang.

If the victims must move (`moves`), most nodes are excluded before any of them is tried: those from which, by the free amounts of all other nodes, too few
victims can move. A node is tried by its victims one by one, which costs as much as rating all nodes; so the search gives up after `MAX_FAILED_MOVES` nodes.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hbox_common.model import CardSlice, QueueName

from ..cluster import Amount
from ..cluster.arrays import Bools, Ints
from ..cluster.entities import EVICTABLE, Gang, Member, QueueInfo
from ..explain.labels import Label
from ..framework.basefits import base_capacity
from ..framework.models import Variant
from ..framework.placing import Placing
from ..framework.statement import OperationKind, Statement
from .evictablepods import OFFLINE_QUEUE, EvictablePods

if TYPE_CHECKING:
    from ..framework.session import Session

#: Returns the subset of the candidates that may be evicted together for the preemptor.
Legal: TypeAlias = Callable[[Member, Sequence[Member]], list[Member]]

#: Filter failures that evictions may resolve.
RESOLVABLE = frozenset(
    {
        Label.NODE_PORTS_TAKEN,
        Label.POD_ANTI_AFFINITY,
        Label.POD_ANTI_AFFINITY_OF_OTHERS,
        Label.SPREAD_SKEW,
        Label.NODE_GROUP_LIMIT,
    }
)

#: Filter failures that concern capacity, as resources do: evictions may always resolve them.
ROOM = frozenset({Label.PROPORTION_KEPT})

#: Consecutive failed nodes after which the search checks whether a queue has any legal victim.
_PATIENCE = 8

#: Consecutive failed nodes after which a search for moves gives up.
MAX_FAILED_MOVES = 32

#: Different requests of victims up to which nodes are excluded by the places for them elsewhere; each costs as much as one placement.
_MOST_TASKS = 64

#: Minimum number of candidates of the first step, and growth factor of each further step; a step adds whole queues in the order of eviction.
_AT_ONCE, _GROWTH = 64, 3

#: Returns the queues that may have victims for a member; None: unknown.
Giving: TypeAlias = Callable[[Member], Collection[QueueName] | None]

#: Queue and priority of the last victim, number of lost members, sum of the victims' priorities, order of service, node row.
Rating: TypeAlias = tuple[int, int, int, int, int]


@dataclass(slots=True)
class MemberClass:
    """State that equal members of the preemptor share during its search."""

    example: Member
    amount: Amount
    columns: Ints  #: of the amount
    request: Ints
    allowed: Bools  #: `[N]` nodes that pass all filters
    resolvable: Bools  #: `[N]` nodes that fail only filters that evictions may resolve
    settled: bool  #: filters need not run again
    free: Bools  #: `[N]` nodes where the member fits without evictions
    ratings: list[Rating] | None = None  #: heap of candidate nodes; None = not computed
    current: dict[int, Rating] = field(default_factory=dict)  #: row -> its rating
    tried: set[int] = field(default_factory=set)  #: rows that failed
    leavable: Bools | None = None  #: `[N]` nodes from which enough victims can move, if these must; None = not computed
    failed: bool = False


class Search:
    """One gang's search on one statement. Successful placements stay in the statement; failed attempts are reverted."""

    def __init__(
        self,
        session: "Session",
        statement: Statement,
        gang: Gang,
        evictable: EvictablePods,
        *,
        eligible: Bools,
        legal: Legal,
        reason: str,
        giving: Giving | None = None,
        moves: int | None = None,
        resolve: bool = True,
        within: Bools | None = None,
        gangs_last: bool = False,
    ) -> None:
        """eligible: `[V]`, evictable members that are candidates, unless already evicted. giving: the queues that may have victims. moves: each victim must
        get another placement, with at most this number of victims; None = evict without replacement. resolve: also evict to resolve filter failures, not only
        for capacity. within: `[N]`, nodes that may be used; None = all. gangs_last: break no gang for a member while single evictions suffice."""
        self._session = session
        self._gangs_last = gangs_last
        self._breaks = True  #: whether gangs may be broken now
        self.broke = False  #: whether an attempt broke a gang, even a failed one
        self.statement = statement
        self._gang = gang
        self._queue: QueueInfo = session.queues[gang.queue]
        self._evictable = evictable
        self._eligible = eligible & evictable.in_place
        self._legal = legal
        self._reason = reason
        self._moves = moves
        self._resolve = resolve
        self._within = within
        self._placing = Placing(session, later=True)
        self._kinds: dict[object, MemberClass] = {}
        self._gives: Collection[QueueName] | None = None
        #: by code of the queue: number of candidates at the start; the search reads only queues that have any
        self._there = np.bincount(evictable.queue[self._eligible], minlength=len(evictable.queues))
        #: whether all candidates are of one queue, so that queue order is irrelevant
        self._alone = np.count_nonzero(self._there) <= 1
        self._giving = giving
        self._relatives = session.relatives(self._queue)
        self._failures = 0
        self._asked = False  #: whether a queue must have a legal victim before the search rates it
        self._forget()

    def serve(self, member: Member) -> bool:
        """Nominate a pending member to a node, with the necessary evictions. Returns whether one was found."""
        if self._gangs_last:
            self._breaks = False
            served, self._breaks = self._serve_anywhere(member), True
            if served:
                return True
            self._forget()
            for kind in self._kinds.values():
                kind.failed = False
        return self._serve_anywhere(member)

    def _serve_anywhere(self, member: Member) -> bool:
        pools = self._session.pools
        choices = pools.choices(member) if pools else ()
        for pool in choices:
            eligible = self._eligible.copy()
            with pools.tried((member,), pool):
                if self._serve_there(member):
                    return True
            self._eligible = eligible  # candidates excluded in this pool may be legal in another
            self._forget()
        return not choices and self._serve_there(member)

    def _serve_there(self, member: Member) -> bool:
        models = self._session.models
        if not (variants := models.variants(member) if models else ()):
            return self._serve(member, None)
        for variant in variants:
            eligible = self._eligible.copy()
            with models.tried(member, variant):
                if self._serve(member, variant):
                    return True
            self._eligible = eligible  # candidates excluded for this model may be legal for another
            self._forget()
        return False

    def _serve(self, member: Member, variant: Variant | None) -> bool:
        kind = self._kind(member, variant)
        if kind.failed:
            return False
        if kind.free.any() and self._session.allocatable(self._queue, member) and self._take_free(member, kind):
            return True
        if not self._eligible.any():
            kind.failed = True
            return False
        self._reorder(member)
        while (row := self._next(member, kind)) is not None:
            if self._try(member, kind, row):
                self._failures = 0
                if self._moves is not None:  # places that were free are taken, and others became free
                    for other in self._kinds.values():
                        other.ratings = other.leavable = None
                self._rate_again(self._touched)
                return True
            kind.current.pop(row, None)
            kind.tried.add(row)
            self._failures += 1
            if self._moves is not None:
                if self._failures == MAX_FAILED_MOVES:
                    self._failures = 0
                    break
            elif self._failures == _PATIENCE:
                self._ask_queues(member)
                kind.ratings = None
                kind.tried.clear()
        kind.failed = True
        return False

    @property
    def evicts(self) -> bool:
        """Whether the statement evicts any pod."""
        return any(done.kind is OperationKind.EVICT for done in self.statement.operations)

    def needless(self) -> list[Gang]:
        """Gangs whose eviction may be unnecessary, most important first: each of their victims alone fits on its node next to the preemptor's members."""
        columns = self._session.columns
        fit: dict[Gang, bool] = {}
        free: dict[int, list[int]] = {}
        fits_there: dict[tuple[int, int], bool] = {}  # row and task -> whether such a member fits there
        for done in self.statement.operations:
            if done.kind is not OperationKind.EVICT:
                continue
            row, task = done.row, done.member.task
            fits = fits_there.get((row, id(task)))
            if fits is None:
                room = free.get(row)
                if room is None:
                    left = columns.allocatable[:, row] - columns.used[:, row] + columns.leaving[:, row]
                    room = free[row] = left.tolist()
                fits = all(room[column] >= units for column, units in task.amount)
                fits = fits_there[row, id(task)] = fits and self._placing.future_cards(done.member, row) is not None
            gang = done.member.gang
            fit[gang] = fits and fit.get(gang, True)
        gangs = [gang for gang, fits in fit.items() if fits]
        return sorted(gangs, key=self._evictable.rank, reverse=True)

    def discard(self) -> None:
        """Revert all operations of the search."""
        self._undo(0)

    # Member classes.

    def _kind(self, member: Member, variant: Variant | None) -> MemberClass:
        settled = self._session.settled(member)
        labels = () if settled else tuple(sorted(member.labels.items()))
        notes = tuple(sorted(member.annotations.items()))
        key = (id(member.task), member.namespace, member.preemptable, member.constraints, labels, notes, variant, member.pool)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = self._new_kind(member, settled)
            if variant is not None and member.task.cards is not None:
                has = self._session.models.has(variant, member.task.cards.count)
                kind.allowed &= has
                kind.resolvable &= has
            rows = slice(0, self._session.columns.size)
            kind.free = kind.allowed & (self._lacking(kind, rows) <= 0).all(axis=0)
            if member.task.cards is not None and kind.free.any():
                kind.free &= self._placing.fits(member, self._session.columns.future())
        return kind

    def _new_kind(self, member: Member, settled: bool) -> MemberClass:
        columns = self._session.columns
        hard, soft = ~columns.alive[: columns.size], np.zeros(columns.size, dtype=np.bool_)
        if self._within is not None:
            hard |= ~self._within
        for label, fails in self._session.masks(member, columns):
            if label in ROOM or (self._resolve and label in RESOLVABLE):
                soft |= fails
            else:
                hard |= fails
        if self._session.pools and (there := self._session.pools.allowed(member)) is not None:
            hard |= ~there
        amount = member.task.amount
        return MemberClass(
            example=member,
            amount=amount,
            columns=np.array([column for column, _ in amount], dtype=np.int64),
            request=np.array([units for _, units in amount], dtype=np.int64),
            allowed=~hard & ~soft,
            resolvable=~hard & soft,
            settled=settled,
            free=np.zeros(columns.size, dtype=np.bool_),
        )

    def _lacking(self, kind: MemberClass, rows: slice) -> Ints:
        """`[C, n]`: missing amounts of the request after all terminating pods are gone; negative = surplus."""
        columns, c = self._session.columns, kind.columns
        return kind.request[:, None] - columns.allocatable[c, rows] + columns.used[c, rows] - columns.leaving[c, rows]

    def _lacking_at(self, kind: MemberClass, rows: Ints) -> Ints:
        """`[n, C]`: as `_lacking`, for these rows."""
        columns, c, r = self._session.columns, kind.columns[None, :], rows[:, None]
        return kind.request[None, :] - columns.allocatable[c, r] + columns.used[c, r] - columns.leaving[c, r]

    def _lacking_on(self, kind: MemberClass, row: int) -> dict[int, int]:
        """Missing amounts on one row, by column. Scalar code: arrays of a few cells would take three times as long."""
        columns = self._session.columns
        allocatable, used, leaving = columns.allocatable, columns.used, columns.leaving
        found: dict[int, int] = {}
        for column, units in kind.amount:
            lacking = units - allocatable.item(column, row) + used.item(column, row) - leaving.item(column, row)
            if lacking > 0:
                found[column] = lacking
        return found

    def _take_free(self, member: Member, kind: MemberClass) -> bool:
        free = kind.free.copy()
        while free.any():
            row = self._placing.best(member, free, self._session.columns.future())
            slices = self._fits(member, kind, row)
            if slices is not None:
                self.statement.pipeline(member, row, slices)
                self._rate_again({row})
                return True
            free[row] = False
        return False

    # Ratings.

    def _forget(self) -> None:
        """Drop all ratings and start again with the first queue."""
        self._codes: Iterator[int] | None = None  #: remaining queues, in the order of eviction
        self._ordered: object = None  #: the ranking that orders them
        self._given: list[int] = []  #: queues taken from `_codes`
        self._seen: list[int] = []  #: of these the queues whose members are rated
        self._candidates = self._rows = self._rank = self._level = np.empty(
            0, dtype=np.int64
        )  #: those members, by row and rank
        for kind in self._kinds.values():
            kind.ratings = None
            kind.tried.clear()

    def _reorder(self, member: Member) -> None:
        """If the order of the queues changed, restart with the first queue."""
        if self._codes is not None and self._alone:
            return
        ordered = self._session.ranking.in_order()
        if self._codes is not None and ordered is self._ordered:
            return
        if self._codes is None:
            self._gives = None if self._giving is None else self._giving(member)
        codes = self._in_order()
        if (given := list(islice(codes, len(self._given)))) != self._given:
            self._forget()
            codes = chain(given, codes)
        self._codes, self._ordered = codes, ordered

    def _in_order(self) -> Iterator[int]:
        """Codes of queues with candidates, in the order of eviction: offline work, relatives, other queues; inside each the queue served last comes first."""
        evictable, ranking, known = self._evictable, self._session.ranking, self._session.queues
        near: set[QueueName] = set()
        ordered = ranking.in_order()
        if self._looked_at(OFFLINE_QUEUE):
            yield evictable.codes[OFFLINE_QUEUE]
        if self._gives is not None and not self._gives:
            return
        for names in self._relatives:
            there = [name for name in names if name in known and self._looked_at(name)]
            yield from (evictable.codes[name] for name in sorted(there, key=ranking.key, reverse=True))
            near.update(names)
        yield from (evictable.codes[name] for _, name in reversed(ordered) if name not in near and self._looked_at(name))
        yield from (evictable.codes[name] for name in evictable.strangers if name != OFFLINE_QUEUE and self._looked_at(name))

    def _looked_at(self, name: QueueName) -> bool:
        code = self._evictable.codes.get(name)
        if code is None or not self._may_give(name):
            return False
        return bool(self._there[code])

    def _may_give(self, name: QueueName) -> bool:
        return self._gives is None or name in self._gives or name == OFFLINE_QUEUE

    def _see_more(self, member: Member) -> bool:
        """Add at least one queue to the rated ones, and further queues while these have few members. Returns False if no queue is left."""
        evictable, seen = self._evictable, len(self._seen)
        assert self._codes is not None
        wanted = max(_AT_ONCE, _GROWTH * len(self._candidates)) if self._moves is None else self._evictable.size + 1
        for code in self._codes:
            self._given.append(code)
            if self._asked and not self._ask(member, code):
                continue
            self._seen.append(code)
            wanted -= len(evictable.order(code))
            if wanted <= 0:
                break
        if len(self._seen) == seen:
            return False
        spans = [evictable.order(code) for code in self._seen]
        candidates = np.concatenate(spans)
        place = np.repeat(np.arange(len(spans)), [len(span) for span in spans])
        rank = np.arange(len(candidates))
        order = np.lexsort((rank, evictable.rows[candidates]))
        self._candidates, self._rank = candidates[order], rank[order]
        self._rows = evictable.rows[self._candidates]
        classes, levels = np.unique(evictable.priority[self._candidates], return_inverse=True)
        self._level = place[order] * max(len(classes), 1) + levels.reshape(-1)
        if self._moves is not None:  # queues lose nothing by moves: only the lost work matters
            self._level = np.zeros_like(self._level)
        for kind in self._kinds.values():
            kind.ratings = None
        return True

    def _rate_all(self, kind: MemberClass) -> None:
        if self._moves is not None:
            kind.leavable = self._leavable(kind)
        rated = self._rate(kind, 0, len(self._candidates))
        kind.ratings = [rating for rating in rated if rating[-1] not in kind.tried]
        kind.current = {rating[-1]: rating for rating in kind.ratings}
        heapify(kind.ratings)

    def _rate_again(self, rows: set[int]) -> None:
        for kind in self._kinds.values():
            for row in rows:
                kind.free[row] = (
                    kind.allowed[row]
                    and not self._lacking_on(kind, row)
                    and self._placing.future_cards(kind.example, row) is not None
                )
                if kind.ratings is None:
                    continue
                kind.current.pop(row, None)
                kind.tried.discard(row)
                for rating in self._rate(kind, *np.searchsorted(self._rows, (row, row + 1)).tolist()):
                    kind.current[row] = rating
                    heappush(kind.ratings, rating)

    def _rate(self, kind: MemberClass, first: int, end: int) -> list[Rating]:
        """Ratings of rows on which the candidates free enough, computed from the members `first` to `end` (exclusive), which must cover whole rows."""
        evictable = self._evictable
        candidates, rows = self._candidates[first:end], self._rows[first:end]
        usable = kind.allowed | kind.resolvable
        if kind.leavable is not None:
            usable &= kind.leavable
        at = np.flatnonzero(self._eligible[candidates] & usable[rows])
        if not len(at):
            return []
        candidates, rows = candidates[at], rows[at]
        lacking = self._lacking_at(kind, rows)
        amounts = evictable.amounts_at(candidates, kind.columns)
        helps = np.flatnonzero(((amounts > 0) & (lacking > 0)).any(axis=1) | (lacking <= 0).all(axis=1))
        if not len(helps):
            return []
        candidates, rows, at, lacking, amounts = (
            candidates[helps],
            rows[helps],
            at[helps] + first,
            lacking[helps],
            amounts[helps],
        )
        begins = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
        lengths = np.diff(np.r_[begins, len(rows)])
        before = np.repeat(begins, lengths)
        freed = np.cumsum(amounts, axis=0)
        freed -= (freed - amounts)[before]
        harm = np.cumsum(evictable.harm[candidates])
        harm -= (harm - evictable.harm[candidates])[before]
        sums = np.cumsum(evictable.priority[candidates])
        sums -= (sums - evictable.priority[candidates])[before]
        enough = np.where((freed >= lacking).all(axis=1), np.arange(len(candidates)), len(candidates))
        last = np.minimum.reduceat(enough, begins)
        last = last[last < len(candidates)]
        return list(
            zip(
                self._level[at[last]].tolist(),
                harm[last].tolist(),
                sums[last].tolist(),
                self._rank[at[last]].tolist(),
                rows[last].tolist(),
                strict=True,
            )
        )

    def _leavable(self, kind: MemberClass) -> Bools:
        """`[N]`: nodes from which victims with the missing amounts can move. A necessary condition: each victim has a place on another node if it has that
        node to itself, by amounts and cards alone. A victim that stays on its node frees nothing there."""
        columns, evictable = self._session.columns, self._evictable
        rows = slice(0, columns.size)
        tasks = list(islice(evictable.by_task(np.flatnonzero(self._eligible)), _MOST_TASKS + 1))
        if len(tasks) > _MOST_TASKS:
            return np.ones(columns.size, dtype=np.bool_)
        lacking = self._lacking(kind, rows)
        future = columns.future()
        freed = np.zeros_like(lacking)
        for task, amounts, positions in tasks:
            capacity = base_capacity(future, task)
            there = np.bincount(evictable.rows[positions], minlength=columns.size)
            freed += np.minimum(there, capacity.sum() - capacity) * amounts[kind.columns][:, None]
        return np.asarray((freed >= lacking).all(axis=0))

    def _next(self, member: Member, kind: MemberClass) -> int | None:
        """The next row to try. Its victims are of the rated queues; every other row needs a victim of a later queue."""
        while True:
            if kind.ratings is None:
                self._rate_all(kind)
            ratings = kind.ratings or []
            while ratings:
                rating = heappop(ratings)
                if kind.current.get(rating[-1]) == rating:
                    return rating[-1]
            if not self._see_more(member):
                return None

    def _ask_queues(self, member: Member) -> None:
        """Exclude queues without a legal victim: an illegal victim does not become legal by further evictions."""
        self._asked = True
        for code in self._seen:
            self._ask(member, code)

    def _ask(self, member: Member, code: int) -> bool:
        """Whether the queue has a legal victim. If not, its members are no longer eligible."""
        evictable = self._evictable
        order = evictable.order(code)
        mine = order[self._eligible[order]].tolist()
        if mine and self._legal(member, evictable.members_at(mine)):
            return True
        self._eligible[order] = False
        return False

    def _on_row(self, row: int) -> list[Member]:
        """Candidates on a node, in the order of eviction."""
        evictable, ranking, known = self._evictable, self._session.ranking, self._session.queues
        by_name: dict[QueueName, list[int]] = {}
        for position in evictable.on_row(row):
            if self._eligible[position]:
                by_name.setdefault(evictable.queues[evictable.queue.item(position)], []).append(position)
        names = set(filter(self._may_give, by_name))
        for name in names:
            by_name[name].sort(key=evictable.place)
        if len(names) <= 1:
            return [member for name in names for member in evictable.members_at(by_name[name])]
        nearness = {name: place for place, near in enumerate(self._relatives) for name in near if name in names}
        listed = sorted((name for name in names if name in known), key=ranking.key, reverse=True)
        listed.sort(key=lambda name: nearness.get(name, len(self._relatives)))
        listed += [name for name in evictable.strangers if name in names]
        listed.sort(key=lambda name: name != OFFLINE_QUEUE)
        return [member for name in listed for member in evictable.members_at(by_name[name])]

    # Attempts on the statement.

    def _try(self, member: Member, kind: MemberClass, row: int) -> bool:
        mark = self.statement.mark()
        self._touched = {row}
        members = self._on_row(row)
        lacking = self._lacking_on(kind, row)
        units = None if kind.resolvable[row] else self._few(member, members, lacking)
        if units is not None:
            self._evict_all(units)
            if (slices := self._fits(member, kind, row)) is not None:
                self.statement.pipeline(member, row, slices)
                if self._resettled(mark):
                    return True
            self._undo(mark)
        bundles = self._one_by_one(member, kind, row, members)
        if bundles is None:
            self._undo(mark)
            return False
        self.statement.pipeline(member, row, self._spare(member, kind, row, mark, bundles))
        if self._resettled(mark):
            return True
        self._undo(mark)
        return False

    def _few(self, member: Member, members: Sequence[Member], left: dict[int, int]) -> list[Member] | None:
        """Fast path: the first members that free the missing amounts, without unnecessary ones, if they may be evicted together; else None."""
        frees = {
            task: [(column, units) for column, units in task.amount if column in left]
            for task in dict.fromkeys(one.task for one in members)
        }
        chosen: list[Member] = []
        short = dict(left)
        sums = dict.fromkeys(left, 0)
        for one in members:
            if not short:
                break
            own = frees[one.task]
            for column, _ in own:
                if column in short:
                    break
            else:
                continue
            chosen.append(one)
            for column, units in own:
                sums[column] += units
                if sums[column] >= left[column]:
                    short.pop(column, None)
        if short or not chosen:
            return None
        for one in chosen[-2::-1]:
            own = frees[one.task]
            for column, units in own:
                if sums[column] - units < left[column]:
                    break
            else:
                chosen.remove(one)
                for column, units in own:
                    sums[column] -= units
        if len(chosen) > 1 and not self._breaks:
            return None
        return chosen if len(self._legal(member, chosen)) == len(chosen) else None

    def _one_by_one(self, member: Member, kind: MemberClass, row: int, members: Sequence[Member]) -> list[list[Member]] | None:
        """Evict candidates in order until the member fits. Returns the victims, grouped by joint evictions; None = it does not fit."""
        bundles: list[list[Member]] = []
        fits = self._fits(member, kind, row) is not None
        in_turn, put_off = deque(members), set[int]()
        while in_turn:
            one = in_turn.popleft()
            if fits:
                break
            if one.status not in EVICTABLE:
                continue
            lacking = self._lacking_on(kind, row)
            if lacking and not any(column in lacking for column, _ in one.task.amount):
                continue
            bundle = [one]
            if not self._legal(member, bundle):
                if id(one) not in put_off and self._spares_another(member, one.gang, in_turn):
                    put_off.add(id(one))
                    in_turn.append(one)
                    continue
                bundle = self._evictable.of(one.gang) if self._breaks else []
                if len(bundle) < 2 or len(self._legal(member, bundle)) < len(bundle):
                    continue
                self.broke = True
            self._evict_all(bundle)
            bundles.append(bundle)
            fits = self._fits(member, kind, row) is not None
        return bundles if fits and bundles else None

    def _spares_another(self, member: Member, gang: Gang, members: Iterable[Member]) -> bool:
        """Whether one of these members of the gang may be evicted alone: a gang loses its surplus before it is broken."""
        return any(one.gang is gang and one.status in EVICTABLE and self._legal(member, [one]) for one in members)

    def _spare(
        self, member: Member, kind: MemberClass, row: int, mark: int, bundles: list[list[Member]]
    ) -> tuple[CardSlice, ...]:
        """Revert unnecessary evictions, the most important victims first. Returns the member's cards."""
        needed = list(bundles)
        for bundle in bundles[-2::-1]:
            rest = [one for one in needed if one is not bundle]
            victims = [victim for one in rest for victim in one]
            self._undo(mark)
            if len(self._legal(member, victims)) < len(victims):  # a gang's rest may be evicted only with the others
                continue
            self._evict_all(victims)
            if self._fits(member, kind, row) is not None:
                needed = rest
        self._undo(mark)
        self._evict_all([victim for one in needed for victim in one])
        slices = self._fits(member, kind, row)
        assert slices is not None
        return slices

    def _evict_all(self, victims: Sequence[Member]) -> None:
        evictable, eligible = self._evictable, self._eligible
        for victim in victims:
            self._touched.add(victim.row)
            at = evictable.position(victim)
            assert at is not None, "a victim is evictable"
            eligible[at] = evictable.in_place[at] = False
        self.statement.evict_all(victims, preemptor=self._gang, reason=self._reason)

    def _undo(self, mark: int) -> None:
        for done in self.statement.operations[mark:]:
            position = self._evictable.position(done.member)
            if position is not None:
                self._eligible[position] = self._evictable.in_place[position] = True
        self.statement.rollback(mark)

    def _fits(self, member: Member, kind: MemberClass, row: int) -> tuple[CardSlice, ...] | None:
        """The cards for the member on the row after all terminating pods are gone; None = it does not fit."""
        session = self._session
        if self._lacking_on(kind, row) or not session.allocatable(self._queue, member):
            return None
        slices = self._placing.future_cards(member, row)
        if slices is None or kind.settled:
            return slices
        future = session.columns.future()
        if any(fails[row] for _, fails in session.masks(member, future)):
            return None
        return slices

    def _resettled(self, mark: int) -> bool:
        """If victims must move (`moves`), nominate those evicted since the mark to other nodes, the largest first. False if one does not fit."""
        if self._moves is None:
            return True
        gone = [done.member for done in self.statement.operations[mark:] if done.kind is OperationKind.EVICT]
        if sum(done.kind is OperationKind.EVICT for done in self.statement.operations) > self._moves:
            return False
        gone.sort(key=lambda member: (-sum(units for _, units in self._session.requests.of(member)), member.uid))
        return all(self._resettle(member) for member in gone)

    def _resettle(self, member: Member) -> bool:
        future = self._session.columns.future()
        places = self._placing.allowed(member, future) & self._placing.fits(member, future)
        if not places.any():
            return False
        row = self._placing.best(member, places, future)
        slices = self._placing.future_cards(member, row)
        if slices is None:
            return False
        self._touched.add(row)
        self.statement.pipeline(member, row, slices)
        return True
