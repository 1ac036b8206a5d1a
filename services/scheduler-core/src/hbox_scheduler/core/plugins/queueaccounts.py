"""The accounts of queues: what each has, asks for and is held to, kept in step with every placement. Shared by `proportion` and `capacity`.

What a queue has counts for all of its ancestors too. A flat policy is a tree of depth one.

Cards are counted as pods ask for them, a share like a whole one, as Volcano does; or, where `parts` is set, by the part of the card that is asked for, as
KAI-Scheduler does. Amounts of cards are then in percent of a card.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model import GroupPhase, QueueName, QueuePhase, quantity
from hbox_common.model.devices import ALL_CORES, GPU
from hbox_common.model.rights import within

from ..cluster.amounts import Asked, Sums
from ..cluster.arrays import Ints
from ..cluster.entities import HOLDING, Gang, Member, QueueInfo, Status
from ..cluster.task import Task
from ..explain.labels import Label
from ..framework.asking import Asking, add

if TYPE_CHECKING:
    from ..framework.session import Session

#: The queue that may stand above all others. It has no members and no limits but the cluster's size.
ROOT = QueueName("root")

#: More than anybody can have; small enough that sums of it stay exact.
UNLIMITED = 1 << 60

_ASKING = HOLDING | {Status.PENDING, Status.PIPELINED}


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
    shapes: set[Asked] = field(default_factory=set)  #: what single members have, or had in this session
    protected: Sums = field(
        default_factory=list
    )  #: of `allocated`, what nobody may take back: members that are not preemptable
    requested: Sums = field(default_factory=list)  #: held or waited for
    committed: Sums = field(
        default_factory=list
    )  #: enqueued: minimums of gangs that passed, and what gangs without a minimum hold

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


class QueueAccounts:
    """Accounts of all queues of a session."""

    def __init__(self, session: "Session", *, hierarchy: bool, parts: bool = False, models: bool = False) -> None:
        """`models`: cards by model count too, where queues name models."""
        self._session = session
        self.models: Mapping[int, str] = session.models.names if models else {}
        self._whole_cards = -1.0
        self._asking: Asking = session.asking
        self.size = len(session.total)
        self.cards_column = session.columns.resources.get(GPU, -1)
        self.cards = self.cards_column if parts else -1  #: the column that is in percent
        self._parts: dict[int, tuple[Task, Asked]] = {}
        self._modelled: dict[tuple[int, Asked], tuple[Task, Asked]] = {}
        self._counted = [bool(counts) for counts in session.counted]
        self.total = self.sums(session.total)
        if parts and self.cards >= 0:
            self._cards_at_hand()
        if self.models:
            for column, cards in session.models.cards().items():
                self.total[column] = cards
        self.accounts = {name: Account(queue, self.size) for name, queue in session.queues.items()}
        self._tree(hierarchy)
        for account in self.accounts.values():
            account.guarantee = self.sums(session.vector(account.queue.guarantee))
            account.deserved = self.sums(session.vector(account.queue.deserved))
            resources = session.columns.resources
            account.named = frozenset(resources[name] for name in account.queue.deserved if name in resources)
        self._enter_all(session)

    def sums(self, vector: Ints) -> Sums:
        """What counts of a vector `[R]`, in the units of the accounts."""
        sums = [int(units) if counts else 0 for units, counts in zip(vector, self._counted, strict=True)]
        if self.cards >= 0:
            sums[self.cards] *= ALL_CORES
        return sums

    def words(self, column: int, units: int) -> str:
        """An amount as people write it."""
        name = next(name for name, found in self._session.columns.resources.items() if found == column)
        amount = f"{units / ALL_CORES:g}" if column == self.cards else quantity(name, units)
        return f"{amount} {name}"

    def _cards_at_hand(self) -> None:
        """In parts the cluster has as many cards as it has, not as many as it would lend out at once; and a request for memory is a part of the
        smallest card."""
        columns, rows = self._session.columns, self._session.rows
        there = columns.card_index[rows] >= 0
        sizes = columns.card_memory[rows][there & (columns.card_memory[rows] > 0)]
        self._card_mib = int(sizes.min()) if len(sizes) else 0
        self.total[self.cards] = ALL_CORES * self._cards()

    def _cards(self) -> int:
        """How many the cluster has, where one may be lent out several times."""
        columns, rows = self._session.columns, self._session.rows
        if GPU not in columns.resources:
            return 0
        there = columns.card_index[rows] >= 0
        shared = columns.card_shares[rows].max(axis=1, initial=0) > 1
        lent = columns.allocatable[columns.resources[GPU], rows]
        return int(np.where(shared, there.sum(axis=1), lent).sum())

    def _part(self, member: Member) -> Asked:
        request = member.task.cards
        asked = tuple(pair for pair in self._asking.of(member) if self._counted[pair[0]])
        if self.cards < 0:
            return asked
        percent = ALL_CORES
        if request is not None and not request.whole:
            memory = request.memory_percent
            if request.memory_mib and self._card_mib:
                memory = -(-ALL_CORES * request.memory_mib // self._card_mib)
            percent = min(ALL_CORES, max(memory, request.cores))
        return tuple((column, percent * units if column == self.cards else units) for column, units in asked)

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

    def _enter_all(self, session: "Session") -> None:
        """All members, equal ones at once."""
        alike: dict[tuple[Account, Asked, bool, bool, bool], int] = {}
        for member, count in session.running.alike():
            account = self.accounts.get(member.gang.queue)
            if account is not None:
                key = account, self.counted(member), True, member.preemptable, member.gang.counts_minimum
                alike[key] = alike.get(key, 0) + count
        for name, minimum in session.running.minimums.items():
            if name in self.accounts:
                self._promise(self.accounts[name], minimum)
        for gang in session.fresh:
            account = self.accounts.get(gang.queue)
            if account is None:
                continue
            gate = gang.counts_minimum
            for member in gang.members:
                status = member.status
                if status in _ASKING:
                    holds = status in HOLDING or status is Status.PIPELINED
                    key = account, self.counted(member), holds, member.preemptable, gate
                    alike[key] = alike.get(key, 0) + 1 + len(gang.represented)
            if gate and gang.phase is not GroupPhase.PENDING:
                self.commit(gang)
        for (account, asked, holds, preemptable, gate), count in alike.items():
            for one in account.path:
                add(one.requested, asked, count)
            if holds:
                self._hold(account, asked, count, preemptable=preemptable, gate=gate)

    # Questions.

    def history(self, account: Account) -> float:
        """The part of the cluster's cards that the queue, with all below it, used on average of late."""
        if self._whole_cards < 0:
            self._whole_cards = self._cards()
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

    def asked(self, member: Member) -> Asked:
        """What counts of its request, in the units of the accounts."""
        found = self._parts.get(id(member.task))
        if found is None:
            found = self._parts[id(member.task)] = (member.task, self._part(member))
        return found[1]

    def counted(self, member: Member) -> Asked:
        """As `asked`, and the cards by model that it has, or is tried with."""
        if not self.models or not member.models:
            return self.asked(member)
        key = id(member.task), member.models
        found = self._modelled.get(key)
        if found is None:
            found = self._modelled[key] = (member.task, self.asked(member) + member.models)
        return found[1]

    # Changes.

    def commit(self, gang: Gang) -> None:
        """The gang is enqueued: its minimum is promised."""
        account = self.accounts.get(gang.queue)
        if account is None or gang.min_resources is None:
            return
        self._promise(account, gang.counted_minimum)

    def _promise(self, account: Account, amounts: Mapping[str, int]) -> None:
        minimum = self.minimum(amounts)
        for one in account.path:
            add(one.committed, minimum)

    def minimum(self, amounts: Mapping[str, int]) -> Asked:
        """What counts of a gang's minimum, in the units of the accounts."""
        sums = self.sums(self._session.vector(amounts))
        return tuple((column, units) for column, units in enumerate(sums) if units > 0)

    def placed(self, member: Member, row: int) -> None:  # noqa: ARG002  # the hook's signature
        account = self.accounts.get(member.gang.queue)
        if account is not None:
            self._hold(account, self.counted(member), 1, preemptable=member.preemptable, gate=member.gang.counts_minimum)

    def displaced(self, member: Member, row: int) -> None:  # noqa: ARG002
        account = self.accounts.get(member.gang.queue)
        if account is not None:
            self._hold(account, self.counted(member), -1, preemptable=member.preemptable, gate=member.gang.counts_minimum)

    @staticmethod
    def _hold(account: Account, asked: Asked, times: int, *, preemptable: bool, gate: bool) -> None:
        """`gate`: the gang counts there with its minimum."""
        for one in account.path:
            allocated = one.allocated
            one.shapes.add(asked)
            for column, units in asked:
                allocated[column] += times * units
            if not preemptable:
                add(one.protected, asked, times)
            if not gate:
                add(one.committed, asked, times)


