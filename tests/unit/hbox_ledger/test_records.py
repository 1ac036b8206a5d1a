"""A plan is held against the ledger's own record of its job, whatever it says of itself."""

from dataclasses import replace
from typing import Any

import pytest

from hbox_common.events import BindOutcome, Plan, Victim
from hbox_common.model import JobId, JobTerms, PodUid, QueueName
from hbox_ledger.core import records
from hbox_ledger.core.records import Records

from ...jobterms import terms
from .conftest import World


@pytest.fixture
def honest(world: World) -> Plan:
    """A plan for a job as job-controller told of it."""
    made = world.plan("p", ("pod", "a", [world.card(0)]))
    world.state.records.receive([terms(made)])
    world.told = False
    return made


LIES: dict[str, Any] = {
    "priority": 2**31,
    "queue": "other",
    "namespace": "elsewhere",
    "min_member": 0,
    "preemptable": False,
    "created_at": 1.0,
}


@pytest.mark.parametrize("what", LIES)
def test_a_plan_that_says_otherwise_of_its_job_is_refused_and_says_what(world: World, honest: Plan, what: str) -> None:
    [answer] = world.propose(honest.model_copy(update={"id": "lie", what: LIES[what]}))
    assert (answer.committed, answer.reason) == (False, "JobDiffers")
    assert f"the plan has {what} {LIES[what]}, the job has" in answer.message
    assert not world.state.live
    world.commits(honest)


def test_a_priority_of_its_own_evicts_nobody(world: World) -> None:
    running = world.plan("running", ("old", "a", [world.card(0)]))
    world.commits(running)
    world.outcome("old", BindOutcome.BOUND, at="a")
    wants = world.plan("wants", ("new", "a", [world.card(0)]))
    victim = Victim(claim=world.claim("old").id, pod_uid=PodUid("old"))
    world.state.records.receive([terms(wants)])
    world.told = False
    [answer] = world.propose(wants.model_copy(update={"victims": (victim,), "priority": 2**31}))
    assert answer.reason == "JobDiffers"
    assert not world.last.evictions


def test_a_plan_for_a_job_that_nobody_told_of_is_refused_for_now_and_no_integrator_hears_of_it(world: World) -> None:
    world.told = False
    [answer] = world.propose(world.plan("p", ("pod", "a", [world.card(0)])))
    assert answer.reason == "JobNotKnownYet"
    assert not world.last.refused


def job(id: str, revision: int, **changes: Any) -> JobTerms:
    return replace(JobTerms(JobId(id), "ml", QueueName("default"), 0, 1, 0.0, revision), **changes)


def knows(known: Records, world: World, id: str) -> bool:
    refused = known.refusal(world.plan("p", (f"{id}-0", "a", []), job=id))
    return refused is None or refused.reason != "JobNotKnownYet"


def test_of_one_job_the_highest_revision_counts_a_withdrawal_included(world: World) -> None:
    known = Records()
    known.receive([job("j", 5, priority=3), job("j", 4, priority=9)])
    known.withdraw([JobId("j")], [4])
    assert knows(known, world, "j"), "it was withdrawn before it was told of anew"
    known.withdraw([JobId("j")], [5])
    known.receive([job("j", 5)])
    assert not knows(known, world, "j"), "old news of a job that was withdrawn"
    known.receive([job("j", 6)])
    assert knows(known, world, "j")


def test_a_list_drops_what_it_does_not_name_but_for_what_was_heard_since_it_was_asked_for(world: World) -> None:
    known = Records()
    known.receive([job("old", 1), job("stays", 2)])
    known.ask()
    known.receive([job("new", 3)])
    known.withdraw([JobId("withdrawn")], [9])
    known.only([job("stays", 2), job("withdrawn", 8), job("missed", 4)])
    assert [id for id in ("old", "stays", "new", "withdrawn", "missed") if knows(known, world, id)] == [
        "stays",
        "new",
        "missed",
    ]


def test_however_many_jobs_are_told_of_memory_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST", 10)
    monkeypatch.setattr(records, "WITHDRAWN", 10)
    known = Records()
    known.receive(job(f"j{n}", 1) for n in range(50))
    known.withdraw([JobId(f"k{n}") for n in range(50)], [1] * 50)
    assert len(known) == len(known._withdrawn) == 10
    assert knows(known, world, "j49"), "the newest stay"
