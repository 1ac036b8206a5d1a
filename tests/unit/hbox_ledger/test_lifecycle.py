"""What evidence does to a claim: the table at the head of lifecycle.py, line by line."""

from dataclasses import replace

import pytest

from hbox_common.events import BindOutcome, EvictKind, PodRead, PodStanding
from hbox_common.model import ClaimState, Index, JobId, NodeName, PlanId, PodFact, PodPhase, PodUid, QueueName, RefusalReason
from hbox_common.model.hostports import HostPort, port_amounts
from hbox_common.model.ids import missing_group_job
from hbox_ledger.core import lifecycle
from hbox_ledger.core.claimids import claim_id
from hbox_ledger.core.claimrecord import Decision
from hbox_ledger.core.overbooked import overbooked
from hbox_ledger.core.reconcile import Comparison

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
    assert world.claim_state("pod") is state
    assert (world.state.node(NodeName("a")).cards[world.on("a", 0).card].pods == 0) == (state is None)


@pytest.mark.parametrize("outcome", list(BindOutcome))
def test_late_news_of_its_bind_does_not_free_a_posted_claim(world: World, outcome: BindOutcome) -> None:
    world.commits(world.plan("p", ("pod", "a", [])))
    world.see(world.fact("pod", "a", claim=world.claim("pod").id))
    world.outcome("pod", outcome, generation=1)
    assert world.claim_state("pod") is POSTED


def test_an_overdue_bind_is_revoked_and_only_the_revocation_frees(world: World) -> None:
    world.commits(world.plan("p", ("pod", "a", [])))
    [revoke] = world.wait(61).evictions
    assert (revoke.kind, revoke.generation) == (EvictKind.REVOKE, 2)
    assert world.claim_state("pod") is PENDING
    world.outcome("pod", BindOutcome.REJECTED)
    assert world.claim_state("pod") is PENDING
    world.outcome("pod", BindOutcome.REVOKED)
    assert world.claim_state("pod") is None


def test_a_bind_that_won_against_its_revocation_stays(world: World) -> None:
    world.commits(world.plan("p", ("pod", "a", [])))
    world.wait(61)
    world.outcome("pod", BindOutcome.BOUND, at="a")
    assert world.claim_state("pod") is POSTED
    assert not world.state.open


def test_an_open_decision_is_sent_again_as_it_was_at_growing_distances(world: World) -> None:
    world.commits(world.plan("p", ("pod", "a", [])))
    [first] = world.last.binds
    assert world.wait(14).binds == []
    assert world.wait(1).binds == [first]
    assert world.wait(15).binds == []
    assert world.wait(15).binds == [first]


def test_where_the_clock_goes_faster_the_binder_has_as_long_by_the_machines(world: World) -> None:
    world.state.clock_rate = 2.0
    world.commits(world.plan("p", ("pod", "a", [])))
    [first] = world.last.binds
    assert world.wait(28).binds == []
    assert world.wait(2).binds == [first]


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
    assert world.claim_state("pod") is None
    world.see(world.fact("pod", "a", PodPhase.RUNNING, claim=claim))
    assert world.claim_state("pod") is None


def test_a_pod_seen_with_its_claim_posts_it(world: World) -> None:
    world.commits(world.plan("p", ("pod", "a", [])))
    world.see(world.fact("pod", "a", PodPhase.BOUND, claim=world.claim("pod").id))
    assert world.claim_state("pod") is POSTED


def test_a_pod_bound_by_another_loses_its_claim_and_is_accounted_for_as_found(world: World) -> None:
    world.commits(world.plan("p", ("pod", "a", [])))
    mine = world.claim("pod").id
    world.see(world.fact("pod", "b", PodPhase.BOUND))
    assert world.claim("pod").id != mine
    assert world.claim("pod").node == "b"
    assert world.claim_state("pod") is POSTED


def test_a_pod_found_bound_is_accounted_for_even_over_the_node(world: World) -> None:
    world.commits(world.plan("p", ("one", "a", [world.card(0)]), cpu=8000))
    lost = claim_id(world.state.key, PlanId("lost"), PodUid("two"), NodeName("a"), [world.card(0)])
    world.see(world.fact("two", "a", slices=[world.card(0)], claim=lost))
    assert world.claim("two").slices == (world.on("a", 0),)
    assert world.state.node(NodeName("a")).cards[world.on("a", 0).card].pods == 2
    assert world.refuses(world.plan("q", ("three", "a", [world.card(0, 10, 10)]), cpu=1)) == "NodeResourcesInsufficient"


