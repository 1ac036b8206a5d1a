"""Several schedulers propose to one ledger: whose job is whose, which of two leaders of a shard counts, and that nothing is given twice."""

from dataclasses import replace

import pytest

from hbox_common.events import GivenUp, Plan, PlanAnswer, PlansProposed
from hbox_common.model import Epoch, Index, JobId, PlanId, SchedulerId
from hbox_common.model.shards import scheduler_id
from hbox_ledger.core import arbitrate
from hbox_ledger.core.schedulers import SILENT_S

from ...jobterms import terms
from .conftest import World
from .test_nominations import nominated

LAB, MAIN = scheduler_id("host-1-a", "lab", 1), scheduler_id("host-2-b", "main", 1)
ONE = SchedulerId("host-3-c")


def proposed(world: World, by: SchedulerId, *plans: Plan, given_up: tuple[GivenUp, ...] = ()) -> list[PlanAnswer]:
    step = world.turn()
    message = PlansProposed(scheduler=by, epoch=Epoch(7), seen=Index(0), plans=plans, given_up=given_up)
    arbitrate.propose(world.state, step, message, {})
    world.state.validate()
    return list(step.answers.get(by, {}).values())


@pytest.fixture
def plan(world: World) -> Plan:
    """For a job of shard lab."""
    made = world.plan("p", ("pod", "a", [world.card(0)]))
    world.state.records.receive([terms(made)], "lab")
    return made


@pytest.mark.parametrize("by", [MAIN, ONE, SchedulerId("@lab"), SchedulerId("x@lab.1.host")])
def test_a_plan_of_another_shards_scheduler_is_refused_and_says_whose_the_job_is(
    world: World, plan: Plan, by: SchedulerId
) -> None:
    [answer] = proposed(world, by, plan)
    assert (answer.committed, answer.reason) == (False, "JobDiffers")
    assert answer.message.endswith("the job of shard lab")
    assert not world.state.live
    [answer] = proposed(world, LAB, plan.model_copy(update={"id": PlanId("q")}))
    assert answer.committed


def test_a_job_without_shards_is_whose_schedulers_name_none(world: World) -> None:
    made = world.plan("p", ("pod", "a", [world.card(0)]))
    world.state.records.receive([terms(made)])
    [answer] = proposed(world, LAB, made)
    assert answer.reason == "JobDiffers"
    [answer] = proposed(world, ONE, made.model_copy(update={"id": PlanId("q")}))
    assert answer.committed
    first = scheduler_id("host", "0", 3)
    made = world.plan("r", ("other", "a", [world.card(1)]))
    world.state.records.receive([terms(made)])
    [answer] = proposed(world, first, made)
    assert answer.committed, "the first of several by number is that shard"


def test_a_job_that_moves_is_the_other_shards_from_then_on_and_gets_nothing_twice(world: World, plan: Plan) -> None:
    records = world.state.records
    job = terms(plan)
    [answer] = proposed(world, LAB, plan)
    assert answer.committed
    records.receive([replace(job, revision=job.revision + 2)], "main")
    records.withdraw([plan.job], [job.revision + 1])  # said behind it, of the shard that it left
    assert records.shard_of(plan.job) == "main"
    assert [a.reason for a in proposed(world, LAB, plan.model_copy(update={"id": PlanId("late")}))] == ["JobDiffers"]
    again = world.plan("again", ("pod", "b", [world.card(0)]), job=plan.job)
    assert [a.reason for a in proposed(world, MAIN, again)] == ["PodAlreadyClaimed"]
    assert len(world.state.live) == 1


def test_a_list_of_all_jobs_says_whose_each_is(world: World, plan: Plan) -> None:
    other = world.plan("o", ("x", "b", []))
    world.state.records.ask()
    job = terms(plan)
    world.state.records.only([replace(job, revision=job.revision + 1), terms(other)], {other.job: "lab"})
    assert [world.state.records.shard_of(JobId(id)) for id in ("p", "o", "unknown")] == ["0", "lab", "0"]
    world.state.records.ask()
    world.state.records.only([])
    assert world.state.records.shard_of(JobId("o")) == "0"


def test_of_two_leaders_of_a_shard_the_later_counts(world: World, plan: Plan) -> None:
    paused, leads = LAB, scheduler_id("host-4-d", "lab", 2)
    assert proposed(world, leads) == []
    [answer] = proposed(world, paused, plan)
    assert (answer.committed, answer.reason) == (False, "StaleEpoch")
    assert "term 1 of shard lab, which has a scheduler of term 2" in answer.message
    assert not world.state.live
    [answer] = proposed(world, leads, plan.model_copy(update={"id": PlanId("q")}))
    assert answer.committed


def test_terms_of_one_shard_say_nothing_of_another(world: World, plan: Plan) -> None:
    proposed(world, scheduler_id("host", "main", 9))
    [answer] = proposed(world, LAB, plan)
    assert answer.committed


def test_a_shard_whose_lease_was_deleted_goes_on_after_a_while(world: World, plan: Plan) -> None:
    proposed(world, scheduler_id("host", "lab", 9))
    world.now += SILENT_S - 1
    assert [a.reason for a in proposed(world, LAB, plan)] == ["StaleEpoch"]
    world.now += 2
    [answer] = proposed(world, LAB, plan)
    assert answer.committed


def test_made_up_shards_take_no_memory(world: World) -> None:
    for number in range(1000):
        proposed(world, scheduler_id("host", f"s{number}", 1))
    assert len(world.state.schedulers._leaders) <= 64


def test_a_nomination_is_given_up_by_its_own_shard_alone(world: World) -> None:
    nominated(world)
    held = PlanId("want")
    proposed(world, LAB, given_up=(GivenUp(plan=held),))
    assert world.state.nominations.get(held) is not None
    proposed(world, ONE, given_up=(GivenUp(plan=held),))
    assert world.state.nominations.get(held) is None


def test_what_a_scheduler_that_leads_no_more_gives_up_its_successor_keeps(world: World) -> None:
    """It was paused for longer than its lease: its nominations are overdue by its clock, and its successor's by now."""
    nominated(world)
    held, paused = PlanId("want"), scheduler_id("host", "0", 1)
    proposed(world, scheduler_id("host", "0", 2))
    proposed(world, paused, given_up=(GivenUp(plan=held),))
    assert world.state.nominations.get(held) is not None
    world.now += SILENT_S
    proposed(world, paused, given_up=(GivenUp(plan=held),))
    assert world.state.nominations.get(held) is None
