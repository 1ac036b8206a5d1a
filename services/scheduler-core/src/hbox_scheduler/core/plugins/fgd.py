"""FGD: place each pod where the expected fragmentation of cards falls the most, or grows the least.

Definitions (Weng et al., USENIX ATC'23; reference performance §1.1). A node has free cpu c and free percents r_g of its cards, R = sum r_g. A
shape m of the workload asks for cpu d, k cards and u percent of each. It sees as fragment of the node
  R                          if it cannot run there (cpu, card model, fewer than k cards with r_g >= u) or asks for no card;
  sum of the r_g below u     otherwise.
The expected fragment F is the mean over the mix, by popularity p_m; a pod goes where F before minus F after placing is largest.

Computed here without a loop over shapes: those with equal (k, u, models) form a group, whose popularity among shapes with d <= c is a step
function of c, kept as a table. Then F = R + sum over groups of table * can_run * (small(u) - R).

All shapes stay in the mix: dropping the rare, large ones costs five points of allocation (reference §1.5). The optional stranding term adds
weight * max(0, R - c / kappa): idle cards that the node's free cpu cannot feed; it is not part of FGD.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hbox_common.model.resources import CPU

from ..arrays import Bools, Floats, Ints, Rows
from ..devices.nvidia import ALL, free_percent, memory_needed, seats
from ..state import Columns
from ..task import Task


@dataclass(frozen=True, slots=True)
class Shape:
    """What one kind of pod asks for, as FGD sees it. `percent` is of each card; `models` empty = any."""

    cpu_milli: int
    cards: int = 0
    percent: int = ALL
    models: tuple[str, ...] = ()


class Fragments:
    """F for one mix: popularity by shape (any positive weights), tabulated."""

    def __init__(
        self, mix: Mapping[Shape, float], *, model_codes: Mapping[str, int], stranding: float = 0.0, cpu_per_card: int = 12_000
    ) -> None:
        total = sum(mix.values()) or 1.0
        asking = {shape: weight / total for shape, weight in mix.items() if shape.cards > 0}
        groups = sorted({(s.cards, s.percent, s.models) for s in asking})
        codes = 1 + max(model_codes.values(), default=0)
        self._percents: Ints = np.array(sorted({percent for _, percent, _ in groups}), dtype=np.int64)
        self._cards: Ints = np.array([cards for cards, _, _ in groups], dtype=np.int64)
        self._percent_of: Ints = np.searchsorted(self._percents, [percent for _, percent, _ in groups]).astype(np.int64)
        self._allowed: Bools = np.ones((codes, len(groups)), dtype=np.bool_)
        for g, (_, _, models) in enumerate(groups):
            if models:
                self._allowed[:, g] = False
                self._allowed[[model_codes[name] for name in models if name in model_codes], g] = True
        self._cpu_steps: Ints = np.array(sorted({s.cpu_milli for s in asking}), dtype=np.int64)
        at_step: Floats = np.zeros((len(self._cpu_steps) + 1, len(groups)), dtype=np.float64)
        for shape, p in asking.items():
            step = int(np.searchsorted(self._cpu_steps, shape.cpu_milli)) + 1
            at_step[step, groups.index((shape.cards, shape.percent, shape.models))] += p
        self._popularity: Floats = np.cumsum(at_step, axis=0)
        self._stranding = stranding
        self._cpu_per_card = cpu_per_card

    def weights(self, free_cpu: Ints, model: Ints) -> Floats:
        """`[n, G]`: popularity of each group's shapes that cpu and model allow on the node."""
        return np.asarray(self._popularity[np.searchsorted(self._cpu_steps, free_cpu, side="right")] * self._allowed[model])

    def tally(self, free: Ints) -> tuple[Ints, Ints]:
        """`[n, U]` each: cards with at least u percent free, and the sum of what is free on the others."""
        enough = free[:, :, None] >= self._percents
        return enough.sum(axis=1), np.where(enough, 0, free[:, :, None]).sum(axis=1)

    def tally_change(self, before: Ints, after: Ints) -> tuple[Ints, Ints]:
        """`[..., U]`: how the tally moves when one card goes from `before` to `after` percent free."""
        had, has = before[..., None] >= self._percents, after[..., None] >= self._percents
        return (
            has.astype(np.int64) - had.astype(np.int64),
            np.where(has, 0, after[..., None]) - np.where(had, 0, before[..., None]),
        )

    def expected(self, free_cpu: Ints, idle: Ints, enough: Ints, small: Ints, weights: Floats) -> Floats:
        """F in cards, over any leading shape; `idle` is R in percent, `enough` and `small` as from `tally`."""
        can_run = enough[..., self._percent_of] >= self._cards
        lost = np.where(can_run, small[..., self._percent_of] - idle[..., None], 0)
        fragment = (idle + (weights * lost).sum(axis=-1)) / ALL
        if self._stranding:
            fragment = fragment + self._stranding * np.maximum(idle / ALL - free_cpu / self._cpu_per_card, 0.0)
        return np.asarray(fragment, dtype=np.float64)


