"""What the ledger remembers of plans with victims: two nodes with two cards each, all four held by queue b, of which a may have two."""

from hbox_common.events import BindOutcome, EvictKind, GivenUp, HeldNomination, Plan, PlansProposed, Victim
from hbox_common.model import Epoch, Index, JobId, NodeName, PlanId, PodPhase, PodUid, Queue, QueueName, SchedulerId
from hbox_common.model.devices.nvidia import GPU
from hbox_ledger.core import arbitrate
from hbox_ledger.core.claimrecord import Decision
from hbox_ledger.core.evictions.nominations import KEPT_S
from hbox_ledger.core.ledgerstate import LedgerState

from .conftest import World


def full(world: World) -> None:
    for name in ("a", "b"):
        world.state.queues[QueueName(name)] = Queue(QueueName(name), deserved={GPU: 2})
    for number, (where, card) in enumerate([("a", 0), ("a", 1), ("b", 0), ("b", 1)]):
        world.commits(world.plan(f"b{number}", (f"p{number}", where, [world.card(card)]), queue="b"))
        world.outcome(f"p{number}", BindOutcome.BOUND, at=where)


def asks(world: World, id: str, pod: str, *victims: int, card: int = 0, job: str = "") -> Plan:
    """A plan for one pod on node a."""
    made = world.plan(id, (pod, "a", [world.card(card)]), queue="a", job=job)
    named = tuple(Victim(claim=world.claim(f"p{n}").id, pod_uid=PodUid(f"p{n}")) for n in victims)
    return made.model_copy(update={"victims": named, "priority": 9})


def moves(world: World) -> Plan:
    """p3 ends. p0 moves from node a to where it was, and p1 leaves, for a pod that wants both cards of node a."""
    gone(world, "p3")
    made = world.plan("want", ("new", "a", [world.card(0), world.card(1)]), queue="a")
    named = (
        Victim(claim=world.claim("p0").id, pod_uid=PodUid("p0"), to=NodeName("b"), slices=(world.card(1),)),
        Victim(claim=world.claim("p1").id, pod_uid=PodUid("p1")),
    )
    return made.model_copy(update={"victims": named, "priority": 9})


def gone(world: World, pod: str) -> None:
    world.see(world.fact(pod, "", PodPhase.GONE))


def gives_up(world: World, plan: str, *moved: str) -> None:
    ended = GivenUp(plan=PlanId(plan), moved=tuple(map(PodUid, moved)))
    said = PlansProposed(scheduler=SchedulerId("s"), epoch=Epoch(7), seen=Index(0), plans=(), given_up=(ended,))
    arbitrate.propose(world.state, world.turn(), said, {})
    world.state.validate()


def kept(world: World) -> dict[str, str]:
    """Nodes of nominated places, by pod; of those that move, of the successor."""
    found: dict[str, str] = {}
    for one in world.state.nominations.all():
        found |= {p.pod_uid: p.node for p in one.plan.placements}
        to = {victim.claim: victim.to for victim in one.plan.victims}
        found |= {f"after {claim.pod_uid}": to[claim.id] for claim in one.moved}
    return found


def restarted(world: World) -> World:
    """With what the database holds."""
    fresh = LedgerState(Epoch(8), nodes=world.state.nodes, frozen=False)
    fresh.queues.update(world.state.queues)
    written = [one.model_dump_json() for one in world.state.nominations.all()]
    for record in world.state.live.values():
        record.beneficiary = PlanId("")
    fresh.load(
        world.state.live.values(), world.state.gangs.values(), [HeldNomination.model_validate_json(one) for one in written]
    )
    return World(state=fresh, now=world.now)


def test_a_place_is_nominated_until_its_pod_has_a_claim(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0))
    gone(world, "p0")
    assert kept(world) == {"new": "a"}
    assert "card a-0" in world.propose(asks(world, "other", "next", 1))[0].message, "who evicts does not count on it"
    world.commits(world.plan("placed", ("new", "a", [world.card(0)]), queue="a", job="want"))
    assert kept(world) == {}


def test_it_takes_nothing_from_a_plan_without_victims(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0))
    gone(world, "p0")
    world.commits(world.plan("quick", ("thief", "a", [world.card(0)]), queue="b"))
    assert kept(world) == {"new": "a"}


def test_it_ends_with_its_pod(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0))
    gone(world, "new")
    assert kept(world) == {}


def test_it_ends_when_the_scheduler_gives_it_up_and_who_was_to_leave_stays(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0))
    gives_up(world, "want")
    assert kept(world) == {}
    [kept_claim] = world.wait(1).evictions
    assert (kept_claim.pod, kept_claim.kind) == ("p0", EvictKind.REVOKE)