def test_a_foreign_pod_takes_the_lowest_free_cards_and_nobodys_quota(world: World) -> None:
    world.commits(world.plan("p", ("one", "a", [world.card(0)])))
    world.see(world.fact("foreign", "a", cards=2, ours=False))
    assert [s.index for s in world.claim("foreign").slices] == [1]
    assert world.claim("foreign").queue == ""
    assert world.state.used == {"default": {"cpu": 1000, "pods": 1, "nvidia.com/gpu": 1}}


def test_impossible_annotations_are_not_believed(world: World) -> None:
    world.see(world.fact("pod", "a", cards=1, slices=[world.card(9)]))
    assert [s.index for s in world.claim("pod").slices] == [0]


# --- gangs


def test_a_gang_that_started_whole_is_left_alone_at_its_deadline(world: World) -> None:
    gang(world, "one", "two", "three")
    world.outcome("one", BindOutcome.BOUND)
    world.outcome("two", BindOutcome.BOUND)
    assert not world.state.gangs
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
    assert world.claim_state("one") is POSTED
    world.see(world.fact("one", "a", PodPhase.GONE))
    assert not world.state.gangs
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
    assert world.claim_state("one") is None


def test_members_that_succeed_before_the_last_is_bound_count_as_started(world: World) -> None:
    gang(world, "one", "two")
    world.see(world.fact("one", "a", PodPhase.SUCCEEDED, claim=world.claim("one").id))
    world.outcome("two", BindOutcome.BOUND)
    assert not world.state.gangs
    assert not world.wait(61).evictions


def test_a_gang_is_unwound_within_the_hour_whatever_deadline_its_plan_asks_for(world: World) -> None:
    asked = world.plan("g", ("one", "a", []), ("two", "b", []), job="gang", min_member=2)
    world.commits(asked.model_copy(update={"deadline_s": 1e9}))
    world.outcome("one", BindOutcome.BOUND, at="a")
    assert "one" in {e.pod for e in world.wait(3600).evictions}


def test_filling_up_a_gang_does_not_move_its_deadline(world: World) -> None:
    gang(world, "one", "two")
    world.outcome("one", BindOutcome.BOUND)
    world.wait(50)
    world.outcome("two", BindOutcome.CONFLICT, at="b")
    world.commits(world.plan("h", ("three", "a", []), job="gang", min_member=2))
    assert {e.pod for e in world.wait(11).evictions} == {"one", "three"}


# --- comparing with a complete list


def compare(world: World, *facts: PodFact, as_of: Index | None = None) -> int:
    comparison = Comparison(world.state.index if as_of is None else as_of)
    comparison.take(world.state, world.turn(), world.in_order(facts))
    comparison.miss(world.state, list(world.state.live))
    return len(comparison.differed)


def read(world: World, pod: str, standing: PodStanding, *, node: str = "a") -> None:
    lifecycle.read(world.state, world.turn(), PodRead(uid=PodUid(pod), standing=standing, node=NodeName(node)))
    world.state.validate()


def posted(world: World, pod: str = "pod") -> None:
    world.commits(world.plan("p", (pod, "a", [])))
    world.outcome(pod, BindOutcome.BOUND)


def test_lists_that_lack_a_pod_free_nothing_however_many_they_are(world: World) -> None:
    """They come from a cache; that it is blind does not show in them."""
    posted(world)
    for _ in range(5):
        world.now += 60
        assert compare(world) == 0
        assert world.claim_state("pod") is POSTED
    assert list(world.state.suspects) == [world.claim("pod").id]


@pytest.mark.parametrize("standing", [PodStanding.GONE, PodStanding.ENDED])
def test_what_the_api_server_says_of_its_pod_frees_a_claim(world: World, standing: PodStanding) -> None:
    posted(world)
    compare(world)
    uid = world.claim("pod").pod_uid
    read(world, "pod", standing)
    assert world.claim_state("pod") is None
    assert not world.state.suspects
    assert uid in world.state.gone, "older news may still come, and count no more"


