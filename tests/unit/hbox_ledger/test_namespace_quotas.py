"""ResourceQuotas at arbitration: nodes a and b with two cards of 40 GiB, all pods in namespace ml."""

from hbox_common.events import BindOutcome, Plan, Victim
from hbox_common.model import CardQuota, CardRequest, PodPhase, PodUid
from hbox_common.model.devices.nvidia import GPU_CORES, GPU_MEMORY
from hbox_ledger.core.ledgerstate import LedgerState

from .conftest import World

REFUSED = "ResourceQuotaNotFit"


def limit(world: World, memory_mib: int, *more: CardQuota) -> None:
    world.state.limit([CardQuota("ml", "cards", {GPU_MEMORY: memory_mib}), *more])


def two(world: World, pod: str, where: str = "a", *, memory: int = 2000, cores: int = 10) -> Plan:
    """A pod with two cards of a node, 2000 MiB of each."""
    return world.plan(f"plan-{pod}", (pod, where, [world.card(0, cores, memory), world.card(1, cores, memory)]))


def test_two_cards_of_2000_mib_count_4000(world: World) -> None:
    limit(world, 4000)
    world.commits(two(world, "p"))
    assert world.refuses(two(world, "q", "b")) == REFUSED
    assert world.last.refused[0].message.endswith(
        "allows 4000 of limits.nvidia.com/gpumem, 4000 are in use and 4000 more are asked for"
    )


def test_a_claim_counts_until_its_pod_is_known_to_be_gone(world: World) -> None:
    limit(world, 4000)
    world.commits(two(world, "p"))
    world.outcome("p", BindOutcome.BOUND, at="a")
    assert world.refuses(two(world, "q", "b")) == REFUSED
    world.see(world.fact("p", "a", PodPhase.SUCCEEDED))
    world.commits(replaced(two(world, "q", "b"), "again"))


def test_a_gang_counts_whole(world: World) -> None:
    limit(world, 6000)
    members = [(f"g{i}", "a", [world.card(i, 10, 2000)]) for i in range(2)] + [
        (f"h{i}", "b", [world.card(i, 10, 2000)]) for i in range(2)
    ]
    assert world.refuses(world.plan("gang", *members, min_member=4)) == REFUSED
    assert not world.state.live
    world.commits(world.plan("three", *members[:3], min_member=3))


def test_whole_cards_count_all_of_their_memory_and_compute(world: World) -> None:
    world.state.limit([CardQuota("ml", "cards", {GPU_MEMORY: 100_000, GPU_CORES: 100})])
    world.commits(world.plan("p", ("p", "a", [world.card(0)])))
    assert world.refuses(world.plan("q", ("q", "a", [world.card(1, 1, 1)]))) == REFUSED
    assert "allows 100 of limits.nvidia.com/gpucores, 100 are in use and 1 more are asked for" in world.last.refused[0].message


def test_pods_without_cards_and_other_namespaces_are_not_limited(world: World) -> None:
    limit(world, 0)
    world.commits(world.plan("cpu", ("cpu", "a", [])))
    world.commits(two(world, "p").model_copy(update={"namespace": "other"}))
    assert world.refuses(two(world, "q", "b")) == REFUSED


def test_a_quota_lowered_below_use_evicts_nobody_and_gives_nothing_until_it_is_raised_or_deleted(world: World) -> None:
    limit(world, 8000)
    world.commits(two(world, "p"))
    world.outcome("p", BindOutcome.BOUND, at="a")
    limit(world, 1000)
    assert world.refuses(world.plan("q", ("q", "b", [world.card(0, 10, 1)]))) == REFUSED
    step = world.wait(3600)
    assert not step.evictions
    limit(world, 4001)
    world.commits(world.plan("q2", ("q", "b", [world.card(0, 10, 1)])))
    world.state.limit([])
    world.commits(two(world, "r", "b", memory=20_000))


def test_pods_that_were_found_bound_count_and_may_be_more_than_allowed(world: World) -> None:
    limit(world, 3000)
    world.see(world.fact("found", "a", cards=2, asks=CardRequest(2, cores=10, memory_mib=2000)))
    assert world.state.card_quotas.left("ml") == {GPU_MEMORY: -1000}
    assert world.refuses(world.plan("q", ("q", "b", [world.card(0, 10, 1)]))) == REFUSED


def test_pods_of_other_schedulers_hold_cards_of_their_namespace_too(world: World) -> None:
    limit(world, 40_960)
    world.see(world.fact("theirs", "a", cards=1, ours=False))
    assert world.refuses(world.plan("q", ("q", "b", [world.card(0, 10, 1)]))) == REFUSED


def test_all_quotas_of_the_namespace_hold(world: World) -> None:
    limit(world, 8000, CardQuota("ml", "tighter", {GPU_MEMORY: 3999}))
    assert world.refuses(two(world, "p")) == REFUSED
    assert "ResourceQuota tighter of namespace ml" in world.last.refused[0].message


def test_books_that_are_read_anew_count_what_they_hold(world: World) -> None:
    """After a commit that failed, or in the next ledger: claims come from the database, quotas from Kubernetes."""
    limit(world, 4000)
    world.commits(two(world, "p"))
    again = LedgerState(world.state.epoch, frozen=False)
    again.load(world.state.live.values(), ())
    again.limit(world.state.card_quotas)
    assert again.card_quotas.left("ml") == {GPU_MEMORY: 0}
    again.validate()


def test_nobody_leaves_for_a_quotas_sake(world: World) -> None:
    """The one who asks would get the cards of its own namespace's lower priority; the quota counts these until they are gone."""
    limit(world, 4000)
    world.commits(two(world, "low"))
    world.outcome("low", BindOutcome.BOUND, at="a")
    victim = Victim(claim=world.claim("low").id, pod_uid=PodUid("low"))
    wanted = two(world, "high").model_copy(update={"priority": 9, "victims": (victim,)})
    assert world.refuses(wanted) == REFUSED
    limit(world, 8000)
    world.commits(wanted)
    assert len(world.last.evictions) == 1


def test_what_was_promised_in_a_namespace_is_not_promised_twice(world: World) -> None:
    """Two of the namespace take from another's pods: the quota pays for one of them."""
    limit(world, 4000)
    for where in ("a", "b"):
        lent = two(world, f"lent-{where}", where, memory=40_960, cores=100).model_copy(update={"namespace": "other"})
        world.commits(lent)
        world.outcome(f"lent-{where}", BindOutcome.BOUND, at=where)
    for where, answer in (("a", True), ("b", False)):
        victim = Victim(claim=world.claim(f"lent-{where}").id, pod_uid=PodUid(f"lent-{where}"))
        wanted = two(world, f"taker-{where}", where).model_copy(update={"priority": 9, "victims": (victim,)})
        [said] = world.propose(wanted)
        assert said.committed is answer, said.message
        assert said.reason == (None if answer else REFUSED)


def replaced(plan: Plan, id: str) -> Plan:
    return plan.model_copy(update={"id": id})
