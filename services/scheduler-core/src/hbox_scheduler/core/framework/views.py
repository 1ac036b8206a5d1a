"""What is known of a task on every node: allowed or not, how many pods fit, how good. Kept per task, brought up to date row by row."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

import numpy as np

from hbox_common.model import CardRequest
from hbox_common.model.devices import ALL_CORES

from ..cluster import Columns
from ..cluster.arrays import Bools, Floats, Ints, Rows
from ..cluster.interning import grown
from ..cluster.task import Task
from .equals import first_of_equals, up_to_equals
from .hooks import EqualNodeOrder
from .rowstates import RowStates


class Shapes(Protocol):
    """What a policy says of a pod's shape on a node, whoever else waits or runs."""

    @property
    def fills(self) -> bool:
        """As `ShapeScore.fills`, of all scores together."""
        ...

    @property
    def equal_nodes(self) -> Sequence[EqualNodeOrder]:
        """Who tells apart nodes that are equal to all scores."""
        ...

    def orders_cards_of(self, task: Task) -> bool:
        """Whether it says which of a node's cards such a pod takes."""
        ...

    @property
    def version(self) -> int:
        """As `ShapeScore.version`, of all scores together."""
        ...

    def allowed(self, columns: Columns, rows: Rows, task: Task) -> Bools:
        """`[n]`: alive nodes that fail no mask."""
        ...

    def limits(self, task: Task) -> bool:
        """Whether room is kept from such pods for others, so that others who come may leave them more of it."""
        ...

    def capacity(self, columns: Columns, rows: Rows, task: Task) -> Ints:
        """`[n]`: pods that fit by what is booked, and what is kept of the rest for others; 0 or more."""
        ...

    def score(self, columns: Columns, rows: Rows, task: Task) -> Floats:
        """`[n]`: the sum of all scores."""
        ...

    def by_amounts(self, columns: Columns, task: Task) -> bool:
        """Whether rows of equal state (`Columns.kind`, `Columns.booked`) have equal capacity and score."""
        ...

    def by_requests(self, columns: Columns, task: Task) -> bool:
        """Whether, besides, pods that request the same have equal scores on rows of equal amounts, whatever is on their cards."""
        ...


