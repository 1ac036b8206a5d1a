"""proportion: queues share the cluster by weight (sources: volcano-proportion). What a queue deserves follows from what all queues ask for now
(`hbox_common.model.weightshares`); in a tree (`enableHierarchy`, in the running service always) the children of a queue divide what is that queue's.
Weights divide what there is in `pooled`; in other pools queues have what their objects say, and what is free."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import ceil
from operator import le
from typing import TYPE_CHECKING

from hbox_common.model import QueueName
from hbox_common.model.fairshare import corrected
from hbox_common.model.rights import AtParting, Cards, KeyedCards, Rights
from hbox_common.model.weightshares import Demand, divide_by_weight, kept_below, whole

from ..cluster.amounts import Sums
from ..cluster.entities import Gang, Member, QueueInfo
from ..explain.labels import Label
from ..framework.hooks import (
    Allocatable,
    Enqueueable,
    Events,
    Overused,
    Preemptive,
    QueueOrder,
    Reclaimable,
    ReclaimRight,
    Vote,
)
from .arguments import Arguments
from .queueaccounts import ROOT, Account, QueueAccounts, passes, reject_reason, set_ceilings, share, withheld_reason
from .usageweight import USAGE_WEIGHT
from .victimrights import VictimRights

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

#: Shares by weight know no models.
_CARDS: Cards[int] = KeyedCards({})


class _Shares(ABC):
    """By account, `[R]`; computed when they are first read, since a session reads those of few queues. What they follow from does not change while the
    session lasts."""

    def __init__(self) -> None:
        self._known: dict[Account, Sequence[float]] = {}

    def __getitem__(self, account: Account) -> Sequence[float]:
        found = self._known.get(account)
        if found is None:
            self._compute(account)
            found = self._known[account]
        return found

    @abstractmethod
    def _compute(self, account: Account) -> None:
        """Add the account's shares to `_known`."""


class _Derived(_Shares):
    """Shares that follow from those of the same account."""

    def __init__(self, of: Callable[[Account], Sequence[float]]) -> None:
        super().__init__()
        self._of = of

    def _compute(self, account: Account) -> None:
        self._known[account] = self._of(account)


class _WeightShares(_Shares):
    """What each is entitled to; with `k` by weights that history has corrected. `available`: [R], what the queues of the top level divide. The children of a
    queue are computed together: their level, and those above it."""

    def __init__(self, queue_accounts: "_ShareAccounts", available: Sums, k: float) -> None:
        super().__init__()
        self._queue_accounts, self._available, self._k = queue_accounts, available, k
        self._kept_of: dict[Account, list[float] | None] = {}

    def _compute(self, account: Account) -> None:
        queue_accounts, above = self._queue_accounts, account.path[:-1]
        if account.queue.name == ROOT or len(account.path[0].path) > 1:  # above all others, or below a circle: of no level
            self._known[account] = [0.0] * queue_accounts.size
        else:
            level = self[above[-1]] if above else self._available
            self._divide(level, above[-1].children if above else queue_accounts.highest)

    def _divide(self, level: Sequence[float], children: Sequence[Account]) -> None:
        queue_accounts, k = self._queue_accounts, self._k
        outside = queue_accounts.outside
        weights = [account.queue.weight if _takes_part(account) else 0 for account in children]
        kept = [self._kept(account) for account in children]
        used = [queue_accounts.history(account) for account in children] if k else []
        columns: list[Sequence[float]] = []
        for column in range(queue_accounts.size):
            if column in outside:
                columns.append([max(account.deserved[column], account.guarantee[column]) for account in children])
            elif not any(account.requested[column] or account.guarantee[column] for account in children):
                columns.append([0.0] * len(children))
            else:
                demands = [
                    Demand(
                        weight,
                        account.requested[column],
                        account.guarantee[column],
                        account.deserved[column],
                        account.ceiling[column],
                        kept=of[column] if of is not None else 0.0,
                    )
                    for account, weight, of in zip(children, weights, kept, strict=True)
                ]
                columns.append(divide_by_weight(level[column], _remembering(demands, used, k) if k else demands))
        self._known.update(zip(children, map(list, zip(*columns, strict=True)), strict=True))

    def _kept(self, account: Account) -> list[float] | None:
        """What is guaranteed to others below a queue that do not ask for it; None: below it nothing is guaranteed."""
        if not account.children or not any(account.guarantee):  # a queue is guaranteed at least what those below it are
            return None
        if account not in self._kept_of:
            below = [(child, self._kept(child)) for child in account.children]
            self._kept_of[account] = [
                kept_below((child.requested[c], of[c] if of is not None else 0.0, child.guarantee[c]) for child, of in below)
                for c in range(self._queue_accounts.size)
            ]
        return self._kept_of[account]


