"""Victims that may not be evicted: others take their place at once, and they are asked for again when the refusal is old."""

from dataclasses import replace

from hbox_common.model import Epoch, GangPart, Neighbour, PodBudget, PodUid, SubGangPolicy
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from .test_preemptor import CONF, share, world


def full() -> Simulation:
    """b has borrowed both nodes, and a, which deserves one of them, asks for a card."""
    simulation = world(2, [share("a", 8), share("b", 8)])
    simulation.submit(job(f"b{i}", cards=1, queue="b", created_at=float(i)) for i in range(16))
    simulation.run()
    simulation.submit([job("a0", cards=1, queue="a", created_at=100.0)])
    return simulation


def refuse(simulation: Simulation) -> set[str]:
    """The ledger says that nobody who was to leave may."""
    pods = [claim.pod_uid for claim in simulation.evicted]
    simulation.evicted.clear()
    simulation.scheduler.on_stayed(epoch=Epoch(1), pods=pods, now=simulation.now)
    return set(pods)


def test_a_victim_that_may_not_be_evicted_is_replaced_at_once_by_another() -> None:
    simulation = full()
    simulation.run()
    first = refuse(simulation)
    simulation.now += 0.2
    [plan] = simulation.run()
    assert first.isdisjoint(victim.pod_uid for victim in plan.victims)
    simulation.leave()
    simulation.run()
    assert "a0-0" in simulation.claims


def test_who_may_not_be_evicted_at_all_is_asked_for_every_half_minute_and_no_more_often() -> None:
    simulation = full()
    asked: list[str] = []
    while simulation.now < 59.0:
        simulation.now += 0.5
        simulation.run()
        asked += refuse(simulation)
    assert len(asked) == 2 * 16
    assert len(set(asked)) == 16


def test_news_of_an_older_epoch_is_no_news() -> None:
    simulation = full()
    simulation.run()
    [victim] = simulation.evicted
    simulation.scheduler.on_stayed(epoch=Epoch(0), pods=[victim.pod_uid], now=simulation.now)
    simulation.leave()
    simulation.run()
    assert "a0-0" in simulation.claims


def guarded(*pods: str, budget: str = "keep", namespace: str = "default") -> list[Neighbour]:
    return [Neighbour(PodUid(pod), namespace, budgets=(budget,)) for pod in pods]


def test_who_is_under_a_budget_that_is_used_up_is_no_victim_while_others_are() -> None:
    simulation = full()
    simulation.scheduler.on_neighbours(guarded(*(f"b{i}-0" for i in range(15))))
    simulation.scheduler.on_budgets([PodBudget("default", "keep", 0)])
    simulation.run()
    assert [claim.pod_uid for claim in simulation.evicted] == ["b15-0"]


def test_where_all_are_under_one_nobody_leaves_until_it_allows_that() -> None:
    simulation = full()
    simulation.scheduler.on_neighbours(guarded(*(f"b{i}-0" for i in range(16))))
    simulation.run()
    assert not simulation.evicted, "one that was not told of yet allows nothing"
    simulation.scheduler.on_budgets([PodBudget("default", "keep", 0)])
    simulation.now += 5.0
    simulation.run()
    assert not simulation.evicted
    simulation.submit([job("a1", cards=1, queue="a", created_at=101.0)])
    simulation.scheduler.on_budgets([PodBudget("default", "keep", 1)])
    simulation.now += 5.0
    simulation.run()
    assert len(simulation.evicted) == 1, "two wait, and one may leave"


def test_who_is_under_two_budgets_is_never_evicted_by_the_api_server_and_so_never_a_victim() -> None:
    simulation = full()
    both = [Neighbour(PodUid(f"b{i}-0"), "default", budgets=("one", "two")) for i in range(16)]
    simulation.scheduler.on_neighbours(both)
    simulation.scheduler.on_budgets([PodBudget("default", "one", 9), PodBudget("default", "two", 9)])
    simulation.run()
    assert not simulation.evicted


def test_who_never_preempts_waits() -> None:
    simulation = world(1, [share("a", 8)])
    simulation.submit([job(f"low{i}", cards=1, queue="a") for i in range(8)])
    simulation.run()
    meek = job("meek", cards=1, queue="a", priority=9)
    meek = replace(meek, tasks=tuple(replace(task, never_preempts=True) for task in meek.tasks))
    simulation.submit([meek])
    simulation.run()
    assert not simulation.evicted
    simulation.now += 5.0
    simulation.submit([job("bold", cards=1, queue="a", priority=9)])
    simulation.run()
    assert len(simulation.evicted) == 1


def gang_of(parts: dict[str, GangPart], *, min_member: int) -> Simulation:
    """A gang of four on a node of four cards, and two of higher priority that want one each."""
    simulation = Simulation(policy_of(PolicyName.BINPACK), queues=[share("a", 8)], conf=CONF)
    simulation.put_nodes([node("n0", cards=4)])
    simulation.submit([job("g", pods=4, min_member=min_member, cards=1, queue="a")])
    simulation.run()
    simulation.scheduler.on_neighbours(Neighbour(PodUid(pod), "default", part=part) for pod, part in parts.items())
    simulation.submit([job(f"high{i}", cards=1, queue="a", priority=9, created_at=5.0) for i in range(2)])
    simulation.now += 1.0
    simulation.run()
    return simulation


def test_a_gang_that_runs_gives_members_that_its_roles_can_spare() -> None:
    roles = {"master": 2, "worker": 0}
    parts = {f"g-{i}": GangPart("master" if i in (2, 3) else "worker", {}, roles, ()) for i in range(4)}
    assert {claim.pod_uid for claim in gang_of(parts, min_member=2).evicted} == {"g-0", "g-1"}
    parts = {f"g-{i}": GangPart("master" if i in (0, 1) else "worker", {}, roles, ()) for i in range(4)}
    assert {claim.pod_uid for claim in gang_of(parts, min_member=2).evicted} == {"g-2", "g-3"}


def test_a_gang_that_runs_gives_one_of_its_sub_gangs_not_half_of_each() -> None:
    policy = SubGangPolicy("slices", labels=("slice",), size=2, min_sub_gangs=1)
    parts = {f"g-{i}": GangPart("", {"slice": "ab"[i % 2]}, {}, (policy,)) for i in range(4)}
    evicted = {claim.pod_uid for claim in gang_of(parts, min_member=2).evicted}
    assert evicted in ({"g-0", "g-2"}, {"g-1", "g-3"})


def test_a_gang_that_can_spare_nobody_goes_whole() -> None:
    policy = SubGangPolicy("slices", labels=("slice",), size=2, min_sub_gangs=2)
    parts = {f"g-{i}": GangPart("", {"slice": "ab"[i % 2]}, {}, (policy,)) for i in range(4)}
    assert len(gang_of(parts, min_member=2).evicted) == 4
