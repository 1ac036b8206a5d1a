"""Places of replaced pods go to their successors, in the running scheduler. Drawing: n0 [4/4], of `web` (2 pods of one card) and `other` (2); `old` waits."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hbox_common.events import PlanAnswer
from hbox_common.model import Epoch, Index, Job, JobId, MissingPods, PodUid, RefusalReason
from hbox_common.model.claim import KUBELET_GAVE
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.protocol.limits import Limits
from hbox_scheduler.core.queueing.jobs import Entry
from hbox_scheduler.core.simulate.simulation import Simulation, job, node
from hbox_scheduler.core.steps import successions
from hbox_scheduler.core.steps.successions import MISSING_GRACE_S, MOST, Successions

OWNER = "owner-of-web"


def single(name: str, *, created_at: float, cards: int = 1, priority: int = 0) -> Job:
    return replace(
        job(f"{name}", cards=cards, created_at=created_at, priority=priority),
        succession=OWNER if name.startswith("web") else "",
    )


def full(*more: Job) -> Simulation:
    simulation = Simulation(policy_of(PolicyName.LEAST_WASTE))
    simulation.put_nodes([node("n0", cards=4)])
    simulation.submit([single(name, created_at=1.0) for name in ("web-a", "web-b", "other-a", "other-b")])
    simulation.run()
    assert len(simulation.claims) == 4
    simulation.submit([single("old", created_at=2.0), *more])
    simulation.run()
    return simulation


def ends(simulation: Simulation, *pods: str) -> None:
    simulation.finish([PodUid(f"{pod}-0") for pod in pods])


def placed(simulation: Simulation) -> Sequence[str]:
    return sorted(str(uid).removesuffix("-0") for uid in simulation.claims)


def test_successor_takes_the_place_before_an_older_job() -> None:
    simulation = full(single("web-c", created_at=9.0))
    ends(simulation, "web-a")
    simulation.run()
    assert placed(simulation) == ["other-a", "other-b", "web-b", "web-c"]


def test_place_of_a_pod_without_succession_goes_to_the_oldest_job() -> None:
    simulation = full(single("web-c", created_at=9.0))
    ends(simulation, "other-a")
    simulation.run()
    assert placed(simulation) == ["old", "other-b", "web-a", "web-b"]


def test_place_without_a_successor_goes_to_the_oldest_job() -> None:
    simulation = full()
    ends(simulation, "web-a")
    simulation.run()
    assert "old" in placed(simulation)


def test_place_waits_for_a_pod_that_the_controller_is_about_to_create() -> None:
    simulation = full()
    simulation.scheduler.on_missing([MissingPods(OWNER, 1)])
    ends(simulation, "web-a")
    simulation.run()
    assert len(simulation.claims) == 3, "the place is reserved"
    simulation.scheduler.on_missing([MissingPods(OWNER, 0)])
    simulation.submit([single("web-c", created_at=9.0)])
    simulation.run()
    assert "web-c" in placed(simulation)


def test_place_is_released_when_the_controller_needs_no_pod() -> None:
    simulation = full()
    simulation.scheduler.on_missing([MissingPods(OWNER, 1)])
    ends(simulation, "web-a")
    simulation.run()
    simulation.scheduler.on_missing([MissingPods(OWNER, 0)])
    simulation.run()
    assert "old" not in placed(simulation), "the message about the new pod may come later"
    simulation.now += MISSING_GRACE_S
    simulation.run()
    assert "old" in placed(simulation)


def test_place_is_released_after_a_while() -> None:
    simulation = full()
    simulation.scheduler.on_missing([MissingPods(OWNER, 1)])
    ends(simulation, "web-a")
    simulation.run()
    simulation.now += Limits().successor_s - 1.0
    simulation.run()
    assert "old" not in placed(simulation)
    simulation.now += 1.0
    simulation.run()
    assert "old" in placed(simulation)


def test_job_of_higher_priority_takes_the_place() -> None:
    simulation = full(single("web-c", created_at=9.0), single("urgent", created_at=10.0, priority=1))
    ends(simulation, "web-a")
    simulation.run()
    assert "urgent" in placed(simulation)
    assert "web-c" not in placed(simulation)


def test_job_of_higher_priority_takes_a_place_that_waits_for_its_successor() -> None:
    simulation = full()
    simulation.scheduler.on_missing([MissingPods(OWNER, 1)])
    ends(simulation, "web-a")
    simulation.run()
    simulation.submit([single("urgent", created_at=10.0, priority=1)])
    simulation.run()
    assert "urgent" in placed(simulation)


def test_gang_gets_all_places_of_its_predecessor_pods() -> None:
    """A gang of two is replaced pod by pod: both places wait until both new pods exist."""
    simulation = Simulation(policy_of(PolicyName.LEAST_WASTE))
    simulation.put_nodes([node("n0", cards=4)])

    def gang(revision: int, *names: str) -> Job:
        pods = job("x", pods=2, cards=1).tasks[0]
        chosen = tuple(replace(pods.pods[0], uid=PodUid(name), name=name) for name in names)
        of = replace(
            job("uid-1.0", cards=1), gang=True, min_member=2, members=len(names), revision=revision, succession="uid-1"
        )
        return replace(of, tasks=(replace(pods, pods=chosen),) if names else ())

    simulation.submit([gang(1, "a", "b"), single("other-a", cards=2, created_at=1.0)])
    simulation.run()
    simulation.submit([single("old", created_at=2.0), single("older", created_at=1.5)])
    simulation.run()
    simulation.scheduler.on_missing([MissingPods("uid-1", 2)])
    simulation.scheduler.on_withdrawn([JobId("uid-1.0")], [2])
    simulation.gone([PodUid("a"), PodUid("b")])
    simulation.run()
    simulation.scheduler.on_missing([MissingPods("uid-1", 1)])
    simulation.submit([gang(3, "c")])
    simulation.run()
    assert placed(simulation) == ["other-a"]
    simulation.scheduler.on_missing([MissingPods("uid-1", 0)])
    simulation.submit([gang(4, "c", "d")])
    simulation.run()
    assert placed(simulation) == ["c", "d", "other-a"]


def test_refused_plan_of_a_successor_keeps_the_place() -> None:
    simulation = full(single("web-c", created_at=9.0))
    ends(simulation, "web-a")
    out = simulation.scheduler.cycle(simulation.now)
    (plan,) = out.plans
    assert plan.job == "web-c"
    scheduler = simulation.scheduler
    answer = PlanAnswer(plan=plan.id, job=plan.job, committed=False, reason=RefusalReason.CARD_TAKEN, message="x")
    scheduler.on_answers(epoch=scheduler.epoch, index=scheduler.index, answers=[answer], now=simulation.now)
    simulation.run()
    assert "web-c" in placed(simulation)
    assert "old" not in placed(simulation)


def test_end_of_a_claim_searches_no_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A workload of n pods that end together would cost n squared otherwise. The jobs are searched in the next cycle, once a step."""
    simulation = full(*(single(f"web-{number}", created_at=9.0) for number in range(20)))
    searched: list[str] = []
    whole = Successions._wanted

    def wanted(self: Successions, succession: str, *limit: int) -> object:
        searched.append(succession)
        return whole(self, succession, *limit)

    monkeypatch.setattr(Successions, "_wanted", wanted)
    ends(simulation, "web-a", "web-b")
    assert searched == []
    simulation.run()
    assert placed(simulation) == ["other-a", "other-b", "web-0", "web-1"]
    assert searched


