"""The accounts of queues: what each holds, requests and is limited to, updated with every placement. Shared by `proportion` and `capacity`.

A queue's amounts count for all of its ancestors too. A flat policy is a tree of depth one.

Cards count as pods request them, a share like a whole one, as in Volcano; or, if `parts` is set, by the requested part of the card, as in KAI-Scheduler.
Amounts of cards are then in percent of a card.

Opening a session costs in proportion to what changed. `RunningGangs.watchers` keeps the accounts of a plugin and reports gangs that are added and removed.
Limits and lines are computed again if those of a queue, or the cluster's size, changed, and everything if the tree changed. A session's own changes, its fresh
gangs and each placement, are reverted when the next one opens: the first change of an account saves its state (`_touch`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import add as plus
from operator import attrgetter, sub
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

import numpy as np

from hbox_common.model import OFFLINE, POOLED, GroupPhase, QueueName, QueuePhase, by_pool, quantity
from hbox_common.model.cardparts import cards_of_share
from hbox_common.model.devices import ALL_CORES, VENDORS
from hbox_common.model.rights import Standing, within

from ..cluster.amounts import Asked, Sums
from ..cluster.arrays import Ints
from ..cluster.entities import HOLDING, Gang, Member, QueueInfo, Status
from ..cluster.roster import Roster
from ..cluster.running import Kind
from ..cluster.task import Task
from ..explain.labels import Label
from ..framework.requests import Requests, add

if TYPE_CHECKING:
    from ..framework.session import Session

#: The queue that may stand above all others. It has no members and no limits but the cluster's size.
ROOT = QueueName("root")

#: More than any queue can hold; small enough that sums of it stay exact.
UNLIMITED = 1 << 60

_ASKING = HOLDING | {Status.PENDING, Status.PIPELINED}

#: The attributes of a queue that make the tree, and those that make limits and lines. The rest is read from the queue itself.
_place = attrgetter("name", "parent", "annotations")
_amounts = attrgetter("capability", "deserved", "guarantee")

#: Maximum number of queues that a reason names.
_NAMED = 3

#: Different tasks of which the requests are kept.
_TASKS = 8192

#: An account as it was before a session changed it: allocated, protected, requested, committed, shapes.
_Saved: TypeAlias = tuple[Sums, Sums, Sums, Sums, dict[Asked, int]]


@dataclass(slots=True, eq=False)
class Account:
    """One queue. Amounts are `[R]` in base units."""

    queue: QueueInfo
    size: int  #: R
    path: tuple["Account", ...] = ()  #: from the topmost ancestor below the root to the queue itself
    children: list["Account"] = field(default_factory=list)
    named: frozenset[int] = frozenset()  #: columns that `deserved` names
    guarantee: Sums = field(default_factory=list)
    deserved: Sums = field(default_factory=list)
    ceiling: Sums = field(default_factory=list)  #: what it can have at most: capability, and what others are guaranteed
    allocated: Sums = field(default_factory=list)
    shapes: dict[Asked, int] = field(
        default_factory=dict
    )  #: what single members have, or had in this session, and how many have it
    protected: Sums = field(default_factory=list)  #: the part of `allocated` that may not be evicted
    requested: Sums = field(default_factory=list)  #: held or waited for
    committed: Sums = field(
        default_factory=list
    )  #: enqueued: minimums of gangs that passed, and what gangs without a minimum hold
    saved: _Saved | None = None  #: where this session changed it; then it did those above it too

    def __post_init__(self) -> None:
        for name in ("guarantee", "deserved", "ceiling", "allocated", "protected", "requested", "committed"):
            setattr(self, name, [0] * self.size)

    @property
    def open(self) -> bool:
        return self.queue.phase is QueuePhase.OPEN

    @property
    def leaf(self) -> bool:
        return not self.children

    def fits(self, limit: Sums, asked: Asked) -> bool:
        """Whether what it has and `asked` are within the limit, in the columns asked for."""
        return within(limit, self.allocated, asked)

    def times(self, limit: Sequence[float], asked: Asked, most: int) -> int:
        """How many times `asked` fits under the limit in addition to what it holds, `most` at most."""
        for column, units in asked:
            if units > 0:
                most = min(most, int((limit[column] - self.allocated[column]) // units))
        return max(most, 0)


class QueueAccounts:
    """Accounts of all queues, of one plugin in all sessions over the same running gangs."""

    def __init__(self, session: "Session", *, hierarchy: bool, parts: bool = False, models: bool = False) -> None:
        """`models`: cards by model count too, where queues name models."""
        self._hierarchy, self._by_model = hierarchy, models
        self.models: Mapping[int, str] = session.models.names if models else {}
        self._shares = session.columns.shares
        self.size = len(session.total)
        self._pools = _pools_of(session)
        self.cards = _cards_of(session, self.models, self._pools)  #: by column of a vendor's cards, the columns of its models
        self.percent = frozenset(self.cards) if parts else frozenset()  #: the columns that are in percent
        self._counted: list[bool] = session.counted.tolist()
        self._changed: list[Account] = []  #: those that have something saved
        self._forget_tasks()
        self._follow(session)
        self.total, self._card_mib = self._sizes(session)
        self._roster = session.cluster.roster
        self.accounts = {name: Account(queue, self.size) for name, queue in session.queues.items()}
        self._tree(hierarchy)
        self._set_limits()
        for kind, count in session.running.by_kind():
            self.counted(kind, count)
        for name, minimum in session.running.minimums.items():
            if name in self.accounts:
                self._promise(self.accounts[name], minimum)

    @classmethod
    def opened(cls, session: "Session", plugin: str, **options: bool) -> Self:
        """The plugin's accounts at the start of the session: those kept with its running gangs if they are still valid, else new ones. `options`: as of the
        class."""
        kept = session.running.watchers.get(plugin)
        if not isinstance(kept, cls) or not kept.resumes(session, **options):
            kept = session.running.watchers[plugin] = cls(session, **options)
        kept.enter(session.fresh, session.cluster.waiting)
        return kept

    def _set_limits(self) -> None:
        resources = self._columns.resources
        for account in self.accounts.values():
            account.guarantee = self.amounts(account.queue.guarantee)
            account.deserved = self.amounts(account.queue.deserved)
            account.named = frozenset(resources[name] for name in account.queue.deserved if name in resources)
        self.derive()

    def derive(self) -> None:
        """What follows from the tree, its amounts and the cluster's size alone."""

    def resumes(self, session: "Session", *, hierarchy: bool) -> bool:
        """Whether they are right for this session too, which they follow then."""
        self._restore()
        models = session.models.names if self._by_model else {}
        pools = _pools_of(session)
        columns = _cards_of(session, models, pools), session.counted.tolist(), session.columns.shares
        kept = self._hierarchy, self.models, self._pools, self.cards, self._counted, self._shares
        if kept != (hierarchy, models, pools, *columns):
            return False
        others = self._others(session.cluster.roster)
        if others is None:
            return False
        if any(_place(account.queue) != _place(queue) for account, queue in others):
            return False
        self._follow(session)
        total, card_mib = self._sizes(session)
        if card_mib != self._card_mib:
            return False
        stale = total != self.total or any(_amounts(account.queue) != _amounts(queue) for account, queue in others)
        for account, queue in others:
            account.queue = queue
        self._roster = session.cluster.roster
        if stale:
            self.total = total
            self._set_limits()
        return True

    def _others(self, roster: Roster) -> list[tuple[Account, QueueInfo]] | None:
        """Accounts whose queues are others now; None: there are more queues, or fewer."""
        if roster is self._roster:
            return []
        if len(roster.queues) != len(self.accounts):
            return None
        pairs = zip(self.accounts.values(), roster.queues.values(), strict=True)
        return [(account, queue) for account, queue in pairs if account.queue is not queue]

    def _follow(self, session: "Session") -> None:
        """What the session has of its own."""
        self._columns, self._rows, self._present = session.columns, session.rows, session.total
        self._placeable = session.placeable
        self._session_pools = session.pools
        self._whole_cards = -1.0
        if len(self._parts) + len(self._modelled) > _TASKS:
            self._forget_tasks()

    def _forget_tasks(self) -> None:
        self._requests = Requests()
        self._parts: dict[int, tuple[Task, Asked]] = {}
        self._modelled: dict[tuple[int, Asked, str], tuple[Task, Asked]] = {}

    def _sizes(self, session: "Session") -> tuple[Sums, int]:
        """What the cluster has, `[R]`, and the memory of its smallest card, in MiB. In parts it has as many cards as it has, not as many as it would lend out
        at once; and a request for memory is a part of the smallest card."""
        total, card_mib = self.sums(self._total(session).tolist()), 0
        if self.percent:
            columns, rows = session.columns, session.rows
            sizes = columns.card_memory[rows][(columns.card_index[rows] >= 0) & (columns.card_memory[rows] > 0)]
            card_mib = int(sizes.min()) if len(sizes) else 0
            for column in self.percent - {there for of in self._pools.values() for there in of.values()}:
                total[column] = ALL_CORES * self._cards((column,))
        if self.models:
            for column, cards in session.models.cards("" if session.pools else None).items():
                total[column] = cards
            for pool, of in self._pools.items() if session.pools else ():
                there = session.models.cards(pool) if pool != OFFLINE else {}
                for column in there.keys() & of.keys():
                    total[of[column]] = there[column]
            # The model of cards that are held beyond allocatable is unknown while their device plugin restarts: they count for each.
            for cards, units in self._beyond_allocatable(session).items():
                for column in self.cards[cards]:
                    total[column] += units
        self._foreign = self.amounts(session.cluster.foreign)
        return [max(units - foreign, 0) for units, foreign in zip(total, self._foreign, strict=True)], card_mib

    def _beyond_allocatable(self, session: "Session") -> dict[int, int]:
        """By column of a vendor's cards: the number of cards in use beyond the allocatable ones of their nodes."""
        columns, rows = session.columns, session.rows
        beyond = columns.present(rows) - columns.allocatable[:, rows].sum(axis=1)
        return {column: int(beyond[column]) for column in self.cards if column < len(beyond) and beyond[column] > 0}

    def _total(self, session: "Session") -> Ints:
        """`[R]`: `Columns.present` of the nodes; nodes of a pool count under the pool's columns."""
        total = session.total
        columns, rows = session.columns, session.rows
        if session.pools:
            total = columns.present(rows[columns.in_pool("", rows)])
        elif OFFLINE in self._pools:
            total = total.copy()
        for pool, of in self._pools.items() if session.pools or OFFLINE in self._pools else ():
            if pool == OFFLINE:  # of idle nodes of any pool
                total[list(of.values())] = UNLIMITED
                continue
            present = columns.present(rows[columns.in_pool(pool, rows)])
            for column, counted in of.items():
                total[counted] = present[column]
        return np.asarray(total)

    @property
    def outside(self) -> frozenset[int]:
        """Columns of what queues name in other pools than `pooled`."""
        return frozenset(column for of in self._pools.values() for column in of.values())

    def sums(self, vector: Iterable[int]) -> Sums:
        """What counts of a vector `[R]`, in the units of the accounts."""
        sums = [units if counts else 0 for units, counts in zip(vector, self._counted, strict=True)]
        for column in self.percent:
            sums[column] *= ALL_CORES
        return sums

    def amounts(self, amounts: Mapping[str, int]) -> Sums:
        """As `sums`, of amounts by name."""
        sums, resource = [0] * self.size, self._columns.resource
        for name, units in amounts.items():
            if self._counted[column := resource(name)]:
                sums[column] += ALL_CORES * units if column in self.percent else units
        return sums

    def limits(self, amounts: Mapping[str, int]) -> Iterator[tuple[int, int]]:
        """Columns and units of all that the amounts name, a limit of 0 too. Without cards where units of some are parts of cards: `Models` has their limits."""
        for name, units in amounts.items():
            if self._shares and by_pool(name)[0] == cards_of_share(self._shares[0]):
                continue
            if (column := self._columns.resources.get(name)) is not None:
                yield column, 0 if not self._counted[column] else ALL_CORES * units if column in self.percent else units

    def amount_text(self, column: int, units: int, names: Iterable[str] = ()) -> str:
        """An amount for display. `names`: the resources among which the column's name is; by default all."""
        name = next(name for name in names or self._columns.resources if self._columns.resource(name) == column)
        amount = f"{units / ALL_CORES:g}" if column in self.percent else quantity(name, units)
        return f"{amount} {name}"

    def _cards(self, which: Iterable[int]) -> int:
        """How many the cluster has of these columns' vendors, where one card may be lent out several times."""
        columns, rows = self._columns, self._rows
        there = (columns.card_index[rows] >= 0).sum(axis=1)
        shared = columns.card_shares[rows].max(axis=1, initial=0) > 1
        lent = [columns.allocatable[column][rows] for column in which]
        return int(sum(np.where(shared & (cards > 0), there, cards).sum() for cards in lent))

    def _part(self, member: Member | Kind) -> Asked:
        request = member.task.cards
        asked = tuple(pair for pair in self._requests.of(member) if self._counted[pair[0]])
        if not self.percent:
            return asked
        percent = ALL_CORES
        if request is not None and not request.whole:
            memory = request.memory_percent
            if request.memory_mib and self._card_mib:
                memory = -(-ALL_CORES * request.memory_mib // self._card_mib)
            percent = min(ALL_CORES, max(memory, request.cores))
        return tuple((column, percent * units if column in self.percent else units) for column, units in asked)

    def _tree(self, hierarchy: bool) -> None:
        for account in self.accounts.values():
            chain = [account]
            while hierarchy:
                parent = self.accounts.get(chain[-1].queue.parent or ROOT)
                if parent is None or parent.queue.name == ROOT or parent in chain:
                    break
                chain.append(parent)
            account.path = tuple(reversed(chain))
            if len(chain) > 1:
                chain[1].children.append(account)
        if hierarchy and ROOT in self.accounts:
            root = self.accounts[ROOT]
            root.children = self.tops()

    # What runs, and what a session begins with.

    def counted(self, kind: Kind, count: int) -> None:
        """`RunningGangs` reports a change in the number of running members of a kind, between sessions."""
        self._restore()
        account = self.accounts.get(kind.queue)
        if account is None:
            return
        asked = self.asked_with_models(kind)
        for one in account.path:
            add(one.requested, asked, count)
        self._hold(account, asked, count, preemptable=kind.preemptable, gate=kind.counts_minimum)
        for one in account.path:
            if not one.shapes[asked]:
                del one.shapes[asked]

    def promised(self, queue: QueueName, minimum: Mapping[str, int], times: int) -> None:
        self._restore()
        if (account := self.accounts.get(queue)) is not None:
            self._promise(account, minimum, times)

    def enter(self, gangs: Sequence[Gang], waiting: Sequence[tuple[Kind, int]]) -> None:
        """The members of a session's own gangs, equal ones at once; and those that wait, in this session and elsewhere."""
        sums: dict[Account, Sums] = {}
        for kind, count in waiting:
            if (account := self.accounts.get(kind.queue)) is not None:
                if (of_queue := sums.get(account)) is None:
                    of_queue = sums[account] = [0] * self.size
                for column, units in self._waited_for(account, kind):
                    of_queue[column] += count * units
        for account, of_queue in sums.items():
            self._touch(account)
            for one in account.path:
                one.requested = list(map(plus, one.requested, of_queue))
        counts: dict[tuple[Account, Asked, bool, bool, bool], int] = {}
        for gang in gangs:
            account = self.accounts.get(gang.queue)
            if account is None:
                continue
            gate = gang.counts_minimum
            for member, count in gang.shapes if not waiting else ():
                key = account, self._waited_for(account, member), False, member.preemptable, gate
                counts[key] = counts.get(key, 0) + count * (1 + len(gang.represented))
            for member in gang.members if not gang.prepared else ():
                status = member.status
                if status in _ASKING and not (waiting and status is Status.PENDING):
                    holds = status in HOLDING or status is Status.PIPELINED
                    key = account, self.asked_with_models(member), holds, member.preemptable, gate
                    counts[key] = counts.get(key, 0) + 1 + len(gang.represented)
            if gate and gang.phase is not GroupPhase.PENDING:
                self.commit(gang)
        for (account, asked, holds, preemptable, gate), count in counts.items():
            self._touch(account)
            for one in account.path:
                add(one.requested, asked, count)
            if holds:
                self._hold(account, asked, count, preemptable=preemptable, gate=gate)

    def _touch(self, account: Account) -> None:
        """The session changes the account: what it was is saved."""
        if account.saved is None:
            for one in account.path:
                if one.saved is None:
                    sums = one.allocated, one.protected, one.requested, one.committed
                    one.saved = (*sums, one.shapes)
                    one.allocated, one.protected, one.requested, one.committed = map(list, sums)
                    one.shapes = one.shapes.copy()
                    self._changed.append(one)

    def _restore(self) -> None:
        for one in self._changed:
            assert one.saved is not None
            one.allocated, one.protected, one.requested, one.committed, one.shapes = one.saved
            one.saved = None
        self._changed.clear()

    # Questions.

    def history(self, account: Account) -> float:
        """The recent average usage of the queue with all queues below it, as a part of the cluster's cards."""
        if self._whole_cards < 0:
            self._whole_cards = self._cards(self.cards)
        return account.queue.recent_cards / self._whole_cards if self._whole_cards else 0.0

    def of(self, queue: QueueInfo) -> Account:
        return self.accounts[queue.name]

    def tops(self) -> list[Account]:
        """The queues right below the root."""
        return [account for account in self.accounts.values() if len(account.path) == 1 and account.queue.name != ROOT]

    def levels(self) -> Iterator[tuple[Account | None, list[Account]]]:
        """Parents and their children, parents first; None is the root."""
        yield None, self.tops()
        below = self.tops()
        while below:
            account = below.pop()
            if account.children:
                yield account, account.children
                below.extend(account.children)

    def asked(self, member: Member | Kind) -> Asked:
        """What counts of its request, in the units of the accounts."""
        found = self._parts.get(id(member.task))
        if found is None:
            part = self._part(member)
            if member.task.offline:
                part = self._in_pool(OFFLINE, part)
            found = self._parts[id(member.task)] = (member.task, part)
        return found[1]

    def asked_with_models(self, member: Member | Kind) -> Asked:
        """As `asked`, and the cards by model that it has, or is tried with; in another pool than `pooled` what queues name of that one."""
        models = member.models if self.models else ()
        if self._shares:
            models = tuple((column, cards) for column, cards in models if column in self.models)
        if (not models and not member.pool) or member.task.offline:
            return self.asked(member)
        key = id(member.task), models, member.pool
        found = self._modelled.get(key)
        if found is None:
            asked = self.asked(member) + models
            found = self._modelled[key] = (member.task, self._in_pool(member.pool, asked) if member.pool else asked)
        return found[1]

    def _waited_for(self, account: Account, member: Member | Kind) -> Asked:
        """What counts as asked for of one that waits: in `pooled`, or in the pool of which its queue's amounts are."""
        pools = account.queue.pools
        asked = self.asked(member)
        return asked if POOLED in pools or not pools or member.task.offline else self._in_pool(pools[0], asked)

    def _in_pool(self, pool: str, asked: Asked) -> Asked:
        columns = self._pools.get(pool, {})
        return tuple((columns[column], units) for column, units in asked if column in columns)

    def together(self, members: Iterable[Member]) -> dict[int, int]:
        """As `asked_with_models`, of all of them."""
        sums: Counter[int] = Counter()
        for member in members:
            for column, units in self.asked_with_models(member):
                sums[column] += units
        return sums

    # Changes.

    def commit(self, gang: Gang) -> None:
        """The gang is enqueued: its minimum is promised."""
        account = self.accounts.get(gang.queue)
        if account is None or gang.min_resources is None or gang.offline:
            return
        if not gang.holding and not self._placeable(gang):
            return  # a gang that would not fit on empty nodes reserves nothing
        self._touch(account)
        self._promise(account, gang.counted_minimum)

    def _promise(self, account: Account, amounts: Mapping[str, int], times: int = 1) -> None:
        minimum = self.minimum(amounts)
        for one in account.path:
            add(one.committed, minimum, times)

    def elsewhere(self, gang: Gang) -> bool:
        """True if pending members of the gang may be placed in other pools than `pooled`."""
        return bool(self._session_pools) and any(map(self._session_pools.choices, gang.members))

    def minimum(self, amounts: Mapping[str, int]) -> Asked:
        """What counts of a gang's minimum, in the units of the accounts."""
        return tuple((column, units) for column, units in enumerate(self.amounts(amounts)) if units > 0)

    def placed(self, member: Member, row: int) -> None:  # noqa: ARG002  # the hook's signature
        account = self.accounts.get(member.gang.queue)
        if account is not None:
            self._touch(account)
            self._hold(
                account, self.asked_with_models(member), 1, preemptable=member.preemptable, gate=member.gang.counts_minimum
            )

    def displaced(self, member: Member, row: int) -> None:  # noqa: ARG002
        account = self.accounts.get(member.gang.queue)
        if account is not None:
            self._touch(account)
            self._hold(
                account, self.asked_with_models(member), -1, preemptable=member.preemptable, gate=member.gang.counts_minimum
            )

    def placed_uniform(self, members: Sequence[Member]) -> None:
        first = members[0]
        account = self.accounts.get(first.gang.queue)
        if account is None:
            return
        self._touch(account)
        several = bool(self.models) or (self._session_pools and any(member.pool != first.pool for member in members))
        kinds = Counter((member.models, member.pool) for member in members) if several else {((), ""): len(members)}
        for kind, count in kinds.items():
            member = first if not several else next(one for one in members if (one.models, one.pool) == kind)
            self._hold(
                account, self.asked_with_models(member), count, preemptable=first.preemptable, gate=first.gang.counts_minimum
            )

    @staticmethod
    def _hold(account: Account, asked: Asked, times: int, *, preemptable: bool, gate: bool) -> None:
        """`gate`: the gang counts there with its minimum."""
        for one in account.path:
            allocated = one.allocated
            one.shapes[asked] = one.shapes.get(asked, 0) + times
            for column, units in asked:
                allocated[column] += times * units
            if not preemptable:
                add(one.protected, asked, times)
            if not gate:
                add(one.committed, asked, times)


def set_ceilings(queue_accounts: QueueAccounts, accounts: Sequence[Account], room: Sums) -> None:
    """What each of these siblings can have at most: the room `[R]` above them without what others are guaranteed, and its capability where that is
    less."""
    left = list(map(sub, room, map(sum, zip(*(account.guarantee for account in accounts), strict=True)))) or room
    for account in accounts:
        account.ceiling = [max(0, free + own) for free, own in zip(left, account.guarantee, strict=True)]
    limit_to_capability(queue_accounts, accounts)


def limit_to_capability(queue_accounts: QueueAccounts, accounts: Sequence[Account]) -> None:
    """Lower ceilings to capabilities. A resource that a capability does not name is not limited by it."""
    for account in accounts:
        for column, units in queue_accounts.limits(account.queue.capability):
            account.ceiling[column] = min(account.ceiling[column], units)


class Lines(Protocol):
    """Amounts `[R]` by account."""

    def __getitem__(self, account: Account, /) -> Sequence[float]: ...


def withheld_reason(
    queue_accounts: QueueAccounts,
    account: Account,
    lines: "Lines",
    members: Sequence[Member],
    *,
    label: Label,
) -> str:
    """Why the members together are more than the queue, or one above it, may have of something; "" where they are not, or where its line is all that the
    cluster has: that is for nodes to say. `lines`: what each may have."""
    if not account.open:
        return f"{Label.QUEUE_CLOSED}: queue {account.queue.name} is not open"
    if not account.leaf:
        return f"{Label.QUEUE_NOT_LEAF}: queue {account.queue.name} has queues below it"
    asked: Counter[int] = Counter()
    for member in members:
        asked.update(dict(queue_accounts.asked_with_models(member)))
    short = [
        (lines[one][column] - one.allocated[column] - units, place, column)
        for place, one in enumerate(account.path)
        for column, units in asked.items()
        if lines[one][column] < queue_accounts.total[column]
    ]
    over, place, column = min(short, default=(0, 0, 0))
    if over >= 0:
        return ""
    one = account.path[place]
    which = one.queue.name if one is account else f"{one.queue.name}, above queue {account.queue.name},"
    amounts = (lines[one][column], one.allocated[column], asked[column])
    most, now, more = (queue_accounts.amount_text(column, int(amount)) for amount in amounts)
    message = f"{label}: queue {which} may use {most} now, {now} are in use and {more} more are asked for"
    return message + _guaranteed_text(queue_accounts, account, place, column)


def _guaranteed_text(queue_accounts: QueueAccounts, account: Account, place: int, column: int) -> str:
    """A clause of a reason: siblings of the queue at `place` in the account's path whose guarantees are not used up, the largest remainder first.

    "" if there is none, or if the queue's own capability is its ceiling."""
    one = account.path[place]
    if dict(queue_accounts.limits(one.queue.capability)).get(column, UNLIMITED) <= one.ceiling[column]:
        return ""
    siblings = account.path[place - 1].children if place else queue_accounts.tops()
    idle = [(other.guarantee[column] - other.allocated[column], other.queue.name) for other in siblings if other is not one]
    kept = sorted(((units, name) for units, name in idle if units > 0), key=lambda found: (-found[0], found[1]))
    if not kept:
        return ""
    named = ", ".join(f"{queue_accounts.amount_text(column, units)} of queue {name}" for units, name in kept[:_NAMED])
    return f"; guaranteed and idle: {named}" + (f", and of {len(kept) - _NAMED} more queues" if len(kept) > _NAMED else "")


def passes(queue_accounts: QueueAccounts, gang: Gang) -> bool:
    """True if the gang's minimum fits in addition to what the queue and its ancestors have committed."""
    return not reject_reason(queue_accounts, gang)


def reject_reason(queue_accounts: QueueAccounts, gang: Gang) -> str:
    """Why it does not, or "". Always "" if members may be placed in other pools than `pooled`: committed amounts count in none of them."""
    if queue_accounts.elsewhere(gang) or gang.offline:
        return ""
    account = queue_accounts.accounts.get(gang.queue)
    if account is None:
        return f"queue {gang.queue} does not exist"
    if not account.open or not account.leaf:
        return f"queue {gang.queue} is not open" if not account.open else f"queue {gang.queue} has queues below it"
    for one in account.path:
        for column, units in queue_accounts.minimum(gang.min_resources or {}):
            if one.committed[column] + units > one.ceiling[column]:
                amount_text = partial(queue_accounts.amount_text, column, names=gang.min_resources or {})
                return (
                    f"{amount_text(units)} asked for, and queue {one.queue.name} has promised "
                    f"{amount_text(one.committed[column])} of at most {amount_text(one.ceiling[column])}"
                )
    return ""


def share(allocated: Sequence[int], deserved: Sequence[float]) -> float:
    """The largest part of what is deserved that is in use; all of it where nothing is deserved and something is used."""
    return max((a / d if d > 0 else 1.0 for a, d in zip(allocated, deserved, strict=True) if d > 0 or a > 0), default=0.0)


def gang_of(member: Member) -> Gang:
    """Whose it is."""
    return member.gang


def standing(gang: Gang) -> Standing:
    """The gang's size and minimum, for the rules that judge evictions of its members (`rights.units`)."""
    return Standing(gang.holding, gang.min_member)


def _pools_of(session: "Session") -> dict[str, dict[int, int]]:
    """By pool, of columns of resources those under which queues count them there: of what queues name."""
    found: dict[str, dict[int, int]] = {}
    resources = session.columns.resources
    for name in session.cluster.roster.named:
        resource, pool = by_pool(name)
        if pool:
            found.setdefault(pool, {})[session.columns.resource(resource)] = resources[name]
    return found


def _cards_of(
    session: "Session", models: Mapping[int, str], pools: Mapping[str, Mapping[int, int]]
) -> dict[int, frozenset[int]]:
    """By column of a vendor's cards, in each pool, the columns of its models there."""
    resources = session.columns.resources
    found = {
        resources[cards]: frozenset(column for column, name in models.items() if name.startswith(f"{cards}."))
        for cards in VENDORS.cards
        if cards in resources
    }
    for of in pools.values():
        there = {of[cards]: frozenset(of[one] for one in own if one in of) for cards, own in found.items() if cards in of}
        found = found | there
    return found
