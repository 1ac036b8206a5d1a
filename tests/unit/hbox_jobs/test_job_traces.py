"""Spans of a job's trace: its submission, waits, starts, runs and end, whatever happens to the job or to the process meanwhile."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hbox_common.events import CloudEvent, JobPhase, JobPhaseChanged, JobVerdict
from hbox_common.model import JobId, NodeName, PodUid, QueueName
from hbox_common.model.traceids import parse_traceparent, trace_id_of, traceparent_of
from hbox_common.telemetry import tracing
from hbox_jobs.adapters.traces import MOST_WAITS, JobTraces, trace_of
from hbox_jobs.core.jobs import Jobs
from hbox_jobs.core.lifecycle import Entered, Stage, end_of_deleted
from hbox_jobs.core.phases import is_news
from hbox_jobs.core.views import PodStatus, PodView

from .job_world import group, pod

CREATED = 100.0  #: of the world's pods; its PodGroups are ten seconds older


class World:
    """A job-controller's traces. Each method happens at a wall clock of its own, in seconds."""

    def __init__(self, exporter: InMemorySpanExporter | None = None) -> None:
        self.exporter = exporter or InMemorySpanExporter()
        tracing.setup("job-controller", "1", exporter=self.exporter, environ={})
        self.jobs, self.traces = Jobs(trace=trace_of), JobTraces()
        self.jobs.waits.on_end = self.traces.waited
        self.stages: dict[JobId, Stage] = {}
        self.events: dict[JobId, dict[str, CloudEvent]] = {}
        self.phases: dict[JobId, JobPhase] = {}

    def see(self, new: PodView, wall: float) -> None:
        self.traces.pod(self.jobs.view(new.uid), new, wall)
        self.jobs.pod(new, wall)

    def settle(self, wall: float) -> None:
        batch = self.jobs.take(wall + 1000.0, wall)
        self.traces.announced(batch.pending, batch.settled, wall, wall + 0.01)
        while phases := self.jobs.take_phases(1, now=wall):
            [entered] = phases
            stage = self.stages.setdefault(entered.job, Stage())
            before = replace(stage)
            events = stage.follow(entered)
            self.events.setdefault(entered.job, {}).update({event.ce_type(): event for event in events})
            if not is_news(entered.phase, self.phases.get(entered.job)):
                continue
            self.phases[entered.job] = entered.phase
            self.traces.entered(entered, before, events)
            stage.known = True

    def successor(self) -> "World":
        """Of a process that was killed now: it knows what the stream has."""
        world = World(self.exporter)
        world.events = {job: dict(events) for job, events in self.events.items()}
        world.phases = dict(self.phases)
        world.stages = {job: Stage.after(self.events[job].values(), phase) for job, phase in self.phases.items()}
        world.jobs.waits.resume(self.jobs.waits.all())
        return world

    def spans(self, name: str = "") -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if not name or span.name == name]

    def span(self, name: str) -> ReadableSpan:
        [span] = self.spans(name)
        return span


@pytest.fixture
def world() -> Iterator[World]:
    yield World()
    tracing.shutdown()


def times(span: ReadableSpan) -> tuple[float, float]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time / 1e9, span.end_time / 1e9


def of(span: ReadableSpan) -> Mapping[str, object]:
    assert span.attributes is not None
    return span.attributes


def bound(view: PodView) -> PodView:
    return replace(view, node=NodeName("n1"), resource_version="2")


def running(view: PodView) -> PodView:
    return replace(bound(view), status=PodStatus.RUNNING, resource_version="3")


def ended(view: PodView) -> PodView:
    return replace(bound(view), status=PodStatus.SUCCEEDED, resource_version="4")


def verdict(code: str) -> JobVerdict:
    return JobVerdict(job=JobId("uid-a"), revision=0, message=code, code=code)


def test_the_root_begins_when_the_job_was_first_computed_and_all_steps_are_its_children(world: World) -> None:
    world.see(pod("a"), 100.3)
    world.settle(100.31)
    world.see(bound(pod("a")), 100.5)
    world.settle(100.75)
    root = world.span("submit")
    assert times(root) == (100.31, 100.31)
    assert (of(root)["name"], of(root)["namespace"]) == ("a", "ml")
    parents = {span.name: span.parent.span_id for span in world.spans() if span.parent}
    assert parents == dict.fromkeys(("announce", "observe", "wait.NotTriedYet"), root.context.span_id)
    assert times(world.span("observe")) == (100.5, 100.5)