def expected_fragment(
    *,
    free_cpu_milli: Sequence[int] | Ints,
    free_percent: Sequence[Sequence[int]] | Ints,
    models: Sequence[str],
    mix: Mapping[Shape, float],
) -> Floats:
    """F_n(M) of each node in cards, for reports: the sum over it is the cluster's F (reference performance §1.1).

    free_cpu_milli: [N]; free_percent: [N, D], 0 where a node has fewer cards; models: [N], of the nodes' cards; mix: popularity by shape, CPU-only
    shapes included.
    """
    codes = {name: code for code, name in enumerate(dict.fromkeys([*models, *(m for shape in mix for m in shape.models)]))}
    fragments = Fragments(mix, model_codes=codes)
    cpu, free = np.asarray(free_cpu_milli, dtype=np.int64), np.asarray(free_percent, dtype=np.int64)
    model = np.array([codes[name] for name in models], dtype=np.int64)
    return fragments.expected(cpu, free.sum(axis=1), *fragments.tally(free), fragments.weights(cpu, model))


class Mix:
    """Popularity of shapes, learned from the jobs seen. `version` rises each time as many pods again have been seen."""

    def __init__(self, given: Mapping[Shape, float] | None = None) -> None:
        self._counts: dict[Shape, float] = dict(given or {})
        self._given = given is not None
        self._seen = 0
        self._next = 1
        self.version = 0

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
    """Score and card choice. Scores are in cards of fragmentation avoided; no pod order is implied, so nodes are not simply filled."""

    fills = False

    def __init__(self, mix: Mix, *, stranding: float = 0.0) -> None:
        self._mix = mix
        self._stranding = stranding
        self._tabled: tuple[int, int] | None = None
        self._fragments = Fragments({}, model_codes={})

    @property
    def version(self) -> int:
        return self._mix.version

    def learn(self, task: Task, pods: int) -> None:
        self._mix.learn(shape_of(task), pods)

    def score(self, columns: Columns, rows: Rows, task: Task) -> Floats | None:
        """F before minus F after one pod of the task."""
        if task.cards is not None and task.cards.count == 1 and not task.cards.whole:
            return np.asarray(self._each_card(columns, rows, task).max(axis=1))
        before, cpu, free, model = self._now(columns, rows)
        left = cpu - task.requests.get(CPU, 0)
        if task.cards is not None:
            fits = seats(columns, rows, task.cards) > 0
            if task.cards.whole:
                fits &= np.cumsum(fits, axis=1) <= task.cards.count
                free = np.where(fits, 0, free)
            else:
                order = np.argsort(np.where(fits, free, 2 * ALL), axis=1, kind="stable")[:, : task.cards.count]
                after_each = self._left(columns, rows, task, free)
                np.put_along_axis(free, order, np.take_along_axis(after_each, order, axis=1), axis=1)
        fragments = self._fragments
        after = fragments.expected(left, free.sum(axis=1), *fragments.tally(free), fragments.weights(left, model))
        return before - after

    def card_keys(self, columns: Columns, rows: Ints, task: Task) -> Floats:
        """The card whose use avoids the most fragmentation first."""
        return -self._each_card(columns, rows, task)

    def _each_card(self, columns: Columns, rows: Rows, task: Task) -> Floats:
        """`[n, D]`: the score of placing one share on each card; -inf where it does not fit."""
        assert task.cards is not None
        before, cpu, free, model = self._now(columns, rows)
        fragments = self._fragments
        left = cpu - task.requests.get(CPU, 0)
        weights = fragments.weights(left, model)
        after_card = self._left(columns, rows, task, free)
        enough, small = fragments.tally(free)
        more_enough, more_small = fragments.tally_change(free, after_card)
        idle = free.sum(axis=1)[:, None] - (free - after_card)
        after = fragments.expected(
            left[:, None], idle, enough[:, None, :] + more_enough, small[:, None, :] + more_small, weights[:, None, :]
        )
        return np.where(seats(columns, rows, task.cards) > 0, before[:, None] - after, -np.inf)

    def _left(self, columns: Columns, rows: Rows, task: Task, free: Ints) -> Ints:
        """`[n, D]`: what each card would have left beside one more slice, in percent; nothing where that takes its last share."""
        assert task.cards is not None
        memory = columns.card_memory[rows]
        taken = np.maximum(-(-ALL * memory_needed(task.cards, memory) // np.maximum(memory, 1)), task.cards.cores)
        return np.where(columns.card_pods[rows] + 1 >= columns.card_shares[rows], 0, np.maximum(free - taken, 0))

    def _now(self, columns: Columns, rows: Rows) -> tuple[Floats, Ints, Ints, Ints]:
        self._table(columns)
        column = columns.resource(CPU)
        cpu = np.maximum(columns.allocatable[column, rows] - columns.used[column, rows], 0)
        free = free_percent(columns, rows)
        model = columns.card_model[rows][:, 0]
        fragments = self._fragments
        before = fragments.expected(cpu, free.sum(axis=1), *fragments.tally(free), fragments.weights(cpu, model))
        return before, cpu, free, model

    def _table(self, columns: Columns) -> None:
        codes = columns.model_codes
        if self._tabled == (self._mix.version, len(codes)):
            return
        self._tabled = (self._mix.version, len(codes))
        self._fragments = Fragments(self._mix.popularity, model_codes=codes, stranding=self._stranding)


#: Memory of the card by which requests in MiB count as a percentage in the mix: half of today's cards have less, half more.
REFERENCE_CARD_MIB = 40_960


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
