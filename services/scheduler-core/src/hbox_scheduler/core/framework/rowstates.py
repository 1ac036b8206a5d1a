"""What is known of rows by their state: what they have, what is booked there, and their cards. Clusters have many equal nodes, which fill in equal ways, so
that many states were met before; then a lookup takes the place of some forty array operations on a row or two. Most policies score by amounts alone, of which
there are fewer than of what is on cards, and pods with shares of any size request the same ones: such scores are kept by themselves.
"""

from collections.abc import Iterable
from typing import TypeAlias
from weakref import WeakKeyDictionary

from hbox_common.model import CardSlice

from ..cluster import Columns
from ..cluster.amounts import Amount
from ..cluster.arrays import Ints
from ..cluster.task import Task

#: Cards that so many pods of a task take of a row: their positions on it, the memory of each slice, and the slices pod by pod.
Taken: TypeAlias = tuple[Ints, Ints, list[tuple[CardSlice, ...]]]

#: How many more pods of a task fit by what is booked, and the score where any does.
Rank: TypeAlias = tuple[int, float]

#: The parts of a score, each with its plugin's name.
Terms: TypeAlias = list[tuple[str, float]]

#: Answers that are kept, of all tasks together.
_MOST = 65_536


class RowStates:
    """Row states of one policy's columns. A state is a number that equal rows share. There are separate states for equal amounts and cards, for equal cards,
    and for equal amounts (`Columns.kind`, `Columns.booked`).

    `cards`: by task, number and count of pods."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._at = -1  #: the end of `columns.changes` as of which `_of` is right
        self._kinds: dict[int, int] = {}  #: by row, as of the last description
        self._of: dict[int, int] = {}  #: by row
        self._cards_of: dict[int, int] = {}  #: by row, of those in `_of`
        self._amounts_of: dict[int, int] = {}  #: likewise
        self._numbers: dict[object, int] = {}
        self._epoch = (-1, -1)
        self._ranks: WeakKeyDictionary[Task, dict[int, Rank]] = WeakKeyDictionary()
        self._scores: dict[Amount, dict[int, float]] = {}
        self._terms: WeakKeyDictionary[Task, dict[int, Terms]] = WeakKeyDictionary()
        self._kept = 0
        self.cards: dict[tuple[Task, int, int], Taken] = {}

    def begin(self, version: int) -> None:
        """Before anything is looked up. `version`: of the scores; what nodes are counts too, since labels and models of others may."""
        epoch = version, self._columns.described.end
        if epoch != self._epoch or self._kept + len(self.cards) > _MOST:
            self._epoch = epoch
            self.clear()

    def clear(self) -> None:
        self._at, self._kept = -1, 0
        for kept in (
            self._kinds, self._of, self._cards_of, self._amounts_of, self._numbers, self._ranks, self._scores,
            self._terms, self.cards
        ):  # fmt: skip
            kept.clear()

    def ranks(self, task: Task) -> dict[int, Rank]:
        """By state, what is known of the task. To be written to by `keep`."""
        return self._ranks.setdefault(task, {})

    def keep(self, task: Task, ranks: dict[int, Rank]) -> None:
        self._ranks[task].update(ranks)
        self._kept += len(ranks)

    def scores(self, task: Task) -> dict[int, float]:
        """By the number of amounts, the scores known of pods that request what the task does. To be written to by `keep_scores`."""
        return self._scores.setdefault(task.amount, {})

    def keep_scores(self, task: Task, scores: dict[int, float]) -> None:
        self._scores[task.amount].update(scores)
        self._kept += len(scores)

    def terms(self, task: Task) -> dict[int, Terms]:
        """By state, the parts of the task's scores that are known. To be written to by `keep_terms`."""
        return self._terms.setdefault(task, {})

    def keep_terms(self, task: Task, terms: dict[int, Terms]) -> None:
        self._terms[task].update(terms)
        self._kept += len(terms)

    def of(self, rows: Iterable[int]) -> list[int]:
        """The states of these rows."""
        columns, states = self._columns, self._of
        if self._at != columns.changes.end:
            changed = columns.changes.tail(self._at)
            self._at = columns.changes.end
            if changed is None:
                states.clear()
            else:
                for row in changed:
                    states.pop(row, None)
        return [states[row] if row in states else self._read(row) for row in rows]

    def cards_of(self, row: int) -> int:
        """The number of what the row's cards are."""
        self.of((row,))
        return self._cards_of[row]

    def amounts_of(self, rows: Iterable[int]) -> list[int]:
        """The numbers of what these rows have and have given, cards aside; `of` was asked about them before."""
        return [self._amounts_of[row] for row in rows]

    def _read(self, row: int) -> int:
        kind = self._kinds.get(row)
        if kind is None:
            kind = self._kinds[row] = self._number(self._columns.kind(row))
        amounts, cards = self._columns.booked(row)
        on_cards = self._cards_of[row] = self._number((kind, cards))
        on_amounts = self._amounts_of[row] = self._number((kind, amounts))
        found = self._of[row] = self._number((on_cards, on_amounts))
        return found

    def _number(self, what: object) -> int:
        return self._numbers.setdefault(what, len(self._numbers))