@pytest.mark.parametrize(
    ("standing", "node", "suspect"),
    [(PodStanding.HOLDS, "a", False), (PodStanding.HOLDS, "b", True), (PodStanding.UNKNOWN, "", True)],
)
def test_a_pod_that_is_there_or_cannot_be_read_keeps_its_claim(
    world: World, standing: PodStanding, node: str, suspect: bool
) -> None:
    posted(world)
    compare(world)
    read(world, "pod", standing, node=node)
    assert world.claim_state("pod") is POSTED
    assert bool(world.state.suspects) is suspect


def told_gone_in_error(world: World) -> PodFact:
    """The pod runs, with its cards; what a list says of it."""
    world.commits(world.plan("p", ("pod", "a", [world.card(1)])))
    world.outcome("pod", BindOutcome.BOUND)
    fact = world.fact("pod", "a", claim=world.claim("pod").id, slices=world.claim("pod").slices)
    world.see(replace(fact, phase=PodPhase.GONE))
    assert world.claim_state("pod") is None
    return fact


def test_a_pod_that_was_told_gone_in_error_is_accounted_for_again_with_its_cards(world: World) -> None:
    """As a copy of the cluster that goes back in time tells it: for ever without a claim, its card would be given away twice."""
    fact = told_gone_in_error(world)
    compare(world, fact)
    assert world.claim_state("pod") is None, "a list alone may be the older news"
    read(world, "pod", PodStanding.UNKNOWN)
    assert world.claim_state("pod") is None
    read(world, "pod", PodStanding.HOLDS, node="a")
    assert world.claim_state("pod") is POSTED
    assert world.claim("pod").slices == fact.slices
    assert not world.state.contradicted
    assert fact.uid not in world.state.gone


def test_news_of_a_pod_that_was_told_gone_has_it_read_at_once(world: World) -> None:
    """etcd was restored from a backup: pods that were deleted since are there again, and run. News tells of it a minute before the next list may."""
    fact = told_gone_in_error(world)
    world.see(fact)
    assert world.claim_state("pod") is None, "it may be older news"
    assert [asked.uid for asked in world.state.contradicted.values()] == [fact.uid]
    read(world, "pod", PodStanding.HOLDS, node="a")
    assert world.claim("pod").slices == fact.slices
    assert not world.state.contradicted


@pytest.mark.parametrize("standing", [PodStanding.GONE, PodStanding.ENDED])
def test_a_list_with_the_older_news_brings_nothing_back(world: World, standing: PodStanding) -> None:
    fact = told_gone_in_error(world)
    compare(world, fact)
    read(world, "pod", standing)
    assert world.claim_state("pod") is None
    assert not world.state.contradicted
    read(world, "pod", PodStanding.HOLDS, node="a")
    assert world.claim_state("pod") is None, "nobody asked: that is an answer of before"


def test_a_list_that_was_asked_for_before_its_pod_ended_contradicts_nothing(world: World) -> None:
    before = world.state.index
    compare(world, told_gone_in_error(world), as_of=before)
    assert not world.state.contradicted


def test_a_read_of_a_pod_whose_claim_is_pending_frees_nothing(world: World) -> None:
    """Its binding may be under way: only the binder's outcome says what becomes of it."""
    world.commits(world.plan("p", ("pod", "a", [])))
    read(world, "pod", PodStanding.GONE)
    assert world.claim_state("pod") is PENDING


def test_a_suspect_that_the_next_list_has_is_none_any_more(world: World) -> None:
    posted(world)
    compare(world)
    compare(world, world.fact("pod", "a", claim=world.claim("pod").id))
    assert not world.state.suspects


def test_a_pod_that_was_bound_while_the_clock_was_ahead_is_missed_like_any_other(world: World) -> None:
    world.now += 600
    posted(world)
    world.now -= 600
    compare(world)
    assert world.state.suspects


def test_while_plans_are_held_they_are_refused_and_may_be_asked_again(world: World) -> None:
    world.state.held = "pods were last seen 31 s ago"
    plan = world.plan("p", ("pod", "a", []))
    [answer] = world.propose(plan)
    assert (answer.reason, answer.message) == (RefusalReason.PODS_UNSEEN, "pods were last seen 31 s ago")
    world.state.held = ""
    assert [answer.committed for answer in world.propose(plan)] == [True]


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
    assert list(world.state.unseen) == [world.claim("seen").id, world.claim("listed").id]
    world.see(world.fact("seen", "a", claim=world.claim("seen").id))
    assert list(world.state.unseen) == [world.claim("listed").id]
    world.now += 1
    listed = world.fact("listed", "a", claim=world.claim("listed").id)
    compare(world, listed, world.fact("seen", "a", claim=world.claim("seen").id))
    assert not world.state.unseen


