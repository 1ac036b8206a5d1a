"""Queues in the order of service, updated incrementally: a session computes and sorts all keys once, then recomputes only keys that a change may affect.
With 2,000 queues one sort takes longer than a victim search.

A key is compared as the pair of its branch's part and the rest. In a tree every placement changes the key of all queues below the same top-level queue, but
only in the part that they have in common: the order within the branch stays as it is.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hbox_common.model import QueueName

from ..cluster.entities import QueueInfo
from .hooks import Key

#: More changed queues at once are sorted in as a block.
_ONE_BY_ONE = 16

#: The branch of all queues if there are no branches.
_TRUNK = QueueName("")


@dataclass(frozen=True, slots=True)
class Branches:
    """`of`: the queue's branch; `related`: queues whose key may change beyond the branch's part with the amounts of a queue; `key`: the branch's part of the
    queue's key (`BranchOrder.branch`)."""

    of: Callable[[QueueInfo], QueueName | None]
    related: Callable[[QueueInfo], Iterable[QueueName]]
    key: Callable[[QueueInfo], object]


class QueueRanking:
    """`key`: returns a queue's current key; the lowest is served first, and no two queues have equal keys. `related`: returns the queues, including the given
    one, whose keys may change with its allocated amounts; None: all of them. `branches`: None = all queues are one branch.

    The part of a branch is `(key[0][0],)` and the rest of a key `(key[0][1:], *key[1:])`; without branches `()` and the key."""

    def __init__(
        self,
        queues: Mapping[QueueName, QueueInfo],
        key: Callable[[QueueInfo], Key],
        related: Callable[[QueueInfo], Iterable[QueueName] | None],
        branches: Branches | None = None,
    ) -> None:
        self._queues, self._key, self._related, self._branches = queues, key, related, branches
        self._rests: dict[QueueName, Key] = {}
        self._parts: dict[QueueName, Key] = {}  #: by branch
        self._branch_of: dict[QueueName, QueueName] = {}
        #: replaced, never modified: readers may iterate over it meanwhile
        self._ordered: list[tuple[Key, QueueName]] | None = None
        self._touched: dict[QueueName, None] = {}
        self.changed: list[QueueName] = []  #: queues whose `rest` changed, in order of the changes
        self.branches_changed: list[QueueName] = []  #: branches whose `part` changed, in order of the changes

    def touch(self, name: QueueName) -> None:
        """Mark the queue's allocated amounts as changed."""
        self._touched[name] = None

    def key(self, name: QueueName) -> Key:
        """The queue's current key."""
        return self.part(self.branch(name)), self.rest(name)

    def branch(self, name: QueueName) -> QueueName:
        """The queue's branch."""
        found = self._branch_of.get(name)
        if found is None:
            own = None if self._branches is None else self._branches.of(self._queues[name])
            found = self._branch_of[name] = _TRUNK if own is None else own
            if found not in self._parts:
                self._parts[found] = self._part_of(self._queues[name])
        return found

    def part(self, branch: QueueName) -> Key:
        """The part of the keys of all queues of a branch, of which `branch` was asked before."""
        self.refresh()
        return self._parts[branch]

    def rest(self, name: QueueName) -> Key:
        """The queue's key without the part of its branch."""
        self.refresh()
        found = self._rests.get(name)
        if found is None:
            found = self._rests[name] = self._rest_of(self._queues[name])
        return found

    def _part_of(self, queue: QueueInfo) -> Key:
        return () if self._branches is None else (self._branches.key(queue),)

    def _rest_of(self, queue: QueueInfo) -> Key:
        key = self._key(queue)
        return key if self._branches is None else (key[0][1:], *key[1:])

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
        """Update the keys, and append what has a new key to `changed` and `branches_changed`."""
        if not self._touched:
            return
        touched = [queue for name in self._touched if (queue := self._queues.get(name)) is not None]
        self._touched.clear()
        old = dict(self._keys_of(touched)) if self._ordered is not None else {}
        rests = self._rests
        for name in self._changeable(touched):
            if (before := rests.get(name)) is not None and (now := self._rest_of(self._queues[name])) != before:
                rests[name] = now
                self.changed.append(name)
        for queue in touched if self._branches is not None else ():
            branch = self.branch(queue.name)
            if (part := self._part_of(queue)) != self._parts[branch]:
                self._parts[branch] = part
                self.branches_changed.append(branch)
        if self._ordered is not None and (moved := {name: key for name, key in old.items() if key != self.key(name)}):
            self._ordered = self._moved(self._ordered, moved)

    def _changeable(self, touched: Iterable[QueueInfo]) -> Iterable[QueueName]:
        """Queues whose rest may have changed."""
        related = self._related if self._branches is None else self._branches.related
        names: dict[QueueName, None] = {}
        for queue in touched:
            if (found := related(queue)) is None:
                return [*self._rests]
            names.update(dict.fromkeys(found))
        return names

    def _keys_of(self, touched: Iterable[QueueInfo]) -> Iterable[tuple[QueueName, Key]]:
        """The keys before the change, of all queues whose key may have changed."""
        for queue in touched:
            names = self._related(queue)
            for name in self._queues if names is None else names:
                if name in self._rests:
                    yield name, (self._parts[self._branch_of[name]], self._rests[name])

    def _moved(self, ordered: list[tuple[Key, QueueName]], before: Mapping[QueueName, Key]) -> list[tuple[Key, QueueName]]:
        if len(before) > _ONE_BY_ONE:
            return sorted([entry for entry in ordered if entry[1] not in before] + [(self.key(name), name) for name in before])
        ordered = ordered.copy()
        for name, old in before.items():
            del ordered[bisect_left(ordered, (old, name))]
            insort(ordered, (self.key(name), name))
        return ordered
