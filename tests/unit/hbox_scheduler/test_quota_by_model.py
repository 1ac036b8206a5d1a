"""Queues whose capability names card models: where their pods go, and what those are told that wait.

old    four A100
new    four H100
both   one A100, one H100
"""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from hbox_common.model import (
    POOL,
    CardRequest,
    HyperNode,
    JobId,
    NodeName,
    NodeState,
    PodUid,
    Queue,
    QueueName,
    TopologyMode,
    TopologyWish,
)
from hbox_common.model.devices.nvidia import GPU
from hbox_scheduler.core.cluster import Columns
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.quotas.models import max_pods
from hbox_scheduler.core.simulate import Simulation, job, node

from ...policies import one_by_one

A100, H100 = f"{GPU}.A100", f"{GPU}.H100"


def nodes() -> Iterable[NodeState]:
    mixed = node("both", cards=2)
    yield replace(mixed, cards=(mixed.cards[0], replace(mixed.cards[1], model="H100")))
    yield node("old", cards=4, model="A100")
    yield node("new", cards=4, model="H100")


@pytest.fixture(params=["batches", "one by one"])
def world(request: pytest.FixtureRequest) -> Simulation:
    """By HBox's own policy, and by one under which equal pods are not alike."""
    made = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf() if request.param == "batches" else one_by_one())
    made.put_nodes(nodes())
    return made


def rule(world: Simulation, name: str, parent: str = "", **capability: int) -> None:
    names = {"a100": A100, "h100": H100, "cards": GPU}
    limits = {names[key]: units for key, units in capability.items()}
    world.scheduler.on_queue(Queue(QueueName(name), parent=parent, capability=limits))


def held(world: Simulation, queue: str = "default") -> dict[str, int]:
    """Cards by model."""
    found: dict[str, int] = {}
    for claim in world.claims.values():
        if claim.queue == queue:
            for model, cards in claim.models.items():
                found[model] = found.get(model, 0) + cards
    return found


def submit(world: Simulation, pods: int, cards: CardRequest | int = 1, queue: str = "default", *, name: str = "j") -> None:
    world.submit(job(f"{name}{i}", cards=cards, queue=queue, created_at=float(i)) for i in range(pods))
    world.run()


def test_pods_that_name_no_model_go_to_another_when_one_is_exhausted(world: Simulation) -> None:
    rule(world, "default", h100=1)
    submit(world, 10)
    assert held(world) == {A100: 5, H100: 1}


def test_who_waits_is_told_which_queue_is_at_its_limit_of_which_model(world: Simulation) -> None:
    rule(world, "vision", h100=2)
    rule(world, "train", "vision")
    submit(world, 3, CardRequest(1, models=("H100",)), "train")
    assert held(world, "train") == {H100: 2}
    assert world.verdicts[JobId("j2")] == (
        "0/3 nodes are available: 2 QueueCardModelLimit, 1 CardTypeMismatch; in the way alone: QueueCardModelLimit on 2, "
        "CardTypeMismatch on 1; queue vision, above queue train, is at its limit of 2 cards of H100: 2 nodes"
    )
    submit(world, 1, CardRequest(1, models=("A100",)), "train", name="a")
    assert held(world, "train") == {H100: 2, A100: 1}


def test_less_left_of_a_model_than_a_pod_asks_for_is_not_used(world: Simulation) -> None:
    rule(world, "default", h100=3)
    submit(world, 3, CardRequest(2, models=("H100",)))
    assert held(world) == {H100: 2}
    assert "queue default has 1 left of its 3 cards of H100, and a pod asks for 2: 2 nodes" in world.verdicts[JobId("j1")]


def test_a_gang_starts_where_the_models_that_it_may_have_are_enough_together(world: Simulation) -> None:
    rule(world, "default", h100=2, a100=3)
    world.submit([job("six", pods=6, cards=1)])
    world.run()
    assert held(world) == {}
    world.submit([job("five", pods=5, cards=1)])
    world.run()
    assert held(world) == {A100: 3, H100: 2}


def test_cards_of_two_models_on_one_node_each_count_by_their_own(world: Simulation) -> None:
    rule(world, "default", a100=1, h100=1)
    submit(world, 4)
    assert held(world) == {A100: 1, H100: 1}
    rule(world, "other", a100=1, h100=1)
    submit(world, 1, 2, "other", name="pair")
    assert held(world, "other") == {}, "a pod of two cards takes no model of which there is room for one"


