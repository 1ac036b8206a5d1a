"""For how long nobody takes from a pod, in a saved cluster as in the running platform."""

import pytest

from hbox_cli.simulate.documents import objects_of
from hbox_cli.simulate.running import Wish, outcome_of
from hbox_common.clock import wall_s
from hbox_common.errors import InvalidRequest
from hbox_common.kube import rfc3339
from hbox_common.yamltext import contents_of

CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: 2, memory: 8Gi, pods: 110}, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: department, annotations: {DEPARTMENT}}
spec: {weight: 1}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: borrower, annotations: {BORROWER}}
spec: {weight: 1, parent: department}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: owner}
spec: {weight: 1, deserved: {cpu: 1}}
---
apiVersion: v1
kind: Pod
metadata: {name: lent-0, namespace: ns, uid: lent-0, creationTimestamp: "2026-01-01T11:00:00Z", annotations: {scheduling.volcano.sh/queue-name: borrower}}
spec: {schedulerName: hbox, nodeName: n1, containers: [{name: c, resources: {requests: {cpu: 2}}}]}
status: {phase: Running, startTime: "STARTED"}
---
apiVersion: v1
kind: Pod
metadata: {name: mine, namespace: ns, uid: mine, creationTimestamp: "2026-01-01T11:59:00Z", annotations: {scheduling.volcano.sh/queue-name: owner}}
spec: {schedulerName: hbox, containers: [{name: c, resources: {requests: {cpu: 1}}}]}
"""


def evicted(*, department: str = "", borrower: str = "") -> list[str]:
    started = rfc3339(wall_s() - 301)
    text = CLUSTER.replace("STARTED", started).replace("DEPARTMENT", department).replace("BORROWER", borrower)
    row = outcome_of("f", objects_of(contents_of(text.encode())), Wish(now=wall_s()))
    assert row["error"] is None
    return [one["pod"] for one in row["evictions"]]


@pytest.mark.parametrize(
    ("department", "borrower", "goes"),
    [
        ("", "", True),
        ("", "hbox.io/min-run-time: 10m", False),
        ("", "hbox.io/min-run-time: 5m", True),
        ("hbox.io/min-run-time: 10m", "", False),
        ("hbox.io/min-run-time: 10m", "hbox.io/min-run-time: 1m", True),
        ("", "hbox.io/cool-down: 1h", True),
    ],
)
def test_a_pod_that_got_its_place_five_minutes_ago_goes_unless_its_queue_says_that_it_stays(
    department: str, borrower: str, goes: bool
) -> None:
    assert bool(evicted(department=department, borrower=borrower)) is goes


def test_a_time_that_is_none_is_named() -> None:
    with pytest.raises(InvalidRequest, match=r"hbox\.io/min-run-time is 'soon', which is no duration"):
        evicted(borrower="hbox.io/min-run-time: soon")
