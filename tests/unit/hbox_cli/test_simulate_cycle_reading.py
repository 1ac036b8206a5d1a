"""Kubernetes objects of a file into a cluster that cycles can run on."""

from collections.abc import Mapping
from typing import Any

import pytest

from hbox_cli.simulate.cluster_file import SavedCluster, cluster_of
from hbox_cli.simulate.documents import objects_of
from hbox_cli.simulate.running import Wish, outcome_of
from hbox_common.errors import InvalidRequest
from hbox_common.model import CardId, CardSlice, QueuePhase, TopologyMode, TopologyWish
from hbox_common.yamltext import contents_of
from hbox_scheduler.core.cluster.entities import Gang, Member, Status
from hbox_scheduler.core.framework import GroupPhase
from hbox_scheduler.core.framework.conf import parse_conf
from hbox_scheduler.core.policy.registry import PLUGINS

NOW = 1_800_000_000.0

NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {zone: a}}
status: {allocatable: {cpu: 4, memory: 8Gi, pods: 110, nvidia.com/gpu: 2}}
---
"""

QUEUE = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: q}
---
"""

GROUP = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: g, namespace: ns}
spec: {minMember: 2, queue: q}
---
"""


def pod(name: str, meta: str = "", spec: str = "", status: str = "", *, group: str = "g", scheduler: str = "hbox") -> str:
    notes = f"annotations: {{scheduling.k8s.io/group-name: {group}}}" if group and "annotations" not in meta else ""
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: ns, {", ".join(filter(None, (notes, meta)))}}}
spec: {{schedulerName: {scheduler}, containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}], {spec}}}
status: {{{status}}}
---
"""


def saved(text: str, **more: Any) -> SavedCluster:
    return cluster_of(objects_of(contents_of(text.encode())), **{"schedulers": {"hbox"}, "now": NOW, **more})


def gang(text: str, name: str = "g") -> Gang:
    return next(gang for gang in saved(text).cluster.gangs if gang.name == name)


def member(text: str, name: str = "p") -> Member:
    return next(m for gang in saved(text).cluster.gangs for m in gang.members if m.name == name)


def refused(text: str) -> str:
    with pytest.raises(InvalidRequest) as e:
        saved(text)
    return e.value.message


# Files


def test_kinds_that_scheduling_does_not_look_at_are_passed_over() -> None:
    other = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: 7}\n---\napiVersion: apps/v1\nkind: Queue\n---\n"
    assert saved(NODE + other).columns.names == ["n1"]


def test_a_file_of_such_kinds_alone_is_refused() -> None:
    assert refused("apiVersion: apps/v1\nkind: Deployment") == "the file has no object that scheduling looks at"


def test_an_object_that_stands_twice_is_refused() -> None:
    assert refused(NODE + QUEUE + NODE) == "document 3 (Node n1): metadata.name: the same object is in document 1"


# Nodes


def test_a_node_without_conditions_is_ready_and_one_that_is_not_ready_is_not() -> None:
    sick = NODE.replace("n1", "n2").replace("status: {", "status: {conditions: [{type: Ready, status: 'False'}], ")
    columns = saved(NODE + sick).columns
    assert columns.ready[:2].tolist() == [True, False]


def test_cards_of_a_node_are_counted_as_topology_collector_counts_them() -> None:
    (state,) = saved(NODE).columns.states[:1]
    assert state is not None
    assert [card.uuid for card in state.cards] == ["n1-0", "n1-1"]
    assert state.allocatable["nvidia.com/gpu"] == 2


def test_what_cannot_be_read_of_a_node_is_a_warning() -> None:
    broken = NODE.replace("labels:", "annotations: {hami.io/node-nvidia-register: what}, labels:")
    (warning,) = saved(broken).warnings
    assert warning.startswith("document 1 (Node n1): annotation hami.io/node-nvidia-register: ")


