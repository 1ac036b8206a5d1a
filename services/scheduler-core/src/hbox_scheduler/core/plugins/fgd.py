"""FGD: place each pod where the expected fragmentation of cards falls the most, or grows the least.

Definitions (Weng et al., USENIX ATC'23; sources: fgd-definition). A node has free cpu c and free percents r_g of its cards, R = sum r_g. A shape m of the
workload requests cpu d, k cards and u percent of each. For this shape the fragment of the node is
      R                          if it cannot run there (cpu, card model, fewer than k cards with r_g >= u) or requests no card;
      sum of the r_g below u     otherwise.
The expected fragment F is the mean over the mix, by popularity p_m; a pod is placed where F before minus F after placing is largest.

Computed here without a loop over shapes: those with equal (k, u) form a group, whose popularity among shapes with d <= c that a card model may run is a step
function of c, kept as a table by model. Then F = R + sum over groups of table * can_run * (small(u) - R).

All shapes stay in the mix: dropping the rare, large ones costs five points of allocation (sources: fgd-shape-mix).
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hbox_common.model import any_names_model
from hbox_common.model.resources import CPU

from ..cluster import Columns
from ..cluster.arrays import Floats, Ints, Rows
from ..cluster.task import Task, kept_with_task
from ..devices import ALL, free_percent, memory_needed, seats
from ..framework.hooks import CardOrder, ShapeScore
from .arguments import Arguments

if TYPE_CHECKING:
    from ..framework.conf import PluginConf
    from ..framework.session import Session


@dataclass(frozen=True, slots=True)
class Shape:
    """The request of one kind of pod, as FGD sees it. `percent` is of each card; `models` empty = any."""

    cpu_milli: int
    cards: int = 0
    percent: int = ALL
    models: tuple[str, ...] = ()


def codes_named(shape: Shape, models: Sequence[str]) -> list[int]:
    """Codes of the models that the shape names (`names_model`); empty if it names none."""
    return [code for code, model in enumerate(models) if any_names_model(shape.models, model)]


#: Room for the sum of what is free on a node's cards.
_SMALL_BITS = 32
_SMALL_MASK = (1 << _SMALL_BITS) - 1


class Fragments:
    """F for one mix: popularity by shape (any positive weights), tabulated. `models`: names by code; several codes may have one."""

    def __init__(self, mix: Mapping[Shape, float], *, models: Sequence[str]) -> None:
        total = sum(mix.values()) or 1.0
        asking = {shape: weight / total for shape, weight in mix.items() if shape.cards > 0}
        groups = sorted({(s.cards, s.percent) for s in asking})
        codes = max(len(models), 1)
        self._percents: Ints = np.array(sorted({percent for _, percent in groups}), dtype=np.int64)
        self._cards: Ints = np.array([cards for cards, _ in groups], dtype=np.int64)
        self._percent_of: Ints = np.searchsorted(self._percents, [percent for _, percent in groups]).astype(np.int64)
        # [percent free, U]: what one card adds to `tally`, both figures in one number.
        free = np.arange(ALL + 1)[:, None]
        self._of_card: Ints = np.where(free >= self._percents, 1 << _SMALL_BITS, free)
        self._cpu_steps: Ints = np.array(sorted({s.cpu_milli for s in asking}), dtype=np.int64)
        at_step: Floats = np.zeros((codes, len(self._cpu_steps) + 1, len(groups)), dtype=np.float64)
        for shape, p in asking.items():
            step = int(np.searchsorted(self._cpu_steps, shape.cpu_milli)) + 1
            allowed = codes_named(shape, models) if shape.models else slice(None)
            at_step[allowed, step, groups.index((shape.cards, shape.percent))] += p
        self._popularity: Floats = np.cumsum(at_step, axis=1)

    def weights(self, free_cpu: Ints, model: Ints) -> Floats:
        """`[n, G]`: popularity of each group's shapes that cpu and model allow on the node."""
        return np.asarray(self._popularity[model, np.searchsorted(self._cpu_steps, free_cpu, side="right")])

    def tally(self, free: Ints) -> tuple[Ints, Ints]:
        """`[n, U]` each: cards with at least u percent free, and the sum of what is free on the others."""
        both = self._of_card[free].sum(axis=1)
        return both >> _SMALL_BITS, both & _SMALL_MASK

    def expected(self, idle: Ints, enough: Ints, small: Ints, weights: Floats) -> Floats:
        """F in cards; `idle` `[n]` is R in percent, `enough` and `small` as from `tally`."""
        can_run = enough[:, self._percent_of] >= self._cards
        lost = (small[:, self._percent_of] - idle[:, None]) * can_run
        return np.asarray((idle + np.einsum("ng,ng->n", weights, lost)) / ALL, dtype=np.float64)


