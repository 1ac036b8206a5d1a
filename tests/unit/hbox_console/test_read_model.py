"""The read model of the console: what lists are made of."""

from dataclasses import replace

from hbox_common.events import JobVerdict
from hbox_common.model import GroupPhase, PodPhase, Queue, QueueName
from hbox_console.core.model import Kind, ReadModel

from ...console_objects import GPU, a_claim, a_group, a_job, a_node, a_pod, take_snapshot


def names(model: ReadModel, *namespaces: str) -> list[str]:
    return [model.job_item(id_, now=200.0)["name"] for id_ in model.jobs_in(namespaces)]


def loaded(*jobs: str) -> ReadModel:
    model = ReadModel()
    take_snapshot(model, [a_job(*name.split("/"), at=100.0 + i) for i, name in enumerate(jobs)])
    return model


def test_jobs_of_several_namespaces_come_oldest_first() -> None:
    model = loaded("b/second", "a/first", "a/third")
    model.on_jobs([a_job("b", "zeroth", at=1.0)])
    assert names(model, "a", "b") == ["b/zeroth", "b/second", "a/first", "a/third"]
    assert names(model, "a") == ["a/first", "a/third"]
    assert names(model, "none") == []


def test_a_list_continues_behind_a_key() -> None:
    model = loaded("a/one", "b/two", "a/three")
    first, *_ = model.jobs_in(["a", "b"])
    after = [model.job_item(id_, now=0.0)["name"] for id_ in model.jobs_in(["a", "b"], after=model.key_of(first))]
    assert after == ["b/two", "a/three"]


def test_a_job_whose_pods_are_placed_is_listed_until_they_end() -> None:
    model = ReadModel()
    job = a_job("a", "train", waiting=2)
    model.on_jobs([job])
    model.on_verdicts([JobVerdict(job=job.id, message="no cards", code="CardsInUse", outcome="wait", owner="system")])
    assert model.job_item(job.id, now=200.0) | {"ageSeconds": 0} == {
        "name": "a/train", "id": job.id, "queue": "default", "priority": 0, "state": "WAITING",
        "pods": {"bound": 0, "members": 2, "min": 1}, "placed": {}, "waiting": ["train-0", "train-1"], "cards": 4,
        "ageSeconds": 0, "reason": "no cards", "verdict": "wait", "code": "CardsInUse",
        "owner": "system", "waitSeconds": {}, "traceId": "",
    }  # fmt: skip
    model.on_pods([a_pod(job, 0, node="n1"), a_pod(job, 1, node="n2")])
    model.on_withdrawn([job.id], [2])
    item = model.job_item(job.id, now=200.0)
    assert (item["state"], item["pods"]["bound"], item["placed"]) == ("RUNNING", 2, {"train-0": "n1", "train-1": "n2"})
    assert item["reason"] == ""
    model.on_pods([a_pod(job, 0, phase=PodPhase.SUCCEEDED)])
    assert model.job_item(job.id, now=200.0)["pods"]["members"] == 1
    model.on_pods([a_pod(job, 1, phase=PodPhase.SUCCEEDED)])
    assert names(model, "a") == []


def test_a_withdrawal_of_an_older_revision_is_ignored() -> None:
    model = ReadModel()
    job = a_job("a", "train", revision=5)
    model.on_jobs([job])
    model.on_withdrawn([job.id], [4])
    model.on_jobs([replace(job, revision=3, tasks=())])
    assert model.job_item(job.id, now=0.0)["waiting"] == ["train-0"]


def test_a_snapshot_ends_what_messages_did_not_report() -> None:
    model = loaded("a/kept", "a/lost")
    model.on_pods([a_pod(a_job("a", "lost"))])
    take_snapshot(model, [a_job("a", "kept")])
    assert names(model, "a") == ["a/kept"]
    assert model.ids_of("a", "lost") == []


def test_a_snapshot_does_not_undo_what_messages_reported_since_its_request() -> None:
    model = loaded("a/old")
    old, new = a_job("a", "old"), a_job("a", "new")
    model.snapshot_requested()
    model.on_jobs([new])
    model.on_pods([a_pod(old)])
    model.on_withdrawn([old.id], [2])
    model.on_verdicts([JobVerdict(job=new.id, message="no cards")])
    take_snapshot(model, [old])
    assert names(model, "a") == ["a/new", "a/old"]
    assert model.job_item(new.id, now=0.0)["reason"] == "no cards"
    assert model.job_item(old.id, now=0.0)["placed"] == {"old-0": "n1"}
    model.snapshot_requested()
    take_snapshot(model, [new])
    assert names(model, "a") == ["a/new"], "the next one counts"
    assert model.job_item(new.id, now=0.0)["reason"] == ""


def test_parts_of_a_snapshot_do_not_undo_what_messages_reported_between_them() -> None:
    """Also where an answer broke off, so that its parts are taken twice."""
    model, stays, ends = ReadModel(), a_job("a", "stays", waiting=0, bound=1), a_job("a", "ends", waiting=0, bound=1)
    model.snapshot_requested()
    model.on_listed([stays, ends], {})
    model.on_listed_pods([a_pod(stays), a_pod(ends)])
    model.on_pods([a_pod(ends, phase=PodPhase.GONE)])
    assert names(model, "a") == ["a/stays"]
    take_snapshot(model, [stays, ends], [a_pod(stays), a_pod(ends)])
    assert model.job_item(stays.id, now=0.0)["placed"] == {"stays-0": "n1"}
    assert model.job_item(ends.id, now=0.0)["placed"] == {}
    take_snapshot(model, [])
    assert names(model, "a") == []


