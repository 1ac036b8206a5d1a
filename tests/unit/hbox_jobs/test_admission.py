"""PodGroups with a minimum of resources, as job-controller tells of them, and whose word lets them in."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from hbox_common import kube
from hbox_common.events import JobVerdict
from hbox_common.model import GroupPhase as Phase
from hbox_common.model import GroupState, JobId, NodeName, SchedulerId
from hbox_jobs.adapters.objects import group_view
from hbox_jobs.core.batch import Batch
from hbox_jobs.core.feedback import Feedback
from hbox_jobs.core.jobs import Jobs
from hbox_jobs.core.requests import Container
from hbox_jobs.core.spec import PodSpec, shape_of
from hbox_jobs.core.views import GroupCondition, GroupPhase, GroupStatus, GroupView

from .job_world import BROKEN, CARD, group, pod

G = JobId("uid-g")
ONE, OTHER = SchedulerId("one"), SchedulerId("other")


def gated(**fields: Any) -> GroupView:
    return group(min_resources={"nvidia.com/gpu": 2}, **fields)


class World:
    """Jobs under a policy with `enqueue`, and what is written of them."""

    def __init__(self, *, on: bool | None = True) -> None:
        self.jobs = Jobs()
        if on is not None:
            self.jobs.gated(on, 0.0)
        self.feedback = Feedback(self.jobs)
        self.now = 0.0

    def take(self) -> Batch:
        self.now += 1.0
        batch = self.jobs.take(self.now, 1000.0 + self.now)
        for record in batch.settled:
            self.feedback.settled(record, self.now)
        return batch

    def said(self) -> list[GroupState]:
        return list(self.take().groups)

    def write(self) -> GroupStatus | None:
        """The status that is written now, taken up as the watch brings it."""
        written = None
        for write in self.feedback.statuses(self.now + 10.0, 10, "t"):
            record = self.jobs.record(write.key)
            assert record is not None and record.group is not None  # noqa: PT018
            written = write.status
            self.jobs.group(replace(record.group, status=written), self.now)
        return written


def test_a_group_without_pods_is_told_when_it_comes_when_its_phase_changes_and_when_it_goes() -> None:
    world = World()
    world.jobs.group(gated(queue="q", annotations={"sla-waiting-time": "1h"}), 0.0)
    (told,) = world.said()
    assert told == GroupState(
        id=G,
        namespace="ml",
        name="g",
        queue="q",  # type: ignore[arg-type]
        priority=0,
        min_member=2,
        created_at=90.0,
        min_resources={"nvidia.com/gpu": 2},
        revision=told.revision,
        annotations={"sla-waiting-time": "1h"},
    )
    assert world.said() == []
    world.jobs.group(gated(queue="q", annotations={"sla-waiting-time": "1h"}, status=GroupStatus(GroupPhase.INQUEUE)), 0.0)
    (later,) = world.said()
    assert (later.phase, later.revision > told.revision) == (Phase.INQUEUE, True)
    world.jobs.group_gone("ml/g", "uid-g", 0.0)
    (gone,) = world.said()
    assert (gone.gone, gone.revision > later.revision) == (True, True)
    assert list(world.jobs.admission.all()) == []


def test_a_group_is_told_with_or_before_the_job_that_it_is() -> None:
    world = World()
    world.jobs.group(gated(), 0.0)
    world.jobs.pod(pod("a", group="g"), 0.0)
    world.jobs.pod(pod("b", group="g"), 0.0)
    batch = world.take()
    assert [one.id for one in batch.groups] == [one.id for one in batch.pending] == [G]


def test_a_group_without_a_minimum_is_not_told_of_and_is_inqueue_at_once() -> None:
    world = World()
    world.jobs.group(group(), 0.0)
    assert world.said() == []
    assert world.write() == GroupStatus(GroupPhase.INQUEUE)


def test_it_stays_pending_until_the_word_comes_and_is_inqueue_from_then_on() -> None:
    world = World()
    world.jobs.group(gated(), 0.0)
    world.take()
    assert world.write() == GroupStatus(GroupPhase.PENDING)
    world.take()
    world.jobs.admit(ONE, [G, JobId("nobody")], 0.0)
    (told,) = world.said()
    assert (told.phase, told.admitted) == (Phase.PENDING, True)
    written = world.write()
    assert written is not None and written.phase is GroupPhase.INQUEUE  # noqa: PT018
    (told,) = world.said()
    assert (told.phase, told.admitted) == (Phase.INQUEUE, True)
    world.jobs.admit(ONE, [G], 0.0)
    assert world.said() == []


@pytest.mark.parametrize("on", [False, None])
def test_without_enqueue_it_is_inqueue_at_once_but_not_before_anybody_has_said_so(on: bool | None) -> None:
    world = World(on=on)
    world.jobs.group(gated(), 0.0)
    world.take()
    assert world.write() == GroupStatus(GroupPhase.INQUEUE if on is False else GroupPhase.PENDING)
    world.jobs.gated(False, 0.0)
    world.take()
    world.write()
    record = world.jobs.record("ml/g")
    assert record is not None
    assert record.group is not None
    assert record.group.status.phase is GroupPhase.INQUEUE


def test_only_the_scheduler_that_asked_last_is_listened_to() -> None:
    world = World()
    world.jobs.group(gated(), 0.0)
    world.take()
    world.jobs.admission.admitting_schedulers["0"] = OTHER
    world.jobs.admit(ONE, [G], 0.0)
    assert world.said() == []
    world.jobs.admit(OTHER, [G], 0.0)
    assert [one.admitted for one in world.jobs.admission.all()] == [True], "as soon as it is heard, for whoever asks next"
    assert [one.admitted for one in world.said()] == [True]


def test_who_runs_already_is_enqueued() -> None:
    world = World()
    world.jobs.group(gated(), 0.0)
    world.jobs.pod(pod("a", group="g", node=NodeName("n")), 0.0)
    assert [one.phase for one in world.said()] == [Phase.INQUEUE]
    assert world.write() == GroupStatus(GroupPhase.INQUEUE)


def test_what_cannot_be_placed_as_written_asks_for_nothing_until_it_is_mended_but_what_was_let_in_stays_in() -> None:
    world = World()
    world.jobs.group(gated(), 0.0)
    world.jobs.pod(pod("a", group="g", shape=BROKEN), 0.0)
    assert world.said() == []
    world.jobs.pod(pod("a", group="g", rv="2"), 0.0)
    assert [one.gone for one in world.said()] == [False]
    world.jobs.admit(ONE, [G], 0.0)
    world.take()
    world.jobs.pod(pod("b", group="g", shape=BROKEN), 0.0)
    assert [one.gone for one in world.said()] == []
    written = world.write()
    assert written is not None
    assert written.phase is GroupPhase.INQUEUE
    world.take()
    world.jobs.pod(pod("c", group="g", shape=BROKEN), 0.0)
    world.take()
    written = world.write()
    assert written is None or written.phase is GroupPhase.INQUEUE


def test_why_it_waits_is_said_of_a_group_without_pods_until_it_is_let_in() -> None:
    world = World()
    world.jobs.group(gated(), 0.0)
    world.take()
    world.write()
    world.take()
    verdict = JobVerdict(job=G, message="NotEnqueued: overcommit: too much")
    record = world.jobs.verdict(verdict, 0.0)
    assert record is not None
    world.feedback.settled(record, 0.0)
    written = world.write()
    assert written is not None
    line = "wait: NotEnqueued: the PodGroup is not admitted yet: overcommit: too much"
    assert [(c.type, c.status, c.message) for c in written.conditions] == [("Unschedulable", "True", line)]
    assert [(event.name, event.message) for event in world.feedback.events(20.0, 10)] == [("g", line)]
    assert list(world.jobs.verdicts()) == [verdict]
    world.jobs.admit(ONE, [G], 0.0)
    world.take()
    written = world.write()
    assert written is not None
    assert [(c.type, c.status) for c in written.conditions] == [("Unschedulable", "False")]
    assert list(world.jobs.verdicts()) == []


def test_that_a_group_is_let_in_is_written_before_whatever_else_waits_to_be() -> None:
    world = World()
    for number in range(20):
        world.jobs.group(gated(name=f"g{number}"), 0.0)
    world.take()
    world.jobs.admit(ONE, [JobId("uid-g17")], 0.0)
    world.take()
    assert [(write.name, write.status.phase) for write in world.feedback.statuses(9.0, 1, "t")] == [("g17", GroupPhase.INQUEUE)]


def test_why_it_was_not_enqueued_is_not_said_of_the_pods_of_one_that_is() -> None:
    world = World()
    world.jobs.group(gated(), 0.0)
    world.jobs.pod(pod("a", group="g"), 0.0)
    world.take()
    world.jobs.verdict(JobVerdict(job=G, message="NotEnqueued: overcommit: too much"), 0.0)
    world.jobs.admit(ONE, [G], 0.0)
    world.take()
    assert list(world.jobs.verdicts()) == []
    assert world.write() == GroupStatus(GroupPhase.INQUEUE)


def test_what_was_said_of_a_group_that_is_made_anew_counts_for_the_old_one() -> None:
    world = World()
    world.jobs.group(gated(), 0.0)
    world.take()
    world.jobs.admit(ONE, [G], 0.0)
    world.take()
    world.jobs.group_gone("ml/g", "uid-g", 0.0)
    world.jobs.group(gated(uid="uid-new"), 0.0)
    told = {one.id: (one.gone, one.admitted) for one in world.said()}
    assert told == {G: (True, True), JobId("uid-new"): (False, False)}
    world.jobs.admit(ONE, [G], 0.0)
    assert world.said() == []


def test_minimums_are_read_in_base_units_and_what_is_none_is_a_problem() -> None:
    def read(**amounts: str) -> GroupView:
        meta = {"name": "g", "namespace": "ml", "uid": "u"}
        spec = {"minResources": {name.replace("__", "/").replace("_", "."): text for name, text in amounts.items()}}
        return group_view(msgspec.convert({"metadata": meta, "spec": spec}, kube.PodGroup))

    found = read(cpu="1500m", memory="1Gi", nvidia_com__gpu="8", limits_cpu="9", count__pods="3", pods="0")
    assert found.min_resources == {"cpu": 1500, "memory": 2**30, "nvidia.com/gpu": 8}
    assert read(cpu="many").problem.startswith("spec.minResources: 'many' is not a quantity")
    assert read(cpu="-1").problem == "spec.minResources: cpu: -1 is negative"


def test_what_pods_with_scheduling_gates_ask_for_is_told_as_long_as_they_have_them() -> None:
    world = World()
    world.jobs.group(gated(), 0.0)
    world.jobs.pod(pod("a", group="g", gated=True, shape=CARD), 0.0)
    world.jobs.pod(pod("b", group="g", gated=True, shape=CARD), 0.0)
    world.jobs.pod(pod("c", group="g", gated=True, shape=CARD, deleting=True), 0.0)
    (told,) = world.said()
    assert told.gated == {"nvidia.com/gpu": 2}
    world.jobs.pod(pod("a", group="g", shape=CARD, rv="2"), 0.0)
    (told,) = world.said()
    assert told.gated == {"nvidia.com/gpu": 1}


def test_what_pods_with_gates_ask_for_beyond_the_minimum_is_not_told() -> None:
    """However many they are, and whatever they name: a sum of a thousand largest amounts would be beyond 64 bits."""
    world = World()
    world.jobs.group(gated(), 0.0)
    for i in range(1100):
        asked = {"nvidia.com/gpu": str(1 << 53), f"example.com/{i}": "1"}
        shape = shape_of(str(i), PodSpec((Container("main", asked),)))
        world.jobs.pod(pod(f"p{i}", group="g", gated=True, shape=shape), 0.0)
    assert [one.gated for one in world.said()] == [{"nvidia.com/gpu": 2}]


def test_a_group_whose_pods_are_anothers_asks_for_nothing() -> None:
    """Volcano's Job controller makes pods once the PodGroup is Inqueue; then it is seen whose they are."""
    world = World()
    world.jobs.group(gated(), 0.0)
    (told,) = world.said()
    assert not told.gone
    world.jobs.admit(ONE, [G], 0.0)
    world.take()
    world.write()
    world.jobs.pod(pod("a", group="g", ours=False), world.now)
    (told,) = world.said()
    assert told.gone
    world.jobs.pod(pod("b", group="g"), world.now)
    (told,) = world.said()
    assert (told.gone, told.phase) == (False, Phase.INQUEUE)


def test_podgroup_without_pods_reserves_nothing_until_it_has_pods_again() -> None:
    world = World()
    world.jobs.group(gated(), 0.0)
    world.jobs.pod(pod("p0", group="g"), 0.0)
    assert [state.gone for state in world.said()] == [False]
    world.jobs.pod_gone(pod("p0", group="g").uid, 1.0)
    assert [state.gone for state in world.said()] == [True]
    world.jobs.pod(pod("p1", group="g"), 2.0)
    assert [state.gone for state in world.said()] == [False]


def test_podgroup_started_before_a_restart_reserves_nothing_without_pods() -> None:
    world = World()
    started = GroupStatus(GroupPhase.INQUEUE, conditions=(GroupCondition("Scheduled", "True", "", "", "t"),))
    world.jobs.group(gated(status=started), 0.0)
    assert world.said() == []


def test_completed_podgroup_stays_completed_after_its_pods_are_deleted() -> None:
    world = World()
    world.jobs.group(gated(status=GroupStatus(GroupPhase.COMPLETED, succeeded=2)), 0.0)
    world.take()
    written = world.write()
    assert written is None or written.phase is GroupPhase.COMPLETED
