"""Which queue a pod may use in a saved cluster, and which nodes those in it."""

from collections import Counter

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


POOLS = """
apiVersion: v1
kind: Node
metadata: {name: n0}
status: {allocatable: {cpu: 16, memory: 64Gi, pods: 110, nvidia.com/gpu: 4}}
---
apiVersion: v1
kind: Node
metadata: {name: lab, labels: {hbox.io/pool: lab}}
status: {allocatable: {cpu: 16, memory: 64Gi, pods: 110, nvidia.com/gpu: 4}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: speech}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: vision, annotations: {hbox.io/pools: "lab, pooled", hbox.io/lent-pools: lab}}
spec: {deserved: {nvidia.com/gpu: 2}}
"""


def _of_pool(queue: str, number: int, node: str = "") -> str:
    where = f"nodeName: {node}, " if node else ""
    return f"""---
apiVersion: v1
kind: Pod
metadata: {{name: {queue}-{number}, namespace: ns, annotations: {{scheduling.volcano.sh/queue-name: {queue}}}}}
spec: {{{where}schedulerName: hbox, containers: [{{name: c, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}
status: {{phase: {"Running" if node else "Pending"}}}
"""


def test_pools_count_apart_and_what_is_lent_comes_back_as_in_the_running_platform() -> None:
    waiting = "".join(_of_pool("vision", number) for number in range(8))
    free = outcome_of("f", objects_of(contents_of((POOLS + waiting).encode())), Wish())
    assert Counter(one["node"] for one in free["bindings"]) == {"lab": 4, "n0": 4}
    taken = "".join(_of_pool("speech", number, "n0" if number < 4 else "lab") for number in range(8))
    row = outcome_of("f", objects_of(contents_of((POOLS + taken + waiting).encode())), Wish())
    assert Counter(one["node"] for one in row["evictions"]) == {"lab": 4, "n0": 2}


def test_an_owner_whose_amounts_are_by_model_has_back_what_it_lends_as_in_the_running_platform() -> None:
    by_model = POOLS.replace("{deserved: {nvidia.com/gpu: 2}}", "{deserved: {nvidia.com/gpu.H100: 4}}")
    by_model = by_model.replace('"lab, pooled"', "lab").replace(
        "labels: {hbox.io/pool: lab}", "labels: {hbox.io/pool: lab, nvidia.com/gpu.product: H100}"
    )
    waiting = "".join(_of_pool("vision", number) for number in range(4))
    taken = "".join(_of_pool("speech", number, "n0" if number < 4 else "lab") for number in range(8))
    row = outcome_of("f", objects_of(contents_of((by_model + taken + waiting).encode())), Wish())
    assert Counter(one["node"] for one in row["evictions"]) == {"lab": 4}


GUARANTEED = """
apiVersion: v1
kind: Node
metadata: {name: n0}
status: {allocatable: {cpu: 16, memory: 64Gi, pods: 110, nvidia.com/gpu: 8}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: kept}
spec: {guarantee: {resource: {nvidia.com/gpu: 2}}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: stern}
spec: {reclaimable: false}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: open}
"""


def _stern(count: int, *, running: int = 0) -> str:
    return "".join(_of_pool("stern", number, "n0" if number < running else "") for number in range(count))


def test_what_others_are_guaranteed_is_lent_to_who_gives_back_alone_as_in_the_running_platform() -> None:
    """The story of tests/e2e/test_e2e_guarantees.py."""
    row = outcome_of("f", objects_of(contents_of((GUARANTEED + _stern(8)).encode())), Wish(cycles=3))
    assert len(row["bindings"]) == 6
    said = "QueueGuaranteedToOthers: 2 of nvidia.com/gpu are guaranteed to queues that do not hold them, 2 are free"
    assert [one["message"].startswith(said) for one in row["pending"].values()] == [True, True]
    borrowers = "".join(_of_pool("open", number) for number in range(8))
    row = outcome_of("f", objects_of(contents_of((GUARANTEED + _stern(8, running=6) + borrowers).encode())), Wish())
    assert Counter(one["pod"].rpartition("-")[0] for one in row["bindings"]) == {"ns/open": 2}


def test_what_runs_counts_beside_what_others_are_guaranteed() -> None:
    row = outcome_of("f", objects_of(contents_of((GUARANTEED + _stern(7, running=5)).encode())), Wish())
    assert len(row["bindings"]) == 1
    owner = "".join(_of_pool("kept", number, "n0") for number in range(2))
    row = outcome_of("f", objects_of(contents_of((GUARANTEED + owner + _stern(7, running=5)).encode())), Wish())
    assert len(row["bindings"]) == 1, "what the owner has is no room for others"