def test_unknown_fields_of_queues_and_podgroups_are_warnings() -> None:
    misspelt = (
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\nspec: {wieght: 3}\n"
        "---\napiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nmetadata: {name: g}\nspec: {minMembers: 3}\n"
    )
    assert saved(NODE + misspelt).warnings == (
        "document 2 (Queue q): spec.wieght: unknown field, ignored; did you mean spec.weight?",
        "document 3 (PodGroup g): spec.minMembers: unknown field, ignored; did you mean spec.minMember?",
    )


# Pods


@pytest.mark.parametrize(
    ("meta", "spec", "status", "expected"),
    [
        ("", "", "", Status.PENDING),
        ("", "", "phase: Pending", Status.PENDING),
        ("", "schedulingGates: [{name: x}]", "phase: Pending", Status.GATED),
        ("", "nodeName: n1", "phase: Pending", Status.BOUND),
        ("", "nodeName: n1", "phase: Running", Status.RUNNING),
        ("", "nodeName: n1", "phase: Unknown", Status.RUNNING),
        ("", "nodeName: n1", "phase: Succeeded", Status.SUCCEEDED),
        ("deletionTimestamp: 2026-01-01T00:00:00Z", "nodeName: n1", "phase: Failed", Status.FAILED),
        ("deletionTimestamp: 2026-01-01T00:00:00Z", "nodeName: n1", "phase: Running", Status.RELEASING),
        ("deletionTimestamp: 2026-01-01T00:00:00Z", "", "phase: Pending", Status.RELEASING),
    ],
)
def test_where_a_pod_stands(meta: str, spec: str, status: str, expected: Status) -> None:
    found = member(NODE + QUEUE + GROUP + pod("p", meta, spec, status))
    assert found.status is expected
    assert found.row == (0 if "nodeName" in spec else -1)


def test_a_pod_on_a_node_that_was_not_saved_has_no_row() -> None:
    assert member(NODE + QUEUE + GROUP + pod("p", spec="nodeName: gone", status="phase: Running")).row == -1


def test_what_a_pod_asks_for_is_kubernetes_own_sum() -> None:
    containers = (
        "containers: [{name: a, resources: {requests: {cpu: 500m}, limits: {cpu: 1, memory: 1Gi}}}, {name: b, resources: {requests: {cpu: 1}}}], "
        "initContainers: [{name: i, resources: {requests: {cpu: 3}}}]"
    )
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{schedulerName: hbox, {containers}}}\n---"
    found = saved(NODE + text)
    (p,) = found.cluster.gangs[0].members
    columns = found.columns.resources
    assert p.request[columns["cpu"]] == 3000
    assert p.request[columns["memory"]] == p.task.requests["memory"] > 0
    assert p.request[columns["pods"]] == 0
    assert len(p.request) == len(found.columns.allocatable)


def test_a_pod_without_requests_is_best_effort() -> None:
    assert member(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {schedulerName: hbox, containers: [{name: c}]}"
    ).best_effort


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("", 1),
        ("priority: 7", 7),
        ("priorityClassName: high", 100),
        ("priority: 7, priorityClassName: high", 7),
        ("priorityClassName: gone", 1),
    ],
)
def test_the_priority_of_a_pod_is_its_own_then_its_classes(spec: str, expected: int) -> None:
    high = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 100\n---\n"
    assert member(high + NODE + QUEUE + GROUP + pod("p", spec=spec)).priority == expected


def test_a_class_that_is_the_clusters_default_counts_for_pods_that_name_none() -> None:
    usual = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: usual}\nvalue: 5\nglobalDefault: true\npreemptionPolicy: Never\n---\n"
    found = member(usual + NODE + QUEUE + GROUP + pod("p"))
    assert (found.priority, found.never_preempts) == (5, True)


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ("labels: {}", True),
        ("labels: {volcano.sh/preemptable: 'false'}", False),
        ("labels: {volcano.sh/preemptable: 'T'}", True),
        ("labels: {volcano.sh/preemptable: 'maybe'}", False),
        ("labels: {volcano.sh/preemptable: 'false'}, annotations: {volcano.sh/preemptable: 'true'}", True),
        ("labels: {volcano.sh/preemptable: 'true'}, annotations: {volcano.sh/preemptable: 'false'}", False),
    ],
)
def test_a_pod_may_be_preempted_unless_it_says_no_and_its_annotation_counts_first(meta: str, expected: bool) -> None:
    assert member(NODE + pod("p", meta, group="")).preemptable is expected


