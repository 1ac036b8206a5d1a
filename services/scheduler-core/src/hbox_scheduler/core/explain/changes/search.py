"""The search over knobs: largest steps first, then bisection; pairs if no single knob helps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from hbox_common.model.explanation import Change, Owner

from .trial import Engine, Trial

#: Who can act, the first ones first.
_OWNERS = (Owner.USER, Owner.QUEUE_ADMIN, Owner.OPERATOR, Owner.SYSTEM)


@dataclass(frozen=True, slots=True)
class ChangeLimits:
    """Of one search."""

    probes: int = 32
    seconds: float = 0.2


@dataclass(frozen=True, slots=True)
class FoundChanges:
    """`changes`: those of the user first, then the smaller ones; `probes`: trials made; `complete`: the limits interrupted nothing."""

    changes: tuple[Change, ...] = ()
    probes: int = 0
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Knob:
    """One kind of change with `steps` steps, from 1 on. `turn`: the trial after a step; `change`: the proposal for a step. `ordered`: a larger step helps at
    least as much as a smaller one; else the steps are alternatives, the preferred ones first. `guess`: the step that is tried first; 0 = none."""

    steps: int
    turn: Callable[[Trial, int], Trial]
    change: Callable[[int], Change]
    ordered: bool = True
    guess: int = 0


class _SpentError(Exception):
    """The limits are reached."""


def smallest_changes(
    engine: Engine, start: Trial, knobs: Sequence[Knob], limits: ChangeLimits, clock: Callable[[], float]
) -> FoundChanges:
    """The smallest step of each knob by which the job starts, where it does not start as it is. `clock`: seconds, monotonic."""
    return _Search(engine, start, limits, clock).run(knobs)


class _Search:
    def __init__(self, engine: Engine, start: Trial, limits: ChangeLimits, clock: Callable[[], float]) -> None:
        self._engine, self._start, self._limits, self._clock = engine, start, limits, clock
        self._deadline = clock() + limits.seconds
        self._probes = 0
        self._found: list[tuple[int, float, int, Change]] = []  #: owner, part of the knob's steps, order of finding

    def run(self, knobs: Sequence[Knob]) -> FoundChanges:
        complete = True
        try:
            if not self._starts(self._start):
                self._search(knobs)
        except _SpentError:
            complete = False
        self._found.sort(key=lambda one: one[:3])
        return FoundChanges(tuple(change for *_, change in self._found), self._probes, complete)

    def _search(self, knobs: Sequence[Knob]) -> None:
        helpful = [(knob, step) for knob in knobs if (step := self._largest(knob, self._start))]
        for knob, step in helpful:
            self._note(knob, self._smallest(knob, step, lambda trial: trial))
        if helpful:
            return
        for first, second in combinations(knobs, 2):
            self._pair(first, second)
            if self._found:
                return

    def _largest(self, knob: Knob, trial: Trial) -> int:
        """A step that helps; 0 = none does."""
        if knob.ordered:
            return knob.steps if knob.steps and self._starts(knob.turn(trial, knob.steps)) else 0
        return next((step for step in range(1, knob.steps + 1) if self._starts(knob.turn(trial, step))), 0)

    def _pair(self, first: Knob, second: Knob) -> None:
        """Both at their largest; if that helps, the smallest step of the first, then of the second."""
        step = self._largest(second, first.turn(self._start, first.steps if first.ordered else 1))
        if not step:
            return
        least = self._smallest(first, first.steps if first.ordered else 1, lambda trial: second.turn(trial, step))
        also = self._smallest(second, step, lambda trial: first.turn(trial, least))
        change, other = first.change(least), second.change(also)
        owner = max(change.owner, other.owner, key=_OWNERS.index)
        self._add(replace(change, owner=owner, also=(other,)), least / first.steps + also / second.steps)

    def _smallest(self, knob: Knob, step: int, then: Callable[[Trial], Trial]) -> int:
        """The smallest step that helps, of an ordered knob that helps at `step`: the step before it does not. `then`: what else changes."""
        if not knob.ordered:
            return step
        fails, helps = 0, step
        middle = knob.guess if fails < knob.guess < helps else (fails + helps) // 2
        guessed = middle == knob.guess
        while helps - fails > 1:
            if self._starts(then(knob.turn(self._start, middle))):
                helps = middle
                middle = helps - 1 if guessed else (fails + helps) // 2
            else:
                fails = middle
                middle = fails + 1 if guessed else (fails + helps) // 2
            guessed = False
            middle = min(max(middle, fails + 1), helps - 1)
        return helps

    def _note(self, knob: Knob, step: int) -> None:
        self._add(knob.change(step), step / knob.steps)

    def _add(self, change: Change, size: float) -> None:
        self._found.append((_OWNERS.index(change.owner), size, len(self._found), change))

    def _starts(self, trial: Trial) -> bool:
        if self._probes >= self._limits.probes or self._clock() >= self._deadline:
            raise _SpentError
        self._probes += 1
        return self._engine.starts(trial)
