"""proportion: queues share the cluster by weight (reference volcano §4). What a queue deserves follows from what all queues ask for now."""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from hbox_common.model import QueueName
from hbox_common.model.rights import Cards, KeyedCards, below_guarantee, may_lose, units, within

from ..cluster.entities import Gang, Member, QueueInfo
from ..explain.labels import Label
from ..framework.hooks import Allocatable, Enqueueable, Events, Overused, Preemptive, QueueOrder, Reclaimable, Vote
from .arguments import Arguments
from .fairshare import USAGE_WEIGHT, fill
from .queueaccounts import (
    Account,
    QueueAccounts,
    gang_of,
    passes,
    reject_reason,
    set_ceilings,
    share,
    standing,
    withheld_reason,
)

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session

#: Shares by weight know no models.
_CARDS: Cards[int] = KeyedCards({})


class _Accounts(QueueAccounts):
    """With what each queue can have at most."""

    def derive(self) -> None:
        set_ceilings(self, list(self.accounts.values()), self.total)


class Proportion(QueueOrder, Overused, Allocatable, Preemptive, Reclaimable, Enqueueable, Events):
    """Deserved: water filling by weight, at most what the queue asks for and may have, at least its guarantee.

    Argument: usageWeight (0). With it history corrects the weights (`fairshare`) of whose turn it is and who may have more; to take from others a queue has
    to stay within what it deserves with and without history, and is taken from only above both.
    """

    name = "proportion"

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        self._k = arguments.number(USAGE_WEIGHT, 0.0, least=0.0)
        arguments.done()

    def open(self, session: "Session") -> None:
        self._session = session
        self._queue_accounts = queue_accounts = _Accounts.opened(session, self.name, hierarchy=False)
        accounts = list(queue_accounts.accounts.values())
        self._deserved = self._most = self._takes = self._gives = self._shares(accounts, 0.0)
        if self._k:
            plain, self._deserved = self._deserved, self._shares(accounts, self._k)
            # Whole units: two shares with half a card each would leave one idle. The nodes have no more than they have.
            self._most = {
                account: [float(ceil(units - 1e-9)) for units in shares] for account, shares in self._deserved.items()
            }
            self._takes = {a: [min(p) for p in zip(plain[a], self._most[a], strict=True)] for a in accounts}
            self._gives = {a: [max(p) for p in zip(plain[a], self._most[a], strict=True)] for a in accounts}

    def _shares(self, accounts: Sequence[Account], k: float) -> dict[Account, list[float]]:
        queue_accounts = self._queue_accounts
        weights = np.array([account.queue.weight if account.open else 0 for account in accounts], dtype=np.float64)
        history = np.array([queue_accounts.history(account) for account in accounts]) if k else None
        shares = np.zeros((queue_accounts.size, len(accounts)))
        ceilings, requested, guarantees = (
            np.array([line(account) for account in accounts], dtype=np.float64).reshape(-1, queue_accounts.size).T
            for line in (attrgetter("ceiling"), attrgetter("requested"), attrgetter("guarantee"))
        )
        for column, total in enumerate(queue_accounts.total):
            wanted, guaranteed = np.minimum(ceilings[column], requested[column]), guarantees[column]
            if history is None or not (active := (wanted > 0) & (weights > 0)).any():
                given = fill(total, wanted, weights)
            else:
                parts = np.where(active, weights, 0.0) / weights[active].sum()
                given = fill(total, wanted, np.where(active, np.maximum(0.0, parts + k * (parts - history)), 0.0))
                left = np.where(given > 0, 0.0, wanted)
                given += fill(total - given.sum(), left, np.where(active, parts * parts / np.maximum(history, 1e-9), 0.0))
            shares[column] = np.maximum(given, guaranteed)
        return dict(zip(accounts, shares.T.tolist(), strict=True))

    def queue_key(self, queue: QueueInfo) -> tuple[int, float]:
        account = self._queue_accounts.of(queue)
        return -queue.priority, share(account.allocated, self._deserved[account])

    def related(self, queue: QueueInfo) -> Iterable[QueueName]:
        return (queue.name,)

    def overused(self, queue: QueueInfo) -> bool:
        account = self._queue_accounts.of(queue)
        return all(d <= a for d, a in zip(self._most[account], account.allocated, strict=True))

    def room(self, queue: QueueInfo, member: Member, most: int) -> int:
        account = self._queue_accounts.of(queue)
        return account.times(self._most[account], self._queue_accounts.asked(member), most) if account.open else 0

    def withheld_reason(self, queue: QueueInfo, members: Sequence[Member]) -> str:
        return withheld_reason(
            self._queue_accounts, self._queue_accounts.of(queue), self._most, members, label=Label.QUEUE_SHARE
        )

    def preemptive(self, queue: QueueInfo, member: Member) -> bool:
        return self._within(self._queue_accounts.of(queue), self._takes, member)

    def _within(self, account: Account, lines: Mapping[Account, list[float]], member: Member) -> bool:
        return account.open and within(lines[account], account.allocated, self._queue_accounts.asked(member))

    def reclaimable(self, preemptor: Member, candidates: Sequence[Member]) -> list[Member]:
        """Members of queues that have more than they deserve of something that both ask for; each one named counts, and a gang that is named whole is one
        loss where its minimum breaks."""
        wanted = {column for column, _ in self._queue_accounts.asked(preemptor)}
        left: dict[Account, tuple[Mapping[int, float], Mapping[int, int], list[int]]] = {}
        victims: list[Member] = []
        for unit in units(candidates, gang_of, standing):
            account = self._queue_accounts.accounts.get(unit[0].gang.queue)
            if account is None:
                continue
            if account not in left:
                left[account] = (
                    dict(enumerate(self._gives[account])),
                    dict(enumerate(account.guarantee)),
                    list(account.allocated),
                )
            lines, guarantee, allocated = left[account]
            loss = self._queue_accounts.together(unit)
            if may_lose(lines, allocated, loss, wanted, _CARDS) and not below_guarantee(guarantee, allocated, loss):
                victims += unit
                for column, amount in loss.items():
                    allocated[column] -= amount
        return victims

    def enqueueable(self, gang: Gang) -> Vote:
        return Vote.PERMIT if passes(self._queue_accounts, gang) else Vote.REJECT

    def reject_reason(self, gang: Gang) -> str:
        return reject_reason(self._queue_accounts, gang)

    def enqueued(self, gang: Gang) -> None:
        self._queue_accounts.commit(gang)

    def placed(self, member: Member, row: int) -> None:
        self._queue_accounts.placed(member, row)

    def placed_alike(self, members: Sequence[Member]) -> None:
        self._queue_accounts.placed_alike(members)

    def displaced(self, member: Member, row: int) -> None:
        self._queue_accounts.displaced(member, row)
