"""Any sequence of changes to jobs and pods leaves the console's read model equal to one that only saw the outcome."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hbox_common.model import Job, JobId, PodPhase, PodUid
from hbox_console.core.model import ReadModel

from ...console_objects import a_job, a_pod, take_snapshot

JOBS = tuple(a_job("a", f"job{number}", at=100.0 + number) for number in range(3))
PODS = tuple(a_pod(JOBS[0], number) for number in range(3))

NUMBERS = st.integers(0, 2)
CHANGES = st.one_of(
    st.tuples(st.just("job"), NUMBERS, st.sampled_from(("job0", "job1", "driver"))),
    st.tuples(st.just("withdrawn"), NUMBERS),
    st.tuples(st.just("deleted"), NUMBERS),
    st.tuples(st.just("pod"), NUMBERS, NUMBERS, st.sampled_from((PodPhase.RUNNING, PodPhase.SUCCEEDED))),
    st.tuples(st.just("snapshot"), st.sets(NUMBERS), st.sets(NUMBERS)),
)


def apply(model: ReadModel, change: tuple[object, ...], revision: int) -> None:
    match change:
        case ("job", int(job), str(name)):
            model.on_jobs([replace(JOBS[job], name=name, revision=revision)])
        case ("withdrawn", int(job)):
            model.on_withdrawn([JOBS[job].id], [revision])
        case ("deleted", int(job)):
            model.on_deleted(JOBS[job].id)
        case ("pod", int(pod), int(job), PodPhase() as phase):
            model.on_pods([replace(PODS[pod], job=JOBS[job].id, phase=phase)])
        case ("snapshot", set(jobs), set(pods)):
            take_snapshot(model, [replace(JOBS[job], revision=revision) for job in jobs], [PODS[pod] for pod in pods])


@given(st.lists(CHANGES, max_size=25))
def test_after_any_changes_the_model_shows_what_the_last_snapshot_holds(changes: list[tuple[object, ...]]) -> None:
    model = ReadModel()
    for revision, change in enumerate(changes, 1):
        apply(model, change, revision)
    jobs: list[Job] = [replace(JOBS[1], name="last", revision=100)]
    take_snapshot(model, jobs, [replace(PODS[0], job=JOBS[1].id)])
    fresh = ReadModel()
    take_snapshot(fresh, jobs, [replace(PODS[0], job=JOBS[1].id)])
    assert model.jobs.keys() == fresh.jobs.keys() == {JobId("id-a-job1")}
    assert model.job_item(JOBS[1].id, now=200.0) == fresh.job_item(JOBS[1].id, now=200.0)
    assert {PodUid(uid) for uid in model.jobs[JOBS[1].id].pods} == {PODS[0].uid}
    for name in ("job0", "job1", "driver", "job2"):
        assert model.ids_of("a", name) == [], name
    assert model.ids_of("a", "last") == [JOBS[1].id]
