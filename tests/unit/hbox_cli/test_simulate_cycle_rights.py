"""Which queue a pod may use in a saved cluster, and which nodes those in it."""

import pytest

from hbox_cli.simulate.cluster_file import cluster_of
from hbox_cli.simulate.documents import objects_of
from hbox_cli.simulate.running import Wish, outcome_of
from hbox_common.errors import InvalidRequest
from hbox_common.yamltext import contents_of

NODES = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: 4, memory: 8Gi, pods: 110}}
---
apiVersion: v1
kind: Node
metadata: {name: lab, labels: {hbox.io/pool: lab}}
status: {allocatable: {cpu: 4, memory: 8Gi, pods: 110}}
---
"""

QUEUE = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: q}
---
"""

POD = """
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: ns, annotations: {scheduling.volcano.sh/queue-name: q}}
spec: {schedulerName: hbox, containers: [{name: c, resources: {requests: {cpu: 1}}}]}
"""


@pytest.mark.parametrize(
    ("notes", "expected", "reason"),
    [
        ("", {"n1"}, ""),
        ("hbox.io/pools: lab", {"lab"}, ""),
        (
            "hbox.io/namespaces: others",
            set(),
            "QueueNotForNamespace: queue q is for namespace others, not for ns; name another queue in the job",
        ),
        (
            "hbox.io/priority-classes: normal",
            set(),
            "QueueNotForPriorityClass: queue q takes jobs of PriorityClass normal, and the job is of none; name another queue in the job",
        ),
    ],
)
def test_pools_and_namespaces_of_queues_count_as_in_the_running_platform(notes: str, expected: set[str], reason: str) -> None:
    queue = QUEUE.replace("{name: q}", f"{{name: q, annotations: {{{notes}}}}}")
    row = outcome_of("f", objects_of(contents_of((NODES + queue + POD).encode())), Wish())
    assert {binding["node"] for binding in row["bindings"]} == expected
    assert reason in str(row)


def test_names_of_pools_are_names() -> None:
    with pytest.raises(InvalidRequest, match=r"document 1.*hbox\.io/pools is 'lab,,x', in which a name is empty"):
        cluster_of(
            objects_of(contents_of(QUEUE.replace("{name: q}", "{name: q, annotations: {hbox.io/pools: 'lab,,x'}}").encode())),
            schedulers={"hbox"},
            now=0.0,
        )