def test_a_pod_posted_after_the_list_was_asked_for_is_not_missed(world: World) -> None:
    before = world.state.index
    world.commits(world.plan("p", ("pod", "a", [])))
    world.outcome("pod", BindOutcome.BOUND)
    for _ in range(3):
        compare(world, as_of=before)
    assert world.claim_state("pod") is POSTED
    assert not world.state.suspects


def test_a_pending_claim_is_not_freed_by_a_list_that_lacks_its_pod(world: World) -> None:
    world.commits(world.plan("p", ("pod", "a", [])))
    for _ in range(3):
        world.now += 10
        compare(world)
    assert world.claim_state("pod") is PENDING
    assert world.state.live[world.claim("pod").id].decision is Decision.BIND


def test_a_list_that_is_ahead_of_the_news_does_not_differ_and_one_with_a_stranger_does(world: World) -> None:
    world.commits(world.plan("p", ("pod", "a", [world.card(0)])))
    bound = world.fact("pod", "a", claim=world.claim("pod").id)
    assert compare(world, bound) == 0
    assert world.claim_state("pod") is ClaimState.POSTED
    assert compare(world, bound, world.fact("stranger", "a")) == 1


def test_a_pod_that_was_resized_after_the_list_was_asked_for_keeps_what_it_takes_now(world: World) -> None:
    """The list is older than the news, which came before it did. By it others would be given what the pod takes."""
    posted(world)
    claim = world.claim("pod")
    before = world.fact("pod", "a", claim=claim.id)
    as_of = world.state.index
    world.see(replace(before, requests={**claim.requests, "cpu": 7000}))
    assert compare(world, before, as_of=as_of) == 0
    assert world.claim("pod").requests["cpu"] == 7000
    assert world.refuses(world.plan("q", ("other", "a", []), cpu=2000)) == RefusalReason.NODE_RESOURCES
    assert compare(world, before) == 0
    assert world.claim("pod").requests["cpu"] == before.requests["cpu"], "a newer list counts"


def test_a_list_that_shows_a_pod_where_it_was_bound_meanwhile_has_seen_it(world: World) -> None:
    as_of = world.state.index
    posted(world)
    assert world.state.unseen
    assert compare(world, world.fact("pod", "a", claim=world.claim("pod").id), as_of=as_of) == 0
    assert not world.state.unseen


# --- PodGroups that are made again


def made_again(world: World) -> list[PodFact]:
    """Three members of a gang run, one ends, and those that stay are said to be of the PodGroup that was made again."""
    world.commits(world.plan("g", *((pod, "a", []) for pod in ("m0", "m1", "m2")), job="former", min_member=3))
    bound = [replace(world.fact(pod, "a", claim=world.claim(pod).id, job="former"), min_member=3) for pod in ("m0", "m1", "m2")]
    world.see(*bound)
    world.see(replace(bound[2], phase=PodPhase.GONE))
    return [replace(one, job=JobId("again")) for one in bound[:2]]


def test_gang_with_a_recreated_podgroup_fills_up_around_running_members(world: World) -> None:
    """The facts arrive before the ledger knows the job."""
    staying = made_again(world)
    world.see(*staying)
    assert world.claim("m0").job == "former", "it has its places, and asks for nothing"
    world.now += 50.0
    world.commits(world.plan("i", ("m3", "b", []), job="again", min_member=3))
    claim = world.claim("m0")
    assert (claim.job, claim.state, claim.min_member, claim.claimed_at) == ("again", POSTED, 3, 1000.0)
    index = world.state.index
    world.see(*staying)
    assert world.state.index == index, "once"
    assert world.state.node(NodeName("a")).used["cpu"] == 2000


def test_gang_with_a_recreated_podgroup_fills_up_after_late_facts_of_members(world: World) -> None:
    staying = made_again(world)
    assert world.refuses(world.plan("h", ("m3", "b", []), job="again", min_member=3)) == RefusalReason.GANG_INCOMPLETE
    world.see(*staying)
    assert (world.claim("m0").job, world.claim("m1").job) == ("again", "again")
    world.commits(world.plan("i", ("m3", "b", []), job="again", min_member=3))