class View:
    """`capacity[N]` and `rank[N]` (the score, -inf where nothing fits) of one task, as of the columns' last `refresh`."""

    def __init__(self, columns: Columns, policy: Shapes, task: Task, states: RowStates) -> None:
        self._columns = columns
        self._states = states
        self._policy = policy
        self.task = task
        self.allowed: Bools = np.zeros(0, dtype=np.bool_)
        self.capacity: Ints = np.zeros(0, dtype=np.int64)
        self.rank: Floats = np.zeros(0, dtype=np.float64)
        self._changes = self._described = -1
        self._version = -1
        self._by_amounts = self._by_requests = False
        self._limited = policy.limits(task)
        self._returned = -1

    def refresh(self, version: int) -> None:
        """Look again at the rows that changed since the last time; at all of them when that is unknown or the policy learned. Where nothing was taken back
        since, full rows are still full, unless others who came leave such pods more room. `version`: the policy's."""
        columns = self._columns
        if len(self.capacity) < columns.size:
            self.allowed = grown(self.allowed, 0, columns.size)
            self.capacity = grown(self.capacity, 0, columns.size)
            self.rank = grown(self.rank, 0, columns.size)
        if self._described != columns.described.end:
            self._describe(columns.described.since(self._described))
            self._described = columns.described.end
            self._by_amounts = self._policy.by_amounts(columns, self.task)
            self._by_requests = self._by_amounts and self._policy.by_requests(columns, self.task)
        if self._version != version:
            self._version, self._changes = version, -1
        end = columns.changes.end
        if self._changes == end:
            return
        still_full = self._returned == columns.returned and not self._limited
        few = self._by_amounts and end - self._changes <= _FEW
        if few and (tail := columns.changes.tail(self._changes)) is not None:
            rows = dict.fromkeys(tail)
            self._refresh_by_state([row for row in rows if self.capacity[row]] if still_full else [*rows])
        else:
            changed = columns.changes.since(self._changes)
            self._refresh_rows(changed[self.capacity[changed] > 0] if changed is not None and still_full else changed)
        self._changes, self._returned = end, columns.returned

    def _refresh_by_state(self, rows: list[int]) -> None:
        """As `_refresh_rows`, looking at those alone whose states were not met before."""
        if not rows:
            return
        states, ranks = self._states.of(rows), self._states.ranks(self.task)
        if unknown := {state: row for state, row in zip(states, rows, strict=True) if state not in ranks}:
            new = np.array([*unknown.values()], dtype=np.int64)
            fits = self._policy.capacity(self._columns, new, self.task)
            room = fits.tolist()
            rank = self._rank_by_requests(unknown.values(), room) if self._by_requests else self._rank(new, fits).tolist()
            found = zip(room, rank, strict=True)
            self._states.keep(self.task, dict(zip(unknown, found, strict=True)))
        capacity, rank, allowed = self.capacity, self.rank, self.allowed
        for row, state in zip(rows, states, strict=True):  # of so few rows in less time than arrays take
            capacity[row], rank[row] = ranks[state] if allowed[row] else _FULL

    def _rank_by_requests(self, rows: Iterable[int], fits: list[int]) -> list[float]:
        """As `_rank`, looking at those alone whose amounts were not met before, by any task that requests the same."""
        known, amounts = self._states.scores(self.task), self._states.amounts_of(rows)
        open_rows = zip(amounts, rows, fits, strict=True)
        if unknown := {state: row for state, row, room in open_rows if room and state not in known}:
            new = np.array([*unknown.values()], dtype=np.int64)
            scores = self._policy.score(self._columns, new, self.task).tolist()
            self._states.keep_scores(self.task, dict(zip(unknown, scores, strict=True)))
        return [known[state] if room else -np.inf for state, room in zip(amounts, fits, strict=True)]

    def _describe(self, changed: Ints | None) -> None:
        rows = self._at(changed)
        self.allowed[rows] = self._policy.allowed(self._columns, rows, self.task)

    def _refresh_rows(self, changed: Ints | None) -> None:
        rows = self._at(changed)
        fits = self._policy.capacity(self._columns, rows, self.task)
        fits[~self.allowed[rows]] = 0
        self.capacity[rows] = fits
        self.rank[rows] = self._rank(rows, fits)

    def _at(self, changed: Ints | None) -> Rows:
        """All rows, where those that changed are not known, or so many that a few more make no difference."""
        size = self._columns.size
        return slice(0, size) if changed is None or 3 * len(changed) > size else changed

    def _rank(self, rows: Rows, fits: Ints) -> Floats:
        """`[n]`: the score where any fits, else -inf; asked for where that saves something only for rows with room, which often are few."""
        open_rows = np.flatnonzero(fits)
        if 2 * len(open_rows) >= len(fits):
            score = self._policy.score(self._columns, rows, self.task)
            if len(open_rows) < len(fits):
                score[fits == 0] = -np.inf
            return score
        score = np.full(len(fits), -np.inf)
        if len(open_rows):
            some = open_rows if isinstance(rows, slice) else rows[open_rows]
            score[open_rows] = self._policy.score(self._columns, some, self.task)
        return score

    def total(self) -> int:
        """Pods of this task that fit on all nodes together."""
        return int(self.capacity.sum())

    def best(self, pods: int) -> tuple[Ints, Ints]:
        """As `_best`, and whoever wants to know of choices is told."""
        rows, counts = self._best(pods)
        self._tell(rows)
        return rows, counts

    def _tell(self, rows: Ints) -> None:
        if len(rows) and (choices := self._columns.choices) is not None:
            choices.of_equals(self.task, rows, self.rank)

    def _best(self, pods: int) -> tuple[Ints, Ints]:
        """Rows for up to `pods` more pods and how many on each, best node first; equal ones as plugins tell them apart, then by row. Empty = none fits.

        Only as many as can be given without looking at scores again: all at once under a policy that fills nodes, else one on the best
        node, together with the nodes before it that are full with one pod.
        """
        if not len(self.rank):
            return _NONE, _NONE
        first = self._first()
        room = int(self.capacity[first])
        if room == 0:
            return _NONE, _NONE
        if self.task.cards is not None and self.task.cards.devices is not None:  # how many more fit there is not counted
            return np.array([first], dtype=np.int64), np.ones(1, dtype=np.int64)
        fills = self._policy.fills and not self._by_adapters
        if self.task.aligned is not None and first in self._columns.zones:
            alike = self._columns.zones.alike(first, self.task.aligned, min(room, pods) if fills else 1)
            return np.array([first], dtype=np.int64), np.array([alike], dtype=np.int64)
        if pods == 1 or (fills and room >= pods) or (not fills and room > 1):
            return np.array([first], dtype=np.int64), np.array([min(room, pods) if fills else 1], dtype=np.int64)
        open_rows = np.flatnonzero(self.capacity)
        order = open_rows[np.argsort(-self.rank[open_rows], kind="stable")]
        counts = self.capacity[order]
        if not fills:
            if self.task.aligned is not None and self._columns.zones:
                return order[:1], np.ones(1, dtype=np.int64)
            if tells := self._policy.equal_nodes:
                order = up_to_equals(tells, self._columns, self.rank, order)
                counts = self.capacity[order]
            several = np.flatnonzero(counts > 1)
            end = min(pods, int(several[0]) + 1 if len(several) else len(order))
            return order[:end], np.ones(end, dtype=np.int64)
        if equal_nodes := self._policy.equal_nodes:
            order = up_to_equals(equal_nodes, self._columns, self.rank, order)
            counts = self.capacity[order]
        filled = np.cumsum(counts)
        end = int(np.searchsorted(filled, pods)) + 1
        order, counts = order[:end], counts[:end].copy()
        if self.task.aligned is not None and self._columns.zones:  # up to a node whose zones are known
            known = [place for place, row in enumerate(order.tolist()) if row in self._columns.zones]
            if known:
                return order[: known[0]], counts[: known[0]]
        surplus = int(filled[end - 1]) - pods if end <= len(filled) else 0
        if surplus > 0:
            counts[-1] -= surplus
        return order, counts

    def sequence(self, pods: int) -> list[int]:
        """The rows of up to `pods` more pods, one after the other. Empty = none fits. As many as can be told without looking at all nodes again."""
        if pods == 1 and len(self.rank):
            first = self._first()
            if not self.capacity[first]:
                return []
            if self._columns.choices is not None:
                self._tell(np.array((first,), dtype=np.int64))
            return [first]
        if pods > 1 and not self._policy.fills and self._foreseen():
            found = self._spread(pods)
            self._tell(np.array([*dict.fromkeys(found)], dtype=np.int64))
            return found
        rows, counts = self.best(pods)
        return rows.repeat(counts).tolist()

    @property
    def _by_adapters(self) -> bool:
        """Whether its cards are chosen by their RDMA adapters, so that a pod may leave its node a worse one for the next."""
        return self.task.rdma and self._columns.any_adapters

    def _first(self) -> int:
        """The best row."""
        first = int(self.rank.argmax())
        equal_nodes = self._policy.equal_nodes
        if not equal_nodes or not self.capacity[first]:
            return first
        return first_of_equals(equal_nodes, self._columns, self.rank, first)

    def _foreseen(self) -> bool:
        """Whether it is known beforehand what such a pod takes of its node: no card of several that would do, and no port."""
        cards = self.task.cards
        if (self.task.aligned is not None and self._columns.zones) or self._by_adapters:
            return False
        if cards is None:
            return not self.task.ports
        plain = (
            cards.whole
            and not cards.models
            and type(cards) is CardRequest
            and cards.devices is None
            and not self._columns.any_judged
        )
        return plain and not self.task.ports and not self._policy.orders_cards_of(self.task)

    def _spread(self, pods: int) -> list[int]:
        """Where a pod makes its node worse for the next one: the best nodes are scored as they would be with one, two and more such pods, and the pods go
        where the best score is then; until it is the turn of a node that was not looked at, or of one with more pods than were looked at."""
        open_rows = np.flatnonzero(self.capacity)
        plain = open_rows[np.argsort(-self.rank[open_rows], kind="stable")]
        order = up_to_equals(self._policy.equal_nodes, self._columns, self.rank, plain)
        found: list[int] = order[:pods].tolist()
        if (self.capacity[found] == 1).all():  # full with one pod each
            return found
        wide, found = min(len(order), pods, _WIDE), []
        chosen, room = order[:wide], self.capacity[order[:wide]].tolist()
        rows = chosen.tolist()
        # Among equal scores the first row comes first; nodes that a plugin tells apart share the turns of their rows in the plugin's order.
        turns = [
            (-rank, row, i, 0)
            for i, (rank, row) in enumerate(zip(self.rank[chosen].tolist(), plain[:wide].tolist(), strict=True))
        ]
        if wide < len(plain):
            turns.append((-float(self.rank[plain[wide]]), int(plain[wide]), -1, 0))
        heapify(turns)
        deeper, levels = self._deeper(chosen), [[0.0]]
        while turns and len(found) < pods:
            _, row, i, level = heappop(turns)
            if i < 0:
                break
            found.append(rows[i])
            level += 1
            if level < room[i]:
                if level == _DEEP:
                    break
                if level == len(levels):
                    levels.append(next(deeper).tolist())
                heappush(turns, (-levels[level][i], row, i, level))
        return found

    def _deeper(self, rows: Ints) -> Iterator[Floats]:
        """Scores of these rows with one such pod, with two, and so on; where so many do not fit they mean nothing."""
        task, request = self.task, self.task.cards
        columns = self._columns.trial()
        while True:
            for column, units in task.amount:
                columns.used[column][rows] += units
            if request is not None:
                free = columns.card_ok[rows] & (columns.card_pods[rows] == 0)
                taken = free & (np.cumsum(free, axis=1) <= request.count)
                columns.card_pods[rows] += taken
                columns.card_cores_used[rows] += ALL_CORES * taken
                columns.card_memory_used[rows] += columns.card_memory[rows] * taken
            yield self._policy.score(columns, rows, task)


