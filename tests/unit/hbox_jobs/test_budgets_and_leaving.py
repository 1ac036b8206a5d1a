"""What the scheduler has to know of those who may leave (disruption budgets, roles, sub-groups), who never preempts, and what users of stuck gangs are told."""

import time

import pytest

from hbox_common import kube
from hbox_common.model import GangPart, Match, MatchOperator, PodBudget, Selector, SubGangPolicy
from hbox_jobs.adapters.budgets import budget_view
from hbox_jobs.core.budgets import Budgets, BudgetView
from hbox_jobs.core.feedback import Feedback
from hbox_jobs.core.jobs import Jobs

from .job_world import group, pod

WEB = Selector((Match("app", MatchOperator.IN, ("web",)),))


def told(jobs: Jobs) -> dict[str, tuple[tuple[str, ...], GangPart | None]]:
    return {one.uid.removeprefix("uid-"): (one.budgets, one.part) for one in jobs.take(1e6, 1e9).neighbours}


def budget(name: str = "web", selector: Selector | None = WEB, namespace: str = "ml", allowed: int = 0) -> BudgetView:
    return BudgetView(PodBudget(namespace, name, allowed, healthy=3, desired=3), selector)


def test_pods_of_ours_that_a_budget_selects_are_told_with_it_whichever_came_first() -> None:
    jobs = Jobs()
    jobs.pod(pod("before", labels={"app": "web"}), 0.0)
    jobs.pod(pod("other", labels={"app": "db"}), 0.0)
    jobs.pod(pod("theirs", ours=False, labels={"app": "web"}), 0.0)
    jobs.pod(pod("elsewhere", namespace="hr", labels={"app": "web"}), 0.0)
    assert told(jobs) == {}
    jobs.budget(budget())
    jobs.pod(pod("after", labels={"app": "web"}), 0.0)
    assert told(jobs) == {"before": (("web",), None), "after": (("web",), None)}
    jobs.budget(budget(allowed=1))
    assert told(jobs) == {}, "how many it allows is told by itself"
    jobs.budget_gone("ml", "web")
    assert told(jobs) == {"before": ((), None), "after": ((), None)}


def test_a_pod_whose_labels_change_leaves_its_budget() -> None:
    jobs = Jobs()
    jobs.budget(budget())
    jobs.budget(budget("all", Selector(())))
    jobs.pod(pod("a", labels={"app": "web"}), 0.0)
    assert told(jobs) == {"a": (("all", "web"), None)}
    jobs.pod(pod("a", rv="2", labels={"app": "db"}), 0.0)
    assert told(jobs) == {"a": (("all",), None)}


def test_a_budget_that_was_changed_and_not_counted_since_allows_nothing() -> None:
    found = kube.PodDisruptionBudget(
        metadata=kube.Metadata(name="web", namespace="ml", uid="u", resource_version="1", generation=2),
        status=kube.DisruptionBudgetStatus(disruptions_allowed=1, observed_generation=1, current_healthy=3, desired_healthy=2),
    )
    assert budget_view(found) == BudgetView(PodBudget("ml", "web", 0, 3, 2), None)


def test_members_of_a_gang_with_roles_or_sub_groups_are_told_with_what_they_are_in_it() -> None:
    jobs = Jobs()
    jobs.pod(pod("m", group="g", role="master", labels={"slice": "a", "x": "y"}), 0.0)
    assert told(jobs) == {}
    policy = SubGangPolicy("slices", labels=("slice",), size=2, min_sub_gangs=1)
    jobs.group(group(min_task_member={"master": 1}, sub_gangs=(policy,)), 0.0)
    assert told(jobs) == {"m": ((), GangPart("master", {"slice": "a"}, {"master": 1}, (policy,)))}
    jobs.group(group(), 0.0)
    assert told(jobs) == {"m": ((), None)}


def test_a_budget_is_for_pods_of_its_own_namespace() -> None:
    budgets = Budgets()
    budgets.put(budget("theirs", namespace="other"))
    budgets.put(budget("ours"))
    assert budgets.of("ml", {"app": "web"}) == ("ours",)


@pytest.mark.parametrize(
    ("group_offers", "pods_offer", "offered"),
    [(False, (False, False), False), (False, (True, False), False), (False, (True, True), True), (True, (False, False), True)],
)
def test_a_gang_is_offered_by_its_podgroup_or_by_all_of_its_pods(
    group_offers: bool, pods_offer: tuple[bool, bool], offered: bool
) -> None:
    jobs = Jobs()
    jobs.group(group(min_member=2, preemptable=group_offers), 0.0)
    for name, offers in zip("ab", pods_offer, strict=True):
        jobs.pod(pod(name, group="g", preemptable=offers), 0.0)
    [job] = jobs.take(1e6, 1e9).pending
    assert job.preemptable is offered


