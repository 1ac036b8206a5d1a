"""What pods ask for that have nodes: told to a scheduler that has not placed them itself, so that it can find other places for them."""

from dataclasses import replace
from typing import Any

from hbox_common.clock import monotonic_s
from hbox_common.events import JobsAsked
from hbox_common.kube import Freshness
from hbox_common.model import JobId, LeavingPod, Match, MatchOperator, NodeName, NodeTerm, PodPhase, PodUid, QueueName
from hbox_jobs.adapters.announcer import PAGE_ITEMS, pages
from hbox_jobs.core.jobs import LAZY_S, Jobs
from hbox_jobs.core.requests import Container
from hbox_jobs.core.spec import PodSpec, Shape, shape_of
from hbox_jobs.core.volumes import ClaimView, VolumeUse

from .job_world import CARD, group, pod
from .test_jobs import settle

ZONE = (NodeTerm((Match("zone", MatchOperator.IN, ("a",)),)),)


def published(jobs: Jobs) -> dict[str, list[tuple[int, list[str]]]]:
    """By job: cards of each task, and its pods."""
    settle(jobs)
    return {
        job.name: [(task.cards.count if task.cards else 0, [one.name for one in task.pods]) for task in job.tasks]
        for job in jobs.placed()
    }


def test_those_that_have_nodes_are_told_by_what_they_ask_for_and_no_others() -> None:
    jobs = Jobs()
    jobs.group(group(min_member=2), 0.0)
    for name, node in (("w-0", "n1"), ("w-1", "n2"), ("w-2", "")):
        jobs.pod(pod(name, group="g", shape=CARD, node=node), 0.0)
    jobs.pod(pod("ps", group="g", node="n1"), 0.0)
    jobs.pod(pod("waits", shape=CARD), 0.0)
    jobs.pod(pod("stranger", ours=False, shape=CARD, node="n1"), 0.0)
    assert published(jobs) == {"g": [(0, ["ps"]), (1, ["w-0", "w-1"])]}
    [job] = jobs.placed()
    assert (job.id, job.gang, job.min_member, job.standing) == ("uid-g", True, 2, ())


def test_who_has_ended_or_leaves_is_not_told() -> None:
    jobs = Jobs()
    jobs.pod(pod("done", shape=CARD, node="n1", status="Succeeded"), 0.0)
    jobs.pod(pod("leaves", shape=CARD, node="n1", status="Running", deleting=True), 0.0)
    jobs.pod(pod("runs", shape=CARD, node="n1", status="Running"), 0.0)
    assert published(jobs) == {"runs": [(1, ["runs"])]}


def test_they_are_told_with_where_their_volumes_are_and_not_at_all_where_nobody_knows_that() -> None:
    jobs = Jobs()
    jobs.volumes.volume("v", (ZONE,))
    jobs.volumes.claim("ml/data", ClaimView(volume="v", bound=True))
    jobs.pod(pod("here", node="n1", volumes=(VolumeUse("data"),)), 0.0)
    jobs.pod(pod("lost", node="n1", volumes=(VolumeUse("missing"),)), 0.0)
    assert published(jobs) == {"here": [(0, ["here"])]}
    [job] = jobs.placed()
    assert job.tasks[0].volumes == (ZONE,)


def test_who_holds_cards_and_is_being_deleted_is_told_with_when_it_was_to_end() -> None:
    jobs = Jobs()
    leaves: dict[str, Any] = {"deleting": True, "ends_at": 60.0, "finalizers": ("example.com/keep",)}
    jobs.pod(pod("leaves", shape=CARD, node="n1", status="Running", **leaves), 0.0)
    jobs.pod(pod("ended", shape=CARD, node="n1", status="Failed", **leaves), 0.0)
    jobs.pod(pod("cardless", node="n1", status="Running", **leaves), 0.0)
    jobs.pod(pod("unbound", shape=CARD, **leaves), 0.0)
    jobs.pod(pod("runs", shape=CARD, node="n1", status="Running"), 0.0)
    for asks in (True, False):
        found = pages(JobsAsked(asker="s", pods=asks), jobs, Freshness("1", 0.0), synced=True)
        told = [one for page in found for one in page.leaving]
        assert told == ([LeavingPod("ml", "leaves", NodeName("n1"), 1, 60.0, ("example.com/keep",))] if asks else [])


def test_answer_that_would_be_discarded_has_no_pods() -> None:
    jobs = Jobs()
    jobs.pod(pod("runs", shape=CARD, node="n1", status="Running"), 0.0)
    stale, fresh = Freshness("1", 600.0, "the watch is silent"), Freshness("1", 0.0)

    def answer(seen: Freshness, **asks: bool) -> tuple[int, bool, bool]:
        found = list(pages(JobsAsked(asker="s", pods=True, **asks), jobs, seen, synced=True))
        return sum(len(page.pods) for page in found), found[0].complete, found[0].computed

    assert stale.old
    assert answer(stale) == (1, False, False)
    assert answer(stale, complete=True) == (0, False, False)
    assert answer(fresh, complete=True) == (1, True, False)
    assert answer(fresh, complete=True, computed=True) == (0, True, False)


