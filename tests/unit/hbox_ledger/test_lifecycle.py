"""What evidence does to a claim: the table at the head of lifecycle.py, line by line."""

import pytest

from hbox_common.events import BindOutcome, EvictKind
from hbox_common.model import ClaimState, NodeName, PlanId, PodPhase, PodUid
from hbox_ledger.core.holding import Intent
from hbox_ledger.core.identity import claim_id
from hbox_ledger.core.reconcile import reconcile

from .conftest import World

PENDING, POSTED = ClaimState.PENDING, ClaimState.POSTED


def gang(world: World, *pods: str, min_member: int = 2) -> None:
    world.commits(world.plan("g", *((pod, "a", []) for pod in pods), job="gang", min_member=min_member))


@pytest.mark.parametrize(
    ("outcome", "at", "state"),
    [
        (BindOutcome.BOUND, "a", POSTED),
        (BindOutcome.BOUND, "", POSTED),
        (BindOutcome.BOUND, "b", None),
        (BindOutcome.CONFLICT, "b", None),
        (BindOutcome.CONFLICT, "a", POSTED),
        (BindOutcome.CONFLICT, "", None),
        (BindOutcome.EXPIRED, "", None),
        (BindOutcome.REVOKED, "", None),
        (BindOutcome.GONE, "", None),
        (BindOutcome.GONE, "a", POSTED),
        (BindOutcome.REJECTED, "", None),
        (BindOutcome.UNKNOWN, "", PENDING),
    ],
)
def test_the_outcome_of_a_bind_posts_or_voids_the_claim_or_leaves_it(
    world: World, outcome: BindOutcome, at: str, state: ClaimState | None
) -> None:
    world.commits(world.plan("p", ("pod", "a", [world.card(0)])))
    world.outcome("pod", outcome, at=at)
    assert world.state("pod") is state
    assert (world.books.node(NodeName("a")).cards[0].pods == 0) == (state is None)


@pytest.mark.parametrize("outcome", list(BindOutcome))
def test_late_news_of_its_bind_does_not_free_a_posted_claim(world: World, outcome: BindOutcome) -> None:
    world.commits(world.plan("p", ("pod", "a", [])))
    world.see(world.fact("pod", "a", claim=world.claim("pod").id))
    world.outcome("pod", outcome, generation=1)
    assert world.state("pod") is POSTED


def test_an_overdue_bind_is_revoked_and_only_the_revocation_frees(world: World) -> None:
    world.commits(world.plan("p", ("pod", "a", [])))
    [revoke] = world.wait(61).evictions
    assert (revoke.kind, revoke.generation) == (EvictKind.REVOKE, 2)
    assert world.state("pod") is PENDING
    world.outcome("pod", BindOutcome.REJECTED)
    assert world.state("pod") is PENDING
    world.outcome("pod", BindOutcome.REVOKED)
    assert world.state("pod") is None


def test_a_bind_that_won_against_its_revocation_stays(world: World) -> None:
    world.commits(world.plan("p", ("pod", "a", [])))
    world.wait(61)
    world.outcome("pod", BindOutcome.BOUND, at="a")
    assert world.state("pod") is POSTED
    assert not world.books.open


def test_an_open_decision_is_sent_again_as_it_was_at_growing_distances(world: World) -> None:
    world.commits(world.plan("p", ("pod", "a", [])))
    [first] = world.last.binds
    assert world.wait(14).binds == []
    assert world.wait(1).binds == [first]
    assert world.wait(15).binds == []
    assert world.wait(15).binds == [first]


@pytest.mark.parametrize("phase", [PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.GONE])
@pytest.mark.parametrize("posted", [False, True])
def test_a_pod_that_ended_frees_its_claim_and_older_news_bring_nothing_back(
    world: World, phase: PodPhase, posted: bool
) -> None:
    world.commits(world.plan("p", ("pod", "a", [world.card(0)])))
    claim = world.claim("pod").id
    if posted:
        world.outcome("pod", BindOutcome.BOUND)
    world.see(world.fact("pod", "a", phase, claim=claim))
    assert world.state("pod") is None
    world.see(world.fact("pod", "a", PodPhase.RUNNING, claim=claim))
    assert world.state("pod") is None


def test_a_pod_seen_with_its_claim_posts_it(world: World) -> None:
    world.commits(world.plan("p", ("pod", "a", [])))
    world.see(world.fact("pod", "a", PodPhase.BOUND, claim=world.claim("pod").id))
    assert world.state("pod") is POSTED


