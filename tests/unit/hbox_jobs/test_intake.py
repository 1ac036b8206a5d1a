"""Fair intake: namespaces in turns, and so many of one namespace that wait."""

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbox_common.events import JobsAsked, JobVerdict
from hbox_common.kube import Freshness
from hbox_common.model import JobId, Match, MatchOperator, NodeName, PodConstraints, PodTerm, PodUid, Selector
from hbox_jobs.adapters.announcer import pages
from hbox_jobs.core.feedback import Feedback
from hbox_jobs.core.intake import Intake, Turns
from hbox_jobs.core.jobs import CROWD, MAX_ITEMS, MOST_OTHERS, Jobs
from hbox_jobs.core.queues import DueQueue

from .job_world import pod

WALL = 1_800_000_000.0
HELD = "namespace flood has 2 jobs that wait for places, as many as it may have at a time (HBOX_PENDING_PER_NAMESPACE of job-controller)"


def names(found: Any) -> list[str]:
    return [job.name for job in found]


def flood(jobs: Jobs, count: int, **fields: Any) -> None:
    for i in range(count):
        jobs.pod(pod(f"f{i}", namespace="flood", created_at=100.0 + i, **fields), 0.0)


def test_namespaces_are_taken_in_turns_and_of_each_the_first_first() -> None:
    turns: Turns[str] = Turns()
    for key, namespace in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c"), ("a1", "a")):
        turns.add(key, namespace)
    turns.discard("c1")
    assert len(turns) == 4
    assert [turns.pop() for _ in range(5)] == ["a1", "b1", "a2", "a3", None]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.booleans())))
def test_turns_lose_nothing_and_give_nothing_twice(steps: list[tuple[str, int, bool]]) -> None:
    turns: Turns[str] = Turns()
    there: list[str] = []
    for namespace, number, adds in steps:
        key = f"{namespace}{number}"
        if adds:
            turns.add(key, namespace)
            there += [key] if key not in there else []
        else:
            turns.discard(key)
            there = [one for one in there if one != key]
    got = [turns.pop() for _ in there]
    assert sorted(filter(None, got)) == sorted(there)
    assert turns.pop() is None


def test_a_turn_costs_as_much_behind_a_hundred_thousand_keys_as_behind_a_thousand() -> None:
    def a_turn_s(count: int) -> float:
        turns: Turns[int] = Turns()
        for key in range(count):
            turns.add(key, "flood")
        began = time.process_time()
        while turns.pop() is not None:
            pass
        return (time.process_time() - began) / count

    assert a_turn_s(100_000) < 6 * min(a_turn_s(1_000) for _ in range(5))


def test_what_held_back_pods_want_of_others_is_told_once_they_come_in() -> None:
    apart = PodConstraints(anti_affinity=(PodTerm("zone", Selector((Match("tier", MatchOperator.NOT_IN, ("x",)),))),))
    jobs = Jobs(most_pending=2)
    jobs.pod(pod("bystander", namespace="other", labels={"team": "a"}), 0.0)
    for i in range(2):
        jobs.pod(pod(f"f{i}", namespace="flood", created_at=100.0 + i), 0.0)
    jobs.take(0.0, WALL)
    for i in range(2, 6):
        jobs.pod(pod(f"f{i}", namespace="flood", created_at=100.0 + i, labels={"n": f"{i}"}, constraints=apart), 0.0)
    assert jobs.take(1.0, WALL).neighbours == (), "four are held back: nobody hears of them, nor of everybody for their sake"
    assert not list(jobs.neighbours.all()), "nor does a scheduler that starts"
    jobs.pod_gone(PodUid("uid-f0"), 2.0)
    batch = jobs.take(2.0, WALL)
    assert names(batch.pending) == ["f2"]
    assert {str(one.uid) for one in batch.neighbours} == {"uid-bystander", "uid-f1", "uid-f2"}, (
        "who came in, and whom it wants away"
    )
    jobs.validate()


