"""What classes of jobs that wait ask for, as columns: which of them a row may hold is found for all of them at once.

To ask each of tens of thousands costs some microseconds each, whenever a pod leaves; a comparison of arrays costs some nanoseconds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hbox_common.model import CardRequest

from ..cluster.arrays import Ints
from ..cluster.task import Task

#: In a column that did not exist when the bound was computed: nothing fits.
_NONE = -1

#: More whole cards than any node has: an unused slot fits nowhere.
_TOO_MANY = 1 << 60


class Shapes:
    """Tasks, each as often as it was added. `[R, C]`, where the second dimension has room for more."""

    def __init__(self) -> None:
        self._slots: dict[Task, int] = {}
        self._tasks: list[Task | None] = []
        self._users: list[int] = []
        self._unused: list[int] = []
        self._amounts: Ints = np.zeros((0, 0), dtype=np.int64)
        self._cards: Ints = np.zeros(0, dtype=np.int64)  #: whole cards
        self._percent: Ints = np.zeros(0, dtype=np.int64)  #: of a card, of shares
        self._excluded: dict[Task, None] = {}  #: those with slots that fit nowhere

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, task: object) -> bool:
        return task in self._slots

    def add(self, task: Task) -> None:
        slot = self._slots.get(task)
        if slot is not None:
            self._users[slot] += 1
            return
        if self._unused:
            slot = self._unused.pop()
            self._tasks[slot], self._users[slot] = task, 1
        else:
            slot = len(self._tasks)
            self._tasks.append(task)
            self._users.append(1)
        self._slots[task] = slot
        self._grow(max((column for column, _ in task.amount), default=-1) + 1)
        self._amounts[:, slot] = 0
        for column, units in task.amount:
            self._amounts[column, slot] = units
        asked = _cards_of(task)
        self._cards[slot] = _whole_cards(task)
        self._percent[slot] = asked.cores if asked is not None and not asked.whole else 0

    def exclude(self, task: Task) -> None:
        """The task, if it is here, fits nowhere until `include_all`."""
        if (slot := self._slots.get(task)) is not None:
            self._cards[slot] = _TOO_MANY
            self._excluded[task] = None

    def include_all(self) -> None:
        """Reverse all calls of `exclude`."""
        for task in self._excluded:
            self._cards[self._slots[task]] = _whole_cards(task)
        self._excluded.clear()

    def drop(self, task: Task) -> None:
        slot = self._slots[task]
        self._users[slot] -= 1
        if not self._users[slot]:
            del self._slots[task]
            self._tasks[slot] = None
            self._cards[slot] = _TOO_MANY
            self._excluded.pop(task, None)
            self._unused.append(slot)

    def within(self, free: Sequence[int], idle_cards: int, percent: int) -> "Within":
        """Shapes of which one pod requests no more than these. `free`: `[R]`."""
        size = len(self._tasks)
        bound: Ints = np.full(len(self._amounts), _NONE, dtype=np.int64)
        known = min(len(free), len(bound))
        bound[:known] = free[:known]
        amounts = self._amounts[:, :size]
        fits = ((amounts <= bound[:, None]) | (amounts == 0)).all(axis=0)
        fits &= (self._cards[:size] <= idle_cards) & (self._percent[:size] <= percent)
        return Within(self._slots, fits.tobytes(), self._tasks)

    def _grow(self, columns: int) -> None:
        """Make room for all tasks, and for so many columns."""
        rows, room = self._amounts.shape
        wanted = room if len(self._tasks) <= room else max(64, 2 * room)
        if wanted == room and columns <= rows:
            return
        grown: Ints = np.zeros((max(columns, rows), wanted), dtype=np.int64)
        grown[:rows, :room] = self._amounts
        self._amounts = grown
        for name in ("_cards", "_percent"):
            longer: Ints = np.zeros(wanted, dtype=np.int64)
            longer[:room] = getattr(self, name)
            setattr(self, name, longer)


def _cards_of(task: Task) -> CardRequest | None:
    """The requested cards where amounts say all."""
    return task.cards if task.cards is not None and task.cards.devices is None else None


def _whole_cards(task: Task) -> int:
    asked = _cards_of(task)
    return asked.count if asked is not None and asked.whole else 0


@dataclass(frozen=True, slots=True)
class Within:
    """Some of the tasks, until others are added or dropped."""

    _slots: Mapping[Task, int]
    _fits: bytes
    _tasks: Sequence[Task | None]

    def __bool__(self) -> bool:
        return 1 in self._fits

    def any_of(self, tasks: Iterable[Task]) -> bool:
        """Whether one of these is among them."""
        slots, fits = self._slots, self._fits
        return any(fits[slots[task]] for task in tasks)

    def __iter__(self) -> Iterator[Task]:
        slot = self._fits.find(1)
        while slot >= 0:
            task = self._tasks[slot]
            assert task is not None
            yield task
            slot = self._fits.find(1, slot + 1)