def expected_fragment(
    *,
    free_cpu_milli: Sequence[int] | Ints,
    free_percent: Sequence[Sequence[int]] | Ints,
    models: Sequence[str],
    mix: Mapping[Shape, float],
) -> Floats:
    """F_n(M) of each node in cards, for reports: the sum over it is the cluster's F (sources: fgd-definition).

    free_cpu_milli: [N]; free_percent: [N, D], 0 where a node has fewer cards; models: [N], of the nodes' cards; mix: popularity by shape, CPU-only
    shapes included.
    """
    codes = {name: code for code, name in enumerate(dict.fromkeys([*models, *(m for shape in mix for m in shape.models)]))}
    fragments = Fragments(mix, models=list(codes))
    cpu, free = np.asarray(free_cpu_milli, dtype=np.int64), np.asarray(free_percent, dtype=np.int64)
    model = np.array([codes[name] for name in models], dtype=np.int64)
    return fragments.expected(free.sum(axis=1), *fragments.tally(free), fragments.weights(cpu, model))


class Mix:
    """Popularity of shapes, learned from the jobs seen. `version` rises each time as many pods again have been seen."""

    def __init__(self, given: Mapping[Shape, float] | None = None) -> None:
        self._counts: dict[Shape, float] = dict(given or {})
        self._given = given is not None
        self._seen = 0
        self._next = 1
        self.version = 0

    @property
    def configured(self) -> bool:
        """Whether the mix is configured; False if it is learned."""
        return self._given

    @property
    def popularity(self) -> Mapping[Shape, float]:
        return self._counts

    def learn(self, shape: Shape, pods: int) -> None:
        if self._given:
            return
        self._counts[shape] = self._counts.get(shape, 0.0) + pods
        self._seen += pods
        if self._seen >= self._next:
            self._next = 2 * self._seen
            self.version += 1


