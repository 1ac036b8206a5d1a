"""LedgerState that are older than the streams: what was bound in their name comes back into them, and is taken back."""

from dataclasses import replace

from hbox_common.events import Bind, BindOutcome, EvictKind
from hbox_common.model import ClaimId, ClaimState, PlanId, PodPhase, PodUid
from hbox_common.model.devices.nvidia import GPU
from hbox_ledger.core.ledgerstate import LedgerState
from hbox_ledger.core.recovery import UNDER_WAY_S, adopt
from hbox_ledger.core.step import Step

from .conftest import World


def lost(world: World, id: str, pod: str, card: int) -> Bind:
    """A bind that was committed in a history which the books then forget."""
    kept, nodes = world.state, world.state.nodes
    world.state = LedgerState(kept.epoch, frozen=False)
    world.state.nodes = nodes
    world.commits(world.plan(id, (pod, "a", [world.card(card)])))
    [bind] = world.last.binds
    world.state = kept
    return bind


def adopted(world: World, *binds: Bind, known: frozenset[str] = frozenset()) -> Step:
    step = world.turn()
    adopt(world.state, step, binds, known)  # type: ignore[arg-type]
    world.state.validate()
    return step


def test_a_bind_that_may_be_under_way_holds_its_card_and_is_taken_back(world: World) -> None:
    bind = lost(world, "p", "pod", 0)
    step = adopted(world, bind)
    [revoked] = step.evictions
    assert (revoked.kind, revoked.claim, revoked.generation) == (EvictKind.REVOKE, bind.claim, 2)
    assert world.refuses(world.plan("q", ("other", "a", [world.card(0)]))) == "CardTaken"
    world.outcome("pod", BindOutcome.REVOKED)
    world.commits(world.plan("q", ("other", "a", [world.card(0)])))


def test_its_plan_was_committed_and_stays_so(world: World) -> None:
    step = adopted(world, lost(world, "p", "pod", 0))
    assert [(s.answer.plan, s.answer.committed) for s in step.stored] == [("p", True)]


def test_a_pod_that_is_found_bound_is_taken_in_with_all_that_it_asks_for(world: World) -> None:
    bind = lost(world, "p", "pod", 0)
    adopted(world, bind)
    world.outcome("pod", BindOutcome.BOUND, at="a")
    assert world.claim_state("pod") is ClaimState.PENDING
    assert world.claim("pod").requests == {"pods": 1, GPU: 1}
    world.see(world.fact("pod", "a", claim=bind.claim, slices=[world.card(0)]))
    assert world.claim_state("pod") is ClaimState.POSTED
    assert world.claim("pod").requests == {"cpu": 1000, "pods": 1, GPU: 1}
    assert world.refuses(world.plan("q", ("other", "a", [world.card(0)]))) == "CardTaken"
    world.see(world.fact("pod", "a", PodPhase.GONE))
    assert not world.state.live


def test_a_bind_just_past_its_deadline_may_be_under_way(world: World) -> None:
    bind = lost(world, "p", "pod", 0)
    world.now = bind.deadline + UNDER_WAY_S - 1
    assert adopted(world, bind).changes
    assert world.refuses(world.plan("q", ("other", "a", [world.card(0)]))) == "CardTaken"


def test_a_bind_whose_deadline_is_long_past_is_not_under_way(world: World) -> None:
    bind = lost(world, "p", "pod", 0)
    world.now = bind.deadline + UNDER_WAY_S
    assert not adopted(world, bind).changes


def test_claims_that_the_books_know_are_left_alone_also_those_that_ended(world: World) -> None:
    world.commits(world.plan("p", ("pod", "a", [])))
    [bind] = world.last.binds
    assert not adopted(world, bind, known=frozenset({bind.claim})).changes
    assert world.claim_state("pod") is ClaimState.PENDING


def test_a_later_bind_of_a_pod_ends_its_earlier_claim(world: World) -> None:
    """It could only be given when the earlier one had ended: evidence that the books have lost."""
    world.commits(world.plan("p", ("pod", "b", [world.card(0)])))
    [known] = world.last.binds
    bind = lost(world, "later", "pod", 0)
    step = adopted(world, known, bind, known=frozenset({known.claim}))
    assert [(c.claim.plan, c.claim.state) for c in step.changes] == [("p", "void"), ("later", "pending")]
    assert world.claim("pod").node == "a"


def test_of_several_binds_of_a_pod_the_last_counts(world: World) -> None:
    first = lost(world, "p", "pod", 0)
    second = replace(first, claim=ClaimId("later"), plan=PlanId("later"))
    adopted(world, first, second)
    assert [h.claim.plan for h in world.state.live.values()] == ["later"]
    assert replace(world.claim("pod"), requests={}).pod_uid == PodUid("pod")
