"""Attribution of waiting: each second is charged to one code, also over evictions and restarts."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.events import WAIT_SHARDS, JobVerdict
from hbox_common.model import JobId, JobWait, NodeName, QueueName
from hbox_jobs.adapters.waits import WaitPublisher
from hbox_jobs.core.jobs import Jobs
from hbox_jobs.core.views import PodStatus
from hbox_jobs.core.waits import MOST_CODES, OTHER, Waits

from ...searching import examples
from .job_world import group, pod

J, Q = JobId("uid-g"), QueueName("research")
LATER = 10_000.0


class World:
    """A gang of two in a queue; pods were created at 100, the PodGroup at 90."""

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.turn = LATER
        self.jobs.group(group(min_member=2, queue="research"), 0.0)

    def pods(self, *names: str, node: str = "", status: PodStatus = PodStatus.PENDING, deleting: bool = False) -> None:
        for name in names:
            self.jobs.pod(
                pod(name, group="g", node=NodeName(node), status=status, deleting=deleting, rv=str(int(self.turn))),
                self.turn,
            )

    def at(self, wall: float) -> dict[str, float]:
        """Everything is settled at `wall`; the job's waiting until then."""
        self.turn += 10.0
        self.jobs.take(self.turn, wall)
        self.jobs.validate()
        wait = self.jobs.waits.of(J)
        return {} if wait is None else wait.until(wall)

    def verdict(self, code: str, wall: float, message: str = "") -> None:
        self.at(wall)
        self.jobs.verdict(JobVerdict(job=J, message=message or code, code=code), self.turn)
        self.at(wall)


def test_waiting_is_charged_to_the_code_of_its_time() -> None:
    world = World()
    world.pods("a", "b")
    assert world.at(160.0) == {"NotTriedYet": 60.0}, "from the creation of the pods"
    world.verdict("QueueShareSpent", 200.0)
    world.verdict("CardsInUse", 680.0)
    assert world.at(700.0) == {"NotTriedYet": 100.0, "QueueShareSpent": 480.0, "CardsInUse": 20.0}
    world.pods("a", "b", node="n1")
    assert world.at(710.0) == world.at(9_999.0), "no waiting is charged while the gang has its minimum"
    assert sum(world.at(9_999.0).values()) == 610.0


def test_a_code_that_changes_without_its_message_is_charged() -> None:
    world = World()
    world.pods("a", "b")
    world.verdict("CardsInUse", 200.0, "waits")
    world.verdict("CardsBeingReclaimed", 300.0, "waits")
    assert world.at(350.0)["CardsBeingReclaimed"] == 50.0


def test_waiting_after_an_eviction_is_charged_to_it_until_a_verdict() -> None:
    world = World()
    world.pods("a", "b", node="n1")
    world.at(200.0)
    world.jobs.evicted(J, "preempted", 300.0)
    world.at(301.0)  # an outcome may arrive before the watch
    world.pods("a", "b", node="n1", deleting=True)
    assert world.at(310.0) == {"Evicted": 0.0}
    for name in ("a", "b"):
        world.jobs.pod_gone(pod(name).uid, world.turn)
    world.at(320.0)
    world.pods("c", "d")
    assert world.at(350.0) == {"Evicted": 40.0}
    world.verdict("CardsInUse", 400.0)
    world.pods("c", "d", node="n2")
    assert world.at(420.0) == {"Evicted": 90.0, "CardsInUse": 20.0}


def test_a_gang_below_its_minimum_waits_for_its_pods() -> None:
    world = World()
    world.pods("a")
    assert world.at(150.0) == {"GangIncomplete": 50.0}


def test_a_pod_group_without_pods_waits_from_its_creation() -> None:
    assert World().at(100.0) == {"GangIncomplete": 10.0}


@pytest.mark.parametrize("status", [PodStatus.SUCCEEDED, PodStatus.FAILED])
def test_a_job_that_ended_does_not_wait(status: PodStatus) -> None:
    world = World()
    world.pods("a", "b", node="n1", status=PodStatus.RUNNING)
    world.at(200.0)
    world.pods("a", "b", node="n1", status=status)
    assert world.at(300.0) == {}


def test_a_deleted_job_has_no_account() -> None:
    world = World()
    world.pods("a", "b")
    world.at(200.0)
    for name in ("a", "b"):
        world.jobs.pod_gone(pod(name).uid, world.turn)
    world.jobs.group_gone("ml/g", "uid-g", world.turn)
    assert world.at(210.0) == {}


def test_a_problem_of_the_job_itself_is_charged_by_its_code() -> None:
    jobs = Jobs()
    jobs.pod(pod("a", group="g"), 0.0)
    jobs.take(LATER, 150.0)
    (wait,) = jobs.waits.all()
    assert wait.code == "PodGroupNotFound"
    assert [verdict.code for verdict in jobs.verdicts()] == ["PodGroupNotFound"]


def test_accounts_continue_after_a_restart_and_the_outage_is_waiting() -> None:
    first = Waits()
    first.note(J, Q, "CardsInUse", 100.0, since=50.0)
    first.note(JobId("ended"), Q, "CardsInUse", 100.0, since=50.0)
    second = Waits()
    while (taken := first.take(100.0)) is not None:
        second.resume(taken[1])
    second.keep({J}, 200.0)
    second.note(J, Q, "CardsInUse", 200.0, since=0.0)
    second.note(J, Q, "QueueShareSpent", 250.0, since=0.0)
    second.validate()
    assert [wait.until(260.0) for wait in second.all()] == [{"CardsInUse": 200.0, "QueueShareSpent": 10.0}]
    assert dict(_sums(second, 260.0)) == {(Q, "CardsInUse"): 50.0, (Q, "QueueShareSpent"): 10.0}, (
        "the metric counts from the restart"
    )


