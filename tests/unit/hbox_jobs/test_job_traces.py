"""The root of a job's trace is recorded once, at its end, whatever happens to the job meanwhile."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hbox_common.model import NodeName, PodUid
from hbox_common.telemetry import tracing
from hbox_jobs.adapters.traces import JobTraces, trace_of
from hbox_jobs.core.jobs import Jobs
from hbox_jobs.core.views import PodView

from .job_world import group, pod

CREATED = 100.0  #: of the world's pods; its PodGroups are ten seconds older


class World:
    """A job-controller's traces. Each method happens at a wall clock of its own, in seconds."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        tracing.setup("job-controller", "1", exporter=self.exporter, environ={})
        self.jobs, self.traces = Jobs(trace=trace_of), JobTraces()

    def see(self, new: PodView, wall: float) -> None:
        self.traces.pod(self.jobs.view(new.uid), new, wall)
        self.jobs.pod(new, wall)

    def say(self, wall: float) -> None:
        batch = self.jobs.take(wall + 1000.0, wall)
        self.traces.announced(batch.pending, batch.settled, wall, wall + 0.01)
        while phases := self.jobs.take_phases(1, now=wall):
            self.traces.entered(phases[0])

    def roots(self) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == "job"]


@pytest.fixture
def world() -> Iterator[World]:
    yield World()
    tracing.shutdown()


def bound(view: PodView) -> PodView:
    return replace(view, node=NodeName("n1"), resource_version="2")


def test_the_root_spans_from_first_seen_to_the_last_node_seen(world: World) -> None:
    world.see(pod("a"), 100.3)
    world.say(100.31)
    world.see(bound(pod("a")), 100.5)
    world.say(100.75)
    (root,) = world.roots()
    assert (root.start_time, root.end_time) == (100_300_000_000, 100_500_000_000)
    assert root.attributes is not None
    assert (root.attributes["name"], root.attributes["phase"]) == ("a", "bound")
    parents = {s.name: s.parent.span_id for s in world.exporter.get_finished_spans() if s.parent}
    assert parents == dict.fromkeys(("announce", "observe"), root.context.span_id)


def test_a_job_that_was_pending_over_a_restart_begins_when_it_was_created(world: World) -> None:
    world.see(pod("a"), 150.0)
    world.say(150.0)
    world.see(bound(pod("a")), 151.0)
    world.say(151.0)
    assert [root.start_time for root in world.roots()] == [int(CREATED * 1e9)]


def test_a_gang_ends_with_its_last_pod_and_only_once(world: World) -> None:
    world.jobs.group(group(min_member=2), 0.0)
    for name in ("a", "b"):
        world.see(pod(name, group="g"), 100.0)
    world.say(100.0)
    world.see(bound(pod("a", group="g")), 101.0)
    world.say(101.1)
    assert not world.roots()
    world.see(bound(pod("b", group="g")), 102.0)
    world.say(102.1)
    # A member is replaced.
    world.jobs.pod_gone(PodUid("uid-b"), 103.0)
    world.see(pod("c", group="g"), 103.0)
    world.say(103.1)
    world.see(bound(pod("c", group="g")), 104.0)
    world.say(104.1)
    assert [root.end_time for root in world.roots()] == [102_000_000_000]


def test_a_job_deleted_before_it_was_bound_has_its_root_and_leaves_nothing_behind(world: World) -> None:
    world.see(pod("a"), 100.0)
    world.say(100.0)
    world.jobs.pod_gone(PodUid("uid-a"), 105.0)
    world.say(105.0)
    (root,) = world.roots()
    assert root.attributes is not None
    assert (root.attributes["phase"], root.end_time) == ("deleted", 105_000_000_000)
    assert not world.traces._times
    assert not world.traces._open


def test_pods_that_had_nodes_from_the_start_are_no_jobs_of_ours_to_trace(world: World) -> None:
    world.see(bound(pod("a")), 100.0)
    world.say(100.0)
    assert not world.exporter.get_finished_spans()


def test_nothing_is_gathered_where_nobody_collects() -> None:
    jobs, traces = Jobs(), JobTraces()
    traces.pod(None, pod("a"), 100.0)
    jobs.pod(pod("a"), 0.0)
    batch = jobs.take(1000.0, 100.0)
    traces.announced(batch.pending, batch.settled, 1.0, 2.0)
    assert not traces._times
    assert not traces._open
