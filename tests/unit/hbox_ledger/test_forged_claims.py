"""What is written on a pod may be anybody's: it counts where it proves a claim that this ledger issued, and else never for more than the pod asks for."""

from dataclasses import replace

import pytest

from hbox_common.events import BindOutcome
from hbox_common.model import CardRequest, CardSlice, ClaimId, ClaimState, NodeName, PlanId, PodPhase, PodUid, QueueName
from hbox_ledger.core.claimids import claim_id, issued
from hbox_ledger.core.reconcile import Comparison

from .conftest import World

POSTED = ClaimState.POSTED


@pytest.fixture
def world(world: World) -> World:
    world.state.key = b"k" * 32
    return world


def proof(world: World, pod: str, where: str, *slices: CardSlice, plan: str = "lost") -> ClaimId:
    """Of a claim that this ledger issued, and of which its books know nothing any more."""
    return claim_id(world.state.key, PlanId(plan), PodUid(pod), NodeName(where), slices)


@pytest.mark.parametrize("claim", ["", "f" * 32, "\N{GREEK SMALL LETTER ALPHA}" * 32])
@pytest.mark.parametrize("ours", [True, False])
def test_a_pod_that_asks_for_no_card_holds_none_whatever_is_written_on_it(world: World, claim: str, *, ours: bool) -> None:
    for index in range(16):
        said = world.fact(f"forger-{index}", "a", claim=claim, ours=ours, slices=[world.card(0), world.card(1)])
        world.see(replace(said, cards=0))
        assert world.claim(f"forger-{index}").slices == ()
    world.commits(world.plan("p", ("pod", "b", [world.card(0), world.card(1)])))


def test_a_copied_annotation_proves_nothing(world: World) -> None:
    world.commits(world.plan("p", ("honest", "a", [world.card(1)])))
    world.outcome("honest", BindOutcome.BOUND, at="a")
    copied = world.claim("honest").id
    world.see(world.fact("copier", "a", claim=copied, slices=[world.card(1)]))
    assert [s.index for s in world.claim("copier").slices] == [0]


def test_a_pod_bound_by_others_holds_what_it_requests_and_no_more(world: World) -> None:
    world.see(world.fact("greedy", "a", cards=1, ours=False, slices=[world.card(0), world.card(1)]))
    assert world.claim("greedy").slices == (world.on("a", 0),)
    share = CardRequest(1, cores=30, memory_mib=4000)
    world.see(world.fact("share", "b", ours=False, asks=share, slices=[world.card(1, 100, 40_960)]))
    assert world.claim("share").slices == (world.on("b", 1, 30, 4000),)
    # Shares are put together, also where nothing is written.
    world.see(world.fact("beside", "b", cards=1, ours=False, asks=share))
    assert world.claim("beside").slices == (world.on("b", 0, 30, 4000),)
    world.see(world.fact("third", "b", cards=1, ours=False, asks=share))
    assert world.claim("third").slices == (world.on("b", 0, 30, 4000),)


def test_a_card_that_another_holds_is_not_taken_by_naming_it(world: World) -> None:
    world.commits(world.plan("p", ("honest", "a", [world.card(0)])))
    world.see(world.fact("forger", "a", slices=[world.card(0)]))
    assert [s.index for s in world.claim("forger").slices] == [1]
    world.see(world.fact("late", "a", slices=[world.card(0)]))
    assert world.claim("late").slices == ()  # nothing is left; that the node is over-full shows in what it requests


def test_what_a_pod_names_is_believed_where_it_costs_nobody_anything(world: World) -> None:
    world.see(world.fact("found", "a", slices=[world.card(1)]))
    assert [s.index for s in world.claim("found").slices] == [1]


@pytest.mark.parametrize("written", ["", "f" * 32])
def test_a_pod_on_its_claims_node_has_its_claim_whatever_its_tenant_writes(world: World, written: str) -> None:
    """A tenant who removes the claim just after the binding may not have the card freed under its pod."""
    world.commits(world.plan("p", ("pod", "a", [world.card(0)])))
    mine = world.claim("pod").id
    world.see(world.fact("pod", "a", PodPhase.BOUND, claim=written, slices=[world.card(1)]))
    assert (world.claim("pod").id, world.claim_state("pod"), world.claim("pod").slices) == (mine, POSTED, (world.on("a", 0),))
    world.see(world.fact("pod", "a", PodPhase.RUNNING, claim=written))
    assert (world.claim("pod").id, world.claim("pod").slices) == (mine, (world.on("a", 0),))


def test_a_binder_that_finds_the_pod_on_its_node_without_its_claim_frees_nothing(world: World) -> None:
    world.commits(world.plan("p", ("pod", "a", [world.card(0)])))
    world.outcome("pod", BindOutcome.CONFLICT, at="a")
    assert world.claim_state("pod") is POSTED
    world.commits(world.plan("q", ("other", "a", [world.card(1)])))
    world.outcome("other", BindOutcome.CONFLICT, at="b")
    assert world.claim_state("other") is None


def test_books_that_lost_a_claim_believe_the_pod_that_proves_it(world: World) -> None:
    claim = proof(world, "pod", "a", world.card(1))
    world.see(world.fact("pod", "a", claim=claim, slices=[world.card(1)]))
    assert [s.index for s in world.claim("pod").slices] == [1]
    found = world.claim("pod").id
    world.see(world.fact("pod", "a", PodPhase.BOUND, claim=claim, slices=[world.card(1)]))
    assert world.claim("pod").id == found


def test_a_pod_that_proves_other_cards_than_its_claim_says_holds_those(world: World) -> None:
    """Restored books planned for it anew, and it is bound by the plan that they have lost."""
    world.commits(world.plan("p", ("pod", "a", [world.card(0)])))
    world.see(world.fact("pod", "a", claim=proof(world, "pod", "a", world.card(1)), slices=[world.card(1)]))
    assert [s.index for s in world.claim("pod").slices] == [1]


@pytest.mark.parametrize("other", ["pod", "node", "cards", "key"])
def test_a_proof_is_of_this_pod_this_node_these_cards_and_this_ledger(world: World, other: str) -> None:
    claim = proof(world, "pod", "a", world.card(1))
    assert issued(world.state.key, claim, PodUid("pod"), NodeName("a"), [world.card(1)])
    assert not issued(
        b"" if other == "key" else world.state.key,
        claim,
        PodUid("other" if other == "pod" else "pod"),
        NodeName("b" if other == "node" else "a"),
        [world.card(0 if other == "cards" else 1)],
    )


def test_those_that_prove_their_cards_are_taken_in_before_those_that_name_them_and_these_before_the_rest(world: World) -> None:
    facts = [
        world.fact("nameless", "a", cards=1, ours=False),
        world.fact("named", "a", slices=[world.card(0)]),
        world.fact("proven", "a", claim=proof(world, "proven", "a", world.card(0)), slices=[world.card(0)]),
    ]
    Comparison(world.state.index).take(world.state, world.turn(), world.in_order(facts))
    held = {pod: [s.index for s in world.claim(pod).slices] for pod in ("proven", "named", "nameless")}
    assert held == {"proven": [0], "named": [1], "nameless": []}


def test_a_list_is_applied_queue_by_queue(world: World) -> None:
    facts = [
        replace(world.fact(f"p{i}", "a"), queue=QueueName(queue)) for i, queue in enumerate(("red", "blue", "red", "blue"))
    ]
    assert [fact.uid for fact in world.in_order(facts)] == ["p0", "p2", "p1", "p3"]
