"""Public events of a job's life, as they follow from its phases."""

from collections import defaultdict
from typing import Any

import pytest

from hbox_common.events import MOST_CARDS, MOST_NODES, CloudEvent, JobPhase, JobPhaseChanged, JobVerdict, encode, places_of
from hbox_common.model import CardId, CardSlice, JobId, NodeName, PodUid, QueueName
from hbox_jobs.core.jobs import Jobs
from hbox_jobs.core.lifecycle import LIFECYCLE, Entered, Stage

from .job_world import BROKEN, group, pod
from .test_jobs import WALL, settle

GPU = CardSlice(0, 100, 0, card=CardId("gpu:GPU-1"))
PHASES = {"p": JobPhase.PENDING, "w": JobPhase.WAITING, "b": JobPhase.BOUND, "r": JobPhase.RUNNING,
          "s": JobPhase.SUCCEEDED, "f": JobPhase.FAILED, "e": JobPhase.EVICTED, "d": JobPhase.DELETED}  # fmt: skip


def entered(letter: str, at: float = WALL) -> Entered:
    changed = JobPhaseChanged(
        job=JobId("j"), namespace="ml", name="train", queue=QueueName("q"), phase=PHASES[letter], members=1, bound=1, at=at
    )
    return Entered(changed, ((NodeName("n1"), (GPU,)),))


def ids(events: list[CloudEvent]) -> str:
    return " ".join(event.id.removeprefix("j.") for event in events)


def follow(letters: str, stage: Stage, *, first: int = 0) -> list[CloudEvent]:
    """One phase a second; the first one `first` seconds after WALL."""
    return [event for place, letter in enumerate(letters, first) for event in stage.follow(entered(letter, WALL + place))]


@pytest.mark.parametrize(
    ("phases", "published"),
    [
        ("pbrsd", "1.placed 1.started 1.finished"),
        ("pbrfd", "1.placed 1.started 1.finished"),
        ("r", "1.placed 1.started"),
        ("s", "1.placed 1.started 1.finished"),
        ("f", "1.placed 1.finished"),
        ("pd", "0.finished"),
        ("brbr", "1.placed 1.started"),
        ("brepbrs", "1.placed 1.started 2.placed 2.started 2.finished"),
        ("brpbd", "1.placed 1.started 2.placed 2.finished"),
        ("brspd", "1.placed 1.started 1.finished 2.finished"),
        ("brspbs", "1.placed 1.started 1.finished 2.placed 2.started 2.finished"),
    ],
)
def test_each_attempt_is_placed_started_and_finished_once(phases: str, published: str) -> None:
    assert ids(follow(phases, Stage())) == published


@pytest.mark.parametrize("phases", ["pbrsd", "brepbrs", "pd", "rd", "brspbrd"])
def test_a_process_that_continues_repeats_the_ids_of_its_predecessor_and_omits_no_event(phases: str) -> None:
    """Killed in any phase, with all or all but the last of its events stored, and the phase or not. Phases of a job are published in order; the successor sees
    the present one."""
    whole = ids(follow(phases, Stage()))
    for end in range(1, len(phases) + 1):
        before = follow(phases[:end], Stage())
        own = len(before) - len(follow(phases[: end - 1], Stage()))
        for stored, phase_at in {(len(before), end - 1), (len(before), end - 2), (len(before) - min(own, 1), end - 2)}:
            last = {type(event): event for event in before[:stored]}
            phase = PHASES[phases[phase_at]] if phase_at >= 0 else None
            after = follow(phases[end - 1 :], Stage.after(last.values(), phase, at=WALL + phase_at), first=end - 1)
            published = [*before[:stored], *(one for one in after if one.id not in {old.id for old in before[:stored]})]
            assert ids(published) == whole, (phases, end, stored)


def test_the_events_list_nodes_and_cards_by_uuid() -> None:
    placed, started = follow("r", Stage())
    for event in (placed, started):
        assert isinstance(event, LIFECYCLE)
        assert [(place.node, place.pods, place.cards) for place in event.data.nodes] == [("n1", 1, ("gpu:GPU-1",))]  # type: ignore[union-attr]