def test_members_keep_the_claims_of_their_former_job_while_their_podgroup_is_missing(world: World) -> None:
    missing = [replace(one, job=missing_group_job("ml/g"), min_member=1) for one in made_again(world)]
    world.see(*missing)
    world.commits(world.plan("h", ("other", "b", []), job="podgroup:ml/g"))
    world.see(*missing)
    assert (world.claim("m0").job, world.claim("m0").min_member) == ("former", 3)


def test_ended_member_does_not_count_in_the_recreated_podgroup(world: World) -> None:
    staying = made_again(world)
    world.see(*staying)
    world.see(replace(staying[0], phase=PodPhase.GONE))
    assert world.refusal(world.plan("i", ("m3", "b", []), job="again", min_member=3)).startswith("again has 1 members")


def test_a_podgroup_that_is_made_again_takes_its_members_out_of_no_queue(world: World) -> None:
    staying = made_again(world)
    world.refuses(world.plan("h", ("m3", "b", []), job="again", min_member=3, queue="other"))
    world.see(*(replace(one, queue=QueueName("other"), priority=9) for one in staying))
    claim = world.claim("m0")
    assert (claim.job, claim.queue, claim.priority) == ("again", "default", 0)


def test_a_member_that_is_to_leave_leaves_with_its_former_job(world: World) -> None:
    staying = made_again(world)
    world.refuses(world.plan("h", ("m3", "b", []), job="again", min_member=3))
    holding = world.state.live[world.claim("m0").id]
    holding.reason = "for another"
    world.state.evicting.add(holding)
    world.see(*staying)
    assert (world.claim("m0").job, world.claim("m1").job) == ("former", "again")


# --- pods that grow, nodes that shrink


def test_a_pod_that_was_resized_holds_what_it_takes_now_even_where_that_is_more_than_there_is(world: World) -> None:
    posted(world)
    claim = world.claim("pod")
    grown = replace(world.fact("pod", "a", claim=claim.id), requests={**claim.requests, "cpu": 9000})
    world.see(grown)
    assert world.claim("pod").requests["cpu"] == 9000
    assert world.state.by_node[NodeName("a")].used["cpu"] == 9000
    assert "9000 of 8000 cpu" in overbooked(world.state, NodeName("a"))
    assert world.refuses(world.plan("q", ("other", "a", []))) == RefusalReason.NODE_RESOURCES
    changes = world.state.index
    world.see(grown)
    assert world.state.index == changes, "the same again changes nothing"
    world.see(replace(grown, requests=claim.requests))
    assert overbooked(world.state, NodeName("a")) == ""
    world.state.validate()


def test_a_host_port_is_over_booked_when_two_pods_have_it_and_not_when_one_has(world: World) -> None:
    port = port_amounts([HostPort(80)])
    world.see(replace(world.fact("one", "a", ours=False), requests=port))
    assert overbooked(world.state, NodeName("a")) == ""
    world.see(replace(world.fact("other", "a", ours=False), requests=port))
    assert overbooked(world.state, NodeName("a")) == "hostport/TCP/80 more than once"


def test_a_pod_that_leaves_is_not_accounted_for_anew_when_it_was_resized(world: World) -> None:
    posted(world)
    claim = world.claim("pod")
    holding = world.state.live[claim.id]
    holding.reason = "for another"
    world.state.evicting.add(holding)
    world.see(replace(world.fact("pod", "a", claim=claim.id), requests={**claim.requests, "cpu": 9000}))
    assert world.claim("pod").id == claim.id


def test_a_node_that_shrinks_is_over_booked_and_keeps_what_it_holds(world: World) -> None:
    posted(world)
    known = world.state.nodes[NodeName("a")]
    world.state.look_at.clear()
    world.state.know(known.name, replace(known, allocatable={**known.allocatable, "cpu": 1}))
    assert world.state.look_at == {"a"}
    assert "of 1 cpu" in overbooked(world.state, NodeName("a"))
    assert world.claim_state("pod") is POSTED
    assert world.refuses(world.plan("q", ("other", "a", []))) == RefusalReason.NODE_RESOURCES
