"""Answers of `/validate` on Queues and PodGroups: the field, its value, and what to write."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import msgspec
import pytest

from hbox_admission.adapters.validating import validated
from hbox_admission.core import Request, validation
from hbox_admission.core.review import Kind
from hbox_common.kube import Queue as QueueObject
from hbox_common.kube.queues import queue_of
from hbox_common.model import Queue, QueueName, QueuePhase

CARDS = "nvidia.com/gpu"
OUTSIDE = ", in which no queue takes anything: write a parent outside of it, or parent: root"


def queue(name: str = "train", annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    about = {"name": name, "uid": "u", "annotations": annotations or {}}
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": about, "spec": spec}


def group(owner: bool = False, **spec: Any) -> dict[str, Any]:
    about: dict[str, Any] = {"name": "g", "namespace": "ml", "uid": "u"}
    if owner:
        about["ownerReferences"] = [{"apiVersion": "v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}]
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": about, "spec": spec}


def existing(*queues: dict[str, Any]) -> dict[QueueName, Queue]:
    found = [queue_of(msgspec.convert(one, QueueObject)) for one in queues]
    return {one.name: one for one in found}


DEPT = existing(queue("dept", capability={CARDS: 8}), queue("train", parent="dept"), queue("serve", parent="dept"))


def asked(
    body: dict[str, Any], queues: dict[QueueName, Queue] | None = DEPT, *, old: dict[str, Any] | None = None
) -> tuple[str, list[str]]:
    """The refusal, empty if there is none, and the warnings."""
    kind = Kind("scheduling.volcano.sh", "v1beta1", body["kind"])
    request = Request("u", kind, "CREATE" if old is None else "UPDATE", object=body, old_object=old)
    response = validated(request, queues).answer["response"]
    refusal = response.get("status", {}).get("message", "")
    assert response["allowed"] == (not refusal)
    return refusal, response.get("warnings", [])


def test_sound_objects_are_accepted_without_a_word() -> None:
    assert asked(queue("new", parent="dept", capability={CARDS: 8}, deserved={CARDS: 4})) == ("", [])
    assert asked(group(queue="train", minMember=4, minTaskMember={"worker": 3, "master": 1})) == ("", [])
    assert asked(group(minMember=1)) == ("", []), "the queue default exists without an object"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (queue("a", capability={CARDS: -1}), "spec: capability of nvidia.com/gpu: -1 is negative; the queue takes nothing until that is corrected"),
        (queue("a", parent="a"), "spec.parent is 'a', and the parents form a cycle (a -> a)" + OUTSIDE),
        (queue("dept", parent="train"), "spec.parent is 'train', and the parents form a cycle (dept -> train -> dept)" + OUTSIDE),
        (
            queue("a", annotations={"hbox.io/budget-card-hours": "many"}),
            "spec: hbox.io/budget-card-hours is 'many', which is no number of card-hours (write it like 1000); "
            "the queue takes nothing until that is corrected",
        ),
        (group(queue="No_Name"), "spec.queue is 'No_Name', and no object of Kubernetes can be called so; its pods would never be scheduled"),
        (group(minMember=2**40), f"spec.minMember is {2**40} (write a number of pods); its pods would never be scheduled"),
    ],
)  # fmt: skip
def test_what_is_never_scheduled_is_refused(body: dict[str, Any], message: str) -> None:
    assert asked(body)[0] == message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            queue("a", capability={CARDS: 4}, guarantee={"resource": {CARDS: 8}}),
            "spec.guarantee.resource: nvidia.com/gpu is 8, above spec.capability (4); the capability counts: "
            "write at most 4 in guarantee, or at least 8 in capability",
        ),
        (
            queue("a", deserved={"memory": "2Gi"}, guarantee={"resource": {"memory": "3Gi"}}),
            "spec.guarantee.resource: memory is 3Gi, above spec.deserved (2Gi); the guarantee counts: "
            "write at most 2Gi in guarantee, or at least 3Gi in deserved",
        ),
        (queue("a", parent="dep"), "spec.parent is 'dep', which does not exist: the queue takes nothing until it does; create it, or write parent: dept"),
        (queue("a", parent="zzz"), "spec.parent is 'zzz', which does not exist: the queue takes nothing until it does; create it, or write parent: root"),
        (queue("a", wieght=3), "spec.wieght: unknown field, ignored; did you mean spec.weight?"),
        (
            group(minTaskMember={"worker": 4, "master": 2}),
            "spec.minMember is 0, below the 6 pods of spec.minTaskMember, whose minima by role then do not count: write minMember: 6",
        ),
        (group(minMember=1, queue="trian"), "spec.queue is 'trian', which does not exist: the gang waits until it does; create it, or write queue: train"),
        (group(minMember=1, queue="dept"), "spec.queue is 'dept', which takes no pods because queues are below it: write serve or train"),
        (group(minMember=1, queue="root"), "spec.queue is 'root', which takes no pods: write the name of a queue below it"),
        (group(minMembers=1), "spec.minMembers: unknown field, ignored; did you mean spec.minMember?"),
        (group(owner=True, queue="No_Name"), "spec.queue is 'No_Name', and no object of Kubernetes can be called so; its pods wait until that is corrected"),
    ],
)  # fmt: skip
def test_what_volcano_accepts_or_may_come_later_is_a_warning(body: dict[str, Any], message: str) -> None:
    refusal, warnings = asked(body)
    assert refusal == ""
    assert message[:239] in [one[:239] for one in warnings]


def test_amounts_are_compared_with_the_queues_above_and_below() -> None:
    _, warnings = asked(queue("new", parent="dept", capability={CARDS: 16}))
    assert [one for one in warnings if "above the capability of queue dept above it" in one]


def test_closed_and_foreign_queues_are_told() -> None:
    closed = {"train": Queue(QueueName("train"), QueuePhase.CLOSED)}
    assert asked(group(minMember=1, queue="train"), closed)[1] == [  # type: ignore[arg-type]
        "spec.queue is 'train', which is closed: the gang waits until it is open, or write another queue"
    ]
    bound = existing(queue("train", annotations={"hbox.io/namespaces": "other"}))
    assert asked(group(minMember=1, queue="train"), bound)[1] == [
        "spec.queue is 'train': queue train is for namespace other, not for ml"
    ]


def test_without_a_view_of_queues_an_object_is_judged_by_itself() -> None:
    assert asked(queue("a", parent="missing"), None) == ("", [])
    assert asked(group(queue="missing", minMember=1), None) == ("", [])
    assert asked(queue("a", parent="a"), None)[0]


def test_a_fault_that_is_stored_already_refuses_no_other_change() -> None:
    broken = queue("a", capability={CARDS: -1}, weight=1)
    refusal, warnings = asked(queue("a", capability={CARDS: -1}, weight=2), old=broken)
    assert refusal == ""
    assert "is negative" in warnings[0]
    assert asked(queue("a", capability={CARDS: -2}), old=queue("a"))[0]


def test_deleted_objects_and_changes_of_nothing_that_is_judged_are_accepted() -> None:
    broken = queue("a", capability={CARDS: -1})
    labelled = queue("a", capability={CARDS: -1})
    labelled["metadata"]["finalizers"] = []
    assert asked(labelled, old=broken) == ("", [])
    broken["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert asked(broken, old=queue("a")) == ("", [])


@pytest.mark.parametrize("change", [{"operation": "DELETE"}, {"sub_resource": "status"}, {"kind": Kind("batch", "v1", "Job")}])
def test_other_requests_are_let_by(change: dict[str, Any]) -> None:
    request = Request("u", Kind("scheduling.volcano.sh", "v1beta1", "Queue"), "CREATE", object=queue("a", parent="a"))
    answer = validated(msgspec.structs.replace(request, **change), DEPT).answer["response"]
    assert answer == {"uid": "u", "allowed": True}


def test_a_name_that_does_not_exist_is_compared_with_few_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def matches(name: str, names: list[str], n: int) -> list[str]:
        compared.append(len(names))
        return get_close_matches(name, names, n=n)

    monkeypatch.setattr(validation, "get_close_matches", matches)
    queues = existing(*(queue(f"a{index:05d}") for index in range(500)))
    _, warnings = asked(group(queue="a99999"), queues)
    assert compared == [validation.MOST_COMPARED]
    assert "does not exist" in warnings[0]


def test_queue_without_name_and_parent_is_not_its_own_parent() -> None:
    unnamed = queue()
    del unnamed["metadata"]["name"]
    assert asked(unnamed)[0] == ""
