"""Names of other tenants are in nothing that a client gets."""

import json

import pytest

from hbox_common.model import Queue, QueueName
from hbox_console.core.model import ReadModel
from hbox_console.core.names import OTHER_JOB, OTHER_NAMESPACE, OTHER_QUEUE, veiled
from hbox_console.core.rights import Scope
from hbox_console.core.withheld import named_in, node_seen, others_of, queue_seen, veil_of

from ...console_objects import a_claim, a_job, a_node, a_pod, take_snapshot


@pytest.fixture
def model() -> ReadModel:
    model = ReadModel()
    for name, parent in (("dept", ""), ("mine", "dept"), ("theirs", "dept")):
        model.on_queue(Queue(QueueName(name), parent=parent), {"nvidia.com/gpu": 2}, gone=False)
    mine, theirs = a_job("ns-a", "alpha", queue="mine"), a_job("ns-b", "sekrit", queue="theirs")
    model.on_jobs([mine, theirs])
    model.on_pods([a_pod(theirs)])
    model.on_node(a_node("n1"))
    model.on_claims_snapshot(epoch=1, index=1, claims=[a_claim(mine, node="n1"), a_claim(theirs, node="n1")], shares={})
    return model


MINE = Scope(namespaces={"ns-a"}, queues={"mine"})


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("waits for ns-b/sekrit", f"waits for {OTHER_JOB}"),
        ("waits for ns-b/sekrit-0, of queue theirs.", f"waits for {OTHER_JOB}, of queue {OTHER_QUEUE}."),
        ("job sekrit and pod sekrit-0", f"job {OTHER_JOB} and pod {OTHER_JOB}"),
        ("sekrit-0/main of ns-b", f"{OTHER_JOB}/main of {OTHER_NAMESPACE}"),
        ("queue mine: ns-a/alpha before alpha-0", "queue mine: ns-a/alpha before alpha-0"),
        ("16 nodes: nvidia.com/gpu", "16 nodes: nvidia.com/gpu"),
        ("ns-b/unknown-name", OTHER_JOB),
        ("", ""),
    ],
)
def test_names_of_others_are_replaced(model: ReadModel, text: str, seen: str) -> None:
    assert veil_of(MINE, model).text(text) == seen


def test_a_client_that_sees_all_gets_the_text(model: ReadModel) -> None:
    assert veil_of(Scope(namespaces=None, queues=None), model).text("ns-b/sekrit of theirs") == "ns-b/sekrit of theirs"


def test_the_name_of_a_removed_job_is_still_replaced(model: ReadModel) -> None:
    job = a_job("ns-b", "sekrit", queue="theirs", revision=1)
    model.on_withdrawn([job.id], [2])
    take_snapshot(model, [])
    assert model.ids_of("ns-b", "sekrit") == []
    assert veil_of(MINE, model).text("by sekrit") == f"by {OTHER_JOB}"


def test_a_word_of_the_catalogue_stays_where_it_is_also_a_name(model: ReadModel) -> None:
    model.on_jobs([a_job("ns-b", "nodes"), a_job("ns-b", "cards")])
    assert veil_of(MINE, model).text("3 nodes lack cards") == "3 nodes lack cards"


def test_a_field_that_is_a_name_is_replaced_whatever_word_it_is(model: ReadModel) -> None:
    model.on_queue(Queue(QueueName("pool")), {}, gone=False)
    model.on_jobs([a_job("ns-b", "nodes")])
    item = {"queue": "pool", "queues": ["pool", "mine"], "name": "nodes", "text": "no pool has nodes"}
    seen = {"queue": OTHER_QUEUE, "queues": [OTHER_QUEUE, "mine"], "name": OTHER_JOB, "text": "no pool has nodes"}
    assert veiled(item, veil_of(MINE, model)) == seen
    assert named_in(item, model) == ({"ns-b"}, {"pool", "mine"})


def test_the_rights_that_a_text_needs_are_those_of_its_names(model: ReadModel) -> None:
    namespaces, queues = named_in({"text": "sekrit of theirs", "more": ["ns-a/alpha"], "n": 3}, model)
    assert (namespaces, queues) == ({"ns-a", "ns-b"}, {"theirs"})


def test_a_node_has_the_cards_of_other_queues_as_one_sum(model: ReadModel) -> None:
    item = model.node_item(a_node("n1").name, now=0.0)
    assert item is not None
    seen = node_seen(item | {"reason": "its kubelet refused pods, ns-b/sekrit-0: no"}, MINE, veil_of(MINE, model))
    assert seen["cardsByQueue"] == {"mine": 2, "others": 2}
    assert "theirs" not in json.dumps(seen)
    assert "sekrit" not in json.dumps(seen)


def test_a_queue_hides_the_names_around_it(model: ReadModel) -> None:
    item = model.queue_item(QueueName("mine"), now=0.0)
    assert item is not None
    item |= {"lentTo": ["theirs"], "borrowsFrom": ["theirs", "mine"], "namespaces": ["ns-a", "ns-b"], "faults": ["as theirs"]}
    seen = queue_seen(item, MINE, veil_of(MINE, model))
    assert (seen["parent"], seen["lentTo"], seen["borrowsFrom"], seen["namespaces"]) == ("others", [], ["mine"], ["ns-a"])
    assert "theirs" not in json.dumps(seen)


def test_others_are_one_sum_in_which_nothing_counts_twice(model: ReadModel) -> None:
    found = [model.queue_item(QueueName(name), now=0.0) for name in ("dept", "theirs")]
    assert others_of(item for item in found if item) == {
        "queues": 2, "used": {"nvidia.com/gpu": 2}, "pendingJobs": 1, "pendingCards": 2,
    }  # fmt: skip