def test_what_was_said_of_an_older_nomination_does_not_end_the_one_after_it(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0))
    world.commits(asks(world, "again", "new", 1, card=1, job="want"))
    gives_up(world, "want")
    assert kept(world) == {"new": "a"}
    assert [one.plan.id for one in world.state.nominations.all()] == ["again"]


def test_it_ends_when_a_victim_may_not_be_evicted(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0, 1))
    world.blocked("p1")
    assert kept(world) == {}


def test_it_ends_when_its_job_is_withdrawn(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0))
    world.state.records.withdraw([JobId("want")], [1 << 60])
    world.wait(1)
    assert kept(world) == {}


def test_it_ends_by_itself_when_nobody_says_anything_more(world: World) -> None:
    full(world)
    world.commits(moves(world))
    gone(world, "p0")
    world.wait(KEPT_S - 1)
    assert kept(world) == {"new": "a", "after p0": "b"}
    world.wait(1)
    assert kept(world) == {}


def test_the_place_of_a_successor_ends_with_the_plan_that_says_whom_it_succeeds(world: World) -> None:
    full(world)
    world.commits(moves(world))
    gone(world, "p0")
    alike = world.plan("alike", ("other", "a", [world.card(0)]), queue="b")
    world.commits(alike)
    assert kept(world)["after p0"] == "b"
    after = world.plan("after", ("heir", "b", [world.card(1)]), queue="b").model_copy(update={"succeeds": (PodUid("p0"),)})
    world.commits(after)
    assert kept(world) == {"new": "a"}


def test_who_moved_keeps_the_place_of_its_successor_though_the_nomination_is_given_up(world: World) -> None:
    full(world)
    world.commits(moves(world))
    gone(world, "p0")
    gives_up(world, "want")
    assert kept(world) == {"after p0": "b"}
    gives_up(world, "want", "p0")
    assert kept(world) == {}


def test_who_does_not_move_after_all_has_no_successor(world: World) -> None:
    full(world)
    world.commits(moves(world))
    gives_up(world, "want")
    assert kept(world) == {}


def test_a_successor_that_never_came_does_not_end_what_its_preemptor_waits_for(world: World) -> None:
    full(world)
    world.commits(moves(world))
    gone(world, "p0")
    gives_up(world, "want", "p0")
    assert kept(world) == {"new": "a"}


def test_all_of_it_is_known_after_a_restart(world: World) -> None:
    full(world)
    world.commits(moves(world))
    gone(world, "p0")
    after = restarted(world)
    assert kept(after) == kept(world) == {"new": "a", "after p0": "b"}
    assert after.state.evicting.nominated == {"a": dict(world.state.evicting.nominated[QueueName("a")])} | {
        "b": dict(world.state.evicting.nominated[QueueName("b")])
    }
    assert after.state.live[after.claim("p1").id].beneficiary == "want"


def test_an_eviction_that_nobody_needs_any_more_is_taken_back_after_a_restart_too(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0))
    after = restarted(world)
    gone(after, "new")
    after.wait(1)
    assert after.state.live[after.claim("p0").id].decision is Decision.REVOKE


def test_what_changed_is_told_once(world: World) -> None:
    full(world)
    world.commits(moves(world))
    assert [*world.state.nominations.take_changes()] == ["want"]
    gone(world, "new")
    [(plan, left)] = world.state.nominations.take_changes().items()
    assert left is not None
    assert (plan, left.plan.placements, left.models) == ("want", (), ())
    assert [claim.pod_uid for claim in left.moved] == ["p0"]
    gives_up(world, "want")
    assert world.state.nominations.take_changes() == {"want": None}
    assert world.state.nominations.take_changes() == {}


def test_an_eviction_that_nobody_needed_any_more_when_the_ledger_ended_is_taken_back_by_the_next_one(world: World) -> None:
    full(world)
    world.commits(asks(world, "want", "new", 0))
    gone(world, "new")
    after = restarted(world)
    [kept_claim] = after.wait(1).evictions
    assert (kept_claim.pod, kept_claim.kind) == ("p0", EvictKind.REVOKE)


def test_who_leaves_for_nobodys_places_leaves_after_a_restart_too(world: World) -> None:
    """The policy wants it elsewhere."""
    full(world)
    away = Plan(
        id=PlanId("away"), job=JobId("b0"), namespace="ml", name="b0", queue=QueueName("b"), priority=0, min_member=1, bound=0, requests=(),
        placements=(), victims=(Victim(claim=world.claim("p0").id, pod_uid=PodUid("p0")),),
    )  # fmt: skip
    world.commits(away)
    assert restarted(world).wait(1).evictions == []