@pytest.mark.parametrize("place", ["labels", "annotations"])
def test_the_role_of_a_pod_is_a_label_or_an_annotation(place: str) -> None:
    assert member(NODE + pod("p", f"{place}: {{volcano.sh/task-spec: ps}}", group="")).role == "ps"


def test_a_pod_says_when_it_started_or_the_simulation_says_how_long_ago() -> None:
    told = "apiVersion: hbox.io/v1alpha1\nkind: Simulation\nmetadata: {name: s}\nspec: {ageSeconds: {ns/old: 60}}\n---\n"
    text = (
        told
        + NODE
        + "".join(
            pod(name, spec="nodeName: n1", status=f"phase: Running, {start}", group="")
            for name, start in (("old", ""), ("own", "startTime: 2026-01-01T00:00:00Z"), ("none", ""))
        )
    )
    assert member(text, "old").started_at == NOW - 60
    assert member(text, "own").started_at == 1767225600.0
    assert member(text, "none").started_at is None


def fabric(words: str) -> SavedCluster:
    unit = (
        "apiVersion: topology.volcano.sh/v1alpha1\nkind: HyperNode\nmetadata: {name: u}\n"
        "spec: {tier: 1, members: [{type: Node, selector: {exactMatch: {name: n1}}}]}\n---\n"
    )
    return saved(
        f"apiVersion: hbox.io/v1alpha1\nkind: Simulation\nmetadata: {{name: s}}\nspec: {{fabric: {words}}}\n---\n{unit}{NODE}"
    )


def test_a_simulation_says_how_old_the_fabric_is_and_which_rails_are_down() -> None:
    assert fabric("{ageSeconds: 600}").cluster.facts.fabrics.old == {}
    assert fabric("{ageSeconds: 601}").cluster.facts.fabrics.old == {
        "u": "the fabric was not confirmed by its source for more than 600 s"
    }
    assert set(fabric("{ageSeconds: 9, maxAgeSeconds: 8}").cluster.facts.fabrics.old) == {"u"}
    assert fabric("{degradedRails: {n1: [3, 5, 3]}}").cluster.facts.fabrics.degraded == {"n1": 2}
    assert fabric("{}").cluster.facts.fabrics.degraded == {}


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("{ageSeconds: -1}", "spec.fabric.ageSeconds"),
        ("{ageSeconds: .nan}", "spec.fabric.ageSeconds"),
        ("{maxAgeSeconds: .inf}", "spec.fabric.maxAgeSeconds"),
        ("{ageSeconds: old}", "spec.fabric.ageSeconds"),
        ("{degradedRails: {n9: [1]}}", "there is no node n9"),
        ("{degradedRails: {n1: many}}", "degradedRails"),
    ],
)
def test_what_is_said_wrongly_of_a_fabric_is_named(words: str, what: str) -> None:
    with pytest.raises(InvalidRequest, match=what):
        fabric(words)


def test_running_pods_hold_cards() -> None:
    asks = "containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]"
    text = NODE + "".join(
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, annotations: {{{note}}}}}\n"
        f"spec: {{schedulerName: hbox, nodeName: n1, {asks}}}\nstatus: {{phase: Running}}\n---\n"
        for name, note in (("a", ""), ("b", "hbox.io/cards: '0:100:0'"))
    )
    assert member(text, "a").slices == (CardSlice(1, 100, 0, card=CardId("gpu:n1-1")),)
    assert member(text, "b").slices == (CardSlice(0, 100, 0, card=CardId("gpu:n1-0")),)


# Other schedulers


