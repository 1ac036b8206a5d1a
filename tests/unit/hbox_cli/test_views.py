"""What people see of jobs and nodes."""

from dataclasses import replace
from typing import Any

import pytest

from hbox_cli.access.brokersource import late_pods
from hbox_cli.access.jobnames import find
from hbox_cli.commands.why import explain, late_text
from hbox_common.errors import NotFound
from hbox_common.events import JobVerdict
from hbox_common.model import (
    Card,
    CardId,
    CardRequest,
    CardSlice,
    Claim,
    ClaimId,
    Generation,
    GroupPhase,
    GroupState,
    Job,
    JobId,
    JobWait,
    LeavingPod,
    NodeName,
    NodeState,
    PlanId,
    PodFact,
    PodGroupTask,
    PodPhase,
    PodRef,
    PodUid,
    QueueName,
    Verdict,
)
from hbox_common.views.jobs import job_items
from hbox_common.views.nodes import node_items, scopes_item, scopes_text

DEFAULT = QueueName("default")


def job(name: str, *, waiting: int = 0, bound: int = 0, least: int = 1, problem: str = "", at: float = 0.0) -> Job:
    pods = tuple(PodRef(PodUid(f"{name}-{i}"), f"{name}-{i}", "1") for i in range(waiting))
    tasks = (PodGroupTask("main", {"pods": 1}, pods, CardRequest(2)),) if pods else ()
    return Job(JobId(name), "ml", name, DEFAULT, 0, least, waiting + bound, bound, at, 1, tasks, problem=problem)


def fact(of: str, phase: PodPhase) -> PodFact:
    return PodFact(PodUid(f"{of}-p"), "ml", f"{of}-p", phase, NodeName("n"), JobId(of), DEFAULT, 0, {}, cards=2)


def test_who_was_to_have_ended_and_still_holds_cards_is_named() -> None:
    def leaving(name: str, ends_at: float, *finalizers: str) -> LeavingPod:
        return LeavingPod("ml", name, NodeName("n"), 2, ends_at, finalizers)

    pods = [
        leaving("late", 100.0),
        leaving("later", 40.0, "example.com/keep"),
        leaving("a-little", 990.0),
        leaving("will", 1030.0),
    ]
    found = late_pods(pods, now=1000.0)
    assert [one["pod"] for one in found] == ["ml/later", "ml/late"]
    assert late_text(found[0]) == (
        "ml/later still has 2 cards of n: it is being deleted and should have ended 16m ago, but its kubelet has not reported that it ended, "
        "and example.com/keep will have to let go of it"
    )


def test_the_state_of_a_job_follows_from_its_pods_and_verdicts() -> None:
    jobs = [
        job("new", waiting=2),
        job("waits", waiting=2),
        job("wrong", waiting=1, problem="no PodGroup"),
        job("volume", waiting=1, problem='VolumesNotReady: pod p: persistentvolumeclaim "data" not found'),
        job("unread", waiting=1, problem="PodGroupNotRead: PodGroup ml/g could not be read"),
        job("grows", waiting=1, bound=1),
        job("bound", bound=1),
        job("runs", bound=1),
        job("gang", waiting=2, bound=1, least=3),
    ]
    pods = [fact("bound", PodPhase.BOUND), fact("runs", PodPhase.RUNNING), fact("gone", PodPhase.GONE)]
    items = {item["id"]: item for item in job_items(jobs, pods, {JobId("waits"): "0/3 nodes", JobId("runs"): "old"}, now=60)}
    assert {name: item["state"] for name, item in items.items()} == {
        "new": "PENDING", "waits": "WAITING", "wrong": "INVALID", "volume": "WAITING", "unread": "WAITING",
        "grows": "GROWING", "bound": "BOUND", "runs": "RUNNING", "gang": "PENDING",
    }  # fmt: skip
    assert (items["waits"]["reason"], items["runs"]["reason"], items["wrong"]["reason"]) == ("0/3 nodes", "", "no PodGroup")
    assert (items["waits"]["cards"], items["runs"]["cards"], items["new"]["ageSeconds"]) == (4, 2, 60)


def test_job_has_verdict_code_and_owner_while_it_waits() -> None:
    found = {
        JobId(name): JobVerdict(job=JobId(name), message="0/3", code="CardsInUse", outcome="wait", owner="system")
        for name in ("waits", "runs")
    }
    pods = [fact("runs", PodPhase.RUNNING)]
    items = job_items([job("waits", waiting=1), job("runs", bound=1), job("new", waiting=1)], pods, {}, found=found, now=60)
    assert {item["id"]: (item["verdict"], item["code"], item["owner"]) for item in items} == {
        "waits": ("wait", "CardsInUse", "system"),
        "runs": ("", "", ""),
        "new": ("", "", ""),
    }


def test_a_pod_group_that_is_not_enqueued_is_a_job_before_it_has_pods() -> None:
    def group(name: str, phase: GroupPhase = GroupPhase.PENDING) -> GroupState:
        return GroupState(JobId(name), "ml", name, DEFAULT, 7, 4, 1.0, {"nvidia.com/gpu": 8}, 1, phase)

    groups = [group("outside"), group("with-pods"), group("in", GroupPhase.INQUEUE)]
    why = {JobId("outside"): "NotEnqueued: capacity: no"}
    items = job_items([job("with-pods", waiting=1)], [], why, groups=groups, now=60)
    assert {item["id"]: (item["state"], item["cards"]) for item in items} == {
        "with-pods": ("PENDING", 2),
        "outside": ("WAITING", 8),
    }
    found = find(items, "outside")
    assert (found["pods"], found["priority"], explain(found)) == (
        {"bound": 0, "members": 0, "min": 4}, 7, "wait: NotEnqueued: the PodGroup is not admitted yet: capacity: no",
    )  # fmt: skip


