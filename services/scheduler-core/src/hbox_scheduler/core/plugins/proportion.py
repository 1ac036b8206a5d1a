"""proportion: queues share the cluster by weight (reference volcano §4). What a queue deserves follows from what all queues ask for now."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..session.hooks import Vote
from ..session.nouns import Gang, Member, QueueInfo
from .arguments import Arguments
from .fairshare import fill
from .queuebooks import Account, QueueBooks, passes, set_ceilings, share

if TYPE_CHECKING:
    from ..policy.conf import PluginConf
    from ..session.session import Session


class Proportion:
    """Deserved: water filling by weight, at most what the queue asks for and may have, at least its guarantee. No arguments."""

    name = "proportion"

    def __init__(self, conf: "PluginConf") -> None:
        Arguments(conf).done()

    def open(self, session: "Session") -> None:
        self._session = session
        self._books = books = QueueBooks(session, hierarchy=False)
        self._deserved: dict[Account, list[float]] = {}
        accounts = list(books.accounts.values())
        set_ceilings(books, session, accounts, books.total)
        weights = np.array([account.queue.weight if account.open else 0 for account in accounts], dtype=np.float64)
        shares = np.zeros((books.size, len(accounts)))
        for column, total in enumerate(books.total):
            wanted = np.array([min(a.ceiling[column], a.requested[column]) for a in accounts], dtype=np.float64)
            guaranteed = np.array([account.guarantee[column] for account in accounts], dtype=np.float64)
            shares[column] = np.maximum(fill(total, wanted, weights), guaranteed)
        for i, account in enumerate(accounts):
            self._deserved[account] = shares[:, i].tolist()

    def deserved(self, queue: QueueInfo) -> list[float]:
        """`[R]`"""
        return self._deserved[self._books.of(queue)]

    def queue_key(self, queue: QueueInfo) -> tuple[int, float]:
        account = self._books.of(queue)
        return -queue.priority, share(account.allocated, self._deserved[account])

    def overused(self, queue: QueueInfo) -> bool:
        account = self._books.of(queue)
        return all(d <= a for d, a in zip(self._deserved[account], account.allocated, strict=True))

    def allocatable(self, queue: QueueInfo, member: Member) -> bool:
        account = self._books.of(queue)
        deserved, allocated = self._deserved[account], account.allocated
        return account.open and all(
            allocated[column] + units <= deserved[column] for column, units in self._books.asked(member)
        )

    preemptive = allocatable

    def reclaimable(self, claimant: Member, candidates: Sequence[Member]) -> list[Member]:
        """Members of queues that have more than they deserve of something that both ask for; each one named counts."""
        wanted = {column for column, _ in self._books.asked(claimant)}
        taken: dict[Account, list[int]] = {}
        victims: list[Member] = []
        for member in candidates:
            account = self._books.accounts.get(member.gang.queue)
            if account is None:
                continue
            allocated = taken.get(account)
            if allocated is None:
                allocated = taken[account] = list(account.allocated)
            deserved, asked = self._deserved[account], self._books.asked(member)
            if any(column in wanted and allocated[column] > deserved[column] for column, _ in asked) and all(
                allocated[column] - units >= account.guarantee[column] or not account.guarantee[column]
                for column, units in asked
            ):
                victims.append(member)
                for column, units in asked:
                    allocated[column] -= units
        return victims

    def enqueueable(self, gang: Gang) -> Vote:
        return Vote.PERMIT if passes(self._books, self._session, gang) else Vote.REJECT

    def enqueued(self, gang: Gang) -> None:
        self._books.commit(gang, self._session)

    def placed(self, member: Member, row: int) -> None:
        self._books.placed(member, row)

    def displaced(self, member: Member, row: int) -> None:
        self._books.displaced(member, row)
