"""One engine: whichever policy is followed, queues take turns and equal pods are placed at once."""

from collections import Counter
from dataclasses import replace

import pytest

from hbox_common.model import JobId, Queue, QueueName
from hbox_common.model.devices import GPU
from hbox_scheduler.core.framework.conf import Conf
from hbox_scheduler.core.framework.placing import Placing
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.protocol.limits import Limits
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from ...policies import volcano

POLICIES = pytest.mark.parametrize("conf", [default_conf(), volcano()], ids=["own", "volcano's"])


def share(name: str, cards: int) -> Queue:
    return Queue(QueueName(name), deserved={GPU: cards})


def world(conf: Conf, *queues: Queue, limits: Limits | None = None, nodes: int = 1) -> Simulation:
    made = Simulation(policy_of(PolicyName.BINPACK), queues=queues, conf=conf, limits=limits)
    made.put_nodes(node(f"n{i}", cards=8) for i in range(nodes))
    return made


def held(simulation: Simulation) -> Counter[str]:
    return Counter(str(claim.queue) for claim in simulation.claims.values())


@POLICIES
@pytest.mark.parametrize("in_a_session", [8, 512])
def test_older_jobs_of_others_do_not_take_what_a_queue_deserves(conf: Conf, in_a_session: int) -> None:
    simulation = world(conf, share("a", 4), share("b", 4), limits=Limits(session_jobs=in_a_session))
    simulation.submit(job(f"a{i}", cards=1, queue="a", created_at=float(i)) for i in range(24))
    simulation.submit(job(f"b{i}", cards=1, queue="b", created_at=100.0 + i) for i in range(8))
    simulation.run()
    assert held(simulation) == {"a": 4, "b": 4}


@POLICIES
def test_queues_that_deserve_nothing_are_served_by_what_they_have(conf: Conf) -> None:
    simulation = world(conf, Queue(QueueName("a")), Queue(QueueName("b")))
    simulation.submit(job(f"a{i}", cards=1, queue="a", created_at=float(i)) for i in range(24))
    simulation.submit(job(f"b{i}", cards=1, queue="b", created_at=100.0 + i) for i in range(8))
    simulation.run()
    assert held(simulation) == {"a": 4, "b": 4}


@POLICIES
@pytest.mark.parametrize("pods", [1, 2])
def test_of_jobs_made_in_one_second_names_decide_and_not_uids(conf: Conf, pods: int) -> None:
    simulation = world(conf, Queue(QueueName("a")))
    names = [f"job-{i}" for i in range(6)]
    made = [job(name, cards=8 // pods, pods=pods, queue="a") for name in names]
    simulation.submit(replace(one, id=JobId(f"uid-{9 - i}")) for i, one in enumerate(made))
    simulation.run()
    assert {str(claim.job) for claim in simulation.claims.values()} == {"uid-9"}


@POLICIES
def test_equal_pods_are_placed_at_once(conf: Conf, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[object] = []
    find = Placing.find

    def counted(self: Placing, member: object, *more: object, **given: object) -> object:
        searched.append(member)
        return find(self, member, *more, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(Placing, "find", counted)
    simulation = world(conf, Queue(QueueName("a")), nodes=4)
    simulation.submit(job(f"a{i}", cards=1, queue="a", created_at=float(i)) for i in range(16))
    simulation.submit([job("gang", pods=8, cards=2, queue="a", created_at=20.0)])
    simulation.run()
    assert len(simulation.claims) == 24
    assert not searched


@POLICIES
def test_who_has_no_place_waits_without_another_look_until_something_changes(conf: Conf) -> None:
    simulation = world(conf, Queue(QueueName("a")))
    simulation.submit(job(f"a{i}", cards=8, queue="a", created_at=float(i)) for i in range(3))
    simulation.run()
    assert "CardsInUse" in simulation.verdicts[JobId("a2")] or "CardExclusive" in simulation.verdicts[JobId("a2")]
    looks = simulation.scheduler.columns.changes.end
    simulation.now += 60.0
    simulation.run()
    assert simulation.scheduler.columns.changes.end == looks
    simulation.finish([pod for pod, claim in simulation.claims.items() if claim.job == "a0"])
    simulation.run()
    assert {claim.job for claim in simulation.claims.values()} == {"a1"}


@POLICIES
def test_pods_that_wait_are_counted_as_they_come_and_go(conf: Conf) -> None:
    simulation = world(conf, Queue(QueueName("a")))
    waiting = simulation.scheduler.reports.waiting
    simulation.submit([job("one", cards=8, queue="a"), job("two", pods=2, cards=8, queue="a", created_at=1.0)])
    assert sum(waiting.values()) == 3
    simulation.run()
    assert sum(waiting.values()) == 2, "one has its place"
    simulation.submit([job("two", pods=3, cards=8, queue="a", created_at=1.0, revision=2)])
    simulation.run()
    assert sum(waiting.values()) == 3
    simulation.scheduler.on_withdrawn([JobId("two")], [3])
    assert not waiting


def test_another_policy_sees_of_waiting_pods_what_the_one_before_did_not_ask_for() -> None:
    """Gangs are kept from session to session, without the images of their pods where no plugin reads them."""
    simulation = world(default_conf(), Queue(QueueName("a")))
    waits = job("waits", pods=40, cards=8, queue="a")
    simulation.submit([replace(waits, tasks=tuple(replace(task, images=("cuda",)) for task in waits.tasks))])
    simulation.run()
    entry = simulation.scheduler.reports.entry(JobId("waits"))
    assert entry is not None
    assert entry.gang is not None
    simulation.scheduler.follow(volcano())
    assert entry.gang is None