def test_pods_of_other_schedulers_hold_what_they_hold_and_nobody_takes_it_from_them() -> None:
    text = NODE + pod("p", spec="nodeName: n1", status="phase: Running", scheduler="other") + pod("w", scheduler="other")
    found = saved(text)
    (theirs,) = found.cluster.gangs
    assert [m.name for m in theirs.members] == ["p"]
    assert (theirs.queue, theirs.members[0].preemptable, theirs.members[0].row) == ("", False, 0)
    assert found.cluster.queues == []


def test_pods_of_a_scheduler_that_is_asked_for_are_ours() -> None:
    found = saved(NODE + pod("p", group="", scheduler="volcano"), schedulers={"volcano"})
    assert found.cluster.gangs[0].members[0].status is Status.PENDING


# Gangs


def test_a_pod_group_is_a_gang_with_all_that_it_says() -> None:
    found = gang(
        NODE
        + QUEUE
        + """
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata:
  name: g
  namespace: ns
  uid: u
  creationTimestamp: 2026-01-01T00:00:00Z
  annotations: {volcano.sh/preemptable: 'false', volcano.sh/job-allocated-hypernode: s0}
spec:
  minMember: 3
  minTaskMember: {ps: 1, worker: 2}
  minResources: {cpu: 3, nvidia.com/gpu: 2}
  queue: q
  networkTopology: {mode: soft, highestTierName: spine}
  subGroupPolicy:
  - name: s
    subGroupSize: 2
    minSubGroups: 1
    matchLabelKeys: [k]
    labelSelector: {matchLabels: {a: b}}
    networkTopology: {mode: hard, highestTierAllowed: 2}
status: {phase: Running}
---
"""
        + pod("p")
    )
    assert (found.id, found.queue, found.min_member, found.created_at) == ("u", "q", 3, 1767225600.0)
    assert (found.min_task_member, found.min_resources) == ({"ps": 1, "worker": 2}, {"cpu": 3000, "nvidia.com/gpu": 2})
    assert (found.phase, found.preemptable, found.allocated_domain) == (GroupPhase.RUNNING, False, "s0")
    assert found.topology == TopologyWish(TopologyMode.SOFT, None, "spine")
    (policy,) = found.sub_gang_policies
    assert (policy.name, policy.labels, policy.selector, policy.size, policy.min_sub_gangs) == ("s", ("k",), {"a": "b"}, 2, 1)
    assert policy.topology == TopologyWish(TopologyMode.HARD, 2)
    assert [m.name for m in found.members] == ["p"]


def test_a_pod_group_without_a_phase_waits_to_be_enqueued() -> None:
    assert gang(NODE + GROUP).phase is GroupPhase.PENDING


@pytest.mark.parametrize(("name", "expected"), [("high", 100), ("gone", 9), ("", 9)])
def test_the_priority_of_a_gang_is_its_classes_or_its_highest_pods(name: str, expected: int) -> None:
    high = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 100\n---\n"
    named = GROUP.replace("queue: q", f"queue: q, priorityClassName: '{name}'")
    assert gang(high + NODE + named + pod("p", spec="priority: 9") + pod("r")).priority == expected


def test_pods_that_name_a_pod_group_which_is_not_there_are_one_gang_with_a_problem() -> None:
    found = gang(NODE + pod("p") + pod("r"))
    assert [m.name for m in found.members] == ["p", "r"]
    assert found.problem.startswith("PodGroup ns/g not found")


def test_a_bare_pod_is_a_gang_of_one_in_the_queue_that_it_names() -> None:
    found = gang(NODE + pod("p", "annotations: {scheduling.volcano.sh/queue-name: q}", "priority: 4", group=""), "p")
    assert (found.queue, found.min_member, found.priority) == ("q", 1, 4)


