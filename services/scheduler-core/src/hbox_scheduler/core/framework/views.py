"""Views of a task on all nodes: whether it is allowed, how many pods fit, and the score. Cached per task and updated row by row."""

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
from .equalnodes import first_of_equals, up_to_equals
from .hooks import EqualNodeOrder
from .rowstates import RowStates


class Shapes(Protocol):
    """Masks, capacities and scores of a policy that depend only on a pod's shape and a node's row."""

    @property
    def fills(self) -> bool:
        """As `ShapeScore.fills`, for the sum of all scores."""
        ...

    @property
    def equal_nodes(self) -> Sequence[EqualNodeOrder]:
        """Plugins that order nodes with equal scores."""
        ...

    def orders_cards_of(self, task: Task) -> bool:
        """Whether the policy orders a node's cards for such a pod."""
        ...

    @property
    def version(self) -> int:
        """As `ShapeScore.version`, for the sum of all scores."""
        ...

    def allowed(self, columns: Columns, rows: Rows, task: Task) -> Bools:
        """`[n]`: alive nodes that fail no mask."""
        ...

    def limits(self, task: Task) -> bool:
        """Whether the policy keeps capacity free from such pods for others, so that placing other pods may raise their capacity."""
        ...

    def capacity(self, columns: Columns, rows: Rows, task: Task) -> Ints:
        """`[n]`: pods that fit beyond the bookings and the capacity kept free for others; 0 or more."""
        ...

    def score(self, columns: Columns, rows: Rows, task: Task) -> Floats:
        """`[n]`: the sum of all scores."""
        ...

    def terms(self, columns: Columns, rows: Rows, task: Task) -> Iterator[tuple[str, Floats]]:
        """`[n]` each: what `score` is the sum of, by plugin."""
        ...

    def observe(self, columns: Columns) -> None:
        """Let the scores that depend on all nodes follow them; `version` may rise."""
        ...

    def by_amounts(self, columns: Columns, task: Task) -> bool:
        """Whether rows of equal state (`Columns.kind`, `Columns.booked`) have equal capacity and score."""
        ...

    def by_requests(self, columns: Columns, task: Task) -> bool:
        """Whether pods with equal requests also have equal scores on rows with equal amounts, independent of the cards' bookings."""
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
        self.by_amounts = self._by_requests = False
        self._limited = policy.limits(task)
        self._returned = -1
        self.used_at = 0.0  #: monotonic seconds of its last use

    def refresh(self, version: int) -> None:
        """Update the rows that changed since the last refresh; all rows if the changes are unknown or the policy learned. If no booking was reverted since,
        full rows stay full, unless the policy keeps capacity free from such pods. `version`: the policy's."""
        columns = self._columns
        if len(self.capacity) < columns.size:
            self.allowed = grown(self.allowed, 0, columns.size)
            self.capacity = grown(self.capacity, 0, columns.size)
            self.rank = grown(self.rank, 0, columns.size)
        if self._described != columns.described.end:
            self._describe(columns.described.since(self._described))
            self._described = columns.described.end
            self.by_amounts = self._policy.by_amounts(columns, self.task)
            self._by_requests = self.by_amounts and self._policy.by_requests(columns, self.task)
        if self._version != version:
            self._version, self._changes = version, -1
        end = columns.changes.end
        if self._changes == end:
            return
        still_full = self._returned == columns.returned and not self._limited
        few = self.by_amounts and end - self._changes <= _FEW
        if few and (tail := columns.changes.tail(self._changes)) is not None:
            rows = dict.fromkeys(tail)
            self._refresh_by_state([row for row in rows if self.capacity[row]] if still_full else [*rows])
        else:
            changed = columns.changes.since(self._changes)
            self._refresh_rows(changed[self.capacity[changed] > 0] if changed is not None and still_full else changed)
        self._changes, self._returned = end, columns.returned

    def _refresh_by_state(self, rows: list[int]) -> None:
        """As `_refresh_rows`, but computes only rows with a new state."""
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
        for row, state in zip(rows, states, strict=True):  # faster than arrays for so few rows
            capacity[row], rank[row] = ranks[state] if allowed[row] else _FULL

    def _rank_by_requests(self, rows: Iterable[int], fits: list[int]) -> list[float]:
        """As `_rank`, but computes only rows with new amounts; tasks with equal requests share the results."""
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
        """The changed rows; all rows if the changes are unknown or cover more than a third of the rows."""
        size = self._columns.size
        return slice(0, size) if changed is None or 3 * len(changed) > size else changed

    def _rank(self, rows: Rows, fits: Ints) -> Floats:
        """`[n]`: the score of rows with capacity, else -inf. Computes scores of these rows only, if they are fewer than half."""
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
        """As `_best`; also records the choice in `Columns.choices`."""
        rows, counts = self._best(pods)
        self._record_choice(rows)
        return rows, counts

    def _record_choice(self, rows: Ints) -> None:
        if len(rows) and (choices := self._columns.choices) is not None:
            choices.of_equals(self.task, rows, self.rank)

    def _best(self, pods: int) -> tuple[Ints, Ints]:
        """Rows for up to `pods` more pods and the number on each, best node first; plugins order equal scores, then the row does. Empty = none fits.

        Returns only as many as the present scores decide: all of them under a policy that fills nodes, else one pod for each node up to the first one that
        has capacity for several.
        """
        if not len(self.rank):
            return _NONE, _NONE
        first = self._first()
        room = int(self.capacity[first])
        if room == 0:
            return _NONE, _NONE
        if self.task.cards is not None and self.task.cards.devices is not None:  # its capacity beyond one pod is not computed
            return np.array([first], dtype=np.int64), np.ones(1, dtype=np.int64)
        fills = self._policy.fills and not self._by_adapters
        if self.task.aligned is not None and first in self._columns.zones:
            count = self._columns.zones.same_zones(first, self.task.aligned, min(room, pods) if fills else 1)
            return np.array([first], dtype=np.int64), np.array([count], dtype=np.int64)
        if pods == 1 or (fills and room >= pods) or (not fills and room > 1):
            return np.array([first], dtype=np.int64), np.array([min(room, pods) if fills else 1], dtype=np.int64)
        open_rows = np.flatnonzero(self.capacity)
        order = open_rows[np.argsort(-self.rank[open_rows], kind="stable")]
        counts = self.capacity[order]
        if not fills:
            if self.task.aligned is not None and self._columns.zones:
                return order[:1], np.ones(1, dtype=np.int64)
            if node_orders := self._policy.equal_nodes:
                order = up_to_equals(node_orders, self._columns, self.rank, order)
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
        """One row per pod for up to `pods` more pods, as many as can be chosen without updating all nodes. Empty = none fits."""
        if pods == 1 and len(self.rank):
            first = self._first()
            if not self.capacity[first]:
                return []
            if self._columns.choices is not None:
                self._record_choice(np.array((first,), dtype=np.int64))
            return [first]
        if pods > 1 and not self._policy.fills and self._foreseen():
            found = self._spread(pods)
            self._record_choice(np.array([*dict.fromkeys(found)], dtype=np.int64))
            return found
        rows, counts = self.best(pods)
        return rows.repeat(counts).tolist()

    @property
    def _by_adapters(self) -> bool:
        """Whether RDMA adapters decide the choice of cards, so that a placed pod may lower its node's score for the next one."""
        return self.task.rdma and self._columns.any_adapters

    def _first(self) -> int:
        """The best row."""
        first = int(self.rank.argmax())
        equal_nodes = self._policy.equal_nodes
        if not equal_nodes or not self.capacity[first]:
            return first
        return first_of_equals(equal_nodes, self._columns, self.rank, first)

    def _foreseen(self) -> bool:
        """Whether the bookings of such a pod are known in advance: it has no choice between cards and uses no host port."""
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
        """Rows for pods under a policy where each pod lowers its node's score. Scores the best nodes with one, two and more such pods in advance and assigns
        each pod to the best score; stops at a node outside the scored ones, or at one with more pods than were scored."""
        open_rows = np.flatnonzero(self.capacity)
        plain = open_rows[np.argsort(-self.rank[open_rows], kind="stable")]
        order = up_to_equals(self._policy.equal_nodes, self._columns, self.rank, plain)
        found: list[int] = order[:pods].tolist()
        if (self.capacity[found] == 1).all():  # full with one pod each
            return found
        wide, found = min(len(order), pods, _WIDE), []
        chosen, room = order[:wide], self.capacity[order[:wide]].tolist()
        rows = chosen.tolist()
        # Among equal scores the lowest row comes first. Nodes that a plugin orders take the positions of their rows in the plugin's order.
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
        """Scores of these rows with one such pod, with two, and so on; undefined for rows where that many do not fit."""
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