class Fgd:
    """Scores of nodes and order of their cards. Scores are in cards of fragmentation avoided. Each placement changes the node's score, so nodes are not filled
    one after the other."""

    def __init__(self, mix: Mix) -> None:
        self.mix = mix
        self._tabled: tuple[int, tuple[int, int], int] | None = (
            None  #: the tables' version of the mix, number of models, and maximum cards of a node
        )
        self._fragments = Fragments({}, models=())
        # Of the nodes as they are, as of `_known`: every task asks for the same.
        self._losses: Floats = np.zeros(0)
        self._cpu: Ints = np.zeros(0, dtype=np.int64)
        self._free: Ints = np.zeros((0, 0), dtype=np.int64)
        self._known: tuple[Columns, int] | None = None
        self._idle = 0  #: percent free on all cards, as of `_known`

    @property
    def version(self) -> int:
        """Increases when scores of unchanged nodes have to be computed again."""
        return self.mix.version

    def trial(self) -> AbstractContextManager[None]:
        """As `ShapeScore.trial`."""
        return nullcontext()

    def observe(self, columns: Columns) -> None:
        """As `ShapeScore.observe`."""
        self._now(columns, slice(0, 0))

    def score(self, columns: Columns, rows: Rows, task: Task) -> Floats | None:
        """The loss of each node before, minus its loss after one pod of the task."""
        if task.cards is not None and task.cards.count == 1 and not task.cards.whole:
            best = self._each_card(columns, rows, task).max(axis=1)
            # No card fits by its amounts: only the vendor's rules decide whether the pod fits, and the score is neutral.
            return np.where(np.isneginf(best), 0.0, best)
        before, cpu, free, model = self._now(columns, rows)
        left = cpu - task.requests.get(CPU, 0)
        if task.cards is not None:
            fits = seats(columns, rows, task.cards) > 0
            if task.cards.whole:
                fits &= np.cumsum(fits, axis=1) <= task.cards.count
                free = np.where(fits, 0, free)
            else:
                order = np.argsort(np.where(fits, free, 2 * ALL), axis=1, kind="stable")[:, : task.cards.count]
                after_each = self._left(columns, rows, task)
                free = free.copy()
                np.put_along_axis(free, order, np.take_along_axis(after_each, order, axis=1), axis=1)
        return before - self._loss(left, free, model)

    def card_keys(self, columns: Columns, rows: Ints, task: Task) -> Floats:
        """The card whose use avoids the most loss first."""
        return -self._each_card(columns, rows, task)

    def _each_card(self, columns: Columns, rows: Rows, task: Task) -> Floats:
        """`[n, D]`: the score of placing one share on each card; -inf if the share does not fit by the card's amounts."""
        assert task.cards is not None
        before, cpu, free, model = self._now(columns, rows)
        after = self._left(columns, rows, task)
        fits = seats(columns, rows, task.cards) > 0
        # Of equal cards of a node only the first is computed.
        kind = (free * (ALL + 1) + after) * 2 + fits
        first = (kind[:, :, None] == kind[:, None, :]).argmax(axis=2)
        node, card = np.nonzero(fits & (first == np.arange(kind.shape[1])))
        gain: Floats = np.full(free.shape, -np.inf)
        left = cpu - task.requests.get(CPU, 0)
        gain[node, card] = before[node] - self._loss_each(left[node], free[node], card, after[node, card], model[node])
        return np.where(fits, np.take_along_axis(gain, first, axis=1), -np.inf)

    def _loss(self, cpu: Ints, free: Ints, model: Ints) -> Floats:
        """`[n]`, in cards: F. cpu: [n] free milli; free: [n, D] percent of each card; model: [n] code of the cards' model."""
        fragments = self._fragments
        return fragments.expected(free.sum(axis=1), *fragments.tally(free), fragments.weights(cpu, model))

    def _loss_each(self, cpu: Ints, free: Ints, card: Ints, after: Ints, model: Ints) -> Floats:
        """`[m]`: as `_loss`, for nodes of which one card each has `after` percent free instead. free: [m, D]; the others [m]."""
        now = free.copy()
        now[np.arange(len(card)), card] = after
        return self._loss(cpu, now, model)

    def _left(self, columns: Columns, rows: Rows, task: Task) -> Ints:
        """`[n, D]`: what `free_percent` would say of each card that the task fits on, with one more slice of it."""
        assert task.cards is not None
        memory = columns.card_memory[rows]
        used = columns.card_memory_used[rows] + memory_needed(task.cards, memory)
        left = (ALL * (memory - used) + memory // 2) // np.maximum(memory, 1)
        np.minimum(left, ALL - columns.card_cores_used[rows] - task.cards.cores, out=left)
        left[(left < 0) | (columns.card_pods[rows] + 1 >= columns.card_shares[rows])] = 0
        return left

    def _now(self, columns: Columns, rows: Rows) -> tuple[Floats, Ints, Ints, Ints]:
        """Of nodes as they are: loss, free cpu, free percents and model."""
        actual = columns.actual
        described = self.mix.version, columns.model_codes, columns.card_index.shape[1]
        if self._tabled != described:
            self._tabled = described
            self._tabulate(actual, self.mix.popularity)
            self._known = None
            self._look(actual)
        elif self._outdated:
            self._tabulate_prices(actual)
            self._known = None
            self._look(actual)
        model = columns.card_model[rows, 0]
        if columns is not actual:
            cpu, free = self._free_of(columns, rows)  # a view, as the columns will be: read once
            return self._loss(cpu, free, model), cpu, free, model
        self._look(columns)
        return self._losses[rows], self._cpu[rows], self._free[rows], model

    def _look(self, columns: Columns) -> None:
        """Bring what is known of nodes up to date."""
        since = self._known[1] if self._known is not None and self._known[0] is columns else -1
        if since == columns.changes.end:
            return
        changed = columns.changes.since(since)
        shape = (columns.size, columns.card_index.shape[1])
        rows: Rows = slice(0, columns.size) if changed is None or self._free.shape != shape else changed
        free_cpu, free = self._free_of(columns, rows)
        losses = self._loss(free_cpu, free, columns.card_model[rows, 0])
        if isinstance(rows, slice):
            self._idle = int(free.sum())
            self._cpu, self._free, self._losses = free_cpu, free, losses
        else:
            self._idle += int(free.sum() - self._free[rows].sum())
            self._cpu[rows], self._free[rows], self._losses[rows] = free_cpu, free, losses
        self._known = (columns, columns.changes.end)

    @staticmethod
    def _free_of(columns: Columns, rows: Rows) -> tuple[Ints, Ints]:
        """`[n]` free milli of cpu and `[n, D]` percent free of each card."""
        cpu = columns.resource(CPU)
        return np.maximum(columns.allocatable[cpu][rows] - columns.used[cpu][rows], 0), free_percent(columns, rows)

    @property
    def _outdated(self) -> bool:
        """Whether `_tabulate_prices` has to be called."""
        return False

    def _tabulate_prices(self, columns: Columns) -> None:
        """Update tables that depend on prices."""

    def _tabulate(self, columns: Columns, mix: Mapping[Shape, float]) -> None:
        """Update all tables, after a change of the mix or of the cluster's card models."""
        self._fragments = Fragments(mix, models=columns.model_names)


#: Decimals of scores. The last bits of a sum depend on the number of rows computed together, and equal nodes must have equal scores.
_DECIMALS = 9

#: Memory of the card by which requests in MiB count as a percentage in the mix: half of today's cards have less, half more.
REFERENCE_CARD_MIB = 40_960


@kept_with_task
def shape_of(task: Task) -> Shape:
    """A task as a shape of the mix."""
    cpu = task.requests.get(CPU, 0)
    request = task.cards
    if request is None:
        return Shape(cpu)
    percent = (
        ALL if request.whole else max(request.cores, -(-ALL * request.memory_on(REFERENCE_CARD_MIB) // REFERENCE_CARD_MIB), 1)
    )
    return Shape(cpu, request.count, min(percent, ALL), request.models)


class FgdPlugin(ShapeScore, CardOrder):
    """Arguments: fgd.weight (1), against scores of other plugins: a card of fragmentation avoided counts as much."""

    name = "fgd"
    fills = False
    by_amounts = True
    chooser: ClassVar[type[Fgd]] = Fgd

    def __init__(self, conf: "PluginConf") -> None:
        arguments = Arguments(conf)
        self._weight = arguments.number(f"{self.name}.weight", 1, least=0)
        arguments.done()

    @cached_property
    def _chooser(self) -> Fgd:
        return self.chooser(Mix())  # not made for a session that continues with what was learned

    @property
    def mix(self) -> Mix:
        """The mix of requests by which it judges."""
        return self._chooser.mix

    @mix.setter
    def mix(self, mix: Mix) -> None:
        self._chooser = self.chooser(mix)

    @property
    def version(self) -> int:
        return self._chooser.version

    def learn(self, task: Task, pods: int) -> None:
        self.mix.learn(shape_of(task), pods)

    def open(self, session: "Session") -> None:
        """What was learned before is taken on; a session on its own learns from the pods that are in it."""
        known = session.learned.get(self.name)
        if isinstance(known, FgdPlugin):
            self._chooser = known._chooser
            return
        for gang in session.gangs:
            for member in gang.members:
                self.learn(member.task, 1)

    def observe(self, columns: Columns) -> None:
        if self._weight:
            self._chooser.observe(columns)

    def trial(self) -> AbstractContextManager[None]:
        return self._chooser.trial()

    def shape_score(self, columns: Columns, rows: Rows, task: Task) -> Floats | None:
        score = self._chooser.score(columns, rows, task) if self._weight else None
        return None if score is None else np.round(self._weight * score, _DECIMALS)

    def card_keys(self, columns: Columns, rows: Ints, task: Task) -> Floats | None:
        """Of the cards of a node for one share; whole cards are equal."""
        return self._chooser.card_keys(columns, rows, task) if self.orders_cards_of(task) else None

    def orders_cards_of(self, task: Task) -> bool:
        cards = task.cards
        return bool(self._weight) and cards is not None and not cards.whole and cards.count == 1