@pytest.mark.parametrize("gang", [False, True])
def test_the_submitters_context_is_a_link_and_never_the_jobs_own_trace(world: World, gang: bool) -> None:
    """A tenant that writes another job's context on its own gets no spans into that job's trace."""
    victim = traceparent_of(JobId("uid-of-another"))
    if gang:
        world.jobs.group(group(min_member=1, traceparent=victim), 0.0)
    world.see(pod("a", group="g") if gang else pod("a", traceparent=victim), 100.0)
    world.settle(100.0)
    own = traceparent_of(JobId("uid-g" if gang else "uid-a"))
    assert {f"{span.context.trace_id:032x}" for span in world.spans()} == {trace_id_of(own)}
    assert [f"{link.context.trace_id:032x}" for link in world.span("submit").links] == [trace_id_of(victim)]


def test_a_job_that_was_pending_over_a_restart_begins_when_it_was_created(world: World) -> None:
    world.see(pod("a"), 150.0)
    world.settle(150.0)
    assert times(world.span("submit")) == (CREATED, CREATED)


def test_waits_follow_each_other_without_gaps_each_under_its_code(world: World) -> None:
    world.see(pod("a"), 100.0)
    world.settle(100.0)
    world.jobs.verdict(verdict("CardsInUse"), 110.0)
    world.settle(110.0)
    world.jobs.verdict(verdict("QueueShareSpent"), 150.0)
    world.settle(150.0)
    world.jobs.verdict(verdict("secret-of-a-tenant"), 170.0)
    world.settle(170.0)
    world.see(bound(pod("a")), 200.0)
    world.settle(200.0)
    waits = {span.name: times(span) for span in world.spans() if span.name.startswith("wait.")}
    assert waits == {
        "wait.NotTriedYet": (100.0, 110.0),
        "wait.CardsInUse": (110.0, 150.0),
        "wait.QueueShareSpent": (150.0, 170.0),
        "wait.Other": (170.0, 200.0),
    }


def test_a_reason_that_alternates_for_days_has_a_bounded_number_of_spans(world: World) -> None:
    world.see(pod("a"), 100.0)
    for turn in range(3 * MOST_WAITS):
        world.settle(100.0 + turn)
        world.jobs.verdict(verdict(("CardsInUse", "QueueShareSpent")[turn % 2]), 100.0 + turn)
    assert len([span for span in world.spans() if span.name.startswith("wait.")]) == MOST_WAITS


def test_a_job_that_ran_has_its_start_its_run_and_its_whole_life(world: World) -> None:
    world.see(pod("a"), 100.0)
    world.settle(100.0)
    for view, at in ((bound(pod("a")), 130.0), (running(pod("a")), 160.0), (ended(pod("a")), 500.0)):
        world.see(view, at)
        world.settle(at)
    assert (times(world.span("start")), of(world.span("start"))["result"]) == ((130.0, 160.0), "running")
    assert (times(world.span("run")), of(world.span("run"))["result"]) == ((160.0, 500.0), "succeeded")
    assert times(world.span("job")) == (100.0, 500.0)
    assert (of(world.span("job"))["result"], of(world.span("job"))["attempts"]) == ("succeeded", 1)
    world.jobs.pod_gone(PodUid("uid-a"), 600.0)
    world.settle(600.0)
    assert len(world.spans("job")) == len(world.spans("submit")) == 1


def test_an_evicted_job_has_a_run_for_each_attempt(world: World) -> None:
    world.jobs.group(group(min_member=1), 0.0)
    first, second = pod("a", group="g"), pod("b", group="g")
    for view, at in ((first, 100.0), (running(first), 110.0)):
        world.see(view, at)
        world.settle(at)
    world.jobs.evicted(JobId("uid-g"), "preempted", 200.0)
    world.jobs.pod_gone(first.uid, 201.0)
    for view, at in ((second, 202.0), (running(second), 300.0), (ended(second), 400.0)):
        world.see(view, at)
        world.settle(at)
    runs = [(times(span), of(span)["attempt"], of(span)["result"]) for span in world.spans("run")]
    assert runs == [((110.0, 200.0), 1, "evicted"), ((300.0, 400.0), 2, "succeeded")]
    assert times(world.span("wait.Evicted"))[1] == 300.0
    assert of(world.span("job"))["attempts"] == 2


