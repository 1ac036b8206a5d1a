"""Owners may be as large as the API server accepts; job-controller keeps what the gang needs, and expands one specification at a time."""

import asyncio
import json
import tracemalloc
from random import Random
from typing import Any

import msgspec

from hbox_common.kube.reflector import Emit, Page, Reflector
from hbox_common.workloads import Kinds, read_owner
from hbox_jobs.adapters.owners import OwnerObject, OwnerWatch, slim
from hbox_jobs.core.jobs import Jobs

COUNT = 16


def _owner(number: int) -> dict[str, object]:
    padding = [{"name": "A", "value": "b"} for _ in range(5000)]  # small values, of which a decoder makes the most
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 4}}, "padding": padding}
    return {"metadata": {"name": f"job-{number}", "uid": f"uid-{number}", "resourceVersion": "5"}, "spec": spec}


def test_page_of_large_owners_takes_little_more_than_its_bytes() -> None:
    body = json.dumps({"metadata": {"resourceVersion": "5"}, "items": [_owner(i) for i in range(COUNT)]}).encode()
    reflector = Reflector(OwnerObject, Random(0), keep=slim)
    reflector.start()
    tracemalloc.start()
    try:
        effects = reflector.step(Page(body))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(len(each.deltas) for each in effects if isinstance(each, Emit)) == COUNT
    assert peak < 1.5 * len(body)


def test_copy_of_an_owner_has_no_specification() -> None:
    body = json.dumps({"metadata": {"resourceVersion": "5"}, "items": [_owner(0)]}).encode()
    reflector = Reflector(OwnerObject, Random(0), keep=slim)
    reflector.start()
    reflector.step(Page(body))
    assert [bytes(each.spec) for each in reflector.store.values()] == [b""]


def test_annotations_beyond_their_bound_are_not_kept() -> None:
    texts = {"volcano.sh/preemptable": "x" * 200_000, "scheduling.volcano.sh/queue-name": "research", "other": "y"}
    meta = {"name": "train", "namespace": "ml", "uid": "uid", "resourceVersion": "5", "annotations": texts}
    owner = read_owner(Kinds.builtin(), {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": {}})
    assert owner.annotations == {"scheduling.volcano.sh/queue-name": "research"}
    assert owner.declared.preemptable is None


def test_owner_whose_text_cannot_be_decoded_does_not_end_the_watch() -> None:
    client: Any = None
    watch = OwnerWatch(client, jobs := Jobs(), Kinds.builtin(), wake=asyncio.Event())
    for name, text in (("broken", b"\xff"), ("train", b"")):
        found = b'{"metadata":{"name":"%s","uid":"%s"},"spec":{"text":"%s"}}' % (name.encode(), name.encode(), text)
        watch.deliver("kubeflow.org/v1", "PyTorchJob", msgspec.json.decode(found, type=OwnerObject), 0.0)
    assert jobs.owners.get("broken") is None
    assert jobs.owners.get("train") is not None