def test_pods_of_an_answer_are_computed_page_by_page() -> None:
    """A pod that ends between two pages is listed as ended, one that is bound then is left to its message, and a change is in the later pages."""
    jobs = Jobs()
    for i in range(2 * PAGE_ITEMS + 1):
        jobs.pod(pod(f"p{i}", shape=CARD, node="n1", status="Running"), 0.0)
    found = pages(JobsAsked(asker="s", jobs=False, pods=True, ended=True), jobs, Freshness("1", 0.0), synced=True)
    first = next(found)
    jobs.pod_gone(PodUid("uid-p0"), monotonic_s())
    jobs.pod_gone(PodUid(f"uid-p{PAGE_ITEMS}"), monotonic_s())
    jobs.pod(pod(f"p{PAGE_ITEMS + 1}", shape=CARD, node="n1", status="Succeeded"), 0.0)
    jobs.pod(pod("new", shape=CARD, node="n1", status="Running"), 0.0)
    rest = [one for page in found for one in page.pods]
    assert [one.name for one in first.pods] == [f"p{i}" for i in range(PAGE_ITEMS)]
    assert [(one.name, one.phase) for one in rest[: PAGE_ITEMS + 1 : PAGE_ITEMS - 1]] == [
        (f"p{PAGE_ITEMS + 1}", PodPhase.SUCCEEDED),
        (f"p{2 * PAGE_ITEMS}", PodPhase.RUNNING),
    ]
    assert [(one.name, one.phase) for one in rest[PAGE_ITEMS:]] == [("p0", PodPhase.GONE), (f"p{PAGE_ITEMS}", PodPhase.GONE)]


def test_jobs_that_begin_to_wait_between_pages_are_left_to_the_next_answer() -> None:
    jobs = Jobs()
    for i in range(2 * PAGE_ITEMS):
        jobs.waits.note(JobId(f"j{i}"), QueueName("q"), "QueueFull", 1.0, since=1.0)
    found = pages(JobsAsked(asker="s", jobs=False, waits=True), jobs, Freshness("1", 0.0), synced=True)
    first = next(found)
    jobs.waits.note(JobId("later"), QueueName("q"), "QueueFull", 2.0, since=2.0)
    waits = [wait.job for page in (first, *found) for wait in page.waits]
    assert waits == [f"j{i}" for i in range(2 * PAGE_ITEMS)]


def test_they_are_told_to_who_asks_for_them() -> None:
    jobs = Jobs()
    jobs.pod(pod("runs", shape=CARD, node="n1", status="Running"), 0.0)
    settle(jobs)
    for asks in (True, False):
        found = [
            job.name
            for page in pages(JobsAsked(asker="s", placed=asks), jobs, Freshness("1", 0.0), synced=True)
            for job in page.placed
        ]
        assert found == (["runs"] if asks else [])


def test_a_group_in_which_somebody_spreads_over_cards_says_so_of_all_its_pods() -> None:
    """Pods with a node too: their cards are those to keep off."""

    def shape(key: str, **notes: str) -> Shape:
        vgpu = Container("main", {}, {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "4096"})
        return shape_of(key, PodSpec((vgpu,), device_annotations=notes))

    plain, spread = shape("plain"), shape("spread", **{"volcano.sh/vgpu-podgroup-policy": "spread"})

    def groups(*shapes: Shape) -> list[set[str]]:
        jobs = Jobs()
        jobs.group(group(min_member=2), 0.0)
        for i, each in enumerate(shapes):
            jobs.pod(pod(f"w-{i}", group="g", shape=each, node="n1" if i == 0 else ""), 0.0)
        tasks = [task for job in (*settle(jobs).pending, *jobs.placed()) for task in job.tasks]
        wishes = [dict(task.cards.devices.wishes) if task.cards and task.cards.devices else {} for task in tasks]
        return [{wished["group"]} if "group" in wished else set() for wished in wishes]

    assert groups(plain, plain, plain) == [set(), set()]
    [token] = set.union(*groups(spread, plain, plain))
    assert groups(spread, plain, plain) == groups(plain, spread, plain)[:1] * 2 == [{token}] * 2
    lone = Jobs()
    lone.pod(pod("a", shape=spread), 0.0)
    [job] = settle(lone).pending
    assert job.tasks[0].cards is not None
    assert job.tasks[0].cards.devices is not None
    assert "group" not in job.tasks[0].cards.devices.wished


def test_cards_allocated_by_another_scheduler_are_published_when_annotated() -> None:
    jobs = Jobs()
    jobs.pod(pod("old", ours=False, shape=CARD, node="n1"), 0.0)
    settle(jobs)
    jobs.pod(replace(pod("old", ours=False, shape=CARD, node="n1"), allocated={"NVIDIA": "GPU-a,NVIDIA,1,1:;"}), 1.0)
    [fact] = settle(jobs).facts
    assert fact.allocated == {"NVIDIA": "GPU-a,NVIDIA,1,1:;"}


def test_a_list_is_not_computed_before_all_jobs_of_the_start_are() -> None:
    """Jobs without pods to place are computed later than the others, and no message announces them."""
    jobs = Jobs()

    def listed() -> tuple[bool, list[str]]:
        found = list(pages(JobsAsked(asker="s"), jobs, Freshness("1", 0.0), synced=True))
        return all(page.computed for page in found), sorted(job.name for page in found for job in page.jobs)

    jobs.pod(pod("runs", node="n1", status="Running"), 0.0)
    jobs.pod(pod("waits"), 0.0)
    assert listed() == (False, [])
    jobs.listed()
    jobs.take(0.0, 0.0)
    assert listed() == (False, ["waits"])
    jobs.take(LAZY_S, 0.0)
    assert listed() == (True, ["runs", "waits"])
    jobs.pod(pod("later", node="n1", status="Running"), 1.0)
    assert listed()[0], "a job of later times is announced, or was computed before its pods were placed"