def test_what_changes_of_a_pod_that_had_to_go_out_again_is_told() -> None:
    apart = PodConstraints(anti_affinity=(PodTerm("zone", Selector((Match("tier", MatchOperator.IN, ("x",)),))),))
    jobs = Jobs(most_pending=1)
    jobs.pod(pod("asks", namespace="other", constraints=apart), 0.0)
    jobs.pod(pod("first", labels={"tier": "x"}), 0.0)
    assert {one.uid: one.labels for one in jobs.take(0.0, WALL).neighbours} == {"uid-asks": {}, "uid-first": {"tier": "x"}}
    jobs.pod(pod("urgent", priority=9), 1.0)
    assert names(jobs.take(1.0, WALL).pending) == ["urgent"]
    jobs.pod(pod("first", rv="2", labels={"tier": "y"}), 2.0)
    jobs.pod_gone(PodUid("uid-urgent"), 3.0)
    assert {one.uid: one.labels for one in jobs.take(9.0, WALL).neighbours} == {"uid-first": {"tier": "y"}}
    jobs.validate()


def test_one_job_of_a_namespace_does_not_wait_behind_ten_thousand_of_another() -> None:
    jobs = Jobs()
    flood(jobs, 3 * MAX_ITEMS)
    jobs.pod(pod("one", namespace="other"), 0.0)
    first = jobs.take(0.0, WALL)
    assert len(first.pending) == MAX_ITEMS
    assert "one" in names(first.pending[:2])


def test_who_is_none_of_the_crowd_is_taken_alone() -> None:
    jobs = Jobs()
    flood(jobs, CROWD + 1)
    jobs.take(0.0, WALL)
    assert jobs.crowd == {"flood"}
    flood(jobs, 2 * CROWD, rv="2", labels={"new": "1"})
    alone = jobs.others_wait
    jobs.pod(pod("one", namespace="other"), 0.1)
    assert (alone, jobs.others_wait) == (False, True)
    assert names(jobs.take(0.1, WALL, others=True).pending) == ["one"]
    assert len(jobs.take(0.1, WALL).settled) == 2 * CROWD


def test_what_kubernetes_is_told_goes_by_turns_of_namespaces_too() -> None:
    queue: DueQueue[str, str] = DueQueue()
    for i in range(5):
        queue.put(f"f{i}", f"f{i}", 0.0, "flood")
    queue.put("one", "one", 1.0, "other")
    queue.put("first", "first", float("-inf"), "third")
    assert queue.take(2.0, 3) == ["first", "f0", "one"]
    assert queue.next_due() == 0.0
    assert queue.take(2.0, 9) == ["f1", "f2", "f3", "f4"]


def test_jobs_beyond_the_limit_of_a_namespace_are_held_back_with_a_message() -> None:
    jobs = Jobs(most_pending=2)
    feedback = Feedback(jobs)
    flood(jobs, 4)
    jobs.pod(pod("one", namespace="other"), 0.0)
    batch = jobs.take(0.0, WALL)
    assert sorted(names(batch.pending)) == ["f0", "f1", "one"]
    for record in batch.settled:
        feedback.settled(record, 0.0)
    messages = {write.name: write.message for write in feedback.conditions(2.0, 9)}
    assert set(messages) == {"f2", "f3"}
    assert all(
        text.startswith(f"wait: NamespaceFull: the namespace has too many waiting jobs: {HELD}") for text in messages.values()
    )
    assert {event.name for event in feedback.events(2.0, 9)} == {"f2", "f3"}

    def asked(**fields: Any) -> list[str]:
        return sorted(
            job.name
            for page in pages(JobsAsked(asker="t", **fields), jobs, Freshness("1", 0.0), synced=True)
            for job in page.jobs
        )

    assert asked() == ["f0", "f1", "one"]
    assert asked(held=True) == ["f0", "f1", "f2", "f3", "one"]


@pytest.mark.parametrize("how", ["bound", "gone"])
def test_as_one_starts_or_leaves_the_oldest_comes_in(how: str) -> None:
    jobs = Jobs(most_pending=2)
    flood(jobs, 4)
    jobs.take(0.0, WALL)
    if how == "bound":
        jobs.pod(pod("f1", namespace="flood", rv="2", node=NodeName("n1"), created_at=101.0), 1.0)
    else:
        jobs.pod_gone(pod("f1").uid, 1.0)
    jobs.take(2.0, WALL)
    batch = jobs.take(2.0, WALL)
    jobs.validate()
    assert [job.name for job in jobs.held()] == ["f3"]
    assert "f2" in names(jobs.jobs())
    assert not batch.withdrawn


