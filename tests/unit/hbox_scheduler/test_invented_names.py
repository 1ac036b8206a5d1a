"""A tenant's names cost the tenant: once its pods are gone, the scheduler holds no name, column or code of theirs, and pods of others cost what they did."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from hbox_common.model import (
    DEFAULT_QUEUE,
    CardRequest,
    ClaimId,
    Generation,
    Job,
    JobId,
    Neighbour,
    NodeState,
    PodConstraints,
    PodGroupTask,
    PodTerm,
    PodUid,
    Queue,
    QueueName,
    Selector,
)
from hbox_scheduler.core.policy import PolicyName, policy_of
from hbox_scheduler.core.policy.default import default_conf
from hbox_scheduler.core.queueing.jobs import Entry
from hbox_scheduler.core.queueing.unschedulable import SCANNED
from hbox_scheduler.core.simulate.simulation import Simulation, job, node

from ...invented_names import KINDS, MARK, bring, held, nodes, pass_time, remove, settle
from .test_many_queues import operations

COUNT = 40
#: How much more a pod of another namespace may cost afterwards.
TIMES = 1.1

#: Where names may be left: lists of fixed size that no other pod's cost depends on.
BOUNDED = (
    "scheduler._queue._withdrawn",  # 50,000 jobs, of which late messages are ignored
    "scheduler._groups._gone",  # the same of PodGroups
    "scheduler.columns._resource",  # fewer than as many as are needed
    "scheduler._queue._routes",  # of 1,024 queues that have no jobs
    "scheduler._demand.cards",  # 2,048 requests, the mix by which models are compared
    "scheduler.columns.card_sets.kept._requests",  # 256 requests for cards by id
    "scheduler.columns.empty.last",  # one request
    "scheduler._sessions._running._gangs.watchers",  # amounts of 4,096 tasks, which these references are weak to:
    "scheduler.tasks._known",
    "scheduler._runner._reasons._known",
    "scheduler._runner._headlines._rooms._known",
    "scheduler._runner.reservations._plugin.large_jobs._room",
    "scheduler._sessions._waiting._vectors",
    "scheduler.views.states._ranks",
)


def world() -> Simulation:
    made = Simulation(
        policy_of(PolicyName.BINPACK), queues=[Queue(DEFAULT_QUEUE), Queue(QueueName("team"))], conf=default_conf()
    )
    made.now = 100.0
    made.put_nodes(nodes(12))
    for i in range(3):
        life_of_a_pod(made, f"first-{i}")
    return made


def life_of_a_pod(s: Simulation, name: str) -> None:
    s.submit([replace(job(name, cards=1, queue="team", created_at=s.now), namespace="other")])
    s.run()
    assert PodUid(f"{name}-0") in s.claims
    s.finish([PodUid(f"{name}-0")])
    s.run()


def cost(s: Simulation, name: str) -> int:
    return min(operations(lambda i=i: life_of_a_pod(s, f"{name}-{i}")) for i in range(2))  # type: ignore[misc]


def sizes(s: Simulation) -> tuple[int, ...]:
    columns = s.scheduler.columns
    return (*columns.allocatable.shape, len(columns.resources), len(columns.model_names), len(columns.descriptions))


def left(s: Simulation) -> Counter[str]:
    found = held({"scheduler": s.scheduler})
    return Counter({path: places for path, places in found.items() if not path.startswith(BOUNDED)})


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_released_with_their_pods(kind: str) -> None:
    s = world()
    before, size = cost(s, "before"), sizes(s)
    bring(s, KINDS[kind], range(COUNT))
    settle(s)
    assert any(MARK in job for job in s.scheduler._queue.entries)
    remove(s, KINDS[kind], range(COUNT))
    settle(s)
    pass_time(s)
    after = cost(s, "after")
    now = sizes(s)
    assert (now[0], now[1], now[3]) == (size[0], size[1], size[3])
    assert now[2] < 2 * size[2]
    assert left(s) == Counter()
    assert after <= TIMES * before


@pytest.mark.parametrize("kind", ["resources", "label keys, selectors", "label keys, affinity", "topology keys", "volumes"])
def test_names_of_waiting_pods_get_no_column(kind: str) -> None:
    s = world()
    size = sizes(s)
    bring(s, KINDS[kind], range(50))
    settle(s)
    assert sizes(s) == size


def asking(name: str, resource: str, *, queue: str = DEFAULT_QUEUE) -> Job:
    made = job(name, queue=queue)
    return replace(made, tasks=(replace(made.tasks[0], requests={**made.tasks[0].requests, resource: 1}),))


def queues(names: Iterable[str], s: Simulation, *, gone: bool = False) -> None:
    for name in names:
        rules = {} if gone else {f"{name}.io/card": 2}
        s.scheduler.on_queue(Queue(QueueName(name), capability=rules), gone=gone)


def test_column_of_a_deleted_queue_is_released_while_pods_that_request_it_wait() -> None:
    s = world()
    names = [f"{MARK}-{i}" for i in range(40)]
    queues(names, s)
    s.submit([asking(name, f"{name}.io/card", queue=name) for name in names])
    settle(s)
    queues(names, s, gone=True)
    settle(s)
    assert len(s.scheduler.columns.allocatable) == 8
    s.put_nodes([offering("late", f"{names[3]}.io/card")])
    queues(names[3:4], s)
    settle(s)
    assert s.claims[PodUid(f"{names[3]}-0")].node == "late"


def offering(name: str, *resources: str, generation: int = 1, model: str = "A100", labels: Iterable[str] = ()) -> NodeState:
    made = node(name, cards=2, generation=generation, model=model, labels=dict.fromkeys(labels, "yes"))
    return replace(made, allocatable={**made.allocatable, **dict.fromkeys(resources, 1)})


def test_column_of_a_deleted_queue_stays_while_a_pod_holds_it() -> None:
    s = world()
    s.put_nodes([offering("n", f"{MARK}.io/card")])
    queues([MARK], s)
    s.submit([asking("holds", f"{MARK}.io/card", queue=MARK)])
    s.run()
    others = [f"other-{i}" for i in range(40)]
    queues(others, s)
    s.put_nodes([offering("n", generation=2)])
    queues([MARK, *others], s, gone=True)
    s.run()
    columns = s.scheduler.columns
    assert columns.used[columns.resources[f"{MARK}.io/card"]].sum() == 1
    assert len(columns.allocatable) == 8


def test_jobs_that_wait_by_class_survive_the_release_of_columns() -> None:
    """Jobs with constraints about other pods wait by equivalence class, which refers to columns."""
    s = world()
    names = [f"{MARK}-{i}" for i in range(40)]
    queues(names, s)
    apart = PodConstraints(anti_affinity=(PodTerm("kubernetes.io/hostname", Selector()),))
    for name in names:
        s.scheduler.on_neighbours([Neighbour(PodUid(f"{name}-0"), "default", {}, apart)])
    s.submit([asking(name, f"{name}.io/card", queue=name) for name in names])
    settle(s)
    queues(names, s, gone=True)
    settle(s)
    life_of_a_pod(s, "after")
    assert len(s.scheduler.columns.allocatable) == 8


def test_models_and_labels_of_deleted_nodes_are_released() -> None:
    s = world()
    size = sizes(s)
    for hour in range(200):
        name, resource = f"{MARK}-{hour}", f"{MARK}.io/{hour}"
        s.put_nodes([offering("odd", resource, generation=hour + 1, model=name, labels=(f"{MARK}.io/label-{hour}",))])
        s.submit([replace(asking(f"pod-{hour}", resource), tasks=_selecting(asking(f"pod-{hour}", resource), name, hour))])
        s.run()
        assert s.claims[PodUid(f"pod-{hour}-0")].node == "odd"
        s.finish([PodUid(f"pod-{hour}-0")])
    s.scheduler.on_node(replace(offering("odd", generation=1000), gone=True, generation=Generation(1000)))
    pass_time(s)
    now = sizes(s)
    assert now[0] == size[0]
    assert now[2] <= 2 * size[2]
    assert now[3] <= 2 * size[3] + 33
    assert now[4] == size[4]


def _selecting(made: Job, model: str, hour: int) -> tuple[PodGroupTask, ...]:
    spec = made.tasks[0]
    requests = {**spec.requests, "nvidia.com/gpu": 1}
    return (
        replace(
            spec, requests=requests, cards=CardRequest(1, models=(model,)), node_selector={f"{MARK}.io/label-{hour}": "yes"}
        ),
    )


def test_models_keep_their_cards_when_codes_change() -> None:
    s = world()
    s.put_nodes([offering("b", model="B200")])
    for hour in range(100):
        s.put_nodes([offering("odd", generation=hour + 1, model=f"{MARK}-{hour}")])
    s.put_nodes([offering("c", model="C300")])
    columns = s.scheduler.columns
    assert len(columns.model_names) < 50
    for name, model in (("b", "B200"), ("c", "C300"), ("odd", f"{MARK}-99"), ("node-00003", "A100")):
        row = columns.row_of[name]  # type: ignore[index]
        assert columns.model_names[columns.card_model[row, 0]] == model
        made = job(f"on-{name}", cards=1)
        s.submit([replace(made, tasks=(replace(made.tasks[0], cards=CardRequest(1, models=(model,))),))])
        s.run()
        state = columns.states[columns.row_of[s.claims[PodUid(f"on-{name}-0")].node]]
        assert state is not None
        assert state.cards[0].model == model


def test_codes_of_models_have_a_version() -> None:
    s = world()
    columns = s.scheduler.columns
    before = columns.model_codes
    for hour in range(100):
        s.put_nodes([offering("odd", generation=hour + 1, model=f"{MARK}-{hour}")])
        if len(columns.model_names) == before[1]:
            assert columns.model_names[-1] == f"{MARK}-{hour}"
            assert columns.model_codes != before
        before = columns.model_codes if hour == 10 else before


def test_constraints_survive_a_late_claim() -> None:
    """The job is withdrawn before the claim arrives: messages about one pod arrive on several streams."""
    s = world()
    apart = PodConstraints(anti_affinity=(PodTerm("kubernetes.io/hostname", Selector(())),))
    pod = PodUid("late-0")
    s.scheduler.on_neighbours([Neighbour(pod, "default", {"app": "late"}, apart)])
    s.submit([job("first", cards=1)])
    s.run()
    claim = s.claims[PodUid("first-0")]
    s.now += 30.0
    s.run()
    s.hold([replace(claim, id=ClaimId("late"), pod_uid=pod, pod="late-0", job=JobId("late"), slices=())])
    pass_time(s)
    [gang] = [gang for gang in s.scheduler._sessions._running.current().gangs.values() if gang.id == "late"]
    assert gang.members[0].constraints == apart


def test_unused_views_are_dropped() -> None:
    s = world()
    bring(s, KINDS["label values"], range(20))
    settle(s)
    assert len(s.scheduler.views._views) > 10
    remove(s, KINDS["label values"], range(20))
    pass_time(s)
    assert len(s.scheduler.views._views) == 0


@pytest.mark.parametrize("count", [100, SCANNED + 100], ids=["few", "looked through in parts"])
def test_jobs_of_models_that_no_node_has_are_not_examined_when_pods_end(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    s = world()
    bring(s, KINDS["card models"], range(count))
    settle(s)
    examined: list[object] = []
    waiting = s.scheduler._unschedulable
    activate = waiting._activate_some

    def noted(key: Any, *more: Any) -> list[Entry]:
        examined.append(key)
        return activate(key, *more)

    monkeypatch.setattr(waiting, "_activate_some", noted)
    for number in range(5):
        s.submit([job(f"one-{number}", cards=1)])
        s.run()
        s.finish([PodUid(f"one-{number}-0")])
    assert not examined
    s.put_nodes([offering("late", generation=1, model=f"{MARK}-model-3")])
    s.now += 10.0
    s.run()
    placed = {claim.job for claim in s.claims.values()}
    assert [one for one in placed if MARK in one], "a node that has the model makes its job start"
    s.run()
    remove(s, KINDS["card models"], range(count))
    pass_time(s)
    assert not waiting._possible, "the tasks of jobs that are gone are not kept"