def test_a_large_gang_is_cut_with_counts_and_fits_a_message() -> None:
    cards = [CardSlice(i, 100, 0, card=CardId(f"GPU-{i:0100}")) for i in range(32)]
    data = places_of((NodeName(f"{number:0253}"), cards) for number in range(1024))
    assert (len(data.nodes), data.node_count, data.pod_count, data.card_count) == (MOST_NODES, 1024, 1024, 32 * 1024)
    assert {(len(place.cards), place.card_count) for place in data.nodes} == {(MOST_CARDS, 32)}
    large = Entered(entered("b").changed, tuple((NodeName(f"{number:0253}"), cards) for number in range(1024)))
    [event] = Stage().follow(large)
    assert len(encode(event)) < 200_000


def taken(jobs: Jobs) -> list[Any]:
    return [event for one in jobs.take_phases(9, now=WALL) for event in Stage().follow(one)]


def test_a_job_with_an_invalid_spec_is_rejected_once() -> None:
    jobs = Jobs()
    jobs.pod(pod("a", shape=BROKEN), 0.0)
    settle(jobs)
    assert [one.rejected for one in jobs.phases] == ["", "InvalidSpec"]
    jobs.pod(pod("a", shape=BROKEN, rv="2"), 1.0)
    settle(jobs)
    assert [one.rejected for one in jobs.phases] == ["", "InvalidSpec"]


def test_a_verdict_that_no_waiting_changes_rejects_the_job_with_its_code() -> None:
    jobs = Jobs()
    jobs.pod(pod("a"), 0.0)
    settle(jobs)
    jobs.verdict(JobVerdict(job="uid-a", message="nodes have 8 cards", code="CardsPerNode", outcome="change"), 0.0)
    settle(jobs)
    [rejected] = [event for _ in range(3) for event in taken(jobs)]
    assert (rejected.ce_type(), rejected.id) == ("io.hbox.job.rejected.v1", "uid-a.CardsPerNode")
    assert (rejected.data.code, rejected.data.message) == ("CardsPerNode", "nodes have 8 cards")


def test_a_verdict_to_wait_rejects_nothing() -> None:
    jobs = Jobs()
    jobs.pod(pod("a"), 0.0)
    jobs.verdict(JobVerdict(job="uid-a", message="all in use", code="CardsInUse", outcome="wait"), 0.0)
    settle(jobs)
    assert not [one for one in jobs.phases if one.rejected]


def test_a_gang_whose_podgroup_does_not_exist_yet_is_not_rejected() -> None:
    jobs = Jobs()
    jobs.pod(pod("a", group="g"), 0.0)
    settle(jobs)
    jobs.group(group(min_member=1), 0.0)
    settle(jobs)
    assert not [one for one in jobs.phases if one.rejected]


def test_a_gang_that_lacks_pods_is_not_rejected() -> None:
    jobs = Jobs()
    jobs.pod(pod("a"), 0.0)
    settle(jobs)
    jobs.verdict(JobVerdict(job="uid-a", message="1 of 2 pods exist", code="GangIncomplete", outcome="change"), 0.0)
    settle(jobs)
    assert not [one for one in jobs.phases if one.rejected]


def test_pods_of_a_deleted_podgroup_have_no_public_events_until_it_is_created_again() -> None:
    jobs, stages = Jobs(), defaultdict[str, Stage](Stage)

    def published() -> list[str]:
        settle(jobs)
        entered = [one for _ in range(3) for one in jobs.take_phases(9, now=WALL)]
        return [event.id for one in entered for event in stages[one.job].follow(one)]

    jobs.group(group(min_member=1), 0.0)
    jobs.pod(pod("a", group="g", node="n1", status="Running"), 0.0)
    assert published() == ["uid-g.1.placed", "uid-g.1.started"]
    jobs.group_gone("ml/g", "uid-g", 1.0)
    assert published() == ["uid-g.1.finished"]
    jobs.group(group(min_member=1, uid="again"), 2.0)
    assert published() == ["again.1.placed", "again.1.started"]


def test_a_deleted_job_is_finished_with_its_last_places() -> None:
    jobs, stage = Jobs(), Stage()
    jobs.pod(pod("a", node="n1", status="Running", slices=(GPU,)), 0.0)
    settle(jobs)
    jobs.pod_gone(PodUid("uid-a"), 0.0)
    settle(jobs)
    events: list[Any] = [event for _ in range(2) for one in jobs.take_phases(9, now=WALL) for event in stage.follow(one)]
    assert [event.id.removeprefix("uid-a.") for event in events] == ["1.placed", "1.started", "1.finished"]
    assert (events[2].data.code, events[2].data.nodes[0].cards) == ("deleted", ("gpu:GPU-1",))