#: Maximum nodes that are scored together, and maximum pods on each.
_WIDE, _DEEP = 512, 16

#: Maximum changed rows that are updated one by one.
_FEW = 64

#: Maximum rows of which terms are kept by state.
_FEW_TERMS = 4

#: Changes of rows after which scores follow the nodes (`Shapes.observe`).
_OBSERVED = 256

#: Capacity and rank of a row where no pod fits.
_FULL = (0, -np.inf)

_NONE: Ints = np.zeros(0, dtype=np.int64)


#: Maximum number of cached views; each keeps its task alive.
MOST = 8192

#: Seconds after which an unused view is dropped.
UNUSED_S = 300.0


class Views:
    """Cache of the views of recently used tasks: at most MOST views, with at most `cells` rows in total."""

    def __init__(self, columns: Columns, policy: Shapes, cells: int = 5_000_000) -> None:
        self._columns = columns
        self._policy = policy
        self._views: OrderedDict[int, View] = OrderedDict()
        self._cells = cells
        self._now = 0.0  #: of the last call of `expire`
        self._observed = 0  #: the end of `columns.changes` at the last call of `observe`
        self.states = RowStates(columns)

    def on(self, columns: Columns) -> "Views":
        """Views of the same policy on other columns."""
        return Views(columns, self._policy)

    def follow(self, policy: Shapes) -> None:
        """Switch to another policy and drop all views."""
        self._policy = policy
        self.clear()

    def clear(self) -> None:
        """Drop all views."""
        self._views.clear()
        self.states.clear()

    def expire(self, now: float) -> None:
        """Drop views that were not used for UNUSED_S. `now`: monotonic seconds."""
        self._now = now
        while self._views and (first := next(iter(self._views.values()))).used_at < now - UNUSED_S:
            del self._views[id(first.task)]

    def limits(self, task: Task) -> bool:
        """As `Shapes.limits`."""
        return self._policy.limits(task)

    def terms(self, rows: Ints, task: Task) -> list[tuple[str, Floats]]:
        """As `Shapes.terms`, for rows of a view that is up to date. Of few rows they are kept by state, as the view's scores are."""
        view = self._views.get(id(task))
        if len(rows) > _FEW_TERMS or view is None or not view.by_amounts:
            return [*self._policy.terms(self._columns, rows, task)]
        states = self.states.of(rows.tolist())
        known = self.states.terms(task)
        if unknown := {state: row for state, row in zip(states, rows.tolist(), strict=True) if state not in known}:
            found = [*self._policy.terms(self._columns, np.array([*unknown.values()], dtype=np.int64), task)]
            of_states = [[(name, float(score[i])) for name, score in found] for i in range(len(unknown))]
            self.states.keep_terms(task, dict(zip(unknown, of_states, strict=True)))
        by_row = [known[state] for state in states]
        return [(parts[0][0], np.array([value for _, value in parts])) for parts in zip(*by_row, strict=True)]

    def of(self, task: Task) -> View:
        """The task's view, up to date."""
        if self._columns.changes.end - self._observed > _OBSERVED:
            self._observed = self._columns.changes.end
            self._policy.observe(self._columns)
        version = self._policy.version
        self.states.begin(version)
        view = self._views.get(id(task))
        if view is None:
            view = self._views[id(task)] = View(self._columns, self._policy, task, self.states)
            if len(self._views) > min(max(8, self._cells // max(self._columns.size, 1)), MOST):
                self._views.popitem(last=False)
        else:
            self._views.move_to_end(id(task))
        view.used_at = self._now
        view.refresh(version)
        if (now := self._policy.version) != version:  # during the refresh, the policy changed its scores of all nodes
            self.states.begin(now)
            view.refresh(now)
        return view
