"""Amounts of card models as people see them: bars and shares by model, what a change would take, and what is wrong with it.

train    H100: deserved 2, limit 4      3 used, 2 wait for H100
serve    A100: guarantee 1              4 A100, 1 H100 used
"""

from typing import Any

import pytest
from pydantic import ValidationError

from hbox_cli.commands import queue as queue_command
from hbox_cli.commands.share import explain
from hbox_cli.queues import Change, change_of, effect_lines, models_named, queue_items, share_of, unknown_models
from hbox_common.errors import InvalidRequest
from hbox_common.model import (
    CardRequest,
    Claim,
    ClaimId,
    Job,
    JobId,
    NodeName,
    PlanId,
    PodGroupTask,
    PodRef,
    PodUid,
    Queue,
    QueueName,
    QueueTree,
)
from hbox_common.model.devices.nvidia import GPU
from hbox_common.views.queues import tree_of
from hbox_ledger.dryrun import ChangedQueue, DryRunAnswer, DryRunRequest, judge

A100, H100 = f"{GPU}.A100", f"{GPU}.H100"
NOTHING: dict[str, Any] = dict.fromkeys(("parent", "weight", "priority", "reclaimable", "pools", "namespaces", "budget"))


def claim(name: str, of: str, model: str) -> Claim:
    return Claim(
        ClaimId(name), PodUid(name), "ml", name, JobId(name), PlanId(""), QueueName(of), 0, NodeName("n0"), {GPU: 1, "pods": 1},
        models={model: 1}, created_at=float(name[1:]),
    )  # fmt: skip


CLAIMS = (
    *(claim(f"t{i}", "train", H100) for i in range(3)),
    *(claim(f"s{i}", "serve", A100) for i in range(4)),
    claim("s4", "serve", H100),
)


def waiting(pods: int, *models: str) -> Job:
    refs = tuple(PodRef(PodUid(f"w{i}"), f"w{i}", "1") for i in range(pods))
    task = PodGroupTask("main", {GPU: 1, "pods": 1}, refs, cards=CardRequest(1, models=models))
    return Job(JobId(f"w{len(models)}"), "ml", "w", QueueName("train"), 0, 1, pods, 0, 40.0, 1, (task,))


JOBS = (waiting(2, "H100"), waiting(3, "A100", "H100"))


@pytest.fixture
def tree() -> QueueTree:
    queues = [
        Queue(QueueName("train"), deserved={H100: 2}, capability={H100: 4}),
        Queue(QueueName("serve"), guarantee={A100: 1}),
    ]
    return tree_of(queues, {"train": {GPU: 3, H100: 3}, "serve": {GPU: 5, A100: 4, H100: 1}})


def change(name: str, **amounts: str) -> Any:
    return change_of(
        name, {**NOTHING, **dict.fromkeys(("guarantee", "deserved", "capability"), ())} | {a: (v,) for a, v in amounts.items()}
    )


def test_the_tree_has_a_bar_for_each_model_that_a_queue_names(tree: QueueTree) -> None:
    rows = queue_command.bars_of(queue_items(tree, JOBS, now=50.0), GPU)
    assert [(row["drawn"], row["said"]) for row in rows] == [
        ("default", "0 used"),
        ("serve", "5 used"),
        ("  A100", "4 used, 1 guaranteed, 1 deserved, 3 borrowed"),
        ("train", "3 used, 5 waiting"),
        ("  H100", "3 used, 2 deserved, 1 borrowed, limit 4"),
    ]
    assert rows[-1]["bar"] == "██████████│▒▒▒▒·····▏"
    assert [row["drawn"] for row in queue_command.bars_of(queue_items(tree, JOBS, now=50.0), "cpu")] == [
        "default",
        "serve",
        "train",
    ]


def test_amounts_are_in_kubernetes_notation() -> None:
    item = {
        "used": {"cpu": 1500, "memory": 3 * 2**30},
        "deserved": {"cpu": 100_000, "memory": 2**40},
        "pendingCards": 0,
        "state": "Open",
    }
    item |= {"guarantee": {}, "borrowed": {}, "capability": {"memory": 500_000_000_000}}
    assert queue_command.figures(item, "cpu") == "1500m used, 100 deserved"
    assert queue_command.figures(item, "memory") == "3Gi used, 1Ti deserved, limit 500G"


def test_ls_tells_models_in_its_wide_form(tree: QueueTree) -> None:
    items = {item["name"]: item for item in queue_items(tree, JOBS, now=50.0)}
    cell = next(column.cell for column in queue_command.COLUMNS if column.title == "MODELS")
    assert {name: cell(item) for name, item in items.items()} == {"default": "", "serve": "A100 4, H100 1", "train": "H100 3/4"}
    assert models_named(items["serve"]) == [A100]


def test_a_share_of_a_model_counts_those_that_can_have_no_other(tree: QueueTree) -> None:
    share = share_of(tree, QueueName("train"), JOBS, H100, now=50.0)
    assert explain(share).splitlines()[:2] == [
        f"train has 3 of {H100}: it deserves 2, 1 are borrowed, 2 more are waited for, limit 4",
        "  it may borrow 1 more where cards are free",
    ]


def asks(tree: QueueTree, changed: Change) -> DryRunAnswer:
    return judge(DryRunRequest(queues=(changed.asked(),)), tree, CLAIMS)


def test_a_change_says_who_gives_back_cards_of_the_model(tree: QueueTree) -> None:
    answer = asks(tree, change("train", deserved=f"{H100}=1"))
    [one] = answer.give_back
    assert (one.queue, one.resource, one.units, [(pod.pod, pod.units) for pod in one.leavers]) == (
        "train",
        H100,
        1,
        [("t2", 1)],
    )
    assert not answer.faults


def test_a_change_that_is_the_first_to_name_a_model_counts_what_is_held() -> None:
    plain = tree_of([Queue(QueueName("train")), Queue(QueueName("serve"))], {"train": {GPU: 3}, "serve": {GPU: 5}})
    [wall] = asks(plain, change("serve", capability=f"{A100}=2")).over_capability
    assert (wall.queue, wall.resource, wall.used, wall.limit) == ("serve", A100, 4, 2)


def test_a_model_that_no_node_has_is_a_warning_and_a_contradiction_is_an_error(tree: QueueTree) -> None:
    strange = change("serve", capability=f"{GPU}.H200=2")
    assert not asks(tree, strange).faults
    warnings = unknown_models(strange, {A100, H100})
    assert warnings == ["no node has cards of model H200; the cluster's models: A100, H100"]
    assert effect_lines(asks(tree, strange), warnings) == [f"warning: {warnings[0]}"]
    [fault] = asks(tree, change("train", capability=f"{GPU}=3")).faults
    assert fault.queue == "train"
    assert fault.fault == (
        f"capability of {H100} (4) is above capability of {GPU}, which is all models together (3); that of all cards counts too"
    )


def test_cards_of_a_model_are_whole() -> None:
    with pytest.raises(ValidationError, match=r"nvidia\.com/gpu\.H100: 1500m is no whole number of cards"):
        ChangedQueue(name=QueueName("train"), capability={H100: "1500m"})
    with pytest.raises(InvalidRequest, match=r"--capability nvidia\.com/gpu\.H100=1500m is no whole number of cards"):
        change("train", capability=f"{H100}=1500m")