def test_jobs_that_wait_for_the_same_are_tried_once_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = full(*(single(f"web-{number}", created_at=9.0) for number in range(20)))
    tried: list[int] = []
    whole = Successions._waiting

    def waiting(self: Successions, succession: str, places: int) -> list[Entry]:
        found = whole(self, succession, places)
        tried.append(len(found))
        return found

    monkeypatch.setattr(Successions, "_waiting", waiting)
    ends(simulation, "web-a", "web-b")
    simulation.run()
    assert tried[0] == 2


def test_a_succession_has_a_maximum_number_of_places() -> None:
    pods = MOST + 8
    simulation = Simulation(policy_of(PolicyName.LEAST_WASTE))
    simulation.put_nodes([node(f"n{number}", cards=8) for number in range(pods // 8)])
    simulation.submit([single(f"web-{number}", created_at=1.0) for number in range(pods)])
    simulation.run()
    assert len(simulation.claims) == pods
    simulation.scheduler.on_missing([MissingPods(OWNER, pods)])
    ends(simulation, *(f"web-{number}" for number in range(pods)))
    simulation.submit([single(f"old-{number}", created_at=2.0) for number in range(pods)])
    simulation.run()
    assert len(simulation.claims) == 8


def test_place_is_released_when_its_successor_is_withdrawn() -> None:
    simulation = full(single("web-c", created_at=9.0, cards=2))
    ends(simulation, "web-a")
    simulation.run()
    assert len(simulation.claims) == 3, "two cards are needed and one is reserved"
    simulation.scheduler.on_withdrawn([JobId("web-c")], [2])
    simulation.run()
    assert "old" in placed(simulation)


def test_job_that_leaves_its_succession_takes_no_place_of_it() -> None:
    simulation = full(single("web-c", created_at=9.0))
    simulation.submit([replace(single("web-c", created_at=9.0), succession="another", revision=2)])
    ends(simulation, "web-a")
    simulation.run()
    assert placed(simulation) == ["old", "other-a", "other-b", "web-b"]


def test_successions_of_claims_that_a_snapshot_lacks_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(successions, "SPARE", 8)
    simulation = Simulation(policy_of(PolicyName.LEAST_WASTE))
    simulation.put_nodes([node("n0", cards=8)])
    index = 1 << 20
    for batch in range(20):
        jobs = [single(f"web-{batch}-{number}", created_at=1.0) for number in range(8)]
        simulation.submit(jobs)
        plans = simulation.scheduler.cycle(simulation.now).plans
        assert len(plans) == 8
        index += 1
        simulation.scheduler.on_withdrawn([job.id for job in jobs], [2] * 8)
        simulation.scheduler.on_claims_snapshot(epoch=Epoch(2 + batch), index=Index(index), frozen=False, claims=(), now=0.0)
    simulation.scheduler.cycle(simulation.now)
    assert len(simulation.scheduler._successions._of) <= 3 * 8


def test_place_moves_to_the_cards_that_a_pod_left_when_its_kubelet_gave_it_the_reserved_ones() -> None:
    simulation = full()
    reserved, other = simulation.claims[PodUid("web-a-0")], simulation.claims[PodUid("other-a-0")]
    simulation.scheduler.on_missing([MissingPods(OWNER, 1)])
    ends(simulation, "web-a")
    simulation.run()
    simulation._books[other.node].book(other.requests, other.slices, -1)
    simulation.hold([replace(other, slices=reserved.slices, reason=KUBELET_GAVE)])
    simulation.submit([single("older", created_at=1.5)])
    simulation.scheduler.on_missing([MissingPods(OWNER, 1)])  # the succession is tried, without a pod
    simulation.run()
    assert placed(simulation) == ["other-a", "other-b", "web-b"]
    simulation.submit([single("web-c", created_at=9.0)])
    simulation.run()
    assert placed(simulation) == ["other-a", "other-b", "web-b", "web-c"]
