"""For how long nobody takes from a pod, in a saved cluster as in the running platform."""

from typing import Any

import pytest

from hbox_cli.simulate.documents import objects_of
from hbox_cli.simulate.running import Wish, outcome_of
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


NOW = 1_767_268_800.0  #: 2026-01-01T12:00:00Z
STARTED = NOW - 301


def decided(*, department: str = "", borrower: str = "", owner: str = "") -> dict[str, Any]:
    text = CLUSTER.replace("STARTED", rfc3339(STARTED)).replace("DEPARTMENT", department).replace("BORROWER", borrower)
    row = outcome_of("f", objects_of(contents_of((text + owner).encode())), Wish(now=NOW))
    assert row["error"] is None
    return row


def evicted(*, department: str = "", borrower: str = "") -> list[str]:
    return [one["pod"] for one in decided(department=department, borrower=borrower)["evictions"]]


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


def test_who_waits_for_them_is_told_whose_time_it_is_and_until_when() -> None:
    until = rfc3339(int(STARTED) + 600).replace("T", " ").replace("Z", " UTC")
    message = decided(borrower="hbox.io/min-run-time: 10m")["pending"]["ns/mine"]["message"]
    assert message.endswith(f"; pods that are not evictable yet: 1 of queue borrower in minimum run time until {until}")


BUDGET = """
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: mine-alone, namespace: ns}
spec: {maxUnavailable: 0}
status: {disruptionsAllowed: ALLOWED}
"""


@pytest.mark.parametrize(("allowed", "goes"), [(0, False), (1, True)])
def test_who_waits_for_those_under_a_budget_that_is_used_up_is_told_whose_it_is(allowed: int, goes: bool) -> None:
    row = decided(owner=BUDGET.replace("ALLOWED", str(allowed)))
    assert bool(row["evictions"]) is goes
    said = "; pods whose PodDisruptionBudgets let no more go: 1 of queue borrower (ns/mine-alone)"
    assert row["pending"]["ns/mine"]["message"].endswith(said) is not goes


@pytest.mark.parametrize(
    ("borrower", "more", "word"),
    [("hbox.io/min-run-time: 10m", "", "not evictable yet"), ("", BUDGET.replace("ALLOWED", "0"), "PodDisruptionBudgets")],
)
def test_who_has_no_right_to_take_is_told_nothing_of_it(borrower: str, more: str, word: str) -> None:
    """The owner has what it deserves already."""
    holds = """
---
apiVersion: v1
kind: Node
metadata: {name: n2}
status: {allocatable: {cpu: 1, memory: 8Gi, pods: 110}, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: has, namespace: ns, uid: has, creationTimestamp: "2026-01-01T11:00:00Z", annotations: {scheduling.volcano.sh/queue-name: owner}}
spec: {schedulerName: hbox, nodeName: n2, containers: [{name: c, resources: {requests: {cpu: 1}}}]}
status: {phase: Running, startTime: "2026-01-01T11:00:00Z"}
"""
    row = decided(borrower=borrower, owner=holds + more)
    assert not row["evictions"]
    assert word not in row["pending"]["ns/mine"]["message"]
