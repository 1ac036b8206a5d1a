"""Files that are almost right: whatever stands in them, there is an outcome or an error that names its place, never a crash."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest

from hbox_cli.simulate.documents import objects_of
from hbox_cli.simulate.running import Wish, outcome_of
from hbox_common.errors import HBoxError
from hbox_common.yamltext import contents_of

Path: TypeAlias = tuple[str | int, ...]

CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {zone: a, kubernetes.io/hostname: n1}}
spec: {taints: [{key: k, value: v, effect: NoSchedule}]}
status: {allocatable: {cpu: 4, memory: 8Gi, pods: 110, nvidia.com/gpu: 2}, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Node
metadata:
  name: n2
  annotations: {hami.io/node-nvidia-register: '[{"id":"GPU-0","count":10,"devmem":1000,"type":"NVIDIA-A","health":true}]'}
status: {allocatable: {cpu: 4, memory: 8Gi, pods: 110, nvidia.com/gpu: 10}}
---
apiVersion: topology.volcano.sh/v1alpha1
kind: HyperNode
metadata: {name: s0}
spec:
  tier: 1
  members:
  - {type: Node, selector: {exactMatch: {name: n1}}}
  - {type: Node, selector: {regexMatch: {pattern: "n[2-9]"}}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: q}
spec: {weight: 2, capability: {cpu: 6}, deserved: {nvidia.com/gpu: 2}, guarantee: {resource: {cpu: 1}}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 100
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: g, creationTimestamp: 2026-01-01T00:00:00Z}
spec:
  minMember: 2
  minTaskMember: {w: 1}
  minResources: {cpu: 2}
  queue: q
  priorityClassName: high
  networkTopology: {mode: hard, highestTierAllowed: 1}
  subGroupPolicy: [{name: s, subGroupSize: 1, matchLabelKeys: [k]}]
status: {phase: Pending}
---
apiVersion: v1
kind: Pod
metadata: {name: a, labels: {k: x, volcano.sh/task-spec: w}, annotations: {scheduling.k8s.io/group-name: g}}
spec:
  schedulerName: hbox
  tolerations: [{key: k, operator: Exists}]
  containers: [{name: c, ports: [{hostPort: 80}], resources: {requests: {cpu: 1}, limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 100}}}]
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}]}
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {k: x}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: b, labels: {k: x}, annotations: {scheduling.k8s.io/group-name: g}}
spec:
  schedulerName: hbox
  containers: [{name: c, resources: {requests: {cpu: 1, memory: 1G}}}]
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {k: x}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: r, annotations: {"hami.io/vgpu-devices-allocated": "GPU-0,NVIDIA,300,30:;"}}
spec: {schedulerName: hbox, nodeName: n2, priority: 1, containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 300}}}]}
status: {phase: Running, startTime: 2026-01-01T00:00:00Z}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: d}
spec: {selector: {matchLabels: {k: x}}}
status: {disruptionsAllowed: 1}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: u}
spec: {hard: {requests.cpu: 10}}
---
apiVersion: hbox.io/v1alpha1
kind: Simulation
metadata: {name: s}
spec: {cycles: 2, requeueEvicted: true, ageSeconds: {default/r: 5}}
"""

POLICY = """
actions: "enqueue, allocate, backfill, reclaim, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins:
  - {name: predicates}
  - {name: capacity}
  - {name: network-topology-aware}
  - {name: nodeorder}
  - {name: binpack, arguments: {binpack.weight: 10}}
"""

ODD: tuple[Any, ...] = (
    None, "", "x", "-1", "9Ei", "1e30", "\x00", "a" * 300, "2026-13-01",
    -1, 0, 3, 1.5, 10**30, -(2**62), True, [], [1], [None], ["a"], {}, {"a": 1}, {"a": "b"},
)  # fmt: skip


def places(value: Any, here: Path = ()) -> Iterator[Path]:
    yield here
    if isinstance(value, dict):
        for key, one in value.items():
            yield from places(one, (*here, key))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from places(one, (*here, index))


def spoiled(contents: list[Any], chance: random.Random) -> list[Any]:
    """One to three things deleted, or something odd in their place."""
    contents = copy.deepcopy(contents)
    for _ in range(chance.randint(1, 3)):
        *way, last = chance.choice([place for place in places(contents) if place])
        holder: Any = contents
        for step in way:
            holder = holder[step]
        if chance.random() < 0.3:
            del holder[last]
        else:
            holder[last] = copy.deepcopy(chance.choice(ODD))
    return contents


@pytest.fixture(scope="module")
def contents() -> list[Any]:
    policy = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"volcano-scheduler.conf": POLICY}}
    return [*contents_of(CLUSTER.encode()), policy]


def test_the_file_is_right_before_it_is_spoiled(contents: list[Any]) -> None:
    assert outcome_of("f", objects_of(contents), Wish(explain=True))["error"] is None


@pytest.mark.parametrize("seed", range(3))
def test_a_file_that_is_almost_right_has_an_outcome_or_an_error_of_ours(contents: list[Any], seed: int) -> None:
    chance = random.Random(seed)
    simulated = 0
    for _ in range(150):
        try:
            row = outcome_of("f", objects_of(spoiled(contents, chance)), Wish(explain=True))
        except HBoxError:
            continue
        simulated += 1
        json.dumps(row)
    assert 0 < simulated < 150