def test_a_pod_bound_by_another_loses_its_claim_and_is_accounted_for_as_found(world: World) -> None:
    world.commits(world.plan("p", ("pod", "a", [])))
    mine = world.claim("pod").id
    world.see(world.fact("pod", "b", PodPhase.BOUND))
    assert world.claim("pod").id != mine
    assert world.claim("pod").node == "b"
    assert world.state("pod") is POSTED


def test_a_pod_found_bound_is_accounted_for_even_over_the_node(world: World) -> None:
    world.commits(world.plan("p", ("one", "a", [world.card(0)]), cpu=8000))
    lost = claim_id(world.books.key, PlanId("lost"), PodUid("two"), NodeName("a"), [world.card(0)])
    world.see(world.fact("two", "a", slices=[world.card(0)], claim=lost))
    assert world.claim("two").slices == (world.card(0),)
    assert world.books.node(NodeName("a")).cards[0].pods == 2
    assert world.refuses(world.plan("q", ("three", "a", [world.card(0, 10, 10)]), cpu=1)) == "NodeResourcesInsufficient"


def test_a_foreign_pod_takes_the_lowest_free_cards_and_nobodys_quota(world: World) -> None:
    world.commits(world.plan("p", ("one", "a", [world.card(0)])))
    world.see(world.fact("foreign", "a", cards=2, ours=False))
    assert [s.index for s in world.claim("foreign").slices] == [1]
    assert world.claim("foreign").queue == ""
    assert world.books.used == {"default": {"cpu": 1000, "pods": 1, "nvidia.com/gpu": 1}}


def test_impossible_annotations_are_not_believed(world: World) -> None:
    world.see(world.fact("pod", "a", cards=1, slices=[world.card(9)]))
    assert [s.index for s in world.claim("pod").slices] == [0]


# --- gangs


def test_a_gang_that_started_whole_is_left_alone_at_its_deadline(world: World) -> None:
    gang(world, "one", "two", "three")
    world.outcome("one", BindOutcome.BOUND)
    world.outcome("two", BindOutcome.BOUND)
    assert not world.books.gangs
    late = world.wait(61)
    assert [(e.pod, e.kind) for e in late.evictions] == [("three", EvictKind.REVOKE)]


def test_a_gang_that_did_not_start_whole_is_unwound_and_freed_by_evidence_alone(world: World) -> None:
    gang(world, "one", "two")
    world.outcome("one", BindOutcome.BOUND)
    late = world.wait(61)
    assert {(e.pod, e.kind) for e in late.evictions} == {("one", EvictKind.EVICT), ("two", EvictKind.REVOKE)}
    assert world.refuses(world.plan("h", ("x", "b", []), ("y", "b", []), job="gang", min_member=2)) == "GangIncomplete"
    world.outcome("two", BindOutcome.REVOKED)
    world.outcome("one", BindOutcome.EVICTED)
    assert world.state("one") is POSTED
    world.see(world.fact("one", "a", PodPhase.GONE))
    assert not world.books.gangs
    world.commits(world.plan("i", ("x", "b", []), ("y", "b", []), job="gang", min_member=2))


def test_a_member_whose_bind_wins_while_its_gang_is_unwound_is_evicted(world: World) -> None:
    gang(world, "one", "two")
    world.wait(61)
    step = world.outcome("one", BindOutcome.BOUND, at="a")
    assert [(e.kind, e.generation) for e in step.evictions] == [(EvictKind.EVICT, 3)]


def test_a_refused_eviction_is_tried_again_and_a_pod_gone_by_it_frees(world: World) -> None:
    gang(world, "one", "two")
    world.outcome("one", BindOutcome.BOUND)
    world.wait(61)
    world.outcome("one", BindOutcome.REJECTED)
    assert [e.pod for e in world.wait(15).evictions if e.kind is EvictKind.EVICT] == ["one"]
    world.outcome("one", BindOutcome.GONE)
    assert world.state("one") is None


def test_members_that_succeed_before_the_last_is_bound_count_as_started(world: World) -> None:
    gang(world, "one", "two")
    world.see(world.fact("one", "a", PodPhase.SUCCEEDED, claim=world.claim("one").id))
    world.outcome("two", BindOutcome.BOUND)
    assert not world.books.gangs
    assert not world.wait(61).evictions