#: Nodes that are looked at together, and pods on each.
_WIDE, _DEEP = 512, 16

#: Changed rows that are looked up one by one.
_FEW = 64

#: Of a row that takes nobody: capacity and rank.
_FULL = (0, -np.inf)

_NONE: Ints = np.zeros(0, dtype=np.int64)


#: Views, of which each has its task: what pods may say is bounded for one.
MOST = 8192


class Views:
    """The views of the tasks met lately; at most `cells` nodes in all of them, and MOST."""

    def __init__(self, columns: Columns, policy: Shapes, cells: int = 3_000_000) -> None:
        self._columns = columns
        self._policy = policy
        self._views: OrderedDict[int, View] = OrderedDict()
        self._cells = cells
        self.states = RowStates(columns)

    def follow(self, policy: Shapes) -> None:
        """Another policy from now on."""
        self._policy = policy
        self._views.clear()
        self.states.clear()

    def limits(self, task: Task) -> bool:
        """As `Shapes.limits`."""
        return self._policy.limits(task)

    def of(self, task: Task) -> View:
        """The task's view, up to date."""
        version = self._policy.version
        self.states.begin(version)
        view = self._views.get(id(task))
        if view is None:
            view = self._views[id(task)] = View(self._columns, self._policy, task, self.states)
            if len(self._views) > min(max(8, self._cells // max(self._columns.size, 1)), MOST):
                self._views.popitem(last=False)
        else:
            self._views.move_to_end(id(task))
        view.refresh(version)
        if (now := self._policy.version) != version:  # during the refresh, the policy changed its scores of all nodes
            self.states.begin(now)
            view.refresh(now)
        return view