class _ShareAccounts(QueueAccounts):
    """With what each queue can have at most."""

    highest: Sequence[Account] = ()  #: the queues of the top level

    def derive(self) -> None:
        self.highest = self.tops()
        for _, children in reversed(list(self.levels())):
            for account in children:
                if account.children:
                    below = map(sum, zip(*(child.guarantee for child in account.children), strict=True))
                    account.guarantee = list(map(max, account.guarantee, below))
        for parent, children in self.levels():
            set_ceilings(self, children, self.total if parent is None else parent.ceiling)

    def available(self) -> Sums:
        """`[R]`: the amounts that queues share: of nodes that take work, the larger of allocatable and used; of other nodes what is used. Amounts of pods
        without a queue are subtracted."""
        columns, rows = self._columns, self._rows
        if self._session_pools:
            rows = rows[columns.in_pool("", rows)]
        takes_work = columns.ready[rows] & columns.schedulable[rows] & columns.healthy[rows]
        if takes_work.all():
            return self.total
        others = rows[~takes_work]
        present = (
            (columns.present(rows) if self._session_pools else self._present)
            - columns.present(others)
            + columns.used[:, others].sum(axis=1)
        )
        return [max(units - foreign, 0) for units, foreign in zip(self.sums(present.tolist()), self._foreign, strict=True)]


