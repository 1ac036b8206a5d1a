"""Which queue a pod may use in a saved cluster, and which nodes those in it."""

import json
from collections import Counter

import pytest

from hbox_cli.simulate.cluster_file import cluster_of
from hbox_cli.simulate.documents import objects_of
from hbox_cli.simulate.running import Wish, outcome_of
from hbox_common.errors import InvalidRequest
from hbox_common.yamltext import contents_of
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy.registry import PLUGINS

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


@pytest.mark.parametrize(
    ("queue", "named", "starts"),
    [
        ("{name: q}", "q", False),
        ("{name: q, annotations: {hbox.io/namespaces: ns}}", "q", True),
        ("{name: q, annotations: {hbox.io/namespaces: '*'}}", "q", True),
        ("{name: default}", "default", True),
    ],
)
def test_queues_that_name_no_namespaces_are_nobodys_where_they_are_bound(queue: str, named: str, starts: bool) -> None:
    """And everybody's where they are open."""
    documents = objects_of(
        contents_of((NODES + QUEUE.replace("{name: q}", queue) + POD.replace("name: q", f"name: {named}")).encode())
    )
    assert len(outcome_of("f", documents, Wish())["bindings"]) == 1
    row = outcome_of("f", documents, Wish(bound=True))
    assert bool(row["bindings"]) is starts
    said = "QueueNotForNamespace: queue q is bound to no namespace, so that ns may not use it"
    assert (said in str(row["pending"])) is not starts


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


BORROWED = """
apiVersion: v1
kind: Node
metadata: {name: n0}
status: {allocatable: {cpu: 16, memory: 64Gi, pods: 110, nvidia.com/gpu: 8}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: owner}
spec: {deserved: {nvidia.com/gpu: 6}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: lent, annotations: {CLASSES}}
spec: {deserved: {nvidia.com/gpu: 2}}
"""


VOLCANO = 'actions: "reclaim"\ntiers:\n- plugins: [{name: gang}, {name: conformance}, {name: predicates}, {name: capacity}]\n'


def _evicted(
    *, classes: str = "", says: str = "'false'", wish: Wish | None = None, more: str = "", policy: str = ""
) -> set[str]:
    """Of eight pods of `lent`, which started one after the other, for six of `owner`. more: further documents of the file; policy: what `--policy` names."""
    running = "".join(
        _of_pool("lent", number, "n0")
        .replace("queue-name: lent", f"queue-name: lent, volcano.sh/preemptable: {says}")
        .replace("phase: Running", f"phase: Running, startTime: '2026-01-01T00:00:0{number}Z'")
        for number in range(8)
    )
    waiting = "".join(_of_pool("owner", number) for number in range(6))
    text = BORROWED.replace("CLASSES", f"hbox.io/non-preemptible-classes: '{classes}'" if classes else "") + running + waiting
    conf = parse_conf(policy, plugins=tuple(PLUGINS)) if policy else None
    row = outcome_of("f", objects_of(contents_of((text + more).encode())), wish or Wish(), conf)
    return {one["pod"].removeprefix("ns/lent-") for one in row["evictions"]}


def test_what_a_tenant_says_of_its_pods_is_no_right_as_in_the_running_platform() -> None:
    """Under any policy that HBox is to run by; where a file brings a policy of its own, as by Volcano, it is one, unless it is read as the services read it."""
    assert len(_evicted()) == 6
    assert len(_evicted(wish=Wish(as_services=False))) == 6, "HBox's own knows no other way"
    assert len(_evicted(policy=VOLCANO)) == 6
    assert _evicted(policy=VOLCANO, wish=Wish(as_services=False)) == set()
    own = f"---\n{json.dumps({'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'c'}, 'data': {'volcano-scheduler.conf': VOLCANO}})}\n"
    assert _evicted(more=own) == set()
    assert len(_evicted(more=own, wish=Wish(as_services=True))) == 6


def test_classes_protect_what_their_queue_deserves_in_the_order_of_starts_as_in_the_running_platform() -> None:
    assert _evicted(classes="*") == set("234567")
    assert len(_evicted(classes="production")) == 6
    assert len(_evicted(classes="*", says="'true'")) == 6
    assert len(_evicted(classes="*", says="'false', volcano.sh/revocable-zone: '*'")) == 6, (
        "who may run where places are lent by the hour"
    )