def test_a_deleted_job_that_was_never_announced_is_dropped() -> None:
    model, held, runs = ReadModel(), a_job("a", "held"), a_job("a", "runs", waiting=0, bound=1)
    take_snapshot(model, [held, runs], [a_pod(runs)])
    model.on_deleted(held.id)
    model.on_deleted(runs.id)
    assert names(model, "a") == ["a/runs"], "pods of it are still there"
    model.on_pods([a_pod(runs, phase=PodPhase.GONE)])
    assert names(model, "a") == []


def test_a_pod_that_passes_from_its_own_job_to_its_owners_keeps_one_name() -> None:
    """As once job-controller has read the owner that a pod names."""
    model, alone, gang = ReadModel(), a_job("a", "train-0"), a_job("a", "train")
    pod = a_pod(gang, 0)
    for job in (alone, gang, alone, gang):
        model.on_jobs([job])
        model.on_pods([replace(pod, job=job.id)])
    assert list(model.names.namespaces_of(pod.name)) == ["a"]
    take_snapshot(model, [])
    assert names(model, "a") == []
    assert list(model.names.namespaces_of(pod.name)) == ["a"], "names of removed objects are kept"


def test_a_job_with_another_name_is_found_by_the_new_one() -> None:
    model, job = ReadModel(), a_job("a", "pod-of-driver")
    model.on_jobs([job])
    model.on_jobs([replace(job, name="application", revision=2)])
    assert (model.ids_of("a", "pod-of-driver"), model.ids_of("a", "application")) == ([], [job.id])
    take_snapshot(model, [])
    assert model.ids_of("a", "application") == []


def test_a_podgroup_without_pods_is_a_job_until_it_is_enqueued() -> None:
    model = ReadModel()
    model.on_groups([a_group("a", "gang")])
    assert names(model, "a") == ["a/gang"]
    assert model.job_item(model.ids_of("a", "gang")[0], now=60.0)["cards"] == 4
    model.on_groups([a_group("a", "gang", phase=GroupPhase.INQUEUE)])
    assert names(model, "a") == []


def test_waiting_jobs_are_summed_for_a_queue_and_those_above_it() -> None:
    model = ReadModel()
    model.on_queue(Queue(QueueName("top")), {}, gone=False)
    model.on_queue(Queue(QueueName("below"), parent="top"), {GPU: 3}, gone=False)
    old, new = a_job("a", "old", queue="below", at=100.0), a_job("a", "new", queue="below", at=150.0, waiting=3)
    model.on_jobs([old, new])

    def pending(name: str) -> tuple[int, int, float]:
        item = model.queue_item(QueueName(name), now=200.0)
        assert item is not None
        return item["pendingJobs"], item["pendingCards"], item["oldestPendingSeconds"]

    assert pending("below") == pending("top") == (2, 8, 100.0)
    model.on_withdrawn([old.id], [2])
    assert pending("top") == (1, 6, 50.0)
    model.on_jobs([replace(new, queue=QueueName("top"), revision=2)])
    assert (pending("below"), pending("top")) == ((0, 0, 0.0), (1, 6, 50.0))
    model.on_withdrawn([new.id], [3])
    assert pending("top") == (0, 0, 0.0)
    top = model.queue_item(QueueName("top"), now=200.0)
    assert top is not None
    assert top["used"] == {GPU: 3}


def test_claims_follow_the_ledgers_index() -> None:
    model = ReadModel()
    model.on_node(a_node("n1"))
    job = a_job("a", "train", queue="q")
    claim = a_claim(job, node="n1")
    model.on_claims_snapshot(epoch=1, index=10, claims=[claim], shares={})

    def in_use() -> dict[str, int]:
        item = model.node_item(a_node("n1").name, now=0.0)
        assert item is not None
        used: dict[str, int] = item["cardsByQueue"]
        return used

    assert in_use() == {"q": 2}
    assert model.on_claims(
        epoch=1, previous=8, index=9, claims=[replace(claim, state=a_claim(job, node="n1", live=False).state)]
    )
    assert in_use() == {"q": 2}, "an older change"
    assert not model.on_claims(epoch=1, previous=11, index=12, claims=[]), "11 is missing"
    assert not model.on_claims(epoch=2, previous=0, index=1, claims=[]), "another epoch"
    assert model.on_claims(epoch=1, previous=10, index=11, claims=[a_claim(job, node="n1", live=False)])
    assert in_use() == {}


def test_changes_name_each_object_once() -> None:
    model = loaded("a/one", "a/two")
    seen = model.revision
    model.on_verdicts([JobVerdict(job=a_job("a", "one").id, message="no cards")])
    model.on_verdicts([JobVerdict(job=a_job("a", "one").id, message="still none")])
    model.on_node(a_node("n1"))
    changes = model.changes_since(seen)
    assert changes is not None
    assert [(change.kind, change.about) for change in changes] == [(Kind.JOB, "id-a-one"), (Kind.NODE, "n1")]
    assert model.changes_since(model.revision) == []
    assert model.changes_since(model.revision + 1) is None, "of another process"
