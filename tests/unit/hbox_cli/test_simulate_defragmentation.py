"""Moves have to pay, in a saved cluster as in the running platform (tests/e2e/test_e2e_defragmentation.py): three nodes of 8 cards with two singles on each;
a gang of two pods with 8 cards each waits."""

import json
from typing import Any

import pytest

from hbox_cli.simulate.documents import objects_of
from hbox_cli.simulate.running import Wish, outcome_of
from hbox_common.clock import wall_s
from hbox_common.kube import rfc3339
from hbox_common.yamltext import contents_of
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy.registry import PLUGINS

from ...policies import MOVING

POLICY = (
    MOVING
    + """\
configurations:
- name: consolidate
  arguments: {%s}
"""
)
NODE = """
apiVersion: v1
kind: Node
metadata: {name: n%s}
status: {allocatable: {cpu: 64, memory: 512Gi, pods: 110, nvidia.com/gpu: 8}, conditions: [{type: Ready, status: "True"}]}
---"""
QUEUE = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: default, annotations: {%s}}
spec: {weight: 1}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: wide, namespace: ns, uid: wide, creationTimestamp: "2026-01-01T00:00:00Z"}
spec: {minMember: 2, queue: default}
status: {phase: Inqueue}
---"""
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: ns, uid: {name}, creationTimestamp: "2026-01-01T00:00:00Z", annotations: {{{notes}}}}}
spec:
  schedulerName: hbox
  {node}
  containers: [{{name: c, resources: {{requests: {{cpu: 1}}, limits: {{nvidia.com/gpu: {cards}}}}}}}]
status: {status}
---"""


def outcome(arguments: str, *, ran_s: float, queue: str = "") -> Any:
    status = f'{{phase: Running, startTime: "{rfc3339(wall_s() - ran_s)}"}}'
    text = "".join(NODE % n for n in range(3)) + QUEUE % queue
    for n in range(3):
        for s in range(2):
            notes = '"volcano.sh/preemptable": "true"'
            text += POD.format(name=f"s{n}{s}", notes=notes, node=f"nodeName: n{n}", cards=1, status=status)
    for number in range(2):
        notes = "scheduling.k8s.io/group-name: wide"
        text += POD.format(name=f"wide-{number}", notes=notes, node="", cards=8, status="{phase: Pending}")
    conf = parse_conf(POLICY % arguments, plugins=list(PLUGINS))
    row = outcome_of("f", objects_of(contents_of(text.encode())), Wish(now=wall_s()), conf)
    assert row["error"] is None
    return row


def why(row: Any) -> str:
    return str(row["pending"]["ns/wide-0"]["message"])


def test_singles_move_for_a_gang_where_that_pays() -> None:
    row = outcome("mode: on", ran_s=600)
    assert len(row["evictions"]) == 4
    assert {one["reason"] for one in row["evictions"]} == {"Moved"}


@pytest.mark.parametrize(
    ("arguments", "ran_s", "words"),
    [
        ("horizon: 1s", 600, "moving 4 pods would make room for it, which costs more than it gains: gains 16 cards"),
        ("mode: on", 5 * 3600, "4 pods with 4 cards move and lose 20 card-hours"),
        ("mode: preview", 600, "which pays, but the policy has mode: preview"),
        (
            "maxMovesPerHour: 3",
            600,
            "which has to wait, for 0 pods were moved within the last hour, and 4 more would be above 3",
        ),
    ],
)
def test_nobody_moves_where_it_does_not_and_the_gang_is_told_why(arguments: str, ran_s: float, words: str) -> None:
    row = outcome(arguments, ran_s=ran_s)
    assert row["evictions"] == []
    assert words in why(row)


def test_nobody_moves_within_its_minimum_run_time() -> None:
    assert outcome("mode: on", ran_s=20, queue="hbox.io/min-run-time: 30s")["evictions"] == []
    assert len(outcome("mode: on", ran_s=40, queue="hbox.io/min-run-time: 30s")["evictions"]) == 4


GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
SHARED_NODE = """
apiVersion: v1
kind: Node
metadata: {name: n%s, annotations: {hami.io/node-nvidia-register: '%s'}}
status: {allocatable: {cpu: 64, memory: 512Gi, pods: 110, nvidia.com/gpu: 20}, conditions: [{type: Ready, status: "True"}]}
---"""


def slices(mode: str, *, ran_s: float, whole: int) -> Any:
    """Two nodes of two cards with a slice on each of the four; a pod waits that asks for `whole` cards."""
    text = ""
    for n in range(2):
        cards = [
            {
                "id": f"GPU-{n}-{i}",
                "index": i,
                "count": 10,
                "devmem": 40_960,
                "devcore": 100,
                "type": "NVIDIA-A100",
                "health": True,
            }
            for i in range(2)
        ]
        text += SHARED_NODE % (n, json.dumps(cards))
    status = f'{{phase: Running, startTime: "{rfc3339(wall_s() - ran_s)}"}}'
    part = f"1, {MEMORY}: 4000, {CORES}: 10"
    for n in range(2):
        for i in range(2):
            notes = f'hami.io/vgpu-devices-allocated: "GPU-{n}-{i},NVIDIA,4000,10:;"'
            text += POD.format(name=f"s{n}{i}", notes=notes, node=f"nodeName: n{n}", cards=part, status=status)
    text += POD.format(name="whole", notes="", node="", cards=whole, status="{phase: Pending}")
    conf = parse_conf(POLICY % f"mode: {mode}", plugins=list(PLUGINS))
    row = outcome_of("f", objects_of(contents_of(text.encode())), Wish(now=wall_s()), conf)
    assert row["error"] is None
    return row


@pytest.mark.parametrize("whole", [1, 2])
def test_slices_move_together_for_a_pod_that_needs_whole_cards(whole: int) -> None:
    row = slices("on", ran_s=600, whole=whole)
    moved = {one["pod"]: one["node"] for one in row["evictions"]}
    places = {one["pod"]: one["node"] for one in row["nominations"]}
    [left] = set(moved.values())
    assert len(moved) == whole, "no more than the cards that it needs have slices"
    assert places["ns/whole"] == left
    if whole == 2:
        assert {places[pod] for pod in moved} == {"n0", "n1"} - {left}


def test_slices_that_may_move_are_only_told_of_under_preview() -> None:
    row = slices("preview", ran_s=600, whole=2)
    assert row["evictions"] == []
    said = row["pending"]["ns/whole"]["message"]
    assert "moving 2 pods would make room for it, which pays, but the policy has mode: preview: gains 2 cards" in said
    assert "costs more than it gains" in slices("on", ran_s=5 * 3600, whole=2)["pending"]["ns/whole"]["message"]
