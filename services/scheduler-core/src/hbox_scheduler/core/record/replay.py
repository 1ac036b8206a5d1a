"""Replay of a record through a scheduler: the same calls, and a check for the same decisions.

The scheduler is pure: its decisions follow from its parameters and its inputs. So a replay with other decisions has found an input that the record does not
contain, or another version of the code.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from hbox_common.errors import InvalidRequest, Unavailable

from ..framework.webhooks import Question
from ..policy import policy_from
from ..protocol.limits import Proposals
from ..scheduler import Scheduler
from .record import Asked, Call, Decided, Head

#: The last input before a scheduler can decide anything: a record that does not have it before its first cycle began too late.
FIRST = "on_claims_snapshot"


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a replay and its record part. `cycle`: its number, from 1, or of the cycle that would have come next; `what`: which part of the result."""

    cycle: int
    call: str
    what: str
    recorded: Any
    replayed: Any


@dataclass(slots=True)
class Replay:
    """A scheduler with the head's parameters; `run` receives the calls in order. Counts are of the record."""

    head: Head
    calls: int = 0
    cycles: int = 0
    plans: int = 0
    placements: int = 0
    victims: int = 0
    verdicts: int = 0
    differences: int = 0
    first: Difference | None = None
    last_now: float | None = None
    first_now: float | None = None
    scheduler: Scheduler = field(init=False)
    _answers: "Answers" = field(init=False)
    _begun: bool = False

    def __post_init__(self) -> None:
        self._answers = Answers()
        self.scheduler = scheduler_of(self.head, self._answers)

    def run(self, call: Call) -> None:
        """Raises InvalidRequest where the record does not begin with the beginning."""
        self.calls += 1
        self._begun = self._begun or call.name == FIRST
        if call.name == "cycle":
            self._count(call)
        if call.name == "follow":
            self.scheduler.decisions.policy = call.arguments["conf"].summary
        self._answers.known(call.asked)
        method: Callable[..., Any] = getattr(self.scheduler, call.name)
        try:
            result = method(**call.arguments)
        except Exception as e:  # noqa: BLE001  what the service ran into, a replay runs into as well
            self._compare(call, "error", call.error, error_of(e))
            return
        if isinstance(result, Proposals):
            result = Decided.of(result)
        if call.error:
            self._compare(call, "error", call.error, "")
        elif isinstance(result, Decided):
            for part in Decided.__dataclass_fields__:
                self._compare(call, part, getattr(call.result, part), getattr(result, part))
        else:
            self._compare(call, "result", call.result, result)

    def _count(self, call: Call) -> None:
        if not self._begun:
            raise _began_late()
        self.cycles += 1
        self.last_now = call.arguments["now"]
        self.first_now = self.last_now if self.first_now is None else self.first_now
        if call.error:
            return
        self.plans += len(call.result.plans)
        self.placements += sum(len(plan.placements) for plan in call.result.plans if not plan.victims)
        self.victims += sum(len(plan.victims) for plan in call.result.plans)
        self.verdicts += len(call.result.verdicts)

    def _compare(self, call: Call, what: str, recorded: Any, replayed: Any) -> None:
        """Sequences are compared one by one, so that the first difference names the plan or verdict that it is about."""
        if recorded == replayed:
            return
        unlike = [(what, recorded, replayed)]
        if isinstance(recorded, tuple) and isinstance(replayed, tuple):
            pairs = enumerate(zip_longest(recorded, replayed))
            unlike = [(f"{what}[{place}]", one, other) for place, (one, other) in pairs if one != other]
        self.differences += len(unlike)
        if self.first is None:
            self.first = Difference(self.cycles, call.name, *unlike[0])


class Answers:
    """What plugins were answered while the call ran that is replayed; the port of `external.Ask`."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Asked] = {}

    def known(self, asked: Sequence[Asked]) -> None:
        self._known = {(one.url, one.body): one for one in asked}

    def __call__(self, question: Question, /) -> Mapping[str, Any] | None:
        known = self._known.get((question.url, question.body))
        if known is None:
            raise Unavailable(f"{question.url}: the record has no answer to this question")
        if known.error:
            raise Unavailable(known.error)
        found: Mapping[str, Any] | None = known.answer
        return found


def begins(calls: Iterable[Call]) -> Iterator[Call]:
    """The calls of a whole record. Raises InvalidRequest where it does not begin with the beginning."""
    begun = False
    for call in calls:
        begun = begun or call.name == FIRST
        if call.name == "cycle" and not begun:
            raise _began_late()
        yield call


def _began_late() -> InvalidRequest:
    return InvalidRequest(
        "the record begins in the middle: it has a cycle before the claims were read",
        hint="a record has to begin with its service",
    )


def error_of(error: Exception) -> str:
    """An error as a record holds it."""
    return f"{type(error).__name__}: {error}"


def scheduler_of(head: Head, ask: Callable[[Question], Mapping[str, Any] | None]) -> Scheduler:
    """A scheduler as the one of the record was when it began."""
    return Scheduler(
        id=head.scheduler,
        policy=policy_from(head.conf),
        limits=head.limits,
        conf=head.conf,
        ask=ask,
    )
