"""Queues in the order of service, updated incrementally: a session computes and sorts all keys once, then recomputes only keys that a change may affect.
With 2,000 queues one sort takes longer than a victim search."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping

from hbox_common.model import QueueName

from ..cluster.entities import QueueInfo
from .hooks import Key

#: More changed queues at once are sorted in as a block.
_ONE_BY_ONE = 16


class QueueRanking:
    """`key`: returns a queue's current key; the lowest is served first, and no two queues have equal keys. `related`: returns the queues, including the given
    one, whose keys may change with its allocated amounts; None: all of them."""

    def __init__(
        self,
        queues: Mapping[QueueName, QueueInfo],
        key: Callable[[QueueInfo], Key],
        related: Callable[[QueueInfo], Iterable[QueueName] | None],
    ) -> None:
        self._queues, self._key, self._related = queues, key, related
        self._keys: dict[QueueName, Key] = {}
        #: replaced, never modified: readers may iterate over it meanwhile
        self._ordered: list[tuple[Key, QueueName]] | None = None
        self._touched: dict[QueueName, None] = {}
        self.changed: list[QueueName] = []  #: queues whose key changed, in order of the changes

    def touch(self, name: QueueName) -> None:
        """Mark the queue's allocated amounts as changed."""
        self._touched[name] = None

    def key(self, name: QueueName) -> Key:
        """The queue's current key."""
        self.refresh()
        found = self._keys.get(name)
        if found is None:
            found = self._keys[name] = self._key(self._queues[name])
        return found

    def in_order(self) -> list[tuple[Key, QueueName]]:
        """All queues with their keys, in the order of service. Callers must not modify it."""
        self.refresh()
        if self._ordered is None:
            self._ordered = sorted((self.key(name), name) for name in self._queues)
        return self._ordered

    def position(self, name: QueueName) -> int:
        """The queue's index in the order of service."""
        return bisect_left(self.in_order(), (self.key(name), name))

    def refresh(self) -> None:
        """Update the keys, and append the queues with a new key to `changed`."""
        if not self._touched:
            return
        names: dict[QueueName, None] = {}
        for name in self._touched:
            if (queue := self._queues.get(name)) is not None:
                related = self._related(queue)
                names.update(dict.fromkeys(self._keys if related is None else related))
        self._touched.clear()
        before: dict[QueueName, Key] = {}
        for name in names:
            if (old := self._keys.get(name)) is not None and (new := self._key(self._queues[name])) != old:
                before[name], self._keys[name] = old, new
        self.changed += before
        if self._ordered is not None and before:
            self._ordered = self._moved(self._ordered, before)

    def _moved(self, ordered: list[tuple[Key, QueueName]], before: Mapping[QueueName, Key]) -> list[tuple[Key, QueueName]]:
        if len(before) > _ONE_BY_ONE:
            return sorted(
                [entry for entry in ordered if entry[1] not in before] + [(self._keys[name], name) for name in before]
            )
        ordered = ordered.copy()
        for name, old in before.items():
            del ordered[bisect_left(ordered, (old, name))]
            insort(ordered, (self._keys[name], name))
        return ordered
