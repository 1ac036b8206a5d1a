"""One trace shows a job's way over all services, and what travelling between them took."""

import asyncio
from collections.abc import Iterator

import pytest

from .collector import Seen, collector
from .platform_world import until, up
from .traced_jobs import BARE, GANG, started, submit

Told = dict[str, list[Seen]]

pytestmark = pytest.mark.e2e

#: Who does what, in the order in which it begins.
STEPS = {
    "submit": "job-controller",
    "announce": "job-controller",
    "place": "scheduler-core",
    "commit": "quota-ledger",
    "bind": "binder",
    "observe": "job-controller",
    "start": "job-controller",
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Spans by the name of the job."""
    state = tmp_path_factory.mktemp("traces") / "state"
    with collector() as got, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", got.url)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        with up(state) as running:
            asyncio.run(submit(state / "kubeconfig"))
            until(lambda: len(started(got)) >= BARE + 1, timeout_s=30, what="traces of all jobs")
            assert running.stop() == 0  # what is left is sent then
        yield started(got)


def test_each_job_has_one_trace_with_a_step_in_every_service(told: Told) -> None:
    assert set(told) == {"gang", *(f"bare-{i}" for i in range(BARE))}
    for name, spans in told.items():
        waits = {s.name for s in spans if s.name.startswith("wait.")}
        assert waits <= {"wait.NotTriedYet", "wait.GangIncomplete"}, name
        assert {s.name: s.service for s in spans if s.name not in waits} == STEPS, name


def test_every_step_has_its_parent_in_the_trace(told: Told) -> None:
    for spans in told.values():
        ids = [s.id for s in spans]
        assert len(set(ids)) == len(ids)
        assert [s.name for s in spans if s.parent not in ids] == ["submit"]


def test_steps_begin_in_the_order_of_the_work(told: Told) -> None:
    for name, spans in told.items():
        first = {step: min(s.start for s in spans if s.name == step) for step in STEPS}
        assert list(first.values()) == sorted(first.values()), (name, first)
        assert all(s.start <= s.end for s in spans)


def test_a_gang_is_one_commit_and_a_few_spans_of_calls(told: Told) -> None:
    spans = told["gang"]
    binds = [s for s in spans if s.name == "bind"]
    assert sum(int(s.attributes["calls"]) for s in binds) == GANG
    assert len(binds) <= 2
    assert [s.attributes["binds"] for s in spans if s.name == "commit"] == [GANG]
    assert [(s.attributes["placements"], s.attributes["queue"]) for s in spans if s.name == "place"] == [(GANG, "default")]


def test_the_hops_between_services_can_be_read_off(told: Told) -> None:
    """Printed with -s: milliseconds from the end of one step to the start of the next."""
    for name, spans in told.items():
        last = {step: max((s for s in spans if s.name == step), key=lambda s: s.end) for step in STEPS}
        hops = {f"{a} > {b}": 1000 * (last[b].start - last[a].end) for a, b in zip(STEPS, list(STEPS)[1:], strict=False)}
        print(name, {hop: round(ms, 1) for hop, ms in hops.items()})
        # An announcement is over when the broker has acknowledged it, and its reader may be quicker than that.
        assert all(-1000 < ms < 10_000 for ms in hops.values())
