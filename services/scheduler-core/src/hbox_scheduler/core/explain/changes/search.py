"""The search over knobs: largest steps first, then bisection; on free resources, then with evictions; pairs if no single knob helps."""

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
    """`changes`: those of the user first, then the smaller ones; `probes`: trials made; `complete`: the limits interrupted nothing; `starts`: the job starts
    as it is."""

    changes: tuple[Change, ...] = ()
    probes: int = 0
    complete: bool = True
    starts: bool = False


@dataclass(frozen=True, slots=True)
class Knob:
    """One kind of change with `steps` steps, from 1 on. `turn`: the trial after a step; `change`: the proposal for a step that helps, which may make further
    trials. `ordered`: a larger step helps at least as much as a smaller one; else the steps are alternatives, the preferred ones first. `guess`: the step that
    is tried first; 0 = none. `evicts`: a step that helps evicts pods: not tried on free resources alone, and in no pair."""

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


class _Search:
    def __init__(self, engine: Engine, start: Trial, limits: ChangeLimits, clock: Callable[[], float]) -> None:
        self._engine, self._start, self._limits, self._clock = engine, start, limits, clock
        self._deadline = clock() + limits.seconds
        self._probes = 0
        self._steps: dict[int, int] = {}  #: by place of the knob: the smallest step that helps
        self._found: dict[tuple[int, ...], tuple[int, float, Change]] = {}  #: by places of knobs: owner, part of the steps

    def run(self, knobs: Knobs) -> FoundChanges:
        complete, starts = True, False
        try:
            attempt = self._attempt(self._start)
            starts = attempt.starts or self._makes_room(self._start)
            if not starts:
                self._search([knob for knob in knobs(attempt) if knob.steps > 0])
        except SpentError:
            complete = False
        found = sorted(self._found.items(), key=lambda one: (*one[1][:2], one[0]))
        return FoundChanges(tuple(change for _, (*_, change) in found), self._probes, complete, starts)

    def _search(self, knobs: Sequence[Knob]) -> None:
        self._on_free_resources(knobs)
        self._with_evictions(knobs)
        free = [(place, knob) for place, knob in enumerate(knobs) if not knob.evicts]
        for (place, first), (other, second) in combinations(free, 2):
            if self._found:
                return
            self._pair((place, other), first, second)

    def _on_free_resources(self, knobs: Sequence[Knob]) -> None:
        """All knobs are tried at their largest before the smallest step of any is sought, and the shortest search comes first, so that no kind uses up the
        limits."""
        helpful: list[tuple[int, int]] = []
        for place, knob in enumerate(knobs):
            step = 0 if knob.evicts else self._large(knob, self._start, self._has_room)
            if step == 1:
                self._note(place, knob, step)
            elif step:
                helpful.append((place, step))
        for place, step in sorted(helpful, key=lambda one: _left(knobs[one[0]], one[1])):
            self._note(place, knobs[place], self._smallest(knobs[place], step, lambda trial: trial, self._has_room))

    def _with_evictions(self, knobs: Sequence[Knob]) -> None:
        """Smaller steps, by which the policy would evict pods for the job, and steps of knobs that do not help otherwise."""
        for place, knob in enumerate(knobs):
            known = self._steps.get(place, 0)
            if known and not knob.ordered:
                continue
            step = known - 1 if known else knob.steps
            if not knob.ordered:
                step = self._large(knob, self._start, self._makes_room)
            elif step and not self._makes_room(knob.turn(self._start, step)):
                step = 0
            if step:
                self._note(place, knob, self._smallest(knob, step, lambda trial: trial, self._makes_room))

    def _large(self, knob: Knob, trial: Trial, starts: Starts) -> int:
        """A step that helps; 0 = none does."""
        steps: Iterable[int] = range(1, knob.steps + 1)
        if knob.ordered:
            steps = (knob.guess, knob.steps) if 0 < knob.guess < knob.steps else (knob.steps,)
        return next((step for step in steps if starts(knob.turn(trial, step))), 0)

    def _pair(self, places: tuple[int, int], first: Knob, second: Knob) -> None:
        """Both at their largest; if that helps, the smallest step of the first, then of the second."""
        most = first.steps if first.ordered else 1
        step = self._large(second, first.turn(self._start, most), self._starts)
        if not step:
            return
        least = self._smallest(first, most, lambda trial: second.turn(trial, step), self._starts)
        also = self._smallest(second, step, lambda trial: first.turn(trial, least), self._starts)
        change = first.change(least, lambda trial: self._starts(second.turn(trial, also)))
        other = second.change(also, lambda trial: self._starts(first.turn(trial, least)))
        owner = max(change.owner, other.owner, key=_OWNERS.index)
        size = least / first.steps + also / second.steps
        self._found[places] = _OWNERS.index(owner), size, replace(change, owner=owner, also=(other,))

    def _smallest(self, knob: Knob, step: int, then: Callable[[Trial], Trial], starts: Starts) -> int:
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
            if starts(then(knob.turn(self._start, middle))):
                helps = middle
            else:
                fails = middle
        return helps

    def _note(self, place: int, knob: Knob, step: int) -> None:
        change = knob.change(step, self._starts)
        self._steps[place] = step
        self._found[place,] = _OWNERS.index(change.owner), step / knob.steps, change

    def _starts(self, trial: Trial) -> bool:
        return self._has_room(trial) or self._makes_room(trial)

    def _has_room(self, trial: Trial) -> bool:
        return self._attempt(trial).starts

    def _attempt(self, trial: Trial) -> Attempt:
        self._check_limits()
        self._probes += 1
        return self._engine.attempt(trial)

    def _makes_room(self, trial: Trial) -> bool:
        self._check_limits()
        found = self._engine.makes_room(trial)
        self._probes += found is not None
        return bool(found)

    def _check_limits(self) -> None:
        if self._probes >= self._limits.probes or self._clock() >= self._deadline:
            raise SpentError


def _left(knob: Knob, step: int) -> int:
    """The least number of trials from this step to the smallest one."""
    return 0 if not knob.ordered or step == 1 else 1 if step == knob.guess else step.bit_length()