def test_the_oldest_job_comes_first() -> None:
    assert [item["id"] for item in job_items([job("b", at=2), job("a", at=1)], [], {}, now=3)] == ["a", "b"]


def test_a_node_shows_what_its_claims_leave() -> None:
    cards = tuple(Card(i, f"u{i}", "T4", 16_000, 10) for i in range(3))
    node = NodeState(NodeName("n"), "u", Generation(1), True, allocatable={"cpu": 8000}, cards=cards)
    claims = [
        Claim(
            ClaimId(str(i)),
            PodUid(str(i)),
            "ml",
            "p",
            JobId("j"),
            PlanId(""),
            DEFAULT,
            0,
            NodeName("n"),
            {"cpu": 1000, "pods": 1},
            slices,
        )
        for i, slices in enumerate([(CardSlice(0, 100, 16_000),), (CardSlice(1, 30, 4_000),), ()])
    ]
    sick = Verdict(NodeName("n"), Generation(1), True, (2,), "XID 79")
    (item,) = node_items([node, NodeState(NodeName("old"), "u", Generation(2), False, gone=True)], {"n": sick}, claims)
    assert item["cards"] == {"free": 0, "total": 3, "freePercent": [0, 70, 0]}, "no sick card is free"
    assert (item["state"], item["healthy"], item["badCards"], item["reason"]) == ("READY", False, [2], "XID 79")
    assert (item["pods"], item["used"]) == (3, {"cpu": 3000, "pods": 3})


@pytest.mark.parametrize(
    ("ready", "cordoned", "state"), [(True, False, "READY"), (True, True, "CORDONED"), (False, True, "NOT-READY")]
)
def test_the_state_of_a_node(ready: bool, cordoned: bool, state: str) -> None:
    (item,) = node_items([NodeState(NodeName("n"), "u", Generation(1), ready, unschedulable=cordoned)], {}, [])
    assert item["state"] == state


def test_why_finds_a_job_by_each_of_its_names() -> None:
    items = job_items(
        [job("train-7", waiting=1), job("eval", bound=1)], [], {JobId("train-7"): "0/3 nodes are available"}, now=0
    )
    assert find(items, "train-7") == find(items, "ml/train-7")
    assert explain(find(items, "train-7")) == "waits: 0/3 nodes are available"
    assert explain(find(items, "eval")).startswith("placed")
    with pytest.raises(NotFound, match="did you mean"):
        find(items, "train-8")
    with pytest.raises(NotFound, match="2 jobs are called x"):
        find([{"id": "1", "name": "a/x"}, {"id": "2", "name": "b/x"}], "x")


def test_why_finds_a_job_by_one_of_its_pods() -> None:
    items = job_items([job("train-7", waiting=2)], [], {}, now=0)
    pod = items[0]["waiting"][0]
    assert find(items, pod) == find(items, f"ml/{pod}") == items[0]
    with pytest.raises(NotFound):
        find(items, f"other/{pod}")


def test_items_of_jobs_have_their_waiting_by_code() -> None:
    wait = JobWait(JobId("a"), "CardsInUse", 90.0, {"QueueShareSpent": 480.0})
    (item,) = job_items([job("a", waiting=1)], [], {}, waits={wait.job: wait}, now=100.0)
    assert item["waitSeconds"] == {"QueueShareSpent": 480.0, "CardsInUse": 10.0}
    assert item["traceId"] == ""


def test_items_of_jobs_have_the_id_of_their_trace() -> None:
    traced = replace(job("a", waiting=1), traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    (item,) = job_items([traced], [], {}, now=100.0)
    assert item["traceId"] == "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.parametrize(
    ("scope", "text"),
    [
        ({}, "ok"),
        ({"healthy": False}, "bad"),
        ({"cards": (CardId("gpu:a"), CardId("gpu:b"))}, "2 cards off"),
        ({"bad_cards": (1,)}, "1 card off"),
        ({"rails_off": ("mlx5_0",), "multi_gpu": False}, "mlx5_0 off; no multi-card pods"),
        ({"multi_node": False}, "no multi-node gangs"),
    ],
)
def test_health_of_a_node_names_the_scopes_of_its_verdict(scope: dict[str, Any], text: str) -> None:
    verdict = Verdict(NodeName("n"), Generation(1), **({"healthy": True} | scope))
    assert scopes_text(scopes_item(verdict)) == text


@pytest.mark.parametrize(
    ("facts", "verdict", "free"),
    [
        ({}, None, 2),
        ({"unschedulable": True}, None, 0),
        ({"ready": False}, None, 0),
        ({}, Verdict(NodeName("n"), Generation(1), healthy=False, reason="lost"), 0),
        ({}, Verdict(NodeName("n"), Generation(1), healthy=True, multi_gpu=False), 2),
    ],
)
def test_a_node_that_takes_no_pods_has_no_free_cards(facts: dict[str, Any], verdict: Verdict | None, free: int) -> None:
    cards = tuple(Card(i, f"u{i}", "A100", 40_960) for i in range(2))
    node = replace(NodeState(NodeName("n"), "u", Generation(1), ready=True, cards=cards), **facts)
    [item] = node_items([node], {"n": verdict} if verdict else {}, [])
    assert (item["cards"]["free"], item["cards"]["total"]) == (free, 2)
