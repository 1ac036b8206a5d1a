"""Plans that came before the news of their jobs wait for these."""

import asyncio
from collections.abc import Sequence

import pytest

from hbox_common.events import GivenUp, Plan, PlansProposed
from hbox_common.model import Epoch, Index, PlanId, SchedulerId
from hbox_ledger.deferred_plans import DeferredPlans

from ...waiting import until
from .conftest import plan

EARLY, OTHER = plan("early", ("pod", "a", [])), plan("other", ("other", "a", []))


def said(*plans: Plan, given_up: Sequence[str] = (), by: str = "s") -> PlansProposed:
    ended = tuple(GivenUp(plan=PlanId(one)) for one in given_up)
    return PlansProposed(scheduler=SchedulerId(by), epoch=Epoch(7), seen=Index(0), plans=plans, given_up=ended)


@pytest.mark.parametrize(
    ("message", "judged"),
    [
        (said(given_up=["early"]), {"other"}),
        (said(given_up=["early"], by="another"), {"early", "other"}),
        (said(given_up=["third"]), {"early", "other"}),
    ],
)
async def test_what_its_scheduler_gives_up_meanwhile_is_not_judged(message: PlansProposed, judged: set[str]) -> None:
    """It would come to the books behind the word that ends it, and have others leave for nobody."""
    known = False
    found: list[str] = []

    async def propose(proposals: Sequence[PlansProposed]) -> None:
        found.extend(one.id for proposed in proposals for one in proposed.plans)

    late = DeferredPlans(lambda *_: known, propose)
    assert late.take_out(said(EARLY, OTHER)).plans == ()
    assert late.take_out(message) == message
    known = True
    running = asyncio.create_task(late.run())
    late.jobs_changed()
    await until(lambda: "other" in found)
    running.cancel()
    assert set(found) == judged