def test_who_waits_starts_when_a_card_of_that_model_is_given_back(world: Simulation) -> None:
    rule(world, "default", h100=1, a100=1)
    submit(world, 4)
    assert held(world) == {A100: 1, H100: 1}
    world.finish([next(uid for uid, claim in world.claims.items() if H100 in claim.models)])
    world.run()
    assert held(world) == {A100: 1, H100: 1}
    rule(world, "default", h100=1, a100=2)
    world.run()
    assert held(world) == {A100: 2, H100: 1}
    rule(world, "default")
    world.run()
    assert sum(held(world).values()) == 3, "all four but the one that ended"


def share(world: Simulation, name: str, **deserved: int) -> None:
    names = {"a100": A100, "h100": H100, "cards": GPU}
    world.scheduler.on_queue(Queue(QueueName(name), deserved={names[key]: units for key, units in deserved.items()}))


def settle(world: Simulation) -> None:
    """Run, let those evicted go, and so on until nothing moves."""
    for _ in range(20):
        world.now += 5.0
        if not world.run() and not world.evicted:
            return
        world.leave()
    raise AssertionError("it never settles")


def fill(world: Simulation) -> None:
    """speech has all ten cards, five of each model."""
    submit(world, 10, queue="speech", name="s")
    assert held(world, "speech") == {A100: 5, H100: 5}


@pytest.mark.parametrize("models", [("H100",), ()], ids=["that name it", "that name none"])
def test_a_queue_takes_back_what_it_deserves_of_a_model_and_leaves_others_alone(
    world: Simulation, models: tuple[str, ...]
) -> None:
    share(world, "speech", h100=2, a100=5)
    share(world, "vision", h100=3)
    fill(world)
    submit(world, 6, CardRequest(1, models=models), "vision", name="v")
    settle(world)
    assert held(world, "vision") == {H100: 3}
    assert held(world, "speech") == {A100: 5, H100: 2}


def test_what_a_queue_has_borrowed_of_another_model_is_not_taken_for_what_it_is_short_of(world: Simulation) -> None:
    """vision has more than it deserves of A100, and less of H100; of all cards together it has what it deserves."""
    share(world, "vision", h100=2, cards=4)
    share(world, "speech", cards=2)
    submit(world, 4, CardRequest(1, models=("A100",)), "vision", name="a")
    submit(world, 5, CardRequest(1, models=("H100",)), "speech", name="s")
    submit(world, 3, CardRequest(1, models=("H100",)), "vision", name="h")
    settle(world)
    assert held(world, "vision") == {A100: 4, H100: 2}
    assert held(world, "speech") == {H100: 3}


def test_a_guarantee_of_a_model_is_given_back_and_never_taken(world: Simulation) -> None:
    world.scheduler.on_queue(Queue(QueueName("vision"), guarantee={H100: 2}))
    share(world, "speech", cards=2)
    fill(world)
    submit(world, 4, CardRequest(1, models=("H100",)), "vision", name="v")
    settle(world)
    assert held(world, "vision") == {H100: 2}
    share(world, "robots", h100=5)
    submit(world, 5, CardRequest(1, models=("H100",)), "robots", name="r")
    settle(world)
    assert held(world, "vision") == {H100: 2}
    assert held(world, "robots") == {H100: 3}


def test_a_gang_takes_cards_of_the_models_that_are_its_own_or_nothing(world: Simulation) -> None:
    share(world, "vision", h100=2, a100=1)
    share(world, "speech", cards=2)
    fill(world)
    world.submit([job("four", pods=4, cards=1, queue="vision")])
    settle(world)
    assert held(world, "vision") == {}
    world.submit([job("three", pods=3, cards=1, queue="vision")])
    settle(world)
    assert held(world, "vision") == {H100: 2, A100: 1}


def test_who_is_more_important_in_its_queue_takes_a_card_of_a_model_that_is_at_its_limit(world: Simulation) -> None:
    rule(world, "default", h100=1, a100=0)
    submit(world, 1)
    assert held(world) == {H100: 1}
    world.submit([job("now", cards=1, priority=9, created_at=50.0)])
    settle(world)
    assert [claim.job for claim in world.claims.values()] == ["now"]


def test_what_was_placed_before_a_queue_names_models_counts(world: Simulation) -> None:
    submit(world, 5, CardRequest(1, models=("H100",)))
    assert held(world) == {H100: 5}
    assert not [name for name in world.scheduler.queues.all().used(QueueName("default")) if name == H100]
    rule(world, "default", h100=5)
    world.finish([PodUid(next(iter(world.claims)))])
    submit(world, 2, CardRequest(1, models=("H100",)), name="k")
    assert held(world) == {H100: 5}
    assert "limit of 5 cards of H100" in world.verdicts[JobId("k1")]