def test_a_wait_keeps_its_code_over_a_restart_until_the_verdict_is_repeated() -> None:
    world = World()
    world.jobs.waits.resume([JobWait(J, "CardsInUse", 100.0, {"GangIncomplete": 10.0})])
    world.pods("a", "b")
    assert world.at(160.0) == {"GangIncomplete": 10.0, "CardsInUse": 60.0}
    world.pods("a", "b")
    world.verdict("QueueShareSpent", 170.0)
    assert world.at(180.0) == {"GangIncomplete": 10.0, "CardsInUse": 70.0, "QueueShareSpent": 10.0}


def test_a_shard_whose_publication_failed_is_published_again() -> None:
    waits = Waits()
    waits.note(J, Q, "CardsInUse", 100.0, since=100.0)
    taken = waits.take(100.0)
    assert taken is not None
    assert waits.take(100.0) is None
    waits.retry(taken[0])
    assert waits.take(100.0) == taken
    waits.mark_changed()
    assert sum(waits.take(100.0) is not None for _ in range(WAIT_SHARDS + 1)) == WAIT_SHARDS


def test_codes_of_one_job_are_bounded() -> None:
    waits = Waits()
    for number in range(2 * MOST_CODES):
        waits.note(J, Q, f"Code{number}", float(number), since=0.0)
    (wait,) = waits.all()
    assert len(wait.seconds) == MOST_CODES + 1
    assert wait.until(100.0)[OTHER] == 100.0 - MOST_CODES


async def test_only_existing_queues_are_labels() -> None:
    waits = Waits()
    for name in ("planted", "research"):
        waits.note(JobId(name), QueueName(name), "CardsInUse", 100.0, since=100.0)
    text = (await WaitPublisher(None, waits, {Q}).text()).decode()  # type: ignore[arg-type]
    assert 'hbox_job_wait_seconds_total{queue="research",code="CardsInUse"} ' in text
    assert 'queue="other"' in text
    assert "planted" not in text


def _sums(waits: Waits, now: float) -> Counter[tuple[QueueName, str]]:
    return Counter({(queue, code): seconds for queue, code, seconds in waits.charged(now)})


@given(
    st.lists(
        st.tuples(st.sampled_from("xyz"), st.sampled_from(["", "A", "B", "gone", "charge"]), st.floats(0.0, 100.0)), max_size=40
    )
)
@examples(300)
def test_seconds_of_jobs_and_of_queues_are_the_same(steps: list[tuple[str, str, float]]) -> None:
    waits, now, by_queue, by_job = Waits(), 1000.0, Counter[str](), Counter[str]()

    def charge() -> None:
        by_queue.update({code: seconds for (_, code), seconds in _sums(waits, now).items()})

    for name, code, seconds in steps:
        now += seconds
        job = JobId(name)
        if code == "charge":
            charge()
        elif code == "gone":
            by_job.update(_until(waits.of(job), now))
            waits.gone(job, now)
        else:
            waits.note(job, Q, code, now, since=now)
        waits.validate()
    charge()
    for wait in waits.all():
        by_job.update(wait.until(now))
    assert by_queue.total() == pytest.approx(by_job.total())
    assert all(by_queue[code] == pytest.approx(by_job[code]) for code in ("A", "B"))


def _until(wait: JobWait | None, now: float) -> dict[str, float]:
    return {} if wait is None else wait.until(now)


async def test_waiting_jobs_are_counted_by_outcome() -> None:
    waits = Waits()
    for job, queue, code, outcome in (
        ("a", "research", "CardsInUse", "wait"),
        ("b", "research", "CardsInUse", "change"),
        ("c", "planted", "Insufficient evil.example/planted", "wait"),
        ("d", "research", "label-planted", "wait"),
    ):
        waits.note(JobId(job), QueueName(queue), code, 100.0, since=100.0, outcome=outcome)
    waits.note(JobId("a"), Q, "CardsInUse", 110.0, since=100.0, outcome="change")
    waits.validate()
    assert waits.of(JobId("a")) == JobWait(JobId("a"), "CardsInUse", 100.0, {"CardsInUse": 0.0}), "the wait lasts"
    publisher = WaitPublisher(None, waits, {Q})  # type: ignore[arg-type]
    lines = [line for line in (await publisher.text()).decode().splitlines() if line.startswith("hbox_queue_waiting_jobs{")]
    assert lines == [
        'hbox_queue_waiting_jobs{queue="other",code="InsufficientResource",outcome="wait"} 1',
        'hbox_queue_waiting_jobs{queue="research",code="CardsInUse",outcome="change"} 2',
        'hbox_queue_waiting_jobs{queue="research",code="Other",outcome="wait"} 1',
    ]
    assert b"planted" not in await publisher.text()


async def test_series_of_deleted_queues_end() -> None:
    waits, queues = Waits(), {Q}
    waits.note(J, Q, "CardsInUse", 100.0, since=50.0)
    publisher = WaitPublisher(None, waits, queues)  # type: ignore[arg-type]
    assert b"research" in await publisher.text()
    queues.clear()
    publisher._rendered_at = float("-inf")
    assert b"research" not in await publisher.text()


def test_outcome_of_a_verdict_is_counted() -> None:
    world = World()
    world.pods("a", "b")
    world.at(100.0)
    world.jobs.verdict(JobVerdict(job=J, message="x", code="CardsInUse", outcome="wait"), world.turn)
    world.at(110.0)
    assert world.jobs.waits.waiting() == {(Q, "CardsInUse", "wait"): 1}
    world.jobs.verdict(JobVerdict(job=J, message="x", code="CardsInUse", outcome="change"), world.turn)
    world.at(120.0)
    assert world.jobs.waits.waiting() == {(Q, "CardsInUse", "change"): 1}