def test_who_is_held_back_goes_out_with_its_pod() -> None:
    jobs = Jobs(most_pending=1)
    flood(jobs, 3)
    jobs.take(0.0, WALL)
    jobs.pod_gone(pod("f1").uid, 1.0)
    jobs.pod_gone(pod("f0").uid, 1.0)
    jobs.take(1.0, WALL)
    jobs.take(1.0, WALL)
    assert names(jobs.jobs()) == ["f2"]
    assert not list(jobs.held())
    jobs.validate()


def test_a_more_important_job_takes_the_place_of_one_that_is_in() -> None:
    jobs = Jobs(most_pending=2)
    flood(jobs, 3)
    jobs.take(0.0, WALL)
    jobs.pod(pod("high", namespace="flood", priority=9, created_at=500.0), 1.0)
    batch = jobs.take(1.0, WALL)
    assert names(batch.pending) == ["high"]
    (withdrawn,) = [job for job, _ in batch.withdrawn]
    assert withdrawn == "uid-f1"  # the youngest of the least important
    assert sorted(names(jobs.jobs())) == ["f0", "high"]
    jobs.validate()


def test_a_gang_that_lost_a_member_is_not_held_back() -> None:
    jobs = Jobs(most_pending=1)
    jobs.pod(pod("a", group="g", namespace="flood", node=NodeName("n1")), 0.0)
    jobs.pod(pod("b", group="g", namespace="flood"), 0.0)
    flood(jobs, 2)
    jobs.take(9.0, WALL)
    assert sorted(names(jobs.jobs())) == ["f0", "g"]
    assert names(jobs.held()) == ["f1"]


def test_what_an_earlier_process_told_of_is_withdrawn_where_it_is_held_back_now() -> None:
    jobs = Jobs(most_pending=2)
    for i in (3, 1, 2, 0):  # as they are listed
        jobs.pod(pod(f"f{i}", namespace="flood", created_at=100.0 + i), 0.0)
    jobs.resume(0)
    batch = jobs.take(0.0, WALL)
    assert names(batch.pending) == ["f0", "f1"]  # the oldest, whatever the order of the list
    assert sorted(job for job, _ in batch.withdrawn) == ["uid-f2", "uid-f3"]


def test_a_verdict_about_a_job_that_is_held_back_withdraws_it() -> None:
    jobs = Jobs(most_pending=1)
    flood(jobs, 2)
    jobs.take(0.0, WALL)
    assert jobs.verdict(JobVerdict(job=JobId("uid-f1"), message="0/3 nodes"), 1.0) is None
    assert [job for job, _ in jobs.take(1.0, WALL).withdrawn] == ["uid-f1"]
    (said,) = jobs.verdicts()
    assert (said.job, said.message.startswith("namespace flood has 1 jobs")) == ("uid-f1", True)


def large(name: str, mib: float, **fields: Any) -> Any:
    made = pod(name, namespace="flood", **fields)
    return replace(made, shape=replace(made.shape, key=f"of {name}", written=int(mib * 2**20)))


def test_jobs_whose_pods_exceed_the_bytes_of_a_namespace_are_held_back_with_a_message() -> None:
    jobs = Jobs(most_pending=20, most_pending_mib=2)
    feedback = Feedback(jobs)
    for i in range(4):
        jobs.pod(large(f"f{i}", 0.9, created_at=100.0 + i), 0.0)
    jobs.pod(pod("one", namespace="other"), 0.0)
    batch = jobs.take(0.0, WALL)
    assert sorted(names(batch.pending)) == ["f0", "f1", "one"]
    for record in batch.settled:
        feedback.settled(record, 0.0)
    messages = {write.name: write.message for write in feedback.conditions(2.0, 9)}
    assert set(messages) == {"f2", "f3"}
    assert all("namespace flood has jobs that wait for places whose pods say 2 MiB" in text for text in messages.values())
    assert all("HBOX_PENDING_MIB_PER_NAMESPACE" in text for text in messages.values())
    jobs.pod_gone(PodUid("uid-f0"), 1.0)
    assert names(jobs.take(1.0, WALL).pending) == ["f2"]
    jobs.validate()