@pytest.mark.parametrize("others", range(9))
def test_the_first_rule_for_a_model_comes_while_pods_run(world: Simulation, others: int) -> None:
    """However many resources there are already: arrays grow when those that run are counted by model."""
    for number in range(others):
        world.scheduler.columns.resource(f"example.com/{number}")
    world.submit([job("before", cards=1)])
    world.run()
    rule(world, "default", a100=4)
    world.submit([job("after", cards=1, created_at=1.0)])
    world.run()
    assert len(world.claims) == 2


SXM, PCIE, OTHER = (f"{GPU}.NVIDIA-{name}" for name in ("A100-SXM4-80GB", "A100-PCIE-40GB", "H100-80GB-HBM3"))


@pytest.fixture
def named_in_full() -> Simulation:
    """sxm and pcie: four A100 each, of two models, one node in the notation of HAMi's register; h: four H100."""
    made = Simulation(policy_of(PolicyName.BINPACK), conf=default_conf())
    made.put_nodes(
        [
            node("sxm", cards=4, model="NVIDIA A100-SXM4-80GB"),
            node("pcie", cards=4, model="NVIDIA-A100-PCIE-40GB"),
            node("h", cards=4, model="NVIDIA H100-80GB-HBM3"),
        ]
    )
    return made


@pytest.mark.parametrize("name", ["a100-sxm4", "NVIDIA-A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", "A100 SXM4"])
def test_part_of_a_model_name_reclaims_like_the_full_name(named_in_full: Simulation, name: str) -> None:
    world = named_in_full
    world.scheduler.on_queue(Queue(QueueName("vision"), deserved={SXM: 2}))
    world.scheduler.on_queue(Queue(QueueName("speech"), deserved={SXM: 2}))
    submit(world, 12, queue="speech", name="s")
    submit(world, 3, CardRequest(1, models=(name,)), "vision", name="v")
    settle(world)
    assert held(world, "vision") == {SXM: 2}
    assert held(world, "speech") == {SXM: 2, PCIE: 4, OTHER: 4}


def test_part_of_a_model_name_is_limited_like_the_full_name(named_in_full: Simulation) -> None:
    world = named_in_full
    world.scheduler.on_queue(Queue(QueueName("default"), capability={SXM: 1, PCIE: 2}))
    submit(world, 8, CardRequest(1, models=("a100",)))
    assert held(world) == {SXM: 1, PCIE: 2}


def test_gang_with_part_of_a_name_uses_all_matching_models(named_in_full: Simulation) -> None:
    world = named_in_full
    world.scheduler.on_queue(Queue(QueueName("vision"), deserved={SXM: 2, PCIE: 1}))
    world.scheduler.on_queue(Queue(QueueName("speech"), deserved={GPU: 4}))
    submit(world, 12, queue="speech", name="s")
    world.submit([job("three", pods=3, cards=CardRequest(1, models=("A100",)), queue="vision")])
    settle(world)
    assert held(world, "vision") == {SXM: 2, PCIE: 1}


def test_headroom_counts_all_models_that_match_a_part() -> None:
    task = job("j", cards=CardRequest(1, models=("a100",))).tasks[0]
    wanting = Tasks(Columns()).of(task)
    assert max_pods(wanting, {SXM: 1, PCIE: 2}, ["", SXM, PCIE, OTHER]) == 3
    assert max_pods(wanting, {SXM: 1}, ["", SXM, PCIE, OTHER]) is None, "PCIE has no limit"
    assert max_pods(wanting, {OTHER: 1}, ["", SXM, PCIE, OTHER]) is None


def test_gang_in_the_fabric_is_placed_in_the_first_session_that_counts_the_models_of_a_pool() -> None:
    """The session has more resources than there were before: amounts of its gangs have a number for each."""
    world = Simulation(policy_of(PolicyName.LEAST_WASTE), conf=default_conf(PolicyName.LEAST_WASTE))
    world.scheduler.on_queue(Queue(QueueName("q"), pools=("team",), capability={A100: 4, H100: 4}))
    world.put_nodes(replace(one, labels={POOL: "team"}) for one in nodes())
    world.scheduler.on_fabric([HyperNode("leaf", 1, nodes=(NodeName("old"), NodeName("new"), NodeName("both")))])
    gang, other = job("gang", cards=1, queue="q"), job("other", cpu_milli=2000, queue="q")
    tasks = (*gang.tasks, replace(other.tasks[0], name="other"))
    world.submit([replace(gang, tasks=tasks, min_member=2, members=2, topology=TopologyWish(TopologyMode.HARD, 1))])
    world.run()
    assert len(world.claims) == 2