def set_ceilings(queue_accounts: QueueAccounts, session: "Session", accounts: Sequence[Account], room: Sums) -> None:
    """What each of these siblings can have at most: the room `[R]` above them without what others are guaranteed, and its capability where that is
    less."""
    for column, total in enumerate(room):
        guaranteed = sum(account.guarantee[column] for account in accounts)
        for account in accounts:
            account.ceiling[column] = max(0, total - guaranteed + account.guarantee[column])
    limit_to_capability(queue_accounts, session, accounts)


def limit_to_capability(queue_accounts: QueueAccounts, session: "Session", accounts: Sequence[Account]) -> None:
    """Lower ceilings to capabilities. A resource that a capability does not name is not limited by it."""
    resources = session.columns.resources
    for account in accounts:
        capability = queue_accounts.sums(session.vector(account.queue.capability))
        for name in account.queue.capability:
            column = resources[name]
            account.ceiling[column] = min(account.ceiling[column], capability[column])


def withheld_reason(
    queue_accounts: QueueAccounts,
    account: Account,
    lines: Mapping[Account, Sequence[float]],
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
        asked.update(dict(queue_accounts.counted(member)))
    short = [
        (lines[one][column] - one.allocated[column] - units, place, column)
        for place, one in enumerate(account.path)
        for column, units in asked.items()
        if one in lines and lines[one][column] < queue_accounts.total[column]
    ]
    over, place, column = min(short, default=(0, 0, 0))
    if over >= 0:
        return ""
    one = account.path[place]
    which = one.queue.name if one is account else f"{one.queue.name}, above queue {account.queue.name},"
    amounts = (lines[one][column], one.allocated[column], asked[column])
    most, now, more = (queue_accounts.words(column, int(amount)) for amount in amounts)
    return f"{label}: queue {which} may use {most} now, {now} are in use and {more} more are asked for"


def passes(queue_accounts: QueueAccounts, gang: Gang) -> bool:
    """Whether the gang's minimum fits beside what the queue and all above it have promised."""
    return not reject_reason(queue_accounts, gang)


def reject_reason(queue_accounts: QueueAccounts, gang: Gang) -> str:
    """Why it does not, or nothing."""
    account = queue_accounts.accounts.get(gang.queue)
    if account is None:
        return f"queue {gang.queue} does not exist"
    if not account.open or not account.leaf:
        return f"queue {gang.queue} is not open" if not account.open else f"queue {gang.queue} has queues below it"
    for one in account.path:
        for column, units in queue_accounts.minimum(gang.min_resources or {}):
            if one.committed[column] + units > one.ceiling[column]:
                return (
                    f"{queue_accounts.words(column, units)} asked for, and queue {one.queue.name} has promised "
                    f"{queue_accounts.words(column, one.committed[column])} of at most {queue_accounts.words(column, one.ceiling[column])}"
                )
    return ""


def share(allocated: Sequence[int], deserved: Sequence[float]) -> float:
    """The largest part of what is deserved that is in use; all of it where nothing is deserved and something is used."""
    return max((a / d if d > 0 else 1.0 for a, d in zip(allocated, deserved, strict=True) if d > 0 or a > 0), default=0.0)