def test_a_job_goes_by_the_class_of_its_podgroup_or_of_its_most_important_pod() -> None:
    jobs = Jobs()
    jobs.priority_class("urgent", 9, 0.0)
    jobs.group(group(min_member=1, priority_class="urgent"), 0.0)
    jobs.pod(pod("member", group="g", priority=5, priority_class="other"), 0.0)
    jobs.pod(pod("lone", priority=5, priority_class="five"), 0.0)
    jobs.pod(pod("plain"), 0.0)
    said = {job.name: (job.priority, job.priority_class) for job in jobs.take(1e6, 1e9).pending}
    assert said == {"g": (9, "urgent"), "lone": (5, "five"), "plain": (0, "")}


def test_pods_that_never_preempt_say_so_by_themselves_or_by_the_class_of_their_podgroup() -> None:
    jobs = Jobs()
    jobs.priority_class("meek", 5, 0.0, never=True)
    jobs.pod(pod("bold"), 0.0)
    jobs.pod(pod("shy", never_preempts=True), 0.0)
    jobs.group(group(min_member=1, priority_class="meek"), 0.0)
    jobs.pod(pod("member", group="g"), 0.0)

    def never() -> dict[str, bool]:
        return {job.name: job.tasks[0].never_preempts for job in jobs.take(1e6, 1e9).pending}

    assert never() == {"bold": False, "shy": True, "g": True}
    jobs.priority_class("meek", 5, 0.0)
    assert never() == {"g": False}


def test_a_budget_costs_as_much_beside_many_pods_of_others_as_beside_few() -> None:
    """Whoever may make budgets may make and delete them all day."""

    def a_budget_s(pods: int) -> float:
        jobs = Jobs()
        for number in range(pods):
            jobs.pod(pod(f"{number}", namespace="others", node="n1", labels={"app": "web"}), 0.0)
        jobs.pod(pod("own", node="n1", labels={"app": "web"}), 0.0)
        began = time.process_time()
        for _ in range(50):
            jobs.budget(budget())
            jobs.budget_gone("ml", "web")
        return time.process_time() - began

    assert a_budget_s(10_000) < 10 * min(a_budget_s(10) for _ in range(5))


def stuck() -> tuple[Jobs, Feedback]:
    """Of a gang of three two run and may not be evicted."""
    jobs = Jobs(publish_after_s=1.0)
    jobs.budget(budget())
    jobs.group(group(min_member=3), 0.0)
    for name in ("a", "b"):
        jobs.pod(pod(name, group="g", node="n1", status="Running", labels={"app": "web"}), 0.0)
    jobs.take(1e6, 1e9)
    feedback = Feedback(jobs)
    for name in ("a", "b"):
        record = jobs.blocked("uid-g", f"uid-{name}", "its gang of 3 did not start whole in time", "needs 3", 10.0)  # type: ignore[arg-type]
        assert record is not None
        feedback.settled(record, 10.0)
    return jobs, feedback


def test_the_user_of_a_gang_that_cannot_be_unwound_is_told_the_budget_and_what_to_do() -> None:
    _, feedback = stuck()
    assert not feedback.events(10.5, 10)
    [event] = feedback.events(11.5, 10)
    assert (event.name, event.warning) == ("g", True)
    for part in (
        "2 pods have to leave",
        "its gang of 3 did not start",
        "ml/web allows 0 disruptions",
        "maxUnavailable",
        "delete its pods",
    ):
        assert part in event.message
    [status] = feedback.statuses(11.5, 10, "now")
    assert [(c.type, c.status) for c in status.status.conditions] == [("Unschedulable", "True")]
    assert "ml/web" in status.status.conditions[0].message


def test_it_is_told_no_more_when_they_stay_or_are_gone() -> None:
    jobs, _ = stuck()
    record = jobs.record("ml/g")
    assert record is not None
    assert record.reason.startswith("EvictionBlocked")
    jobs.unblocked("uid-g", "uid-a", 12.0)  # type: ignore[arg-type]
    jobs.pod_gone("uid-b", 12.0)  # type: ignore[arg-type]
    assert record.reason == ""


def test_bare_pods_that_make_room_and_stay_are_told_nothing() -> None:
    jobs = Jobs()
    jobs.pod(pod("a", node="n1", status="Running"), 0.0)
    jobs.take(1e6, 1e9)
    assert jobs.blocked("uid-a", "uid-a", "preempted for b", "needs 3", 1.0) is None  # type: ignore[arg-type]