def test_a_pod_that_cannot_be_placed_as_written_is_its_gangs_problem() -> None:
    wrong = pod("p").replace("cpu: 1", "cpu: lots")
    assert gang(NODE + QUEUE + GROUP + wrong).problem.startswith("pod p: container c: 'lots' is not a quantity")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("minMember: 2", "minMember: -1"), "spec.minMember: is -1"),
        (("minMember: 2", "minTaskMember: {a: -1}"), "spec.minTaskMember.a: is -1"),
        (("minMember: 2", "minResources: {cpu: x}"), "spec.minResources.cpu: 'x' is not a quantity"),
        (("minMember: 2", "networkTopology: {mode: firm}"), "spec.networkTopology.mode: is 'firm'"),
        (
            ("minMember: 2", "subGroupPolicy: [{networkTopology: {mode: firm}}]"),
            "spec.subGroupPolicy[0].networkTopology.mode: is 'firm'",
        ),
        (
            ("namespace: ns", "namespace: ns, creationTimestamp: soon"),
            "metadata.creationTimestamp: 'soon' is not a time in RFC 3339",
        ),
        (("queue: q}", "queue: q}\nstatus: {phase: Well}"), "status.phase: is 'Well'"),
    ],
)
def test_a_pod_group_that_is_wrong_is_named_with_its_field(change: tuple[str, str], said: str) -> None:
    assert refused(GROUP.replace(*change)) == f"document 1 (PodGroup ns/g): {said}"


# Queues


def test_a_queue_has_all_that_it_says() -> None:
    (queue,) = saved("""
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: q, annotations: {a: b}, creationTimestamp: 2026-01-01T00:00:00Z}
spec:
  weight: 3
  priority: 2
  parent: root
  reclaimable: false
  capability: {cpu: 1500m}
  deserved: {nvidia.com/gpu: 4}
  guarantee: {resource: {pods: 2}}
  affinity:
    nodeGroupAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [x], preferredDuringSchedulingIgnoredDuringExecution: [y, z]}
    nodeGroupAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [w]}
status: {state: Closing}
""").cluster.queues
    assert (queue.name, queue.weight, queue.priority, queue.parent, queue.reclaimable) == ("q", 3, 2, "root", False)
    assert (queue.capability, queue.deserved, queue.guarantee) == ({"cpu": 1500}, {"nvidia.com/gpu": 4}, {"pods": 2})
    assert (queue.phase, queue.created_at, queue.annotations) == (QueuePhase.CLOSED, 1767225600.0, {"a": "b"})
    assert queue.node_groups == {"requiredAffinity": ("x",), "preferredAffinity": ("y", "z"), "preferredAntiAffinity": ("w",)}


def test_the_default_queue_is_there_where_somebody_is_in_it() -> None:
    assert [q.name for q in saved(NODE + QUEUE + pod("p", group="")).cluster.queues] == ["q", "default"]
    assert [q.name for q in saved(NODE + QUEUE + GROUP).cluster.queues] == ["q"]
    assert saved(NODE + GROUP).cluster.queues == []


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("weight: 65536", "spec.weight: is 65536"),
        ("deserved: {cpu: -1}", "spec.deserved.cpu: -1 is negative"),
        ("guarantee: {resource: {cpu: a}}", "spec.guarantee.resource.cpu: 'a' is not a quantity"),
        ("capability: {cpu: true}", "spec.capability[...]: has to be a number or a string, not true or false"),
    ],
)
def test_a_queue_that_is_wrong_is_named_with_its_field(spec: str, said: str) -> None:
    assert refused(f"{QUEUE.rstrip('-' + chr(10))}\nspec: {{{spec}}}").startswith(f"document 1 (Queue q): {said}")


# HyperNodes


def hypernode(name: str, tier: int, *members: str, labels: str = "") -> str:
    listed = ", ".join(f"{{{one}}}" for one in members)
    return (
        "apiVersion: topology.volcano.sh/v1alpha1\nkind: HyperNode\n"
        f"metadata: {{name: {name}, labels: {{{labels}}}}}\nspec: {{tier: {tier}, members: [{listed}]}}\n---\n"
    )


NODES = NODE + NODE.replace("n1", "n2").replace("zone: a", "zone: b") + NODE.replace("n1", "m1")


