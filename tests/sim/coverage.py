"""What a run reached of the protocol: refusal reasons, effects of the binder and of reflectors, as their cores give them; claim states, by the ledger's
database. `missing` lists what no run reached."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import select

import hbox_binder.core.binder as binder
import hbox_common.kube.reflector as reflector
from hbox_binder.core.calls import Verb
from hbox_common.errors import HBoxError
from hbox_common.events import BindOutcome, PlanAnswer
from hbox_common.model import ClaimState, RefusalReason, SchedulerId
from hbox_common.store import reading
from hbox_ledger.adapters import tables
from hbox_ledger.core.step import Step

from .loop import replaced

_BINDER, _REFLECTOR = "binder", "reflector"

#: All that runs are to reach.
WANTED = frozenset(
    [
        *(f"refusal {reason}" for reason in RefusalReason),
        *(f"claim {state}" for state in ClaimState),
        *(f"{_BINDER} Start {verb}" for verb in Verb),
        *(f"{_BINDER} Report {outcome}" for outcome in BindOutcome),
        *(f"{_BINDER} {name}" for name in ("Acknowledge", "Acknowledge stale", "Breaker", "Unlock")),
        *(f"{_REFLECTOR} {name}" for name in ("List", "Watch", "Sleep", "Emit added", "Emit modified", "Emit deleted")),
    ]
)


def _of_binder(effect: Any) -> Iterator[str]:
    match effect:
        case binder.Start():
            yield f"{_BINDER} Start {effect.call.verb}"
        case binder.Report():
            yield f"{_BINDER} Report {effect.outcome.outcome}"
        case binder.Acknowledge():
            yield f"{_BINDER} Acknowledge{' stale' if effect.stale else ''}"
        case _:
            yield f"{_BINDER} {type(effect).__name__}"


def _of_reflector(effect: Any) -> Iterator[str]:
    if isinstance(effect, reflector.Emit):
        for delta in effect.deltas:
            yield f"{_REFLECTOR} Emit {delta.kind}"
    else:
        yield f"{_REFLECTOR} {type(effect).__name__}"


@contextmanager
def noted(reached: set[str]) -> Iterator[None]:
    """Add the ledger's refusals and the effects of all binders and reflectors to `reached` while the context is open."""
    steps = {cls: cls.step for cls in (binder.Binder, reflector.Reflector)}

    def of_binder(self: Any, *args: Any, **named: Any) -> Any:
        effects = steps[binder.Binder](self, *args, **named)
        for effect in effects:
            reached.update(_of_binder(effect))
        return effects

    def of_reflector(self: Any, *args: Any, **named: Any) -> Any:
        effects = steps[reflector.Reflector](self, *args, **named)
        for effect in effects:
            reached.update(_of_reflector(effect))
        return effects

    answer = Step.answer

    def of_ledger_step(self: Step, scheduler: SchedulerId, given: PlanAnswer) -> None:
        if given.reason is not None:
            reached.add(f"refusal {given.reason}")
        answer(self, scheduler, given)

    with replaced(
        (Step, "answer", of_ledger_step), (binder.Binder, "step", of_binder), (reflector.Reflector, "step", of_reflector)
    ):
        yield


def of_ledger(path: Path) -> Iterator[str]:
    """Claim states in the history of a ledger's database. None where it cannot be read."""
    try:
        with reading(f"sqlite:///{path}", versions=tables.VERSIONS) as connection:
            changes = set(connection.execute(select(tables.audit.c.change).distinct()).scalars())
            yield from (f"claim {state}" for state in ClaimState if any(state.value in change for change in changes))
    except HBoxError:
        return  # the judge reports it


def missing(reached: Iterable[str]) -> list[str]:
    """What no run reached, sorted."""
    return sorted(WANTED - set(reached))
