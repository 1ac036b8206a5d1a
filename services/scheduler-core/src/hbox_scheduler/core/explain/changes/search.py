"""The search over knobs: largest steps first, then bisection; pairs if no single knob helps."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeAlias

from hbox_common.model.explanation import Change, Owner

from .trial import Attempt, Engine, Trial

#: Who can act, the first ones first.
_OWNERS = (Owner.USER, Owner.QUEUE_ADMIN, Owner.OPERATOR, Owner.SYSTEM)

#: Whether the job starts in a trial.
Starts: TypeAlias = Callable[[Trial], bool]


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
    """One kind of change with `steps` steps, from 1 on. `turn`: the trial after a step; `change`: the proposal for a step that helps, which may make further
    trials. `ordered`: a larger step helps at least as much as a smaller one; else the steps are alternatives, the preferred ones first. `guess`: the step that
    is tried first; 0 = none. `evicts`: a step that helps evicts pods: tried after all others, and in no pair."""

    steps: int
    turn: Callable[[Trial, int], Trial]
    change: Callable[[int, Starts], Change]
    ordered: bool = True
    guess: int = 0
    evicts: bool = False


#: The knobs of a job; the attempt is that of the present state.
Knobs: TypeAlias = Callable[[Attempt], Iterable[Knob]]


class SpentError(Exception):
    """The limits are reached."""


def smallest_changes(
    engine: Engine, start: Trial, knobs: Knobs, limits: ChangeLimits, clock: Callable[[], float]
) -> FoundChanges:
    """The smallest step of each knob by which the job starts, where it does not start as it is. `clock`: seconds, monotonic."""
    return _Search(engine, start, limits, clock).run(knobs)


def _left(found: tuple[Knob, int]) -> int:
    """The least number of trials to the smallest step, from this one that helps."""
    knob, step = found
    return 0 if not knob.ordered or step == 1 else 1 if step == knob.guess else step.bit_length()


class _Search:
    def __init__(self, engine: Engine, start: Trial, limits: ChangeLimits, clock: Callable[[], float]) -> None:
        self._engine, self._start, self._limits, self._clock = engine, start, limits, clock
        self._deadline = clock() + limits.seconds
        self._probes = 0
        self._found: list[tuple[int, float, int, Change]] = []  #: owner, part of the knob's steps, order of finding

    def run(self, knobs: Knobs) -> FoundChanges:
        complete = True
        try:
            attempt = self._attempt(self._start)
            if not attempt.starts:
                self._search([knob for knob in knobs(attempt) if knob.steps > 0])
        except SpentError:
            complete = False
        self._found.sort(key=lambda one: one[:3])
        return FoundChanges(tuple(change for *_, change in self._found), self._probes, complete)

    def _search(self, knobs: Sequence[Knob]) -> None:
        free = [knob for knob in knobs if not knob.evicts]
        self._singles(free)
        self._singles([knob for knob in knobs if knob.evicts])
        for first, second in combinations(free, 2):
            if self._found:
                return
            self._pair(first, second)

    def _singles(self, knobs: Sequence[Knob]) -> None:
        """All knobs are tried at their largest before the smallest step of any is sought, and the shortest search comes first, so that no kind uses up the
        limits."""
        helpful = [(knob, step) for knob in knobs if (step := self._large(knob, self._start))]
        for knob, step in sorted(helpful, key=_left):
            least = self._smallest(knob, step, lambda trial: trial)
            self._add(knob.change(least, self._starts), least / knob.steps)

    def _large(self, knob: Knob, trial: Trial) -> int:
        """A step that helps; 0 = none does."""
        steps = range(1, knob.steps + 1)
        if knob.ordered:
            steps = (knob.guess, knob.steps) if 0 < knob.guess < knob.steps else (knob.steps,)  # type: ignore[assignment]
        return next((step for step in steps if self._starts(knob.turn(trial, step))), 0)

    def _pair(self, first: Knob, second: Knob) -> None:
        """Both at their largest; if that helps, the smallest step of the first, then of the second."""
        most = first.steps if first.ordered else 1
        step = self._large(second, first.turn(self._start, most))
        if not step:
            return
        least = self._smallest(first, most, lambda trial: second.turn(trial, step))
        also = self._smallest(second, step, lambda trial: first.turn(trial, least))
        change = first.change(least, lambda trial: self._starts(second.turn(trial, also)))
        other = second.change(also, lambda trial: self._starts(first.turn(trial, least)))
        owner = max(change.owner, other.owner, key=_OWNERS.index)
        self._add(replace(change, owner=owner, also=(other,)), least / first.steps + also / second.steps)

    def _smallest(self, knob: Knob, step: int, then: Callable[[Trial], Trial]) -> int:
        """The smallest step that helps, of an ordered knob that helps at `step`: the step before it does not. `then`: what else changes."""
        fails, helps = 0, step
        if not knob.ordered:
            return step
        near = knob.guess  #: a step whose neighbours are tried before the middle
        while helps - fails > 1:
            middle = (fails + helps) // 2
            if near == helps:
                middle = helps - 1
            elif near == fails:
                middle = fails + 1
            elif fails < near < helps:
                middle = near
            if middle != near:
                near = -1
            if self._starts(then(knob.turn(self._start, middle))):
                helps = middle
            else:
                fails = middle
        return helps

    def _add(self, change: Change, size: float) -> None:
        self._found.append((_OWNERS.index(change.owner), size, len(self._found), change))

    def _starts(self, trial: Trial) -> bool:
        return self._attempt(trial).starts

    def _attempt(self, trial: Trial) -> Attempt:
        if self._probes >= self._limits.probes or self._clock() >= self._deadline:
            raise SpentError
        self._probes += 1
        return self._engine.attempt(trial)