class Proportion(QueueOrder, Overused, Allocatable, Preemptive, Reclaimable, ReclaimRight, Enqueueable, Events):
    """Deserved: water filling by weight, at most what the queue requests and its limit, at least its guarantee; the queue object's own `deserved` is served
    first.

    Argument: usageWeight (0). With it, history corrects the weights (`fairshare`) that decide the order of queues and how much they may hold; to reclaim, a
    queue has to stay within what it deserves both with and without history, and a victim's queue has to be above both.
    """

    name = "proportion"
    demand_dependent = True

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        self._k = arguments.number(USAGE_WEIGHT, 0.0, least=0.0)
        arguments.done()
        self._hierarchy = conf.hierarchy

    def open(self, session: "Session") -> None:
        self._session = session
        self._queue_accounts = queue_accounts = _ShareAccounts.opened(session, self.name, hierarchy=self._hierarchy)
        self._deserved: _Shares
        self._most: _Shares
        takes: _Shares
        gives: _Shares
        available = queue_accounts.available()
        plain = self._deserved = self._most = takes = gives = _WeightShares(queue_accounts, available, 0.0)
        if self._k:
            self._deserved = deserved = _WeightShares(queue_accounts, available, self._k)
            # Whole units: two shares with half a card each would leave one idle. The nodes have no more than they have.
            self._most = most = _Derived(lambda account: [float(ceil(units - 1e-9)) for units in deserved[account]])
            takes = _Derived(lambda account: list(map(min, plain[account], most[account])))
            gives = _Derived(lambda account: list(map(max, plain[account], most[account])))
        if outside := queue_accounts.outside:  # weights say nothing of other pools
            inside = self._most
            self._most = _Derived(
                lambda account: [
                    account.ceiling[column] if column in outside else most for column, most in enumerate(inside[account])
                ]
            )
        rights = _ShareRights(takes, gives)
        self._rule = AtParting(rights.rights, _CARDS)
        self._used = rights.used
        self._victims = VictimRights(queue_accounts, rights, lambda _: self._rule, _CARDS)

    def queue_key(self, queue: QueueInfo) -> tuple[object, ...]:
        """By priority, then by the used part of what it deserves; in a tree, at the highest level at which two paths differ."""
        return tuple(
            (-account.queue.priority, share(account.allocated, self._deserved[account]))
            for account in self._queue_accounts.of(queue).path
        )

    def related(self, queue: QueueInfo) -> Iterable[QueueName]:
        """All below the same queue of the top level."""
        top = self._queue_accounts.of(queue).path[0]
        if not top.children:
            return (queue.name,)
        return [account.queue.name for account in _with_all_below(top)]

    def overused(self, queue: QueueInfo) -> bool:
        """True if it may have nothing more at all; while there are other pools than `pooled`, it may have something there."""
        return not self._session.pools and any(
            all(map(le, self._most[account], account.allocated)) for account in self._queue_accounts.of(queue).path
        )

    def room(self, queue: QueueInfo, member: Member, most: int) -> int:
        account, asked = self._queue_accounts.of(queue), self._queue_accounts.asked_with_models(member)
        if not account.open or not account.leaf:
            return 0
        for one in account.path:
            most = one.times(self._most[one], asked, most)
        return most

    def withheld_reason(self, queue: QueueInfo, members: Sequence[Member]) -> str:
        return withheld_reason(
            self._queue_accounts, self._queue_accounts.of(queue), self._most, members, label=Label.QUEUE_SHARE
        )

    def preemptive(self, queue: QueueInfo, member: Member) -> bool:
        account = self._queue_accounts.of(queue)
        if not account.open or not account.leaf:
            return False
        return self._rule.entitled(account.path, dict(self._queue_accounts.asked_with_models(member)), self._used)

    def reclaimable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        return self._victims.reclaimable(preemptor, candidates)

    def rightful(self, preemptor: Gang, victims: Sequence[Member]) -> bool:
        return not self._hierarchy or self._victims.rightful(preemptor, victims)

    def enqueueable(self, gang: Gang) -> Vote:
        return Vote.PERMIT if passes(self._queue_accounts, gang) else Vote.REJECT

    def reject_reason(self, gang: Gang) -> str:
        return reject_reason(self._queue_accounts, gang)

    def enqueued(self, gang: Gang) -> None:
        self._queue_accounts.commit(gang)

    def placed(self, member: Member, row: int) -> None:
        self._queue_accounts.placed(member, row)

    def placed_uniform(self, members: Sequence[Member]) -> None:
        self._queue_accounts.placed_uniform(members)

    def displaced(self, member: Member, row: int) -> None:
        self._queue_accounts.displaced(member, row)


class _ShareRights:
    """Accounts as `VictimRights` reads them: up to where they may take, and beyond what they give."""

    def __init__(self, takes: _Shares, gives: _Shares) -> None:
        self._takes, self._gives = takes, gives
        self._of: dict[Account, Rights[int]] = {}

    def rights(self, account: Account) -> Rights[int]:
        found = self._of.get(account)
        if found is None:
            guarantee = {column: units for column, units in enumerate(account.guarantee) if units > 0}
            takes, gives = (dict(enumerate(map(whole, lines[account]))) for lines in (self._takes, self._gives))
            found = self._of[account] = Rights(gives, guarantee, takes)
        return found

    def used(self, account: Account) -> Sums:
        return account.allocated

    def copy_of_used(self, account: Account) -> Sums:
        return account.allocated.copy()


def _with_all_below(account: Account) -> Iterator[Account]:
    yield account
    for child in account.children:
        yield from _with_all_below(child)


def _takes_part(account: Account) -> bool:
    """Whether anything new may start in the queue or below it."""
    return any(map(_takes_part, account.children)) if account.children else account.open


def _remembering(demands: Sequence[Demand], used: Sequence[float], k: float) -> list[Demand]:
    """The demands with weights corrected by their queues' recent usage, as parts of the cluster (`fairshare`)."""
    active = [demand.weight for demand in demands if demand.asked > 0 < demand.weight]
    found = []
    for demand, part in zip(demands, used, strict=True):
        if demand.asked <= 0 or demand.weight <= 0:
            found.append(demand._replace(weight=0))
            continue
        weight, last = corrected(demand.weight / sum(active), part, k)
        found.append(demand._replace(weight=weight, last=last))
    return found