def test_filling_up_a_gang_does_not_move_its_deadline(world: World) -> None:
    gang(world, "one", "two")
    world.outcome("one", BindOutcome.BOUND)
    world.wait(50)
    world.outcome("two", BindOutcome.CONFLICT, at="b")
    world.commits(world.plan("h", ("three", "a", []), job="gang", min_member=2))
    assert {e.pod for e in world.wait(11).evictions} == {"one", "three"}


# --- comparing with a complete list


def test_a_posted_claim_is_freed_when_two_lists_in_a_row_lack_its_pod(world: World) -> None:
    world.commits(world.plan("p", ("pod", "a", [])))
    world.outcome("pod", BindOutcome.BOUND)
    for expected in (POSTED, None):
        world.now += 60
        reconcile(world.books, world.turn(), [], as_of=world.books.index, asked_at=world.now)
        world.books.validate()
        assert world.state("pod") is expected


def test_lists_that_come_quickly_one_after_the_other_free_nothing(world: World) -> None:
    """They may come from the same moment of a cache that is behind."""
    world.commits(world.plan("p", ("pod", "a", [])))
    world.outcome("pod", BindOutcome.BOUND)
    for after, expected in ((1, POSTED), (4, POSTED), (5, POSTED), (1, None)):
        world.now += after
        reconcile(world.books, world.turn(), [], as_of=world.books.index, asked_at=world.now, apart_s=10)
        assert world.state("pod") is expected


def test_a_pod_that_was_bound_while_the_clock_was_ahead_is_missed_like_any_other(world: World) -> None:
    world.now += 600
    world.commits(world.plan("p", ("pod", "a", [])))
    world.outcome("pod", BindOutcome.BOUND)
    world.now -= 600
    for asked_at, expected in ((1.0, POSTED), (11.0, None)):
        reconcile(world.books, world.turn(), [], as_of=world.books.index, asked_at=asked_at, apart_s=10)
        assert world.state("pod") is expected


def test_a_decision_that_was_sent_while_the_clock_was_ahead_is_sent_again(world: World) -> None:
    world.now += 600
    world.commits(world.plan("p", ("pod", "a", [])))
    world.now -= 590
    assert [bind.pod for bind in world.wait(1).binds] == ["pod"]
    assert not world.wait(1).binds


def test_a_pod_is_unseen_until_somebody_tells_of_it(world: World) -> None:
    for name, card in (("seen", 0), ("listed", 1)):
        world.commits(world.plan(name, (name, "a", [world.card(card)])))
        world.outcome(name, BindOutcome.BOUND)
    assert list(world.books.unseen) == [world.claim("seen").id, world.claim("listed").id]
    world.see(world.fact("seen", "a", claim=world.claim("seen").id))
    assert list(world.books.unseen) == [world.claim("listed").id]
    world.now += 1
    listed = world.fact("listed", "a", claim=world.claim("listed").id)
    reconcile(
        world.books,
        world.turn(),
        [listed, world.fact("seen", "a", claim=world.claim("seen").id)],
        as_of=world.books.index,
        asked_at=world.now,
    )
    assert not world.books.unseen


def test_a_pod_posted_after_the_list_was_asked_for_is_not_missed(world: World) -> None:
    before = world.books.index
    world.commits(world.plan("p", ("pod", "a", [])))
    world.outcome("pod", BindOutcome.BOUND)
    for _ in range(3):
        reconcile(world.books, world.turn(), [], as_of=before, asked_at=world.now)
    assert world.state("pod") is POSTED
    assert not world.books.suspects


def test_a_pending_claim_is_not_freed_by_a_list_that_lacks_its_pod(world: World) -> None:
    world.commits(world.plan("p", ("pod", "a", [])))
    for _ in range(3):
        world.now += 10
        reconcile(world.books, world.turn(), [], as_of=world.books.index, asked_at=world.now)
    assert world.state("pod") is PENDING
    assert world.books.live[world.claim("pod").id].intent is Intent.BIND


def test_a_list_that_is_ahead_of_the_news_does_not_differ_and_one_with_a_stranger_does(world: World) -> None:
    world.commits(world.plan("p", ("pod", "a", [world.card(0)])))
    bound = world.fact("pod", "a", claim=world.claim("pod").id)
    assert reconcile(world.books, world.turn(), [bound], as_of=world.books.index, asked_at=world.now) == 0
    assert world.state("pod") is ClaimState.POSTED
    assert (
        reconcile(world.books, world.turn(), [bound, world.fact("stranger", "a")], as_of=world.books.index, asked_at=world.now)
        == 1
    )