def test_members_of_hypernodes_are_found_by_name_pattern_and_label() -> None:
    text = (
        NODES
        + hypernode(
            "s0",
            1,
            "type: Node, selector: {exactMatch: {name: m1}}",
            "type: Node, selector: {exactMatch: {name: gone}}",
            labels="k: v",
        )
        + hypernode("s1", 1, "type: Node, selector: {regexMatch: {pattern: ^n}}")
        + hypernode("s2", 1, "type: Node, selector: {labelMatch: {matchLabels: {zone: b}}}")
        + hypernode("s3", 1, "type: Node, selector: {labelMatch: {matchExpressions: [{key: zone, operator: In, values: [a]}]}}")
        + hypernode(
            "s4",
            2,
            "type: HyperNode, selector: {regexMatch: {pattern: 's[0-4]'}}",
            "type: HyperNode, selector: {exactMatch: {name: s1}}",
        )
    )
    found = {one.name: one for one in saved(text).cluster.facts.hypernodes}
    assert {name: one.nodes for name, one in found.items()} == {
        "s0": ("m1",), "s1": ("n1", "n2"), "s2": ("n2",), "s3": ("n1", "m1"), "s4": (),
    }  # fmt: skip
    assert (found["s4"].children, found["s4"].tier, found["s0"].labels) == (("s0", "s1", "s2", "s3"), 2, {"k": "v"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (hypernode("s", -1), "spec.tier: is -1"),
        (hypernode("s", 1, "type: Rack, selector: {exactMatch: {name: a}}"), "spec.members[0].type: is 'Rack'"),
        (
            hypernode("s", 1, "type: Node, selector: {}"),
            "spec.members[0].selector: names 0 of exactMatch, regexMatch or labelMatch",
        ),
        (
            hypernode("s", 1, "type: Node, selector: {exactMatch: {name: a}, regexMatch: {pattern: a}}"),
            "spec.members[0].selector: names 2 of exactMatch, regexMatch or labelMatch",
        ),
        (
            hypernode("s", 1, "type: Node, selector: {regexMatch: {pattern: '['}}"),
            "spec.members[0].selector.regexMatch.pattern: is no regular expression",
        ),
        (
            NODE + hypernode("s", 1, "type: Node, selector: {labelMatch: {matchExpressions: [{key: a, operator: Gt}]}}"),
            "spec.members[0].selector.labelMatch.matchExpressions: operator 'Gt'",
        ),
    ],
)
def test_a_hypernode_that_is_wrong_is_named_with_its_field(text: str, said: str) -> None:
    assert f"(HyperNode s): {said}" in refused(text)


# The rest


def test_budgets_quotas_and_namespaces() -> None:
    cluster = saved("""
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: b, namespace: ns}
spec: {selector: {matchLabels: {app: x}}}
status: {disruptionsAllowed: 2}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: r, namespace: ns}
spec: {hard: {requests.cpu: 2, limits.nvidia.com/gpumem: 100}}
status: {hard: {requests.cpu: 1}, used: {requests.cpu: 500m}}
---
apiVersion: v1
kind: Namespace
metadata: {name: ns, labels: {a: b}}
""").cluster
    (budget,), (quota,) = cluster.facts.budgets, cluster.facts.quotas
    assert (budget.namespace, budget.selector, budget.allowed) == ("ns", {"app": "x"}, 2)
    assert (quota.namespace, quota.hard, quota.used) == ("ns", {"requests.cpu": 1000}, {"requests.cpu": 500})
    assert cluster.facts.namespace_labels == {"ns": {"a": "b"}}


def config(name: str, data: Mapping[str, str]) -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {dict(data)}\n---\n"


def test_policy_and_devices_are_texts_of_a_config_map() -> None:
    found = saved(
        config("a", {"volcano-scheduler.conf": "x"}) + config("b", {"device-config.yaml": "y"}) + config("c", {"z": "z"})
    )
    assert (found.policy, found.device_config) == ("x", "y")
    assert saved(NODE).policy is None


