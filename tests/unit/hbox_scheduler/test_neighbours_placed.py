"""Pods that have to do with each other, in the running scheduler: apart, near, and spread, also beside those that were bound before."""

import pytest

from hbox_common.events import Event, JobsPending
from hbox_common.events.codec import decode, encode, headers
from hbox_common.model import (
    DEFAULT_QUEUE,
    Claim,
    ClaimId,
    ClaimState,
    JobId,
    Match,
    MatchOperator,
    Neighbour,
    NodeName,
    PlanId,
    PodConstraints,
    PodTerm,
    PodUid,
    Queue,
    QueueName,
    Selector,
    Spread,
)
from hbox_common.model.resources import CPU, PODS
from hbox_scheduler.core.cluster.entities import Member
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.framework.placing import Placing
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import DEFAULT_CONF
from hbox_scheduler.core.policy.registry import PLUGINS
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

WEB = Selector((Match("app", MatchOperator.IN, ("web",)),))
HOST, ZONE = "kubernetes.io/hostname", "zone"
APART = PodConstraints(anti_affinity=(PodTerm(HOST, WEB),))


def world(nodes: int) -> Simulation:
    """`n0`, `n1`, ...; even ones in zone a, odd ones in b."""
    conf = parse_conf(DEFAULT_CONF, plugins=list(PLUGINS))
    simulation = Simulation(policy_of(PolicyName.BINPACK), queues=[Queue(DEFAULT_QUEUE)], conf=conf)
    simulation.put_nodes(node(f"n{i}", cpu=64, labels={HOST: f"n{i}", ZONE: "ab"[i % 2]}) for i in range(nodes))
    return simulation


def submit(
    simulation: Simulation, name: str, constraints: PodConstraints, *, labels: dict[str, str] | None = None, pods: int = 1
) -> None:
    neighbours = [
        Neighbour(PodUid(f"{name}-{i}"), "default", {"app": "web"} if labels is None else labels, constraints)
        for i in range(pods)
    ]
    simulation.scheduler.on_neighbours(neighbours)
    simulation.submit([job(name, pods=pods, created_at=float(len(simulation.claims)))])


def where(simulation: Simulation) -> dict[str, NodeName]:
    return {str(uid): claim.node for uid, claim in simulation.claims.items()}


def settle(simulation: Simulation) -> None:
    for _ in range(5):
        simulation.now += 1.0
        simulation.run()


def test_pods_that_want_to_be_apart_are() -> None:
    simulation = world(3)
    submit(simulation, "web", APART, pods=3)
    settle(simulation)
    assert sorted(where(simulation).values()) == ["n0", "n1", "n2"]


def test_one_too_many_waits_is_told_why_and_goes_where_one_of_them_has_left() -> None:
    simulation = world(2)
    for name in ("a", "b", "c"):
        submit(simulation, name, APART)
        settle(simulation)
    assert set(where(simulation)) == {"a-0", "b-0"}
    assert "2 PodAntiAffinityMismatch" in simulation.verdicts[next(v for v in simulation.verdicts if v == "c")]
    freed = where(simulation)["a-0"]
    simulation.finish([PodUid("a-0")])
    settle(simulation)
    assert where(simulation)["c-0"] == freed


def test_those_who_are_there_keep_others_away_though_the_newcomer_wants_nothing() -> None:
    simulation = world(2)
    submit(simulation, "shy", APART)
    settle(simulation)
    submit(simulation, "plain", PodConstraints())
    settle(simulation)
    assert where(simulation)["plain-0"] != where(simulation)["shy-0"]


def test_a_pod_follows_the_one_that_it_wants_to_be_near_also_when_that_comes_later() -> None:
    near = PodConstraints(affinity=(PodTerm(ZONE, WEB),))
    simulation = world(4)
    submit(simulation, "client", near, labels={})
    settle(simulation)
    assert not where(simulation)
    submit(simulation, "server", PodConstraints())
    settle(simulation)
    settle(simulation)
    zone = {"n0": "a", "n1": "b", "n2": "a", "n3": "b"}
    placed = where(simulation)
    assert zone[placed["client-0"]] == zone[placed["server-0"]]


def test_pods_are_spread_over_zones_within_the_skew() -> None:
    simulation = world(4)
    submit(simulation, "web", PodConstraints(spread=(Spread(1, ZONE, True, WEB),)), pods=6)
    settle(simulation)
    zones = ["ab"[int(name[1]) % 2] for name in where(simulation).values()]
    assert sorted(zones) == ["a", "a", "a", "b", "b", "b"]


def test_where_there_are_fewer_zones_than_asked_for_each_takes_no_more_than_the_skew() -> None:
    simulation = world(4)
    for name in "abcd":
        submit(simulation, name, PodConstraints(spread=(Spread(1, ZONE, True, WEB, min_domains=3),)))
    settle(simulation)
    assert sorted("ab"[int(name[1]) % 2] for name in where(simulation).values()) == ["a", "b"]


def foreign(
    simulation: Simulation, name: str, on: str, constraints: PodConstraints, *, labels: dict[str, str] | None = None
) -> None:
    """A pod of another scheduler, which no queue counts, as job-controller and ledger tell of it."""
    uid = PodUid(name)
    simulation.scheduler.on_neighbours([Neighbour(uid, "default", labels or {}, constraints)])
    found = Claim(
        ClaimId(f"found-{name}"), uid, "default", name, JobId(uid), PlanId(""), QueueName(""), 0, NodeName(on), {CPU: 100, PODS: 1},
        state=ClaimState.POSTED, preemptable=False,
    )  # fmt: skip
    simulation.hold([found])


