"""Rollouts that wait for a place beyond those of their ready pods are reported, and no others."""

from hbox_common.model import NodeName, PodUid
from hbox_common.workloads import Kinds
from hbox_jobs.core.feedback import ROLLOUT_WAITS, EventWrite, Feedback
from hbox_jobs.core.jobs import Jobs
from hbox_jobs.core.successions import Successions
from hbox_jobs.core.surges import MOST_REPORTS, REPORTED_S, WAITING_S, Surges, rollout_of
from hbox_jobs.core.views import PodView

from .job_world import pod

WEB = "uid-web"


class World:
    """A Deployment of two ready pods."""

    def __init__(self) -> None:
        self.pods: dict[PodUid, PodView] = {}
        self.successions = Successions()
        self.surges = Surges(self.successions, self.pods.get)
        self.successions.declare(WEB, 2)
        self.generation(1)
        for name in ("old-0", "old-1"):
            self.put(name, node="n0")

    def generation(self, number: int, kind: str = "Deployment") -> None:
        meta = {"name": "web", "uid": WEB, "namespace": "ml", "generation": number}
        self.surges.declare(WEB, rollout_of(Kinds.builtin().of("apps/v1", kind), "apps/v1", meta))

    def put(self, name: str, *, node: str = "", ready: bool = True, **fields: object) -> None:
        view = pod(name, node=NodeName(node), ready=bool(node) and ready, **fields)
        self.pods[view.uid] = view
        self.successions.pod(view, WEB)

    def waits_at(self, now: float) -> list[str]:
        """Messages after WAITING_S without a change, from `now` on."""
        assert self.surges.step(now) == []
        return [each.message for each in self.surges.step(now + WAITING_S)]


def test_surge_without_a_place_is_reported_once_a_revision() -> None:
    world = World()
    world.put("new-0")
    found = world.waits_at(0.0)
    assert found == [
        "1 new pod of the rollout waits for a place beyond those of its 2 ready pods, none of which ends before: set "
        "spec.strategy.rollingUpdate.maxSurge to 0 and spec.strategy.rollingUpdate.maxUnavailable to at least 1, and new pods take the places of old ones"
    ]
    assert world.surges.step(1000.0) == []
    world.generation(2)
    assert [each.waiting for each in world.surges.step(1001.0)] == [1]
    world.generation(3)
    assert world.surges.step(1001.0 + REPORTED_S - 1) == [], "not more often than every REPORTED_S"
    assert len(world.surges.step(1001.0 + REPORTED_S)) == 1


def test_wait_begins_again_after_progress() -> None:
    world = World()
    world.put("new-0")
    assert world.surges.step(0.0) == []
    world.put("new-0", node="n0")
    assert world.surges.step(WAITING_S - 1) == []
    world.put("new-1")
    assert world.surges.step(WAITING_S) == []
    assert len(world.surges.step(2 * WAITING_S)) == 1


def test_rollout_whose_pods_start_is_not_reported() -> None:
    world = World()
    world.put("old-1", node="n0", ready=False)  # its controller waits for this one
    world.put("new-0")
    assert world.waits_at(0.0) == []


def test_pods_that_are_declared_are_not_reported() -> None:
    world = World()
    world.successions.declare(WEB, 3)
    world.put("new-0")
    assert world.waits_at(0.0) == []


def test_pods_of_other_schedulers_are_not_reported() -> None:
    world = World()
    world.put("new-0", ours=False)
    assert world.waits_at(0.0) == []


def test_kinds_without_surge_and_deleted_owners_are_not_reported() -> None:
    world = World()
    world.put("new-0")
    world.surges.declare(WEB, None)
    assert world.waits_at(0.0) == []
    world.generation(1, "ReplicaSet")
    assert world.waits_at(100.0) == []


def test_event_is_on_the_owner() -> None:
    world = World()
    world.put("new-0")
    jobs = Jobs()
    jobs.surges = world.surges
    feedback = Feedback(jobs)
    feedback.rollouts(0.0)
    assert feedback.events(0.0, 10) == []
    feedback.rollouts(WAITING_S)
    (write,) = feedback.events(WAITING_S, 10)
    assert isinstance(write, EventWrite)
    assert (write.kind, write.name, write.namespace, write.api_version) == ("Deployment", "web", "ml", "apps/v1")
    assert (write.reason, write.warning) == (ROLLOUT_WAITS, True)


def test_event_of_a_rollout_that_continues_is_not_written() -> None:
    world = World()
    world.put("new-0")
    jobs = Jobs()
    jobs.surges = world.surges
    feedback = Feedback(jobs)
    assert not feedback.rollouts(0.0)
    assert feedback.rollouts(WAITING_S)
    world.surges.declare(WEB, None)
    assert feedback.events(WAITING_S, 10) == []


def test_one_step_reports_a_bounded_number_and_the_next_one_others() -> None:
    world, count = World(), MOST_REPORTS + 5
    for number in range(count):
        uid = f"uid-{number}"
        world.successions.declare(uid, 1)
        meta = {"name": f"web-{number}", "uid": uid, "namespace": "ml", "generation": 1}
        world.surges.declare(uid, rollout_of(Kinds.builtin().of("apps/v1", "Deployment"), "apps/v1", meta))
        for name, node in (("old", "n0"), ("new", "")):
            view = pod(f"{name}-{number}", node=NodeName(node), ready=bool(node))
            world.pods[view.uid] = view
            world.successions.pod(view, uid)
    assert world.surges.step(0.0) == []
    assert [len(world.surges.step(WAITING_S)) for _ in range(3)] == [MOST_REPORTS, 5, 0]
