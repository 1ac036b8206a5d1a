"""Headlines of pending jobs follow the state although nothing activates the jobs, and many pending jobs of many queues are judged in few sessions."""

from dataclasses import replace

import pytest

from hbox_common.model import ClassQuota, Index, Job, JobId, Match, MatchOperator, PodUid, Queue, QueueName
from hbox_common.model.devices.nvidia import NVIDIA
from hbox_scheduler.core.explain.outcomes import NODES_OUT_OF_SERVICE
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.queueing.unschedulable import REVIEW_EVERY_S, REVIEW_S, REVIEWED
from hbox_scheduler.core.simulate.simulation import Simulation, job, node
from hbox_scheduler.core.steps.placer import Placer

NODES, QUEUES = 4, 20
IN_USE = "CardsInUse"


class Cluster(Simulation):
    """Nodes of 8 cards, all in use, with the code of each job's last verdict, and the jobs that sessions tried."""

    def __init__(self, *more: Queue) -> None:
        queues = [*more, Queue(QueueName("default")), *(Queue(QueueName(f"q{number}")) for number in range(QUEUES))]
        super().__init__(policy_of(PolicyName.LEAST_WASTE), queues=queues)
        self.codes: dict[JobId, str] = {}
        self.messages: dict[JobId, str] = {}
        self.describe()
        self.submit([job(f"runs-{number}", cards=8) for number in range(NODES)])
        assert len(self.run()) == NODES

    def describe(self, *, unschedulable: bool = False) -> None:
        generation = 2 if unschedulable else 1
        self.put_nodes(
            node(f"n{number}", cards=8, generation=generation, unschedulable=unschedulable) for number in range(NODES)
        )

    def until(self, seconds: float) -> None:
        """Cycles, each when the last one asked for it, for so long."""
        end = self.now + seconds
        while True:
            out = self.step()
            self.codes.update((verdict.job, verdict.code) for verdict in out.verdicts)
            self.messages.update((verdict.job, verdict.message) for verdict in out.verdicts)
            if out.more:
                continue
            if out.wake_at is None or out.wake_at > end:
                self.now = end
                return
            self.now = max(out.wake_at, self.now)


def waits(count: int, *, cards: int = 1, queue: str = "default") -> list[Job]:
    return [job(f"{queue}-{cards}-{number}", cards=cards, queue=queue, created_at=float(number)) for number in range(count)]


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each session tried without success."""
    counts: list[int] = []
    place = Placer.place

    def counted(self: Placer, *given: object, **named: object) -> object:
        attempt = place(self, *given, **named)  # type: ignore[arg-type]
        if attempt is not None:
            counts.append(len(attempt.failed))
        return attempt

    monkeypatch.setattr(Placer, "place", counted)
    return counts


def test_a_headline_follows_nodes_that_are_cordoned(tried: list[int]) -> None:
    cluster = Cluster()
    cluster.submit([*waits(50), *waits(50, cards=2)])
    cluster.until(5.0)
    assert set(cluster.codes.values()) == {IN_USE}
    cluster.describe(unschedulable=True)
    tried.clear()
    cluster.until(REVIEW_S + 5.0)
    assert set(cluster.codes.values()) == {NODES_OUT_OF_SERVICE}
    assert len(cluster.codes) == 100
    assert sum(tried) == 2  # one of each class


def test_nothing_is_judged_again_while_nothing_changes(tried: list[int]) -> None:
    cluster = Cluster()
    cluster.submit(waits(50))
    cluster.until(5.0)
    tried.clear()
    cluster.until(10 * REVIEW_S)
    assert sum(tried) == 0


def test_of_many_classes_some_are_judged_again_at_a_time(tried: list[int]) -> None:
    cluster = Cluster()
    cluster.submit(job(f"s-{number}", cards=1, cpu_milli=1000 + number) for number in range(3 * REVIEWED))
    cluster.until(5.0)
    cluster.describe(unschedulable=True)
    cluster.until(1.0)
    tried.clear()
    cluster.until(REVIEW_S - 6.0 + REVIEW_EVERY_S / 2)
    assert sum(tried) == REVIEWED
    cluster.until(2 * REVIEW_EVERY_S)
    assert sum(tried) == 3 * REVIEWED
    assert set(cluster.codes.values()) == {NODES_OUT_OF_SERVICE}


def test_a_review_gives_all_jobs_of_the_class_the_same_code() -> None:
    """Also if the judged job had that code before, since it was tried on its own."""
    cluster = Cluster()
    cluster.submit(waits(3))
    cluster.until(5.0)
    cluster.describe(unschedulable=True)
    cluster.scheduler._queue.activate(cluster.scheduler._queue.entries[JobId("default-1-0")])
    cluster.until(5.0)
    assert [*cluster.codes.values()].count(NODES_OUT_OF_SERVICE) == 1
    cluster.until(REVIEW_S + 5.0)
    assert [*cluster.codes.values()].count(NODES_OUT_OF_SERVICE) == 3


def test_amounts_in_the_reason_of_an_equal_job_follow_the_use_of_its_queue() -> None:
    """Although only the first job of the class is tried when the queue releases something, and nothing changes afterwards."""
    cluster = Cluster(Queue(QueueName("spot"), capability={NVIDIA.cards: 16}))
    cluster.finish([PodUid(uid) for uid in list(cluster.claims)])
    cluster.submit([job(f"spot-{number}", cards=8, queue="spot") for number in range(2)])
    assert len(cluster.run()) == 2
    cluster.submit(waits(3, cards=16, queue="spot"))
    cluster.until(5.0)
    assert all("16 nvidia.com/gpu are in use" in cluster.messages[one.id] for one in waits(3, cards=16, queue="spot"))
    cluster.finish([next(uid for uid, claim in cluster.claims.items() if claim.job == "spot-0")])
    cluster.until(2 * REVIEW_S)
    assert all("8 nvidia.com/gpu are in use" in cluster.messages[one.id] for one in waits(3, cards=16, queue="spot"))


def test_a_job_that_its_quota_blocks_is_judged_again_by_its_nodes() -> None:
    cluster = Cluster()
    urgent = (Match("PriorityClass", MatchOperator.IN, ("urgent",)),)
    quota = ClassQuota("default", "urgent", urgent, {"pods": 1}, {"pods": 1})
    cluster.scheduler.on_class_quotas([quota], Index(cluster.scheduler.index))
    cluster.submit(replace(one, priority_class="urgent") for one in [*waits(1), *waits(1, cards=9)])
    cluster.until(5.0)
    assert cluster.codes == {"default-1-0": "ResourceQuotaNotFit", "default-9-0": "NodeInsufficientDevice"}
    cluster.describe(unschedulable=True)
    cluster.until(REVIEW_S + 5.0)
    assert cluster.codes == {"default-1-0": NODES_OUT_OF_SERVICE, "default-9-0": "NodeInsufficientDevice"}


def test_jobs_of_many_queues_that_fit_nowhere_are_judged_many_in_a_session(tried: list[int]) -> None:
    cluster = Cluster()
    cluster.submit(one for number in range(QUEUES) for one in waits(64, cards=9, queue=f"q{number}"))
    tried.clear()
    cluster.until(REVIEW_S / 2)
    assert sum(tried) == 64 * QUEUES
    assert len(tried) <= 8 * QUEUES