def test_pods_of_other_schedulers_are_company_and_keep_away_like_ours() -> None:
    simulation = world(4)
    foreign(simulation, "theirs", "n1", PodConstraints(), labels={"app": "web"})
    foreign(simulation, "shy", "n2", APART)
    submit(simulation, "apart", APART, labels={"app": "db"})
    submit(simulation, "near", PodConstraints(affinity=(PodTerm(HOST, WEB),)), labels={"app": "db"})
    settle(simulation)
    assert where(simulation)["near-0"] == "n1"
    assert where(simulation)["apart-0"] != "n1"
    for number in range(3):
        submit(simulation, f"web{number}", PodConstraints())
        settle(simulation)
        assert where(simulation)[f"web{number}-0"] != "n2"


def test_a_pod_of_another_scheduler_that_is_gone_keeps_nobody_away() -> None:
    simulation = world(1)
    foreign(simulation, "shy", "n0", APART)
    submit(simulation, "web", PodConstraints())
    settle(simulation)
    assert "web-0" not in where(simulation)
    simulation.gone([PodUid("shy")])
    settle(simulation)
    assert where(simulation)["web-0"] == "n0"


def test_a_spread_without_conditions_counts_nobody_as_kube_scheduler_has_it() -> None:
    everybody = Spread(1, HOST, True, Selector(), honor_affinity=False)
    simulation = world(2)
    for name in ("a", "b", "c"):
        simulation.scheduler.on_neighbours(
            [Neighbour(PodUid(f"{name}-0"), "default", {"app": "web"}, PodConstraints(spread=(everybody,)))]
        )
        simulation.submit([job(name, node_selector={HOST: "n0"})])
        settle(simulation)
    assert set(where(simulation).values()) == {"n0"}
    assert len(where(simulation)) == 3


def test_a_pod_that_is_being_deleted_counts_for_no_spread_and_is_company_until_it_is_gone() -> None:
    """As in kube-scheduler."""
    spread = PodConstraints(spread=(Spread(1, HOST, True, WEB, honor_affinity=False),))
    near = PodConstraints(affinity=(PodTerm(HOST, WEB),))
    simulation = world(2)
    on_n0 = {HOST: "n0"}
    for name, constraints in (("old", spread), ("more", spread)):
        simulation.scheduler.on_neighbours([Neighbour(PodUid(f"{name}-0"), "default", {"app": "web"}, constraints)])
        simulation.submit([job(name, node_selector=on_n0)])
        settle(simulation)
    assert set(where(simulation)) == {"old-0"}
    simulation.scheduler.on_neighbours(
        [
            Neighbour(PodUid("old-0"), "default", {"app": "web"}, spread, leaving=True),
            Neighbour(PodUid("near-0"), "default", {}, near),
        ]
    )
    simulation.submit([job("near", node_selector=on_n0)])
    settle(simulation)
    assert set(where(simulation)) == {"old-0", "more-0", "near-0"}


def test_gangs_that_cannot_be_apart_start_nowhere() -> None:
    simulation = world(2)
    submit(simulation, "web", APART, pods=3)
    settle(simulation)
    assert not where(simulation)


def test_a_newcomer_that_reads_jobs_before_claims_knows_who_is_there() -> None:
    """As after a restart: the snapshot of jobs and neighbours comes first, the claims of those bound behind it."""
    first = world(2)
    submit(first, "a", APART)
    settle(first)
    again = world(2)
    again.scheduler.on_neighbours([Neighbour(PodUid(f"{name}-0"), "default", {"app": "web"}, APART) for name in "abc"])
    waiting = [job(name, created_at=9.0) for name in "bc"]
    again.scheduler.on_jobs_snapshot(waiting, since=again.scheduler.mark())
    again.claims.update(first.claims)
    again._publish_claims(list(first.claims.values()))  # what the ledger says to a newcomer
    settle(again)
    assert len(set(where(again).values())) == len(where(again)) == 2


def test_jobs_that_come_at_once_keep_apart_too() -> None:
    simulation = world(2)
    submit(simulation, "a", APART)
    settle(simulation)
    for name in ("b", "c"):
        submit(simulation, name, APART)
    settle(simulation)
    assert sorted(where(simulation).values()) == ["n0", "n1"]


def test_places_that_the_ledger_has_not_answered_count() -> None:
    simulation = world(2)
    for name in ("a", "b", "c"):
        submit(simulation, name, APART)
        simulation.now += 1.0
        plans = simulation.scheduler.cycle(simulation.now).plans
        assert len(plans) == (0 if name == "c" else 1)


def over_the_bus(event: Event) -> Event:
    return decode(encode(event), headers(event, source="test", message_id="1", now=0.0))


@pytest.mark.parametrize(
    ("constraints", "alone"), [(PodConstraints(), 0), (APART, 1)], ids=["a note that policies read", "an anti-affinity"]
)
def test_only_pods_that_want_something_of_others_are_placed_one_by_one(
    constraints: PodConstraints, alone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Member] = []
    find = Placing.find

    def counted(self: Placing, member: Member, *more: object) -> object:
        found.append(member)
        return find(self, member, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(Placing, "find", counted)
    simulation = world(2)
    neighbour = Neighbour(PodUid("a-0"), "default", constraints=constraints, annotations={"volcano.sh/preemptable": "true"})
    told = over_the_bus(JobsPending(jobs=(job("a"),), neighbours=(neighbour,)))
    assert isinstance(told, JobsPending)
    simulation.scheduler.on_neighbours(told.neighbours)
    simulation.submit(told.jobs)
    settle(simulation)
    assert set(where(simulation)) == {"a-0"}
    assert len(found) == alone
