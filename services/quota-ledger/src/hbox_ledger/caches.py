"""What the ledger keeps in mind between its turns besides the books. It is lost with the process, and nothing is wrong then."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable

from hbox_common.model import QueueName


class ChangedQueues:
    """Queues to publish because their rules or usage changed. A new ledger publishes all."""

    def __init__(self) -> None:
        self.some = asyncio.Event()
        self._names: set[QueueName] = set()

    def add(self, names: Iterable[QueueName]) -> None:
        self._names.update(names)
        self.some.set()

    def take(self) -> list[QueueName]:
        """Remove and return all of them; the caller publishes them or adds them again."""
        names, self._names = sorted(self._names), set()
        self.some.clear()
        return names


class RecentIds:
    """The last ids that this process handled: a hint at what the database holds, and no more than that."""

    MOST = 65_536

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, ids: Iterable[str]) -> bool:
        """Whether any of `ids` is among them."""
        return not self._ids.keys().isdisjoint(ids)

    def add(self, ids: Iterable[str]) -> None:
        self._ids.update(dict.fromkeys(ids))
        while len(self._ids) > self.MOST:
            self._ids.popitem(last=False)