def test_nobody_passes_a_job_that_is_too_large_for_what_room_is_left_and_alone_each_comes_in() -> None:
    jobs = Jobs(most_pending_mib=2)
    for name, mib, at in (("first", 1.5, 1.0), ("large", 9.0, 2.0), ("small", 0.1, 3.0)):
        jobs.pod(large(name, mib, created_at=at), 0.0)
    assert names(jobs.take(0.0, WALL).pending) == ["first"]
    jobs.pod_gone(PodUid("uid-first"), 1.0)
    assert names(jobs.take(1.0, WALL).pending) == ["large"]
    jobs.pod_gone(PodUid("uid-large"), 2.0)
    assert names(jobs.take(2.0, WALL).pending) == ["small"]
    jobs.validate()


def test_a_gang_counts_its_shapes_once_and_goes_out_when_it_has_grown_too_large() -> None:
    jobs = Jobs(most_pending_mib=2)

    def member(name: str, shape: str) -> Any:
        made = large(name, 0.8, group="gang", created_at=100.0)
        return replace(made, shape=replace(made.shape, key=shape))

    jobs.pod(large("old", 0.8, created_at=50.0), 0.0)
    for i in range(5):
        jobs.pod(member(f"m{i}", "a"), 0.0)
    assert sorted(names(jobs.take(9.0, WALL).pending)) == ["gang", "old"]
    jobs.pod(member("m5", "b"), 10.0)
    batch = jobs.take(19.0, WALL)
    assert [job for job, _ in batch.withdrawn] == ["podgroup:flood/gang"]
    assert names(jobs.held()) == ["gang"]
    jobs.validate()


def test_a_more_important_job_has_as_many_go_out_as_it_takes_and_none_where_they_would_not_do() -> None:
    jobs = Jobs(most_pending_mib=2)
    for i in range(3):
        jobs.pod(large(f"f{i}", 0.6, created_at=100.0 + i, priority=i), 0.0)
    jobs.take(0.0, WALL)
    jobs.pod(large("high", 1.0, priority=2, created_at=500.0), 1.0)
    batch = jobs.take(1.0, WALL)
    assert names(batch.pending) == ["high"]
    assert sorted(job for job, _ in batch.withdrawn) == ["uid-f0", "uid-f1"]
    jobs.pod(large("higher", 1.5, priority=2, created_at=501.0), 2.0)
    assert not jobs.take(2.0, WALL).withdrawn
    assert sorted(names(jobs.jobs())) == ["f2", "high"]
    jobs.validate()


def test_without_a_bound_nobody_is_held_back() -> None:
    jobs = Jobs()
    flood(jobs, 50)
    assert len(jobs.take(0.0, WALL).pending) == 50
    assert not list(jobs.held())


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), st.sampled_from("ab"), st.booleans()), max_size=60),
    st.integers(0, 4),
    st.sampled_from([0, 3, 5]),
)
def test_the_intake_is_full_or_nobody_is_held_back(steps: list[tuple[int, int, str, bool]], most: int, most_bytes: int) -> None:
    """And everybody is told of each change. A job of priority 1 has 3 bytes, others have 1."""
    intake = Intake(most, most_bytes)
    if not most and not most_bytes:
        return
    inside: set[str] = set()
    waiting: dict[str, dict[str, int]] = {"a": {}, "b": {}}
    for number, priority, namespace, comes in steps:
        key = f"{namespace}{number}"
        if comes:
            size = 3 if priority == 1 else 1
            is_in, changed = intake.enter(key, namespace, priority=priority, created_at=100.0 + number, size=size)
            inside = (inside - {key} | ({key} if is_in else set())) ^ set(changed)
            waiting[namespace][key] = priority
        else:
            inside = (inside - {key}) ^ set(intake.leave(key, namespace))
            waiting[namespace].pop(key, None)
        intake.validate()
        assert inside == {one for space in intake._spaces.values() for one in space.inside}
        for name, keys in waiting.items():
            space = intake._spaces.get(name)
            there = {**space.inside, **space.held} if space is not None else {}
            assert {one: rank[0] for one, rank in there.items()} == keys


def test_where_many_namespaces_make_a_burst_together_nobody_goes_before_the_others() -> None:
    jobs = Jobs()
    flood(jobs, CROWD + 1)
    for i in range(MOST_OTHERS + 1):
        jobs.pod(pod(f"o{i}", namespace=f"space-{i}"), 0.0)
    jobs.take(0.0, WALL)
    jobs.pod(pod("one", namespace="other"), 0.1)
    assert not jobs.others_wait
