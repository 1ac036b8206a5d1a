"""Which receipts are meant by a name: of pods, of jobs, and of jobs that have no pods any more."""

import pytest

from hbox_common.errors import NotFound
from hbox_common.events import EvictedPod, EvictionReceipt, EvictionRule
from hbox_common.model import JobId, NodeName, PodUid, QueueName
from hbox_common.views.evictions import about


def receipt(job: str, *pods: str, namespace: str = "ml") -> EvictionReceipt:
    left = tuple(EvictedPod(pod=pod, pod_uid=PodUid(f"uid-of-{pod}"), node=NodeName("n0")) for pod in pods)
    return EvictionReceipt(
        job=JobId(job),
        namespace=namespace,
        queue=QueueName("q"),
        rule=EvictionRule.RECLAIM,
        pods=left,
        pods_kept=0,
        cards_kept=0,
        message="reclaimed",
        returns="later",
        at=0.0,
    )


TRAIN = receipt("j1", "train-worker-0", "train-worker-1")
TRAINING = receipt("j2", "training-0")
ALL = [TRAIN, TRAINING]


@pytest.mark.parametrize(
    ("name", "pods"),
    [
        ("j1", ["train-worker-0", "train-worker-1"]),
        ("train-worker-1", ["train-worker-1"]),
        ("ml/train-worker-1", ["train-worker-1"]),
        ("uid-of-training-0", ["training-0"]),
        ("train", ["train-worker-0", "train-worker-1"]),
        ("ml/training", ["training-0"]),
    ],
)
def test_receipts_are_found_by_pods_by_jobs_and_by_what_pods_of_a_job_are_called(name: str, pods: list[str]) -> None:
    assert [one.pod for found in about(ALL, name) for one in found.pods] == pods


def test_jobs_of_the_name_come_before_names_that_begin_so() -> None:
    assert about(ALL, "training", jobs=["j1"]) == [TRAIN]


@pytest.mark.parametrize("name", ["tra", "other/train", "train-worker-2", ""])
def test_what_is_not_on_record_is_said_to_be_so(name: str) -> None:
    with pytest.raises(NotFound, match=f"no eviction of {name} is on record"):
        about(ALL, name)