def test_two_policies_in_one_file_are_refused() -> None:
    policy = {"volcano-scheduler.conf": "x"}
    assert refused(config("a", policy) + config("b", policy)).endswith("data.volcano-scheduler.conf: document 1 has one too")


SIMULATION = "apiVersion: hbox.io/v1alpha1\nkind: Simulation\nmetadata: {name: s}\nspec: {%s}\n---\n"


def test_a_simulation_says_how_many_cycles() -> None:
    options = saved(SIMULATION % "cycles: 3, requeueEvicted: true, beforeCycleWaitSeconds: 1.5").options
    assert (options.cycles, options.requeue_evicted, options.before_cycle_wait_seconds) == (3, True, 1.5)
    assert saved(NODE).options.cycles == 1


def test_a_simulation_that_is_wrong_is_refused() -> None:
    assert refused(SIMULATION % "cycles: 0").endswith("spec.cycles: is 0")
    assert refused(SIMULATION % "cycles: 10001").endswith("spec.cycles: is 10001")
    assert refused(SIMULATION % "" + (SIMULATION % "").replace("name: s", "name: t")).endswith("a file has one Simulation")


METRICS = """
apiVersion: metrics.k8s.io/v1beta1
kind: NodeMetrics
metadata: {name: n1}
timestamp: "2027-01-15T07:59:30Z"
window: 20s
usage: {cpu: 1000000000n, memory: 6Gi}
---
"""


def test_node_metrics_are_what_the_node_really_uses() -> None:
    [usage] = saved(NODE + METRICS + METRICS.replace("n1", "gone")).cluster.facts.usage
    assert (usage.node, usage.cpu_percent, usage.memory_percent, NOW - usage.at) == ("n1", 25.0, 75.0, 30.0)
    assert saved(NODE + METRICS.replace('timestamp: "2027-01-15T07:59:30Z"', "")).cluster.facts.usage[0].at == NOW


def test_wrong_node_metrics_are_named() -> None:
    with pytest.raises(InvalidRequest, match=r"document 2 \(NodeMetrics n1\): usage.cpu: "):
        saved(NODE + METRICS.replace("1000000000n", "much"))


@pytest.mark.parametrize(
    ("more", "now", "warns"),
    [
        (
            "",
            NOW,
            ["plugin usage: the file has no NodeMetrics, so no node is over a threshold (kubectl get nodes.metrics.k8s.io)"],
        ),
        (METRICS, NOW, None),
        (
            METRICS,
            NOW + 300,
            ["plugin usage: NodeMetrics of 1 nodes are older than 5 minutes and are ignored (--now sets the current time)"],
        ),
    ],
)
def test_a_usage_plugin_without_anything_to_go_by_is_told(more: str, now: float, warns: list[str] | None) -> None:
    wish = Wish(policy="tiers:\n- plugins: [{name: usage}]", now=now)
    conf = parse_conf(wish.policy or "", plugins=list(PLUGINS))
    row = outcome_of("f", objects_of(contents_of((NODE + more).encode())), wish, conf)
    assert row.get("warnings") == warns


@pytest.mark.parametrize(
    ("name", "value"), [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)]
)
def test_the_classes_of_the_system_are_known_without_their_objects(name: str, value: int) -> None:
    [member] = gang(NODE + QUEUE + GROUP + pod("p", spec=f"priorityClassName: {name}")).members
    assert member.priority == value


def test_a_pod_that_has_ended_is_nobodys_neighbour() -> None:
    apart = (
        "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
        "[{topologyKey: zone, labelSelector: {matchLabels: {app: web}}}]}}"
    )
    for phase, bindings in (("Running", []), ("Succeeded", ["ns/new"]), ("Failed", ["ns/new"])):
        there = pod("old", "labels: {app: web}", "nodeName: n1", f"phase: {phase}", group="", scheduler="other")
        row = outcome_of(
            "f",
            objects_of(contents_of((NODE + there + pod("new", spec=apart, group="")).encode())),
            Wish(schedulers={"hbox"}, now=NOW),
        )
        assert [binding["pod"] for binding in row["bindings"]] == bindings, phase