def test_a_job_that_lost_its_pods_was_interrupted(world: World) -> None:
    world.jobs.group(group(min_member=1), 0.0)
    first = pod("a", group="g")
    world.see(running(first), 100.0)
    world.settle(100.0)
    world.jobs.pod_gone(first.uid, 150.0)
    world.see(pod("b", group="g"), 150.0)
    world.settle(150.0)
    assert of(world.span("run"))["result"] == "interrupted"


def test_the_spans_after_a_kill_belong_to_the_same_trace_and_none_is_repeated(world: World) -> None:
    """A process ends after each phase; its successor knows what the broker has, and nothing else."""
    world.see(pod("a"), 100.0)
    world.settle(100.0)
    world.jobs.verdict(verdict("CardsInUse"), 110.0)
    world.settle(110.0)
    for view, at in ((pod("a"), 120.0), (bound(pod("a")), 130.0), (running(pod("a")), 160.0), (ended(pod("a")), 500.0)):
        world = world.successor()
        world.see(pod("a") if not view.node else bound(pod("a")), at - 1.0)
        world.settle(at - 1.0)
        world.see(view, at)
        world.settle(at)
    found = {span.name: times(span) for span in world.spans() if span.name != "announce"}
    assert found == {
        "submit": (100.0, 100.0),
        "wait.NotTriedYet": (100.0, 110.0),
        "wait.CardsInUse": (110.0, 129.0),
        "start": (129.0, 160.0),
        "run": (160.0, 500.0),
        "job": (100.0, 500.0),
    }
    names = [span.name for span in world.spans() if span.name != "announce"]
    assert len(names) == len(set(names))
    trace, _, _ = parse_traceparent(traceparent_of(JobId("uid-a"))) or ("", "", "")
    assert {f"{span.context.trace_id:032x}" for span in world.spans()} == {trace}


def test_a_phase_that_two_processes_record_has_one_id(world: World) -> None:
    """The first was killed before the broker had the phase."""
    world.see(pod("a"), 100.0)
    world.settle(100.0)
    world.see(bound(pod("a")), 130.0)
    world.settle(130.0)
    other = world.successor()
    world.see(running(pod("a")), 160.0)
    world.settle(160.0)
    other.see(running(pod("a")), 160.0)
    other.settle(161.0)
    first, second = world.spans("start")
    assert first.context.span_id == second.context.span_id


def test_a_job_deleted_before_it_was_bound_ends_and_leaves_nothing_behind(world: World) -> None:
    world.see(pod("a"), 100.0)
    world.settle(100.0)
    world.jobs.pod_gone(PodUid("uid-a"), 105.0)
    world.settle(105.0)
    assert (of(world.span("job"))["result"], times(world.span("job"))) == ("deleted", (100.0, 105.0))
    assert not world.spans("run")
    assert not world.traces._times
    assert not world.traces._waits


def test_a_job_deleted_while_no_process_ran_ends_in_its_trace(world: World) -> None:
    """Its objects are gone: all that is known is in the stream of public events."""
    world.see(running(pod("a")), 160.0)
    world.settle(160.0)
    events = list(world.events[JobId("uid-a")].values())
    finished = end_of_deleted(events, 700.0)
    assert finished is not None
    changed = JobPhaseChanged(
        job=JobId("uid-a"), namespace="ml", name="a", queue=QueueName("q"), phase=JobPhase.DELETED, members=0, bound=0, at=700.0
    )
    JobTraces().entered(Entered(changed), Stage.after(events, JobPhase.BOUND), [finished])
    assert (times(world.span("run")), of(world.span("run"))["result"]) == ((160.0, 700.0), "deleted")
    assert times(world.span("job")) == (160.0, 700.0)
    assert len(world.spans("submit")) == 1


def test_nothing_is_gathered_without_a_collector() -> None:
    jobs, traces = Jobs(), JobTraces()
    traces.pod(None, pod("a"), 100.0)
    jobs.pod(pod("a"), 0.0)
    batch = jobs.take(1000.0, 100.0)
    traces.announced(batch.pending, batch.settled, 1.0, 2.0)
    [entered] = jobs.take_phases(1, now=100.0)
    traces.entered(entered, Stage(), [])
    assert not traces.on
    assert not traces._times
    assert not traces._waits
